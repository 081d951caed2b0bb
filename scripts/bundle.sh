#!/usr/bin/env bash
# bundle.sh [--bin FILE] [--out FILE] - one file for hosts without network: the Debian packages, the RPMs if rpmbuild is there, the
# container files and a script that installs what a host's role needs. Prints its path.
#   on a host: tar -xf nacre-VERSION-bundle.tar && nacre-VERSION/install.sh server|client|both [--dry-run]
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
program=$target/release/nacre out=''
fail() {
  echo "bundle.sh: $*" >&2
  exit 1
}
while [ $# -gt 0 ]; do
  case $1 in
  --bin | --out)
    [ $# -ge 2 ] || fail "$1 needs a value"
    if [ "$1" = --bin ]; then program=$2; else out=$2; fi
    shift 2
    ;;
  -h | --help) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit ;;
  *) fail "unknown option '$1': there are --bin, --out" ;;
  esac
done
[ -x "$program" ] || fail "'$program' is no program: run 'make build', or name one with --bin"
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null) || fail "no git history here: set SOURCE_DATE_EPOCH (seconds since 1970)"
fi
export SOURCE_DATE_EPOCH
umask 022
version=$("$program" --version)
version=${version#nacre }
out=${out:-$target/nacre-$version-bundle.tar}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dir=$work/nacre-$version
mkdir -p "$dir/debian" "$dir/container"
scripts/package-deb.sh --bin "$program" --out "$dir/debian" >/dev/null
if command -v rpmbuild >/dev/null; then
  scripts/package-rpm.sh --bin "$program" --out "$dir/rpm" >/dev/null
else
  echo "bundle.sh: rpmbuild is missing (apt-get install rpm): the bundle has no RPMs" >&2
fi
cp deploy/container/* "$dir/container/"
install -m 755 deploy/bundle/install.sh "$dir/install.sh"
cp docs/install.md LICENSE LICENSE-APACHE LICENSE-MIT "$dir/"
(cd "$dir" && find . -type f -print0 | sort -z | xargs -0 sha256sum) >"$work/sums"
mv "$work/sums" "$dir/SHA256SUMS"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf "$out.part" "nacre-$version"
mv "$out.part" "$out"
echo "$out"
