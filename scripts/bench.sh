#!/usr/bin/env bash
# bench.sh --suite PATH [OPTIONS] - measures Nacre and a plain directory of the same disk side by side with a suite: any
# script that is called as 'PATH DIRECTORY LABEL', appends rows 'label,phase,value,unit' to the file $BENCH_CSV, and runs
# the command $DROP_HOOK before each phase that begins with empty caches.
#
#   --suite PATH      the script
#   --runs N          so many times, in turns (3)
#   --out FILE        CSV to write (bench.csv); the table goes beside it as FILE.md
#   --targets FILE    'phase,x_best_peer,x_local': the ratios to reach, shown beside those reached
#   --peers FILE      a CSV with other systems' rows: the best of them is shown too
#   --dir DIR         where both work; on the disk to be measured (a new folder of $TMPDIR)
#   --osts N          object targets (4)
#   --mount-options O options of the mount
#   --phases LIST     handed to the suite as $PHASES
#
# Needs root. Where ior and mdtest are missing, 'nacre bench' stands in for them, on both sides. What else the suite takes
# from the environment (QUICK=1, NP=2 ...) passes through.
set -eu
cd "$(dirname "$0")/.."
suite= runs=3 out=bench.csv targets= peers= dir= osts=4 options=
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || { sed -n '2,20p' "$0" >&2; exit 2; }
  case $1 in
  --suite) suite=$(realpath "$2") ;;
  --runs) runs=$2 ;;
  --out) out=$(realpath -m "$2") ;;
  --targets) targets=$(realpath "$2") ;;
  --peers) peers=$(realpath "$2") ;;
  --dir) dir=$(realpath -m "$2") ;;
  --osts) osts=$2 ;;
  --mount-options) options=$2 ;;
  --phases) export PHASES="$2" ;;
  *) echo "bench.sh: unknown option '$1'" >&2; exit 2 ;;
  esac
  shift 2
done
[ -x "$suite" ] || { echo "bench.sh: --suite must name a script" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "bench.sh: root is needed to mount and to empty caches" >&2; exit 1; }
make --no-print-directory build >/dev/null
bin=$(realpath "${CARGO_TARGET_DIR:-target}/release")
export PATH="$bin:$PATH"
own=
[ -n "$dir" ] || { dir=$(mktemp -d) own=1; }
mkdir -p "$dir/local" "$dir/tmp"
up() { nacre up --quiet --dir "$dir/fs" --mount "$dir/mnt" --osts "$osts" --fsname bench ${options:+-o "$options"}; }
end() {
  nacre down --dir "$dir/fs" --force >/dev/null 2>&1 || true
  nacre wipe --dir "$dir/fs" >/dev/null 2>&1 || true
  rm -rf "$dir/local" "$dir/tmp" "$dir/drop"
  [ -z "$own" ] || rmdir "$dir" 2>/dev/null || true
}
trap end EXIT
trap 'exit 130' INT TERM
up
# Cold is cold: a client that was just mounted has no locks and no data.
cat >"$dir/drop" <<E2
#!/bin/sh
umount "$dir/mnt" && "$bin/nacre" up --quiet --dir "$dir/fs" --mount "$dir/mnt" ${options:+-o "$options"}
E2
chmod +x "$dir/drop"
# 'nacre bench -np N ior ...' is what 'mpirun -np N ior ...' is
if ! command -v ior >/dev/null || ! command -v mdtest >/dev/null || ! command -v mpirun >/dev/null; then
  export MPIRUN="nacre bench" IOR=ior MDTEST=mdtest
fi
export BENCH_CSV=$out BENCH_TMP=$dir/tmp SUITE_LIMIT=${SUITE_LIMIT:-900}
for i in $(seq "$runs"); do
  echo "run $i of $runs: Nacre"
  DROP_HOOK="$dir/drop" "$suite" "$dir/mnt" nacre || echo "bench.sh: the suite ended with status $?" >&2
  echo "run $i of $runs: the local directory"
  DROP_HOOK='' "$suite" "$dir/local" local || echo "bench.sh: the suite ended with status $?" >&2
done
python3 scripts/bench-table.py "$out" ${targets:+--targets "$targets"} ${peers:+--peers "$peers"} | tee "$out.md" || true
