#!/usr/bin/env bash
# test.sh all|check|lint|beside - what `make test`, `make check` and `make lint` run; `beside` is a part of the first. Each stage
# prints a line: what passed, its wall and CPU seconds, and the CPU seconds it may take (scripts/budgets). What it printed itself
# is shown when it fails, and kept in TARGET/test-logs. The last line is 'N passed, N failed'.
set -u
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/test-logs"
[ "${1:-all}" = beside ] || rm -f "$target"/test-logs/*.seconds "$target"/test-logs/*seeds.log
logs=$(cd "$target/test-logs" && pwd)
# The gate repeats: property tests draw the same cases each time. Unset it, or give another, to draw others.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED-20261121}
[ -n "$PROPTEST_RNG_SEED" ] || unset PROPTEST_RNG_SEED
# What the gate runs is built without a second optimisation over each crate's parts ('thin-local LTO'): a quarter less to compile.
# What is installed has it: without, the bench suite's geometric mean is two of a hundred lower, rows of small fsyncs up to 20.
export CARGO_PROFILE_RELEASE_LTO=off
# Seconds for the simulator's seeds: what they take on the reference machine, and half as much again.
seeds_seconds=${NACRE_SIM_SECONDS:-300}
# Where a program that root ran with `-o /dev/null` renamed a file onto it, all that reads from there, or writes to it, fails.
if ! [ -c /dev/null ] && [ "$(id -u)" = 0 ]; then
  echo "/dev/null was not the null device: it is made anew."
  rm -f /dev/null && mknod -m 666 /dev/null c 1 3
fi
passed=0 failed=0 failures=() failed_logs=() over_budget=()

# in_two LOG ARGUMENTS ARGUMENTS: the simulator in two processes, as there are two cores
in_two() {
  local sim=$target/release/nacre-sim first second rc
  # shellcheck disable=SC2086
  "$sim" $2 >"$logs/$1.1" & first=$!
  # shellcheck disable=SC2086
  "$sim" $3 >"$logs/$1.2"
  second=$?
  wait "$first" && [ $second = 0 ]
  rc=$?
  cat "$logs/$1.1" "$logs/$1.2"
  return $rc
}

# repeats N: the same seeds in two processes give the same trace hashes
repeats() {
  cargo build --release -p sim --bin nacre-sim && in_two hashes "--seeds $1 --hashes" "--seeds $1 --hashes" >/dev/null &&
    grep -c trace "$logs/hashes.1" && cmp "$logs/hashes.1" "$logs/hashes.2"
}

# window N: the first of N seeds that nobody tried before: they move with the commit
window() {
  local commit
  commit=$(git rev-parse --short=7 HEAD 2>/dev/null) || commit=0
  echo $((1000001 + (16#$commit % 100000) * $1))
}

# campaign FIXED FIRST N: seeds 1..FIXED, which each gate runs, and beside them N from FIRST on. Each part must meet every fault.
# A machine that is too slow for all of them in `seeds_seconds` runs fewer: the last lines of the gate say how many.
campaign() {
  cargo build --release -p sim --bin nacre-sim &&
    in_two seeds "--seeds $1 --seconds $seeds_seconds" "--first $2 --seeds $3 --seconds $seeds_seconds"
}

# fewer_seeds LOG: what `campaign` left out
fewer_seeds() {
  sed -n 's/^The time is over: \(.*\)\.$/\1/p' "$1" | while read -r line; do
    echo "Simulator: no more than $line in ${seeds_seconds} s here; make sim and make campaign run all."
  done
}

# corpus: what is in crates/sim/tests, but for planted bugs
corpus() {
  cargo test --release -p sim --no-fail-fast -- --skip every_planted_bug_is_found
}

# planted: every planted bug is found; in eight parts, two at a time, as some take much longer than others
planted() {
  local rc
  rm -f "$logs"/planted.[0-9]
  # shellcheck disable=SC2016
  seq 0 7 | xargs -P 2 -I '{}' sh -c 'NACRE_PLANTED_PART={}/8 exec cargo test --release -p sim --test planted >"$0.{}" 2>&1' "$logs/planted"
  rc=$?
  cat "$logs"/planted.[0-9]
  return $rc
}

# hostile SECONDS: messages of every kind with any contents, in two processes, beside an honest client
hostile() {
  in_two hostile "--hostile --seeds 1000000 --seconds $1" "--hostile --seeds 1000000 --seconds $1 --first $(window 1000000)"
}

# crash_points STRIDE: workloads of one and two operations
crash_points() {
  in_two points "--crash-points --stride $1 --part 0/2" "--crash-points --stride $1 --part 1/2"
}

# without_stacks LOG: frames of call stacks bury what was said before them
without_stacks() {
  awk '/[Ss]tack backtrace:$/ { frames = 1; next }
    frames && /^ +([0-9]+: |at )/ { next }
    { frames = 0; print }' "$1"
}

# cpu_seconds VARIABLE: those of all processes so far that this shell, or a child of it, waited for (daemons are not among them).
# In a pipe `times` would know nothing of them.
cpu_seconds() {
  times >"$logs/times"
  printf -v "$1" %s "$(awk 'NR == 2 { gsub(/[ms]/, " "); print int($1 * 60 + $2 + $3 * 60 + $4) }' "$logs/times")"
}

# stage KEY NAME COMMAND…: one check, or as many as the test runner in it counts. KEY names its budget, and its log.
stage() {
  local key=$1 name=$2 log start before after cpu budget spent rc p f
  shift 2
  log=$logs/$key.log
  budget=$(awk -v k="$key" '$1 == k { print $2 }' scripts/budgets)
  start=$SECONDS
  cpu_seconds before
  printf '%-46s ' "$name"
  "$@" >"$log" 2>&1 </dev/null
  rc=$?
  cpu_seconds after
  cpu=$((after - before - $(of_parts "$key")))
  p=$(sed -n 's/^test result: .* \([0-9][0-9]*\) passed; .*/\1/p' "$log" | awk '{s+=$1} END {print s+0}')
  f=$(sed -n 's/^test result: .* \([0-9][0-9]*\) failed; .*/\1/p' "$log" | awk '{s+=$1} END {print s+0}')
  [ $((p + f)) -gt 0 ] || { [ $rc = 0 ] && p=1 || f=1; }
  [ $rc = 0 ] || [ "$f" -gt 0 ] || f=1
  passed=$((passed + p)) failed=$((failed + f))
  spent=$(printf '%4ss, CPU %4ss of %s' $((SECONDS - start)) "$cpu" "${budget:-?}")
  if [ -n "$budget" ] && [ "$cpu" -gt $((budget * 5 / 4)) ]; then over_budget+=("$name: CPU $cpu s of $budget"); fi
  if [ $rc = 0 ]; then
    printf 'ok      %5s passed  %s\n' "$p" "$spent"
  else
    printf 'FAILED  %5s failed  %s  %s\n' "$f" "$spent" "$log"
    failures+=("$name") failed_logs+=("$log")
    without_stacks "$log" | tail -n "${NACRE_TEST_TAIL:-50}" | sed 's/^/    /'
  fi
  return $rc
}

