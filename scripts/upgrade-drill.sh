#!/usr/bin/env bash
# upgrade-drill.sh COMMIT - a rolling upgrade from the product of an older commit to this one under load, and back if that opens what
# this one leaves: tests/tests/real/upgrade.rs. With one that cannot meet this (decision 0098) all is stopped in between. It is built in a work tree of its own below TARGET/upgrade, which stays, so
# that a second run builds nothing. Prints what is done, a verdict, and adds a row to docs/results/campaigns.csv.
# DWELL: seconds that old and new stand beside each other after each step (10). NACRE_SEED: another load. Needs root and FUSE.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { echo "upgrade-drill: $*" >&2; exit 2; }
[ $# = 1 ] && [ -n "$1" ] || die "which commit? make upgrade-drill FROM=COMMIT"
old=$(git rev-parse --verify --quiet --short=7 "$1^{commit}") || die "there is no commit '$1' here"
git merge-base --is-ancestor "$old" HEAD || die "'$1' ($old) is not older than this one: choose one that 'git log' shows"
new=$(git rev-parse --short=7 HEAD)
[ -z "$(git status --porcelain --untracked-files=no)" ] || echo "upgrade-drill: the tree has changes that $new has not" >&2
DWELL=${DWELL:-10}
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/upgrade/$old"
target=$(cd "$target" && pwd)
work=$target/upgrade/$old
export CARGO_PROFILE_RELEASE_LTO=off

git worktree prune
[ -e "$work/tree/Cargo.toml" ] || git worktree add --quiet --force --detach "$work/tree" "$old"
[ "$(git -C "$work/tree" rev-parse --short=7 HEAD)" = "$old" ] || die "$work/tree is not at $old: remove it (git worktree remove --force)"
if [ "$(cat "$work/built" 2>/dev/null)" != "$old" ]; then
  echo "upgrade-drill: building $old (log: $work/build.log)"
  (cd "$work/tree" && CARGO_TARGET_DIR=$work/target cargo build --release --locked -p server) >"$work/build.log" 2>&1 ||
    { tail -20 "$work/build.log" >&2; die "$old does not build here"; }
  for l in nacred lfs lctl mkfs.nacre tunefs.nacre mount.nacre; do ln -sf nacre "$work/target/release/$l"; done
  echo "$old" >"$work/built"
fi
echo "upgrade-drill: building $new"
make --no-print-directory build >"$work/new.log" 2>&1 || { tail -20 "$work/new.log" >&2; die "$new does not build"; }
scripts/install-test-deps.sh >"$work/packages.log" 2>&1 || die "not all that tests need can be installed: $work/packages.log"
cargo test --release --quiet -p tests --test real --no-run >>"$work/new.log" 2>&1 || die "the tests do not build: $work/new.log"

start=$SECONDS log=$work/drill.log
NACRE_OLD_PROGRAMS=$work/target/release NACRE_DWELL_SECONDS=$DWELL scripts/apart.sh cargo test --release --quiet -p tests --test real -- \
  --ignored --nocapture --test-threads=1 upgrade:: </dev/null 2>&1 | tee "$log" && rc=0 || rc=1
took=$((SECONDS - start))
said=$(sed -n 's/^upgrade drill: //p' "$log" | tr -d '"' | cut -c1-400)
if [ $rc = 0 ]; then verdict="passed: $said"; else verdict="FAILED: $(grep -m1 -E 'FAILED: |^Error: ' "$log" | tr -d '"' | cut -c1-300)"; fi
row="$(date -u +%F),$new,\"upgrade: $old to $new, daemon by daemon, under load\",\`make upgrade-drill FROM=$old\`,$took,s,\"$verdict\""
echo "$row" >>docs/results/campaigns.csv
echo "upgrade-drill: $verdict ($took s; row added to docs/results/campaigns.csv; log: $log)"
exit $rc
