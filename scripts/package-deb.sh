#!/usr/bin/env bash
# package-deb.sh [--bin FILE] [--out DIR] [--version VERSION] [--compress KIND[:LEVEL]] - Debian packages from one built program and
# the tree, as deploy/debian/ describes them. The same program and commit give the same bytes. Prints the packages' paths.
#   --bin       the program; by default TARGET/release/nacre (make build)
#   --out       where to; by default TARGET/debian
#   --version   Debian's version; by default the program's own
#   --compress  of dpkg-deb: xz, zstd, gzip, none; by default xz:6
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
program=$target/release/nacre out=$target/debian version='' compress=xz:6

fail() {
  echo "package-deb.sh: $*" >&2
  exit 1
}

while [ $# -gt 0 ]; do
  case $1 in
  --bin | --out | --version | --compress)
    [ $# -ge 2 ] || fail "$1 needs a value"
    case $1 in --bin) program=$2 ;; --out) out=$2 ;; --version) version=$2 ;; --compress) compress=$2 ;; esac
    shift 2
    ;;
  -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit ;;
  *) fail "unknown option '$1': there are --bin, --out, --version, --compress" ;;
  esac
done

for n in dpkg-deb:dpkg dpkg-shlibdeps:dpkg-dev objcopy:binutils; do
  command -v "${n%%:*}" >/dev/null || fail "${n%%:*} is missing: apt-get install ${n##*:}"
done
[ -x "$program" ] || fail "'$program' is no program: run 'make build', or name one with --bin"
own=$("$program" --version) || fail "'$program' does not run"
own=${own#nacre }
[ "$own" = "$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)" ] ||
  fail "'$program' is version $own, which Cargo.toml does not say: build it from this tree"
version=${version:-$own}
dpkg --validate-version "$version" || fail "'$version' is no version of a Debian package"
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null) || fail "no git history here: set SOURCE_DATE_EPOCH (seconds since 1970)"
fi
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
architecture=$(dpkg --print-architecture)
mkdir -p "$work/debian" "$out"

objcopy --strip-unneeded --remove-section=.gnu_debuglink --remove-section=.comment "$program" "$work/nacre"
sed "s/@VERSION@/$version/; s/@DATE@/$(date -uR -d "@$SOURCE_DATE_EPOCH")/" deploy/debian/changelog >"$work/changelog"
# Its libraries, with the oldest version of each that has what it calls.
printf 'Source: nacre\n\nPackage: nacre-common\nArchitecture: any\n' >"$work/debian/control"
libraries=$(cd "$work" && dpkg-shlibdeps -O nacre 2>"$work/shlibdeps") || { cat "$work/shlibdeps" >&2; fail "the program's libraries are unknown"; }
libraries=${libraries#shlibs:Depends=}

# crates: those that Cargo.lock says, with the licences that they say themselves where cargo has them at hand
crates() {
  if command -v cargo >/dev/null && command -v python3 >/dev/null &&
    cargo metadata --format-version 1 --locked --offline --filter-platform "$(rustc -vV | sed -n 's/^host: //p')" \
      >"$work/metadata" 2>/dev/null; then
    python3 -c '
import json, sys
found = sorted((p["name"], p["version"], p["license"] or "see its source") for p in json.load(sys.stdin)["packages"] if p["source"])
for name, version, licence in found: print(f" {name} {version}: {licence}")' <"$work/metadata"
  else
    fail "the licences of the crates in the program are unknown: cargo (with what it has fetched for this tree) and python3 are needed"
  fi
}
{
  cat deploy/debian/copyright
  echo 'Files: usr/bin/nacre'
  echo 'Copyright: the authors of Nacre and of the crates below'
  echo 'License: Apache-2.0 or Expat'
  echo 'Comment: crates of which parts are in the program, and those that only its'
  echo ' build and its tests use:'
  crates
} >"$work/copyright"

# source NAME: what a line of a .files names
source_of() {
  case $1 in
  @PROGRAM@) echo "$work/nacre" ;;
  @COPYRIGHT@) echo "$work/copyright" ;;
  @CHANGELOG@) echo "$work/changelog" ;;
  *) [ -f "$1" ] || fail "deploy/debian names '$1', which is not there"; echo "$1" ;;
  esac
}

# lay PACKAGE ROOT: its files
lay() {
  local kind a b c from
  while read -r kind a b c; do
    case $kind in
    '' | '#'*) ;;
    file) from=$(source_of "$b"); install -D -m "$a" "$from" "$2$c" ;;
    gzip) from=$(source_of "$a"); mkdir -p "$2${b%/*}"; gzip -9nc "$from" >"$2$b" ;;
    link) mkdir -p "$2${b%/*}"; ln -s "$a" "$2$b" ;;
    dir) mkdir -p "$2$a" ;;
    conffile) echo "$a" >>"$2/DEBIAN/conffiles" ;;
    *) fail "deploy/debian/$1.files: unknown kind '$kind'" ;;
    esac
  done <"deploy/debian/$1.files"
}

# about PACKAGE ROOT: its control file, with what is known only now, and scripts
about() {
  local s size
  size=$(cd "$2" && find . -path ./DEBIAN -prune -o -type f -printf '%s\n' | awk '{ s += int(($1 + 1023) / 1024) } END { print s + 1 }')
  {
    awk -v RS= -v want="Package: $1" '{ sub(/^(#[^\n]*\n)+/, "") } index($0, want "\n") == 1' deploy/debian/control |
      sed "s/@VERSION@/$version/g; s/@SHLIBS@/$libraries/; /^Section:/i\\
Source: nacre\\
Version: $version\\
Architecture: $architecture\\
Maintainer: Nacre maintainers <packages@nacre.invalid>\\
Installed-Size: $size\\
Priority: optional"
  } >"$2/DEBIAN/control"
  for s in preinst postinst prerm postrm; do
    [ ! -f "deploy/debian/$1.$s" ] || install -m 755 "deploy/debian/$1.$s" "$2/DEBIAN/$s"
  done
  (cd "$2" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0r md5sum) >"$2/DEBIAN/md5sums"
}

sed -n 's/^Package: //p' deploy/debian/control | while read -r package; do
  root=$work/laid/$package
  mkdir -p "$root/DEBIAN"
  lay "$package" "$root"
  about "$package" "$root"
  find "$root" -newermt "@$SOURCE_DATE_EPOCH" -print0 | xargs -0r touch -h -d "@$SOURCE_DATE_EPOCH"
  file=$out/${package}_${version}_$architecture.deb
  level=${compress#*:}
  [ "$level" != "$compress" ] || level=
  dpkg-deb --root-owner-group "-Z${compress%%:*}" ${level:+"-z$level"} --build "$root" "$file.part" >/dev/null
  mv "$file.part" "$file"
  echo "$file"
done
