#!/usr/bin/env bash
# package-rpm.sh [--bin FILE] [--out DIR] [--version VERSION] - RPMs from one built program and the tree, by the description that the
# Debian packages have (deploy/debian): the same lists of files, scripts and dependencies. Needs rpmbuild (Debian: rpm) and what
# package-deb.sh needs. Prints the packages' paths.
# The program wants the C library of the host that built it, or a later one; the packages say which.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
out=$target/rpm arguments=()

fail() {
  echo "package-rpm.sh: $*" >&2
  exit 1
}

while [ $# -gt 0 ]; do
  case $1 in
  --bin | --version | --out)
    [ $# -ge 2 ] || fail "$1 needs a value"
    if [ "$1" = --out ]; then out=$2; else arguments+=("$1" "$2"); fi
    shift 2
    ;;
  -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit ;;
  *) fail "unknown option '$1': there are --bin, --out, --version" ;;
  esac
done
command -v rpmbuild >/dev/null || fail "rpmbuild is missing: apt-get install rpm"
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null) || fail "no git history here: set SOURCE_DATE_EPOCH (seconds since 1970)"
fi
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work/tree"
scripts/package-deb.sh --out "$work/deb" --compress none ${arguments[@]+"${arguments[@]}"} >/dev/null

# The one without a role comes first: a spec is about it until another is named.
names="nacre $(sed -n 's/^Package: \(nacre-.*\)/\1/p' deploy/debian/control)"
first=$(set -- "$work"/deb/nacre_*.deb; echo "$1")
full=$(dpkg-deb -f "$first" Version)
version=${full%-*} release=1
[ "$version" = "$full" ] || release=${full##*-}

# field PACKAGE NAME: of its control file, in a line
field() { dpkg-deb -f "$work/deb/$1_${full}_"*.deb "$2"; }

# needs PACKAGE FIELD: names; libraries are found by rpm itself, in the program
needs() {
  field "$1" "$2" | tr ',' '\n' | sed 's/^ *//' | while read -r n rest; do
    case $n in
    '' | lib*) ;;
    nacre*) echo "$n = %{version}-%{release}" ;;
    *) [ -n "$rest" ] && fail "'$n $rest' of $1: say how RPM has it" || echo "$n" ;;
    esac
  done
}

# moved: where distributions of RPMs have what Debian has elsewhere, and what is Debian's alone
moved() {
  rm -rf "$work/tree/usr/share/lintian"
  if [ -d "$work/tree/usr/share/zsh/vendor-completions" ]; then
    mv "$work/tree/usr/share/zsh/vendor-completions" "$work/tree/usr/share/zsh/site-functions"
  fi
}

# files PACKAGE DIR: its %files, of what is laid in DIR. Folders are listed only where the package alone has them.
files() {
  echo "%files ${1#nacre}" | sed 's/ -/ /; s/ $//'
  echo '%defattr(-,root,root,-)'
  (cd "$2" && find . -mindepth 1 \( -type f -o -type l \) -printf '/%P\n' | sort) | sed 's#/usr/share/zsh/vendor-completions/#/usr/share/zsh/site-functions/#' |
    grep -v '^/usr/share/lintian/' | while read -r f; do
    case $f in
    /etc/*) echo "%config(noreplace) $f" ;;
    /usr/share/man/* | /usr/share/doc/*) echo "%doc $f" ;;
    *) echo "$f" ;;
    esac
  done
  (cd "$2" && find . -mindepth 1 -type d -empty -printf '%%dir /%P\n' | sort)
}

# script PACKAGE DEBIAN'S RPM'S WORDS: a maintainer script as a scriptlet; WORDS make of RPM's $1 what dpkg would say
script() {
  local from=deploy/debian/$1.$2
  [ -f "$from" ] || return 0
  echo "%$3 ${1#nacre}" | sed 's/ -/ /; s/ $//'
  echo "$4"
  sed 1d "$from" | sed 's/%/%%/g'
}

spec=$work/nacre.spec
{
  cat <<HEAD
%global debug_package %{nil}
%global __os_install_post %{nil}
%global _build_id_links none
%global use_source_date_epoch_as_buildtime 1
%global clamp_mtime_to_source_date_epoch 1
%global _buildhost nacre.invalid
%global _binary_payload w6.zstdio
Name: nacre
Version: $version
Release: $release
License: MIT OR Apache-2.0
Summary: $(field nacre Description | head -n 1)
HEAD
  for p in $names; do
    if [ "$p" != nacre ]; then
      echo "%package ${p#nacre-}"
      echo "Summary: $(field "$p" Description | head -n 1)"
    fi
    needs "$p" Depends | sed 's/^/Requires: /'
    needs "$p" Recommends | sed 's/^/Recommends: /'
    echo "%description $([ "$p" = nacre ] || echo "${p#nacre-}")"
    field "$p" Description | sed '1d; s/^ \.\?//'
    echo
  done
  for p in $names; do
    dpkg-deb -x "$work/deb/${p}_${full}_"*.deb "$work/laid-$p"
    cp -a "$work/laid-$p/." "$work/tree/"
    files "$p" "$work/laid-$p"
    echo
    # shellcheck disable=SC2016
    script "$p" postinst post 'if [ "$1" -ge 2 ]; then set -- configure "before this update"; else set -- configure; fi'
    # shellcheck disable=SC2016
    for s in prerm:preun postrm:postun; do
      script "$p" "${s%:*}" "${s#*:}" 'if [ "$1" = 0 ]; then set -- remove; else set -- upgrade; fi'
    done
    echo
  done
} >"$spec"
moved
rpmbuild -bb --quiet --noclean --define "_topdir $work/top" --define "_rpmdir $work/rpms" --define "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
  --buildroot "$work/tree" "$spec" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "rpmbuild failed"; }
for f in "$work"/rpms/*.rpm; do
  mv "$f" "$out/"
  echo "$out/${f##*/}"
done