# of_parts KEY: CPU seconds that were counted where they were waited for: they are those of the parts
of_parts() {
  local keys=$1 sign=-1 k
  [ "$1" != real ] || keys="points hostile fuzz planted" sign=1
  for k in $keys; do [ ! -f "$logs/$k.seconds" ] || cat "$logs/$k.seconds"; done |
    awk -v sign=$sign '{ s += $2 + $3 } END { print int(s) * sign }'
}

# why LOG: the names of failing tests, and what they said, a few lines each with all causes; at the very end, where a reader looks.
# A panic of a test that passed was meant.
why() {
  sed -n 's/^test \(.*\) \.\.\. FAILED.*/    FAILED: \1/p' "$1"
  without_stacks "$1" | awk -v log_of="$1" '
    BEGIN { while ((getline line < log_of) > 0) if (line ~ /^test .* \.\.\. ok/) { split(line, word, " "); fine[word[2]] = 1 } }
    /^thread .* panicked at / { split($0, part, "\047"); if (part[2] in fine) { left = 0; causes = 0; next } }
    /^Error: |panicked at |^FAILED: |^seed [0-9]+: (VIOLATION|again with)/ { left = 4; causes = 12 }
    /^Caused by:/ { left = 1 }
    left > 0 { print "    " substr($0, 1, 300); left--; if (++shown >= 60) exit; next }
    causes > 0 && /^ +[0-9]+: / { print "    " substr($0, 1, 300); causes-- }
    /^---- / { causes = 0 }'
}

