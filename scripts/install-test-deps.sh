#!/usr/bin/env bash
# install-test-deps.sh - what the tests need besides a Rust toolchain: Debian packages, and two test programs from the
# crate registry (into TARGET/kit/bin), what drives a browser from npm (into TARGET/kit/browser). Debian 12, root. Safe to run again.
set -eu
cd "$(dirname "$0")/.."
scripts/install-deps.sh build
scripts/install-deps.sh run
target=${CARGO_TARGET_DIR:-target}
# program:package
need="setfacl:acl setfattr:attr git:git rsync:rsync dbench:dbench stress-ng:stress-ng ip:iproute2 nft:nftables nsenter:util-linux
ssh:openssh-client mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs python3:python3 tar:tar diff:diffutils flock:util-linux g++:g++
corosync:corosync pacemakerd:pacemaker crm_resource:pacemaker-cli-utils pcs:pcs ocf-tester:resource-agents xmllint:libxml2-utils
debootstrap:debootstrap lintian:lintian dpkg-shlibdeps:dpkg-dev zsh:zsh fish:fish rpmbuild:rpm apparmor_parser:apparmor
chromium:chromium node:nodejs npm:npm"
missing=
for n in $need; do
  command -v "${n%%:*}" >/dev/null || missing="$missing ${n##*:}"
done
if [ -n "$missing" ]; then
  echo "Installing:$missing"
  # The cluster manager is started in namespaces only: no package may start or enable a service here.
  services='corosync pacemaker pcsd pcsd-ruby logd' enabled=
  for s in $services; do
    if systemctl is-enabled --quiet "$s" 2>/dev/null; then enabled="$enabled $s"; fi
  done
  policy=/usr/sbin/policy-rc.d
  if ! [ -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
    trap 'rm -f "$policy"' EXIT
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # shellcheck disable=SC2086
  apt-get install -y -qq --no-install-recommends $missing >/dev/null
  for s in $services; do
    case " $enabled " in *" $s "*) ;; *) systemctl disable --quiet "$s" 2>/dev/null || true ;; esac
  done
fi
# unpacked TITLE PROGRAMS PACKAGE…: programs of packages that start a service or make a user when they are installed, so they are
# unpacked. PROGRAMS: their paths, with a blank between two.
unpacked() {
  local title=$1 programs=$2 deb p d missing=
  shift 2
  for p in $programs; do [ -x "$target/kit/bin/${p##*/}" ] || missing=1; done
  [ -n "$missing" ] || return 0
  echo "Fetching $title"
  deb=$(mktemp -d)
  mkdir -p "$target/kit/bin"
  (cd "$deb" && { apt-get download -qq "$@" >/dev/null 2>&1 ||
    { apt-get update -qq && apt-get download -qq "$@" >/dev/null; }; })
  for d in "$deb"/*.deb; do dpkg-deb -x "$d" "$deb/x"; done
  for p in $programs; do cp "$deb/x/$p" "$target/kit/bin/"; done
  rm -rf "$deb"
}
unpacked etcd 'usr/bin/etcd usr/bin/etcdctl' etcd-server etcd-client
unpacked sshd usr/sbin/sshd openssh-server
unpacked Prometheus 'usr/bin/prometheus usr/bin/promtool' prometheus
# What drives the browser, without a browser of its own.
if ! [ -d "$target/kit/browser/node_modules/axe-core" ] || ! [ -d "$target/kit/browser/node_modules/playwright-core" ]; then
  echo "Fetching playwright-core and axe-core"
  mkdir -p "$target/kit/browser"
  npm install --silent --no-audit --no-fund --prefix "$target/kit/browser" playwright-core@1.65.1 axe-core@4.14.1
fi
for c in pjdfstest@0.2.2 fsx@0.3.2; do
  name=${c%@*}
  if ! [ -x "$target/kit/bin/$name" ]; then
    echo "Building $c"
    CARGO_TARGET_DIR="$target/kit/build" cargo install --quiet --locked --root "$target/kit" "$c" ||
      CARGO_TARGET_DIR="$target/kit/build" cargo install --quiet --root "$target/kit" "$c"
  fi
done
