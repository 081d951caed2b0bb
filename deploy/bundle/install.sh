#!/bin/sh
# install.sh server|client|both [--dry-run] - installs what this host needs from the bundle that the script lies in. Root's.
# --dry-run says what would be done. Nothing is enabled or started.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
fail() {
  echo "install.sh: $*" >&2
  exit 1
}
role=${1:-} dry=
case ${2:-} in '') ;; --dry-run) dry='echo' ;; *) fail "unknown option '$2': there is --dry-run" ;; esac
case $role in
server) packages='common server' ;;
client) packages='common client' ;;
both) packages='common server client' ;;
-h | --help) sed -n '2,3s/^# \{0,1\}//p' "$0"; exit ;;
'') fail "say what this host is: server, client or both" ;;
*) fail "'$role' is no role: server, client or both" ;;
esac
(cd "$here" && sha256sum --quiet -c SHA256SUMS) || fail "the bundle is damaged: copy it again"
[ -n "$dry" ] || [ "$(id -u)" = 0 ] || fail "needs root; with --dry-run it only says what it would do"

files=
if command -v dpkg >/dev/null && [ -e /etc/debian_version ]; then
  for p in $packages; do files="$files $(echo "$here"/debian/nacre-"$p"_*.deb)"; done
  # What is missing beside is taken from where the host has its packages, and named if that is nowhere.
  set -- apt-get install -y --no-install-recommends
elif command -v dnf >/dev/null || command -v zypper >/dev/null || command -v rpm >/dev/null; then
  [ -d "$here/rpm" ] || fail "this bundle has no RPMs: it was made without rpmbuild"
  for p in $packages; do files="$files $(echo "$here"/rpm/nacre-"$p"-*.rpm)"; done
  if command -v dnf >/dev/null; then
    set -- dnf install -y
  elif command -v zypper >/dev/null; then
    set -- zypper --non-interactive install --allow-unsigned-rpm
  else
    set -- rpm -U
  fi
else
  fail "this host has neither dpkg nor rpm"
fi
# Names of the bundle's own files have no blanks, and its folder's are taken care of here.
case $here in *' '*) fail "put the bundle into a folder without blanks in its name" ;; esac
# shellcheck disable=SC2086
$dry "$@" $files
[ -n "$dry" ] || echo "Installed for: $role. Go on with $here/install.md."
