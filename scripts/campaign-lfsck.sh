#!/usr/bin/env bash
# campaign-lfsck.sh [FILES [WITH_OBJECTS]] - a file system of so many files (1,000,000), of which so many (a tenth) have an object,
# is checked by `lctl lfsck_start`, and once more with its metadata server killed in the middle. Prints what
# docs/results/campaigns.csv has of it: how long each took. Needs root and FUSE; run it as `scripts/apart.sh
# scripts/campaign-lfsck.sh`, with the programs in PATH or where they are built. WORK: a folder for it, which is made and removed.
set -euo pipefail
files=${1:-1000000} objects=${2:-$((${1:-1000000} / 10))}
here=$(cd "$(dirname "$0")/.." && pwd)
export PATH=${CARGO_TARGET_DIR:-$here/target}/release:$PATH
work=${WORK:-${CARGO_TARGET_DIR:-$here/target}/campaign-lfsck}
mkdir "$work"
dir=$work/fs mount=$work/mount
end() {
  nacre down --dir "$dir" >/dev/null || true
  rm -rf --one-file-system "$work"
}
trap end EXIT
mkdir "$mount"
nacre up --quiet --no-watch --dir "$dir" --mount "$mount" --osts 1
mkdir "$mount/plain" "$mount/objects"
lfs setstripe -c 1 "$mount/objects"
nacre bench mdtest -q -C -F -n $((files - objects)) -d "$mount/plain" --keep >/dev/null
nacre bench mdtest -q -C -F -n "$objects" -w 1 -d "$mount/objects" --keep >/dev/null

seconds() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.1f", b - a }'; }
# field NAME: of what the check of names shows
field() { lctl get_param -n 'mdd.*.lfsck_namespace' | sed -n "s/^$1: //p"; }
# whole FILES: the check came to its end, saw all of them, and found nothing
whole() {
  [ "$(field status)" = completed ] && [ "$(field found)" = 0 ] && [ "$(field inodes)" -ge "$1" ] && return
  echo "campaign-lfsck: it is $(field status), found $(field found), and saw $(field inodes) inodes" >&2
  exit 1
}

begin=$(date +%s.%N)
lctl lfsck_start -r -t all >/dev/null
lctl lfsck_query -w >/dev/null
all=$(seconds "$begin" "$(date +%s.%N)")
whole "$files"
echo "$files files, $objects of them with an object: checked in $all s, load $(cut -d' ' -f1 /proc/loadavg)"

# In the middle: a third of the time that it takes, and then as soon as it is somewhere.
lctl lfsck_start -r -t all >/dev/null
sleep "$(awk -v a="$all" 'BEGIN { print a / 3 }')"
server=$(pgrep -f "nacred.* $dir/mdt0000( |$)")
at=$(field checked_phase1)
[ "$(field status)" = scanning-phase1 ] && [ "$at" -gt 0 ] || { echo "campaign-lfsck: it was not in the middle" >&2; exit 1; }
kill -KILL "$server"
while kill -0 "$server" 2>/dev/null; do sleep 0.1; done
nacre up --quiet --no-watch --dir "$dir" --mount "$mount" --osts 1
begin=$(date +%s.%N) from=$(field checked_phase1)
[ "$from" -gt 0 ] || { echo "campaign-lfsck: it began anew after the kill" >&2; exit 1; }
lctl lfsck_query -w >/dev/null
rest=$(seconds "$begin" "$(date +%s.%N)")
whole "$files"
echo "killed at $at of its names, went on from $from, and was done $rest s after the restart"
