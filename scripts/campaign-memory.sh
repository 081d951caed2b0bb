#!/usr/bin/env bash
# Memory campaigns, too long for the test command. Results go into docs/results/campaigns.csv.
#
#   scripts/campaign-memory.sh files [COUNT=10000000]         an MDT that holds so many files (asked: under 2 GiB)
#   scripts/campaign-memory.sh rewrite [GIB=10] [ROUNDS=10]   a client that writes GIB anew ROUNDS times (asked: max_cached_mb + 200 MiB)
#
# Environment: NACRE (the binary), WORK (a folder on a disk with room; a new one in TMPDIR if unset).
# Each prints one line a minute, and at the end the peak resident memory of each daemon. Needs root and FUSE, as `nacre up` does.
set -euo pipefail
NACRE=${NACRE:-$(cd "$(dirname "$0")/.." && pwd)/target/release/nacre}
WORK=${WORK:-$(mktemp -d "${TMPDIR:-/tmp}/nacre-campaign.XXXXXX")}
FS=$WORK/fs MNT=$WORK/mnt NAME=camp
mkdir -p "$WORK"

finish() {
	[ -z "${watcher:-}" ] || { pkill -P "$watcher"; kill "$watcher"; wait "$watcher"; } 2>/dev/null || true
	"$NACRE" down --dir "$FS" --force >/dev/null 2>&1 || true
	"$NACRE" wipe --dir "$FS" >/dev/null 2>&1 || true
	rmdir "$MNT" "$WORK" 2>/dev/null || true
}
trap finish EXIT

up() { "$NACRE" up --quiet --dir "$FS" --mount "$MNT" --osts 4 --fsname $NAME; }

# Each daemon of this file system: pid, peak and present resident memory in MiB, and its command's last words.
memory() {
	for pid in $(pgrep -f "$WORK/" || true); do
		[ -r "/proc/$pid/status" ] || continue
		case $(tr '\0' ' ' <"/proc/$pid/cmdline") in *nacred* | *mount.nacre*) ;; *) continue ;; esac
		awk -v pid="$pid" -v what="$(tr '\0' ' ' <"/proc/$pid/cmdline" | sed "s,$WORK/,,g" | cut -c1-60)" \
			'/^VmHWM/ { peak = $2 } /^VmRSS/ { now = $2 } END { printf "pid %s peak %d MiB now %d MiB: %s\n", pid, peak / 1024, now / 1024, what }' "/proc/$pid/status" || true
	done
}

watch_memory() {
	while sleep 60; do
		echo "-- $(date -u +%H:%M:%S) $(df -i --output=iused "$MNT" 2>/dev/null | tail -1 | tr -d ' ') inodes"
		memory
	done
}

files() {
	local count=${1:-10000000} leaves=100 each
	each=$((count / 2 / leaves))
	up
	watch_memory & watcher=$!
	"$NACRE" bench -np 2 mdtest -q -n $((each * leaves)) -I "$each" -z 1 -b $leaves -L -u -F -C -d tree "$MNT"
	sync -f "$MNT"
	echo "== made"
	memory
	"$NACRE" down --dir "$FS"
	up
	echo "== after a restart: one directory of about $each files listed with attributes"
	local one
	one=$(find "$MNT/tree" -type f -print -quit)
	one=$(dirname "$one")
	echo "listed: $(find "$one" -type f -size 0 -printf '.' | wc -c)"
	memory
	df -i "$MNT" | tail -1
}

rewrite() {
	local gib=${1:-10} rounds=${2:-10} round
	up
	"$NACRE" lctl get_param "llite.*.max_cached_mb" 2>/dev/null | sed -n 1,4p || true
	for round in $(seq "$rounds"); do
		dd if=/dev/zero of="$MNT/file" bs=1M count=$((gib * 1024)) conv=notrunc 2>&1 | tail -1
		echo "-- round $round"
		memory
	done
	cmp -n $((gib << 30)) "$MNT/file" /dev/zero
	echo "== read back"
	memory
}

case ${1:-} in
files | rewrite) "$@" ;;
*) sed -n 2,9p "$0"; exit 2 ;;
esac
