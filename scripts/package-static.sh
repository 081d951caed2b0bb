#!/usr/bin/env bash
# package-static.sh [--out FILE] - builds the program with the C library in it, for clients where nothing may be installed: one folder
# to copy, for any Linux of this architecture. Prints the path of the archive.
#   on the host: tar -xf nacre-VERSION-static.tar.gz && nacre-VERSION-static/mount.nacre MGS@tcp:/FSNAME /mnt
#   --out   where to; by default TARGET/nacre-VERSION-static.tar.gz
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
out=''
fail() {
  echo "package-static.sh: $*" >&2
  exit 1
}
while [ $# -gt 0 ]; do
  case $1 in
  --out)
    [ $# -ge 2 ] || fail "$1 needs a value"
    out=$2
    shift 2
    ;;
  -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit ;;
  *) fail "unknown option '$1': there is --out" ;;
  esac
done
for n in objcopy:binutils readelf:binutils; do
  command -v "${n%%:*}" >/dev/null || fail "${n%%:*} is missing: apt-get install ${n##*:}"
done
triple=$(rustc -vV | sed -n 's/^host: //p')
# The target is named although it is the host's own: what runs while building is linked as ever.
RUSTFLAGS='-C target-feature=+crt-static' cargo build --release -p server --bin nacre --target "$triple" >&2
program=$target/$triple/release/nacre
! readelf -lW "$program" | grep -q INTERP || fail "'$program' asks for a C library of the host's"
version=$("$program" --version)
version=${version#nacre }
out=${out:-$target/nacre-$version-static.tar.gz}
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null) || fail "no git history here: set SOURCE_DATE_EPOCH (seconds since 1970)"
fi
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dir=$work/nacre-$version-static
mkdir -p "$dir/man"
objcopy --strip-all "$program" "$dir/nacre"
for name in lfs lctl lljobstat lfs_migrate mount.nacre mount.fuse.nacre; do ln -s nacre "$dir/$name"; done
cp LICENSE LICENSE-APACHE LICENSE-MIT "$dir/"
for page in docs/man/*; do cp "$page" "$dir/man/"; done
cat >"$dir/README" <<'TEXT'
A client of Nacre in one program, which needs nothing of its host but Linux with FUSE (the module `fuse`).
  ./mount.nacre 10.0.0.1@tcp:/demo /mnt/demo       as root; then: ./lfs df /mnt/demo
  umount /mnt/demo
Names of hosts come from /etc/hosts and DNS, whatever else /etc/nsswitch.conf has.
It is not upgraded with the host: unpack the next version beside it, unmount, and mount with that.
TEXT
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -czf "$out.part" "nacre-$version-static"
mv "$out.part" "$out"
echo "$out"
