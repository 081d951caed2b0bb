#!/bin/sh
# mounted.sh SOURCE DIR [OPTIONS] - mounts, and lives as long as the mount: what the container of a client runs. SIGTERM unmounts.
set -eu
if [ $# -lt 2 ] || [ $# -gt 3 ]; then
  echo "usage: mounted.sh MGSNID:/FSNAME DIR [OPTIONS]" >&2
  exit 2
fi
mkdir -p "$2"
mount.nacre "$1" "$2" ${3:+-o "$3"}
trap 'umount "$2" || echo "mounted.sh: $2 is in use: it stays" >&2' TERM INT
while grep -q " $2 fuse.nacre " /proc/mounts; do
  # In the background: the shell takes signals only while it waits.
  sleep 1 &
  wait $! || true
done