lint() {
  if cargo fmt --version >/dev/null 2>&1; then stage format 'formatting' cargo fmt --all --check; fi
  if cargo clippy --version >/dev/null 2>&1; then
    stage clippy 'clippy' cargo clippy --quiet --release --workspace --all-targets -- -D warnings
  fi
  stage tidy 'rules of the house (xtask tidy)' cargo run --release --quiet -p xtask -- tidy
}

unit_tests() {
  stage unit 'unit, property and crash-image tests' \
    cargo test --release --workspace --exclude tests --exclude sim --no-fail-fast
}

# The tests of real processes that say soonest that something is broken.
smoke="up_down::files_survive_down_and_up up_down::mistakes_have_words bad_input::listeners_survive_garbage
  coherence_names::attributes_changed_on_one_mount_are_seen_on_the_other lfs_lctl::layouts_are_set_shown_and_refused
  lfs_lctl::small_files_lie_on_the_mdt kernel::locks_go_with_their_descriptor mount_helper::proc_mounts_shows_what_was_asked_for
  programs::git_clone_and_fsck programs::sqlite_in_both_journal_modes"

# Tests that keep both processors busy by themselves: nothing runs beside them.
alone="posix:: programs:: bench:: lfs_lctl::processors_stay_awake"
# Tests that measure how long somebody waits. They wait more than they work, so two lanes of them run beside each other, and
# nothing else.
calm=(
  "ha_page::the_page_on_high_availability_is_true"
  "ha_page::the_page_on_high_availability_with_etcd_is_true kernel:: abort:: waiting:: config::"
)
# The others run in these lanes and in one more of about the same length, which has what is named nowhere: mostly they wait for
# terms to end.
lanes=(
  "pacemaker:: mmap:: coherence:: coherence_names:: wide:: kill:: dashboard:: copy:: changelog_drill::"
  "controller:: failover:: ha:: hostile:: long_way:: mmp:: pause:: recovery_page:: removed:: told:: inodes:: up_down:: watch::
    large:: lifecycle:: disk_errors:: snapshot_hosts::"
)

# real ARGUMENTS…: tests of real processes, one after the other; when each ended
real() {
  local since=$SECONDS line
  scripts/apart.sh cargo test --release -p tests -- --test-threads=1 "$@" | while IFS= read -r line; do
    case $line in "test result: "*) ;; "test "* | ok | FAILED) line+=" [$((SECONDS - since)) s]" ;; esac
    printf '%s\n' "$line"
  done
  return "${PIPESTATUS[0]}"
}

smoke_tests() {
  # shellcheck disable=SC2086
  real --exact $smoke
}

# in_lanes NAME LANE…: tests of real processes, each lane beside the others; what they print is in real.NAME0, real.NAME1 …
in_lanes() {
  local name=$1 i=0 rc=0 lane pids=()
  shift
  for lane in "$@"; do
    # shellcheck disable=SC2086
    real $lane >"$logs/real.$name$i" 2>&1 &
    pids+=($!) i=$((i + 1))
  done
  for i in "${pids[@]}"; do wait "$i" || rc=1; done
  return $rc
}

# part KEY COMMAND…: a stage's work, done beside another stage: what it printed, its status and its seconds, for `told` and `stage`
part() {
  local key=$1 TIMEFORMAT='%0R %U %S'
  shift
  rm -f "$logs/$key.rc"
  { time "$@" >"$logs/$key.out" 2>&1; echo $? >"$logs/$key.rc"; } 2>"$logs/$key.seconds"
}

