#!/usr/bin/env bash
# campaign.sh [STEP…] - what an issue ends with, on one commit: more of what the test command samples, about two hours on two
# cores. Each step prints a row for docs/results/campaigns.csv when it is done; a step that was done on this commit is not done
# again, so that a campaign which was ended goes on. `MINUTES`, `SEEDS`, `ROUNDS` change how long thrash, the simulator and the
# coherence rounds take, `OPERATIONS` and `FILES` how large the drills of the changelog and of a purge are. The last line says whether all is well. Needs root and FUSE.
set -uo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
commit=$(git rev-parse --short=7 HEAD)
[ -z "$(git status --porcelain --untracked-files=no)" ] || echo "campaign: the tree has changes that $commit has not" >&2
SEEDS=${SEEDS:-2000} MINUTES=${MINUTES:-10} ROUNDS=${ROUNDS:-20} OPERATIONS=${OPERATIONS:-100000} FILES=${FILES:-200000}
work=$target/campaign/$commit
mkdir -p "$work"
work=$(cd "$work" && pwd)
sim=$target/release/nacre-sim
export CARGO_PROFILE_RELEASE_LTO=off

# real TEST…: tests of real processes
real() {
  scripts/apart.sh cargo test --release -p tests --test real -- --test-threads=1 --nocapture "$@"
}

# in_two A B: two halves of a step, as there are two cores
in_two() {
  local first second
  eval "$1" >"$work/half" 2>&1 & first=$!
  eval "$2"
  second=$?
  wait $first
  first=$?
  cat "$work/half"
  return $((first | second))
}

# Seeds that no gate tries: behind the windows, which end at 51,000,500.
seeds() {
  local first=$((100000001 + (16#$commit % 100000) * SEEDS)) half=$((SEEDS / 2))
  in_two "$sim --first $first --seeds $half" "$sim --first $((first + half)) --seeds $half"
}
planted() {
  in_two "NACRE_PLANTED_PART=0/2 cargo test --release -p sim --test planted" \
    "NACRE_PLANTED_PART=1/2 cargo test --release -p sim --no-fail-fast"
}
points() { in_two "$sim --crash-points --stride 3 --part 0/2" "$sim --crash-points --stride 3 --part 1/2"; }
hostile() {
  in_two "$sim --hostile --seeds 1000000 --seconds 300 --first 200000001" \
    "$sim --hostile --seeds 1000000 --seconds 300 --first 300000001"
}
conformance() { real posix:: privileges:: users::; }
coherence() { mkdir -p "$work/coherence" && WORK=$work/coherence scripts/campaign-coherence.sh "$ROUNDS" 2; }
kills() { real kill::; }
layouts() { real layouts:: migrate:: drain::; }
changelog() { NACRE_CHANGELOG_OPS=$OPERATIONS NACRE_CHANGELOG_KILLS=$((OPERATIONS / 3333)) real changelog_drill::; }
purge() { NACRE_PURGE_FILES=$FILES real purge_drill::; }
thrash() { scripts/apart.sh make --no-print-directory thrash "MINUTES=$MINUTES"; }

# figure STEP LOG: what a log says in a line
figure() {
  case $1 in
  seeds | hostile) grep -E '^[0-9]+ (seeds|points|crash points)' "$2" | tr '\n' ';' ;;
  points) grep -E '^[0-9]+ workloads' "$2" | awk '$1 < last { print line } { last = $1; line = $0 } END { print line }' | tr '\n' ';' ;;
  coherence) tail -1 "$2" ;;
  changelog | purge) grep -E '^([0-9]+ (operations|files) |the oldest |purged )' "$2" | tr '\n' ';' ;;
  *) grep -hE '^test result|^pjdfstest|failovers' "$2" | grep -v ' 0 passed; 0 failed' | sed 's/; 0 measured.*//' | tr '\n' ';' ;;
  esac | tr -d '"' | cut -c1-400
}

all="seeds planted points hostile conformance kills layouts changelog purge coherence thrash"
[ $# -gt 0 ] || set -- $all
for step in "$@"; do
  case " $all " in *" $step "*) ;; *) echo "campaign: no step '$step'; there are: $all" >&2; exit 2 ;; esac
done
# Where tests run there is no network.
scripts/install-test-deps.sh >"$work/packages.log" 2>&1 || { echo "campaign: not all that tests need can be installed: $work/packages.log" >&2; exit 2; }
cargo build --release --quiet -p sim --bin nacre-sim && make --no-print-directory build >/dev/null &&
  cargo test --release --quiet -p tests --no-run || exit 2
bad=0
for step in "$@"; do
  log=$work/$step.log
  if [ ! -f "$work/$step.row" ]; then
    start=$SECONDS
    if "$step" >"$log" 2>&1 </dev/null; then verdict=passed; else verdict="FAILED, see $log"; fi
    row="$(date -u +%F),$commit,$step,\`scripts/campaign.sh $step\`,$((SECONDS - start)),s,\"$verdict: $(figure "$step" "$log")\""
    echo "$row"
    [ "$verdict" = passed ] || { bad=1; continue; }
    echo "$row" >"$work/$step.row"
  else
    cat "$work/$step.row"
  fi
done
[ $bad = 0 ] && echo "campaign: all is well on $commit" || echo "campaign: not well on $commit; logs: $work"
exit $bad
