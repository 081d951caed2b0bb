#!/usr/bin/env bash
# Rounds of the coherence tests, too many for the test command. Results go into docs/results/campaigns.csv.
#
#   scripts/campaign-coherence.sh [ROUNDS=100] [LANES=2]
#
# Each round runs the tests of two mounts (data, attributes, names, appends, locks, mappings, large directories) with seeds of its own, each lane in
# namespaces of its own, so that several can run beside each other. One line a round; a failing round's output is kept. Needs root and FUSE.
set -euo pipefail
ROUNDS=${1:-100} LANES=${2:-2}
cd "$(dirname "$0")/.."
WORK=${WORK:-$(mktemp -d "${TMPDIR:-/tmp}/nacre-coherence.XXXXXX")}
cargo build --release --quiet --bin nacre
TEST=$(cargo test --release --quiet -p tests --test real --no-run --message-format=json | sed -n 's/.*"executable":"\([^"]*real-[^"]*\)".*/\1/p' | tail -1)
export TEST WORK

round() { # NUMBER, in the lane's namespaces
	local log=$WORK/round-$1.log start=$SECONDS
	if NACRE_SEED=$(($1 * 1000)) timeout 600 "$TEST" --test-threads=1 coherence mmap::stores_are_loaded mmap::cuts mmap::reads_see >"$log" 2>&1; then
		echo "round $1: $(grep -o '[0-9]* passed' "$log") in $((SECONDS - start)) s"
		rm "$log"
	else
		echo "round $1: FAILED, see $log"
	fi
}

lane() { # FIRST: this round and each LANES-th after it
	ip link set lo up
	export TMPDIR=$WORK/lane-$1 NACRE_RUN_DIR=$WORK/lane-$1/run
	mkdir -p "$TMPDIR"
	for ((r = $1; r <= ROUNDS; r += LANES)); do round "$r"; done
}
export -f round lane
# A lane's first process ends with this script, and its namespaces and all that runs in them with that process.
export ROUNDS LANES

for ((l = 1; l <= LANES; l++)); do
	unshare --mount --pid --net --fork --kill-child --mount-proc bash -c "lane $l" &
done | tee "$WORK/rounds.txt"
wait
passed=$(grep -c ' passed in ' "$WORK/rounds.txt" || true)
echo "$passed of $ROUNDS rounds passed; logs of others in $WORK"
[ "$passed" = "$ROUNDS" ]
