#!/usr/bin/env bash
# install-deps.sh build|run - installs the system packages that building or running Nacre needs, if they are
# missing. Debian 12, root. Does nothing and says nothing when all is there.
set -eu
case ${1:-run} in
build) need="cc:gcc,libc6-dev make:make" ;; # cc and make build the allocator, too
run) need="fusermount3:fuse3" ;;
*) echo "usage: install-deps.sh build|run" >&2; exit 2 ;;
esac
missing=
for n in $need; do
  command -v "${n%%:*}" >/dev/null || missing="$missing ${n##*:}"
done
missing=${missing//,/ }
if ! command -v cargo >/dev/null; then
  echo "A Rust toolchain (1.95 or newer) is needed: cargo is not in PATH." >&2
  exit 1
fi
if [ -n "$missing" ]; then
  echo "Installing:$missing"
  if [ "$(id -u)" != 0 ]; then
    echo "Not root: run 'apt-get install$missing' as root, then try again." >&2
    exit 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # shellcheck disable=SC2086
  apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi
if [ "${1:-run}" = run ] && [ ! -e /dev/fuse ]; then
  modprobe fuse 2>/dev/null || true
  if [ ! -e /dev/fuse ]; then
    echo "/dev/fuse is missing: load the kernel's module (modprobe fuse), or give this container the device (--device /dev/fuse --cap-add SYS_ADMIN)." >&2
    exit 1
  fi
fi
