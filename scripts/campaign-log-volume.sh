#!/usr/bin/env bash
# campaign-log-volume.sh [MINUTES=30] - servers of network namespaces fail under load, a fault a minute by chance; then the lines that
# each host logged are counted (200 in half an hour are allowed, in a shorter run 20 and their part of 180), and every move of a target
# must be told by the logs of the host that took it and of a client. Adds a row to docs/results/campaigns.csv. PACE: seconds from
# fault to fault (60). Needs root and FUSE.
set -euo pipefail
cd "$(dirname "$0")/.."
MINUTES=${1:-30} PACE=${PACE:-60}
case $MINUTES in '' | *[!0-9]* | 0) echo "campaign-log-volume: '$MINUTES' are no minutes" >&2; exit 2 ;; esac
lines=$((20 + 180 * MINUTES / 30))
target=${CARGO_TARGET_DIR:-target}
commit=$(git rev-parse --short=7 HEAD)
log=$target/log-volume-$commit.log
export CARGO_PROFILE_RELEASE_LTO=off
cargo build --release --quiet -p server
for l in nacred lfs lctl mkfs.nacre tunefs.nacre mount.nacre; do ln -sf nacre "$target/release/$l"; done
start=$SECONDS
NACRE_THRASH_MINUTES=$MINUTES NACRE_THRASH_PACE=$PACE NACRE_LOG_LINES=$lines scripts/apart.sh cargo test --release --quiet -p tests \
  --test real -- --test-threads=1 --nocapture failover::targets_move </dev/null 2>&1 | tee "$log" && rc=0 || rc=1
said=$(grep -E 'lines of logs|moves can be told|failovers, ' "$log" | tr -d '"' | tr '\n' ';' | cut -c1-400)
[ $rc = 0 ] && verdict=passed || verdict=FAILED
row="$(date -u +%F),$commit,log volume of $MINUTES minutes with a fault in $PACE s,\`scripts/campaign-log-volume.sh $MINUTES\`,$((SECONDS - start)),s,\"$verdict, $lines lines a host allowed: $said\""
echo "$row" >>docs/results/campaigns.csv
echo "campaign-log-volume: $verdict: $said"
exit $rc
