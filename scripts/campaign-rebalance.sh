#!/usr/bin/env bash
# A drill with OSTs on disks of their own: one of four is nearly full; files are moved while a program works, everything is killed on the way,
# and an OST is emptied at the end. Results go into docs/results/campaigns.csv.
#
#   scripts/campaign-rebalance.sh [PACE=1]     each of eight files at a time copies so many MiB a second
#
# Environment: BACKGROUND=1 (the metadata server moves them by itself, nothing is killed), NACRE (the binary), MIB (of each disk, 600). Needs root, FUSE, loop devices, 4 x MIB of disk at most. Leaves nothing behind.
# Prints one figure a line, as `figure: VALUE UNIT: WHAT`; the exit status is 0 if all that is asked for was kept.
set -euo pipefail
if [ -z "${IN_NAMESPACE:-}" ]; then
	NACRE=${NACRE:-$(cd "$(dirname "$0")/.." && pwd)/target/release/nacre}
	export NACRE IN_NAMESPACE=1
	exec unshare --mount --net bash "$0" "$@"
fi
ip link set lo up
PACE=${1:-1} MIB=${MIB:-600}
WORK=$(mktemp -d "${TMPDIR:-/tmp}/nacre-rebalance.XXXXXX")
FS=$WORK/fs MNT=$WORK/mnt NAME=drill
export NACRE_RUN_DIR=$WORK/run PATH=$(dirname "$NACRE"):$PATH
DEVICES=() load='' failed=0

finish() {
	[ -z "$load" ] || { touch "$WORK/stop" && wait "$load" || true; }
	nacre down --dir "$FS" --force >/dev/null 2>&1 || true
	for n in 0 1 2 3; do umount "$FS/ost000$n" 2>/dev/null || true; done
	for d in "${DEVICES[@]}"; do losetup -d "$d" || true; done
	rm -rf --one-file-system "$WORK"
}
trap finish EXIT

figure() { echo "figure: $1 $2: $3"; }
# Holds what is asked for: WHAT, and a comparison.
hold() {
	if awk "BEGIN { exit !($2) }"; then echo "kept: $1 ($2)"; else
		echo "NOT KEPT: $1 ($2)"
		failed=1
	fi
}
up() { nacre up --quiet --no-watch --dir "$FS" --mount "$MNT" --osts 4 --fsname $NAME; }
# Percent of an OST that is used, and bytes that it has for data.
used() { lfs df "$MNT" | awk -v ost="OST000$1" '$1 ~ ost { printf "%.2f\n", 100 * $3 / ($3 + $4) }'; }
free() { lfs df "$MNT" | awk -v ost="OST000$1" '$1 ~ ost { print $4 * 1024 }'; }
spread() { for n in 0 1 2 3; do used $n; done | sort -n | awk 'NR == 1 { least = $1 } { most = $1 } END { print most - least }'; }
sums() { (cd "$MNT/data" && find . -type f | sort | xargs md5sum) | md5sum; }
now() { date +%s.%N; }
# Operations a second of the load between two moments.
speed() { awk -v from="$1" -v to="$2" '$1 >= from && $1 <= to { n += $2 } END { printf "%.1f\n", n / (to - from) }' "$WORK/load.txt"; }
moving() { nacre movements --json "$MNT" | grep -q '"copying"'; }
soon() { # WHAT, a command that succeeds within 60 s
	local end=$((SECONDS + 60))
	until "${@:2}"; do
		[ $SECONDS -lt $end ] || { echo "$1: not within 60 s"; exit 1; }
		sleep 0.1
	done
}

for n in 0 1 2 3; do
	truncate -s "${MIB}M" "$WORK/image$n"
	device=$(losetup -f --show "$WORK/image$n")
	DEVICES+=("$device")
	mkfs.ext4 -q -m 0 -N 8192 "$device"
	mkdir -p "$FS/ost000$n"
	mount "$device" "$FS/ost000$n"
done
up
mkdir "$MNT/data" "$MNT/load"

# How many new objects the others take: nobody names OSTs for these files.
creates() { for n in 0 2 3; do lctl set_param -n "osp.$NAME-OST000$n-osc-*.max_create_count=$1"; done; }
# 97 % of one of them, in files of 8 MiB as long as they fit; every fourth has components.
n=0
put() { # MIB
	local f=$MNT/data/f$n
	case $((n % 4)) in
	0) lfs setstripe -E 2M -c 1 -E -1 -c 1 "$f" ;;
	*) lfs setstripe -c 1 "$f" ;;
	esac
	head -c "$1M" /dev/urandom >"$f"
	n=$((n + 1))
}
creates 0
while [ "$(used 1 | cut -d. -f1)" -lt 97 ]; do
	left=$(($(free 1) >> 20))
	if [ $left -gt 80 ]; then for _ in 1 2 3 4; do put 8; done; else put $((left / 8 + 1)); fi
	sync -f "$MNT"
	sleep 1.5
	[ $n -lt 500 ]
done
creates 20000
figure "$(used 1)" % "used of the full OST"
figure "$(spread)" points "between the fullest and the emptiest, before"
before=$(sums)

free=$(free 1)
head -c $((2 * free)) /dev/zero | tr '\0' 7 >"$MNT/job" && sync -f "$MNT/job"
hold "a job that writes twice what is free on the fullest succeeds" "$(stat -c %s "$MNT/job") == $((2 * free))"

