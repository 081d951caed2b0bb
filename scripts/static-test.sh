#!/usr/bin/env bash
# static-test.sh [ARCHIVE] - a client of package-static.sh (built now, unless an archive is named) on a host that has nothing but a
# kernel: mounts by the name of a host, writes, is read by an ordinary mount, unmounts. The servers are those of TARGET/release/nacre.
# Needs root; what it starts ends with it.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
nacre=$(cd "$target" && pwd)/release/nacre
[ -x "$nacre" ] || { echo "static-test.sh: '$nacre' is no program: run 'make build'" >&2; exit 1; }
archive=${1:-$(scripts/package-static.sh)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
scripts/apart.sh bash -euo pipefail -c '
  nacre=$1 archive=$2 work=$3 root=$3/root
  fail() { echo "FAILED: $*" >&2; exit 1; }
  end() {
    # Twice is no error: a test that failed in between has mounts.
    umount -l "$root/mnt" 2>/dev/null || true
    "$nacre" down --dir "$work/fs" >/dev/null 2>&1 || true
    umount "$root/proc" "$root/sys" 2>/dev/null || true
  }
  trap end EXIT
  mkdir -p "$root"/{dev,proc,sys,etc,mnt,run,tmp} "$work/mnt"
  "$nacre" up -q --dir "$work/fs" --mount "$work/mnt" --osts 1
  tar -xf "$archive" -C "$root"
  mv "$root"/nacre-*-static "$root/client"
  mknod -m 666 "$root/dev/fuse" c 10 229
  mknod -m 666 "$root/dev/null" c 1 3
  mknod -m 444 "$root/dev/random" c 1 8
  mknod -m 444 "$root/dev/urandom" c 1 9
  mount -t proc proc "$root/proc"
  mount -t sysfs sysfs "$root/sys"
  address=$(sed -n "s/^\([^ ]*:\/nacre\) $(echo "$work/mnt" | sed "s#/#\\\\/#g") fuse.nacre .*/\1/p" /proc/mounts | head -n 1)
  [ -n "$address" ] || fail "the ordinary mount is not there"
  ip=${address%%@*}
  echo "$ip mds.example" >"$root/etc/hosts"
  echo "hosts: mymachines resolve [!UNAVAIL=return] files myhostname dns" >"$root/etc/nsswitch.conf"
  chroot "$root" /client/nacre --version | grep -q "^nacre " || fail "the program does not run"
  ! chroot "$root" /client/mount.nacre nowhere.example@tcp:/nacre /mnt 2>"$work/said" || fail "a host of no address was mounted from"
  grep -q nowhere.example "$work/said" || fail "the message does not name the host: $(cat "$work/said")"
  chroot "$root" /client/mount.nacre "mds.example@tcp:/nacre" /mnt || { tail "$root"/var/log/nacre/* >&2; fail "it is not mounted"; }
  echo "written by a host that has nothing" >"$root/mnt/file"
  grep -q "has nothing" "$work/mnt/file" || fail "the other mount does not see the file"
  head -c 20000000 /dev/urandom >"$work/mnt/large"
  cmp "$work/mnt/large" "$root/mnt/large" || fail "its bytes differ"
  chroot "$root" /client/lfs df /mnt | grep -q "OST0000" || fail "lfs df shows no OST"
  chroot "$root" /client/lfs getstripe /mnt/large >/dev/null || fail "lfs getstripe does not answer"
  umount "$root/mnt"
  echo "test a_client_on_a_host_that_has_nothing ... ok"
' static-test "$nacre" "$archive" "$work"
