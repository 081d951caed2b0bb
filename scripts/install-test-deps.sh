#!/usr/bin/env bash
# install-test-deps.sh - what the tests need besides a Rust toolchain: Debian packages, and two test programs from the
# crate registry (into TARGET/kit/bin). Debian 12, root. Safe to run again.
set -eu
cd "$(dirname "$0")/.."
scripts/install-deps.sh build
scripts/install-deps.sh run
target=${CARGO_TARGET_DIR:-target}
# program:package
need="setfacl:acl setfattr:attr git:git rsync:rsync dbench:dbench stress-ng:stress-ng ip:iproute2 nft:nftables nsenter:util-linux
python3:python3 tar:tar diff:diffutils flock:util-linux g++:g++"
missing=
for n in $need; do
  command -v "${n%%:*}" >/dev/null || missing="$missing ${n##*:}"
done
if [ -n "$missing" ]; then
  echo "Installing:$missing"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # shellcheck disable=SC2086
  apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi
for c in pjdfstest@0.2.2 fsx@0.3.2; do
  name=${c%@*}
  if ! [ -x "$target/kit/bin/$name" ]; then
    echo "Building $c"
    CARGO_TARGET_DIR="$target/kit/build" cargo install --quiet --locked --root "$target/kit" "$c" ||
      CARGO_TARGET_DIR="$target/kit/build" cargo install --quiet --root "$target/kit" "$c"
  fi
done