# The load: blocks that are written, flushed, read again and compared; a line each tenth of a second.
cat >"$WORK/load.py" <<'PYTHON'
import os, random, sys, time
folder, out, stop = sys.argv[1:]
files = [os.open(f"{folder}/w{n}", os.O_RDWR | os.O_CREAT) for n in range(4)]
log, done, begun, rounds = open(out, "a", 1), 0, time.time(), 0
while not os.path.exists(stop):
    f, at = random.choice(files), random.randrange(64) * 65536
    data = bytes([rounds % 251 + 1]) * 65536
    os.pwrite(f, data, at)
    if rounds % 8 == 0:
        os.fsync(f)
    if os.pread(f, 65536, at) != data:
        sys.exit(f"round {rounds}: other bytes")
    rounds, done = rounds + 1, done + 1
    if time.time() - begun >= 0.1:
        log.write(f"{time.time()} {done}\n")
        done, begun = 0, time.time()
PYTHON
lfs setstripe -c 2 "$MNT/load"
python3 "$WORK/load.py" "$MNT/load" "$WORK/load.txt" "$WORK/stop" &
load=$!
sleep 5
a=$(now)
sleep 15
b=$(now)
alone=$(speed "$a" "$b")

# The metadata server by itself: BACKGROUND=1.
state() { nacre rebalance --status --json "$MNT" | grep -o '"state": *"[a-z]*"' | cut -d'"' -f4; }
is() { [ "$(state)" = "$1" ]; }
if [ -n "${BACKGROUND:-}" ]; then
	begun=$SECONDS
	nacre rebalance --background 6 "$MNT"
	soon "something is moved" moving
	a=$(now)
	while ! is even && [ $((SECONDS - begun)) -lt 1200 ]; do sleep 1; done
	b=$(now)
	nacre rebalance --status "$MNT"
	nacre rebalance --stop "$MNT"
	figure $((SECONDS - begun)) s "until the metadata server found them even enough"
	figure "$(spread)" points "between the fullest and the emptiest, afterwards"
	hold "the spread is below 5 points" "$(spread) < 5"
	beside=$(speed "$a" "$b")
	sleep 5
	a=$(now)
	sleep 15
	b=$(now)
	after=$(speed "$a" "$b")
	figure "$alone" op/s "the load alone, before"
	figure "$beside" op/s "the load beside it"
	figure "$after" op/s "the load alone, afterwards"
	hold "the load keeps 80 % of its speed" "2 * $beside / ($alone + $after) >= 0.8"
	[ "$(sums)" = "$before" ] && echo "kept: all bytes are the same" || { echo "NOT KEPT: some bytes are others"; failed=1; }
	exit $failed
fi

rebalance=(nacre rebalance -q --threshold 3 --bandwidth "$PACE" "$MNT")
a=$(now)
"${rebalance[@]}" >/dev/null &
command=$!
soon "something is moved" moving
sleep 10
b=$(now)
beside=$(speed "$a" "$b")
kill -9 $command
wait $command 2>/dev/null || true
kill -0 $load
echo "the command was killed at $(spread) points"
"${rebalance[@]}" >/dev/null &
command=$!
soon "something is moved" moving
# The metadata server and an OST go with it, without a word, and come back.
for target in mdt ost0002; do kill -9 "$(pgrep -f "nacred.*$FS/$target" | head -1)"; done
kill -9 $command
wait $command 2>/dev/null || true
up
begun=$SECONDS a=$(now)
"${rebalance[@]}" || true
b=$(now)
figure $((SECONDS - begun)) s "the last run of rebalance, after it and two servers were killed"
figure "$(spread)" points "between the fullest and the emptiest, afterwards"
hold "the spread is below 5 points" "$(spread) < 5"
kill -0 $load
last=$(speed "$a" "$b")
sleep 5
a=$(now)
sleep 15
b=$(now)
after=$(speed "$a" "$b")
figure "$alone" op/s "the load alone, before"
figure "$beside" op/s "the load beside the first run of rebalance"
figure "$last" op/s "the load beside the last run of rebalance"
figure "$after" op/s "the load alone, afterwards"
hold "the load keeps 80 % of its speed" "($beside + $last) / ($alone + $after) >= 0.8"
[ "$(sums)" = "$before" ] && echo "kept: all bytes are the same" || { echo "NOT KEPT: some bytes are others"; failed=1; }

nacre drain -q $NAME-OST0003 "$MNT" >/dev/null &
command=$!
soon "something is moved" moving
kill -9 $command
wait $command 2>/dev/null || true
begun=$SECONDS
nacre drain -q $NAME-OST0003 "$MNT"
objects=$(lctl get_param -n obdfilter.$NAME-OST0003.objects)
figure $((SECONDS - begun)) s "drain, run again after it was killed"
hold "no object is left on the OST that was drained" "$objects == 0"
touch "$WORK/stop"
if wait $load; then echo "kept: the load had no error"; else
	echo "NOT KEPT: the load failed"
	failed=1
fi
load=''
figure "$(awk '{ n += $2 } END { print n }' "$WORK/load.txt")" operations "of the load, without an error"
[ "$(sums)" = "$before" ] && echo "kept: all bytes are the same" || { echo "NOT KEPT: some bytes are others"; failed=1; }
nacre down --dir "$FS" >/dev/null
nacre fsck "$FS" >/dev/null || { echo "NOT KEPT: fsck finds something"; failed=1; }
exit $failed