# told KEY: what a `part` printed, with its status
told() {
  cat "$logs/$1.out"
  return "$(cat "$logs/$1.rc" 2>/dev/null || echo 1)"
}

# beside: what needs processors and measures nothing. Real processes mostly wait, so it runs while they do, and yields to them: in
# a session of its own, as the kernel may group processes by session before it looks at their priority.
beside() {
  renice -n 19 $$ >/dev/null
  { echo 19 >/proc/self/autogroup; } 2>/dev/null
  part points crash_points "${NACRE_SIM_STRIDE:-9}"
  part hostile hostile 60
  part fuzz scripts/fuzz.sh "${NACRE_FUZZ_SECONDS:-3}"
  part planted planted
}

# real_processes: the lanes beside each other, and `beside` beside them; then what measures, then the rest alone
real_processes() {
  local others rc=0
  cargo test --release -p tests --no-run || return
  rm -f "$logs"/real.*[0-9]
  others=$(printf -- '--skip %s ' $alone ${calm[*]} ${lanes[*]})
  setsid --wait scripts/test.sh beside & beside=$!
  trap 'kill -- -$beside 2>/dev/null' EXIT
  in_lanes lane "${lanes[@]}" "$others" || rc=1
  wait "$beside"
  trap - EXIT
  in_lanes calm "${calm[@]}" || rc=1
  in_lanes alone "$alone" || rc=1
  cat "$logs"/real.*[0-9]
  return $rc
}

check() {
  local first
  first=$(window 50)
  stage packages 'packages and test programs' scripts/install-test-deps.sh || return
  lint
  stage fuzz-check 'the fuzzers compile' cargo check --quiet --manifest-path fuzz/Cargo.toml
  unit_tests
  stage check-seeds "simulator: seeds 1-50, $first-$((first + 49))" campaign 50 "$first" 50
  stage release-build 'release build' make --no-print-directory build || return
  # shellcheck disable=SC2086
  stage smoke 'ten tests of real processes' smoke_tests
}

everything() {
  local fixed=${NACRE_SIM_SEEDS:-500} first
  first=$(window "$fixed")
  stage packages 'packages and test programs' scripts/install-test-deps.sh || return
  stage release-build 'release build' make --no-print-directory build || return
  stage packages-deb 'Debian packages' scripts/package-test.sh
  lint
  unit_tests
  stage repeats 'simulator: the same seed twice' repeats 10
  stage corpus 'simulator: corpus' corpus
  stage seeds "simulator: seeds 1-$fixed, $first-$((first + fixed - 1))" campaign "$fixed" "$first" "$fixed"
  stage real 'real processes' real_processes
  stage points 'simulator: crash points' told points
  stage hostile 'simulator: peers that lie, 60 s' told hostile
  stage fuzz 'fuzzers, a few seconds each' told fuzz
  stage planted 'simulator: planted bugs' told planted
}

case ${1:-all} in
lint) lint ;;
check) check ;;
beside) beside; exit ;;
all)
  echo "Nacre's tests: about half an hour on two cores, most of it real programs on real mounts."
  everything
  ;;
*) echo "usage: test.sh all|check|lint|beside" >&2; exit 2 ;;
esac
for log in seeds check-seeds; do [ ! -f "$logs/$log.log" ] || fewer_seeds "$logs/$log.log"; done
for o in ${over_budget[@]+"${over_budget[@]}"}; do echo "Over its budget (scripts/budgets) by a quarter or more: $o"; done
if [ $failed = 0 ]; then
  echo "All is well after $((SECONDS / 60)) min $((SECONDS % 60)) s."
else
  echo "Not well after $((SECONDS / 60)) min $((SECONDS % 60)) s: ${failures[*]}. Logs: $logs"
  for log in "${failed_logs[@]}"; do
    echo "  $(basename "$log" .log):"
    why "$log"
  done
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
