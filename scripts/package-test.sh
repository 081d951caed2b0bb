#!/usr/bin/env bash
# package-test.sh [--bin FILE] - builds the Debian packages of a built program (by default TARGET/release/nacre), twice, as the same
# input must give the same bytes, and once more as the next version; then, in a clean Debian 12 of its own (namespaces, a root
# file system that is thrown away), installs them, makes a file system, mounts it, upgrades while it is mounted, removes and purges:
# what is left is compared with what was there before. Needs root; debootstrap and lintian are installed.
# The clean Debian is made once, from the machine's own mirror, and kept in TARGET/kit.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/kit"
target=$(cd "$target" && pwd)
program=$target/release/nacre
tree=$target/kit/debian-tree

passed=0
ok() {
  passed=$((passed + 1))
  echo "test $* ... ok"
}
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# fresh_tree: the clean Debian, with what the packages depend on and systemd's checks
fresh_tree() {
  local mirror
  [ ! -f "$tree.made" ] || return 0
  mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' \
    /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list 2>/dev/null | head -n 1) || true # some of them are not there
  [ -n "$mirror" ] || fail "no mirror of Debian is named in /etc/apt"
  rm -rf "$tree" "$tree.part"
  debootstrap --variant=minbase --include=fuse3,systemd bookworm "$tree.part" "$mirror" >"$target/kit/debootstrap.log" 2>&1 ||
    { tail -n 5 "$target/kit/debootstrap.log" >&2; fail "debootstrap made no clean Debian"; }
  rm -rf "$tree.part/var/cache/apt/archives"/*.deb
  mv "$tree.part" "$tree"
  touch "$tree.made"
}

needed() {
  local missing='' n
  for n in debootstrap:debootstrap lintian:lintian dpkg-shlibdeps:dpkg-dev rpmbuild:rpm xmllint:libxml2-utils apparmor_parser:apparmor; do
    command -v "${n%%:*}" >/dev/null || missing="$missing ${n##*:}"
  done
  [ -n "$missing" ] || return 0
  apt-get update -qq
  # shellcheck disable=SC2086
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

# build: packages of this version in $work/1, and of the next one in $work/2
build() {
  local f
  scripts/package-deb.sh --bin "$program" --out "$work/1" --compress gzip:1
  scripts/package-deb.sh --bin "$program" --out "$work/again" --compress gzip:1 >/dev/null
  for f in "$work"/1/*.deb; do cmp "$f" "$work/again/${f##*/}" || fail "the same input gave another '${f##*/}'"; done
  ok the_same_input_gives_the_same_bytes
  version=$(dpkg-deb -f "$work"/1/nacre_*.deb Version)
  scripts/package-deb.sh --bin "$program" --out "$work/2" --version "$version+1" --compress gzip:1 >/dev/null
  # Its status counts what is overridden, too.
  lintian --allow-root --show-overrides "$work"/1/*.deb | tee "$work/lintian"
  ! grep -q '^[EW]:' "$work/lintian" || fail "lintian: see above"
  ok lintian_finds_neither_errors_nor_warnings
}

# rpms: the same packages for others, as far as a Debian can look at them: built twice, what lies in them, laid into an empty root
rpms() {
  local f p root=$work/rpm-root
  scripts/package-rpm.sh --bin "$program" --out "$work/rpm"
  scripts/package-rpm.sh --bin "$program" --out "$work/rpm-again" >/dev/null
  for f in "$work"/rpm/*.rpm; do cmp "$f" "$work/rpm-again/${f##*/}" || fail "the same input gave another '${f##*/}'"; done
  for f in "$work"/rpm/*.rpm; do
    p=$(rpm -qp --queryformat '%{NAME}' "$f")
    dpkg-deb -c "$work/1/${p}_${version}_"*.deb | awk '$1 !~ /^d/ { print substr($6, 2) }' | sed 's#zsh/vendor-completions#zsh/site-functions#' |
      grep -v ^/usr/share/lintian/ | sort >"$work/of-deb"
    rpm -qp --queryformat '[%{FILEMODES:perms} %{FILENAMES}\n]' "$f" | sed -n '/^d/!s/^[^ ]* //p' | sort >"$work/of-rpm"
    diff "$work/of-deb" "$work/of-rpm" >&2 || fail "$p is another as an RPM"
    rpm -qp --scripts "$f" | sed 's/^[a-z]* scriptlet .*/:/' | sh -n || fail "a scriptlet of $p is no script"
  done
  [ "$(rpm -qp --requires "$work"/rpm/nacre-"$version"-*.rpm | grep -c '^nacre-')" = 2 ] || fail "the RPM nacre does not bring the others"
  mkdir "$root"
  rpm --root "$root" --dbpath /var/lib/rpm -i --nodeps --noscripts "$work"/rpm/*.rpm 2>/dev/null || fail "the RPMs cannot be installed"
  [ "$("$root/usr/sbin/mount.nacre" -V)" = "mount.nacre $version" ] || fail "the program of the RPMs does not run"
  rpm --root "$root" --dbpath /var/lib/rpm -e --nodeps --noscripts nacre nacre-client nacre-server nacre-common 2>/dev/null || fail "the RPMs cannot be removed"
  [ -z "$(cd "$root" && find . ! -type d ! -path './var/lib/rpm/*')" ] || fail "the RPMs leave files"
  ok rpms_have_what_the_debian_packages_have
}

# bundled: what hosts without network get, and files for what is not at hand here, as far as they can be looked at
bundled() {
  local b r f n
  scripts/bundle.sh --bin "$program" --out "$work/bundle.tar"
  mkdir "$work/bundle"
  tar -C "$work/bundle" -xf "$work/bundle.tar"
  b=$work/bundle/nacre-$version
  for r in server client both; do
    "$b/install.sh" "$r" --dry-run | tr ' ' '\n' | grep "^$b" >"$work/files" || fail "install.sh $r names no packages"
    while read -r f; do [ -f "$f" ] || fail "install.sh $r names '$f', which is not there"; done <"$work/files"
  done
  [ "$(wc -l <"$work/files")" = 3 ] || fail "a host of both roles gets other packages"
  ! "$b/install.sh" servre 2>"$work/said" || fail "install.sh takes a role that is none"
  grep -q "'servre' is no role: server, client or both" "$work/said" || fail "install.sh does not say what a role is"
  for f in "$b"/container/Containerfile.*; do
    ! sed ':a; /\\$/N; s/\\\n//; ta; /^#/d; /^$/d' "$f" | grep -Ev '^(FROM|COPY|RUN|EXPOSE|STOPSIGNAL|HEALTHCHECK|CMD|ENTRYPOINT) ' || fail "$f has another instruction"
    # They are patterns, without blanks.
    # shellcheck disable=SC2013
    for n in $(sed -n 's/^COPY \(.*\) [^ ]*$/\1/p' "$f"); do
      # shellcheck disable=SC2086
      (cd "$b" && ls -d $n >/dev/null) || fail "$f copies '$n', which the bundle has not"
    done
  done
  echo x >>"$b/install.md"
  ! "$b/install.sh" client --dry-run 2>"$work/said" >/dev/null || fail "install.sh does not see that a file changed"
  ok a_bundle_installs_roles_and_sees_damage
  xmllint --noout deploy/firewalld/nacre.xml || fail "the service for firewalld is no XML"
  mkdir "$work/tmpfiles"
  systemd-tmpfiles --root="$work/tmpfiles" --create "$PWD/deploy/tmpfiles/nacre.conf" || fail "systemd-tmpfiles refuses nacre.conf"
  for n in run/nacre var/log/nacre var/lib/nacre; do [ -d "$work/tmpfiles/$n" ] || fail "nacre.conf does not make /$n"; done
  # Its rule for user namespaces is newer than Debian 12's parser: the rest is read.
  sed '/^ *userns,/d; s#abi/4.0#abi/3.0#' deploy/apparmor/nacre >"$work/apparmor"
  apparmor_parser -Q -K "$work/apparmor" 2>"$work/said" || { cat "$work/said" >&2; fail "AppArmor does not read its profile"; }
  ok files_for_firewalld_tmpfiles_and_apparmor_are_read
}

# root_of DIR: a clean Debian in DIR, in this mount namespace, whose changes lie in memory
root_of() {
  local n
  mount --make-rprivate /
  mount -t tmpfs none "$1"
  mkdir "$1/upper" "$1/work" "$1/root"
  mount -t overlay none -o "lowerdir=$tree,upperdir=$1/upper,workdir=$1/work" "$1/root"
  root=$1/root
  # As on a host with systemd: who has mounts of his own sees what changes here.
  mount --make-shared "$root"
  mount -t proc none "$root/proc"
  mount -t tmpfs none "$root/run"
  mount -t tmpfs none "$root/tmp"
  mount -t tmpfs none "$root/dev"
  for n in null zero random urandom fuse; do
    touch "$root/dev/$n"
    mount --bind "/dev/$n" "$root/dev/$n"
  done
}

# entered COMMAND…: becomes the command there; `inside` calls it
entered() { exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"; }
inside() { (entered timeout 60 "$@"); }

# listing: all files, and what is in those of /etc; without dpkg's own books and what tells of a run
listing() {
  (cd "$root" && find . \( -path ./proc -o -path ./run -o -path ./tmp -o -path ./dev \) -prune -o \
    -path './var/lib/dpkg/*-old' -prune -o -path ./var/log/dpkg.log -prune -o -print | sort
  find etc -type f -print0 | sort -z | xargs -0 md5sum)
}

# until_true SECONDS COMMAND…: waits for it
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.1
  done
}

# of_unit KEY: what nacre-target@ says, with a drop-in's if `drop_in` names one
of_unit() {
  cat "$root/usr/lib/systemd/system/nacre-target@.service" ${drop_in:+"$root$drop_in"} | sed -n "s/^$1=//p" | tail -n 1
}

# serve NAME: nacred as nacre-target@NAME has it: its command, its capabilities and no others, and unless a drop-in says otherwise
# mounts of its own, with little that can be written. Its pid is in `server`.
drop_in=
serve() {
  local command caps own=()
  command=$(of_unit ExecStart)
  caps=$(of_unit CapabilityBoundingSet | tr 'A-Z ' 'a-z,' | sed 's/cap_/+/g')
  [ -n "$caps" ] || fail "nacre-target@ names no capabilities"
  # shellcheck disable=SC2016
  [ "$(of_unit ProtectSystem)" = no ] || own=(unshare --mount --propagation slave sh -c '
    for d in /usr /etc /proc/sys; do mount --bind $d $d && mount -o remount,bind,ro $d || exit 1; done
    for d in /tmp /home /root; do mount -t tmpfs none $d || exit 1; done
    exec "$@"' own)
  # The unit's words are the shell's, too: $OPTIONS and $TARGETS are split.
  entered "${own[@]}" setpriv --no-new-privs --bounding-set "-all,$caps" --inh-caps=-all \
    sh -c ". /etc/nacre/$1; exec $command" >"$root/var/log/nacre/$1.log" 2>&1 &
  server=$!
  until_true 30 grep -q ' serving ' "$root/var/log/nacre/$1.log" || { cat "$root/var/log/nacre/$1.log" >&2; fail "nacred does not serve"; }
}

# units: what systemd says of them, without running
units() {
  local u
  inside sh -c 'systemd-analyze verify --man=no /usr/lib/systemd/system/nacre-*.service /tmp/mnt-demo.mount' >"$work/verify" 2>&1 || true
  ! grep -v -e RestartSteps -e RestartMaxDelaySec "$work/verify" | grep . || fail "systemd-analyze verify: see above"
  for u in "$root"/usr/lib/systemd/system/nacre-*.service; do
    inside systemd-analyze security --offline=true --no-pager "${u#"$root"}" 2>/dev/null | sed -n 's/^[^O]*Overall/Overall/p'
  done
  ok systemd_takes_the_units
}

install_packages() {
  cp "$work"/[12]/*.deb deploy/examples/mnt-demo.mount "$root/tmp/"
  inside dpkg --force-unsafe-io -i "/tmp/nacre-common_${version}_$arch.deb" "/tmp/nacre-server_${version}_$arch.deb" \
    "/tmp/nacre-client_${version}_$arch.deb" "/tmp/nacre_${version}_$arch.deb" >"$work/install.out" 2>&1 ||
    { cat "$work/install.out" >&2; fail "the packages are not installed"; }
}

has_what_it_names() {
  local n
  inside mkdir /tmp/links
  inside nacre install-links /tmp/links
  for n in "$root"/tmp/links/*; do
    n=${n##*/}
    [ "$(inside sh -c "readlink -f \$(command -v $n)")" = /usr/bin/nacre ] || fail "no package has the program's name '$n'"
  done
  ok packages_have_every_name_of_the_program
  for n in docs/man/*; do
    [ -f "$root/usr/share/man/man${n##*.}/${n##*/}.gz" ] || fail "no package has '$n': name it in deploy/debian/nacre-*.files"
  done
  ok packages_have_every_manual_page
  [ -z "$(find "$root/etc/systemd/system" -name 'nacre*')" ] || fail "a unit was enabled by the installation"
  ! grep -qx nacred "$root"/proc/[0-9]*/comm 2>/dev/null || fail "a server was started by the installation"
  ok nothing_is_enabled_or_started
}

# used: a file system of two targets, mounted by mount(8)
used() {
  inside mkdir -p /var/lib/nacre/targets /mnt/demo
  inside mkfs.nacre --quiet --mgs --mdt --fsname=demo --index=0 /var/lib/nacre/targets/mdt0
  inside mkfs.nacre --quiet --ost --fsname=demo --index=0 --mgsnode=127.0.0.1@tcp /var/lib/nacre/targets/ost0
  echo 'TARGETS="/var/lib/nacre/targets/mdt0 /var/lib/nacre/targets/ost0" OPTIONS="--nid 127.0.0.1@tcp"' >"$root/etc/nacre/all"
  serve all
  # The file system is known when its targets have registered.
  until_true 30 inside mount -t nacre 127.0.0.1@tcp:/demo /mnt/demo || { cat "$root"/var/log/nacre/* >&2; fail "it is not mounted"; }
  until_true 60 inside sh -c 'rm -f /mnt/demo/file; lfs setstripe -c 1 /mnt/demo/file' || fail "the object target does not serve"
  inside sh -c 'cat /usr/bin/nacre >/mnt/demo/file && sync /mnt/demo/file && cmp /usr/bin/nacre /mnt/demo/file' || fail "the file is wrong"
  ok a_file_system_is_made_mounted_and_used
}

# joined: a target that mount(8) gives to the unit's server, which the drop-in is for
joined() {
  local said
  inside mkdir -p /mnt/ost1
  inside mkfs.nacre --quiet --ost --fsname=demo --index=1 --mgsnode=127.0.0.1@tcp --servicenode=127.0.0.1@tcp /var/lib/nacre/targets/ost1
  ! said=$(inside mount -t nacre /var/lib/nacre/targets/ost1 /mnt/ost1 2>&1) || fail "a hardened server placed a mount"
  echo "$said"
  inside lfs df /mnt/demo >/dev/null || fail "the server does not go on"
  kill "$server"
  wait "$server" || fail "the server did not stop in order"
  drop_in=/usr/share/doc/nacre-server/examples/mounted-targets.conf
  serve all
  until_true 30 inside mount -t nacre /var/lib/nacre/targets/ost1 /mnt/ost1 || { cat "$root"/var/log/nacre/* >&2; fail "with the drop-in it is not mounted either"; }
  until_true 60 inside sh -c 'rm -f /mnt/demo/on-ost1; lfs setstripe -i 1 /mnt/demo/on-ost1' || { inside lfs setstripe -i 1 /mnt/demo/on-ost1 || tail -n 20 "$root"/var/log/nacre/*.log; fail "the mounted target does not serve"; }
  inside umount /mnt/ost1
  kill "$server"
  wait "$server" || fail "the server did not stop in order"
  drop_in=
  serve all
  inside rmdir /mnt/ost1
  ok a_unit_takes_mounted_targets_with_the_drop_in_only
}

upgraded() {
  inside dpkg --force-unsafe-io -i "/tmp/nacre-common_$version+1_$arch.deb" "/tmp/nacre-server_$version+1_$arch.deb" \
    "/tmp/nacre-client_$version+1_$arch.deb" "/tmp/nacre_$version+1_$arch.deb" >"$work/upgrade.out" 2>&1 ||
    { cat "$work/upgrade.out" >&2; fail "the packages are not upgraded"; }
  sed -n '/^Nacre:/,$p' "$work/upgrade.out"
  grep -q "pid .*nacred" "$work/upgrade.out" || fail "the upgrade does not say that nacred wants to be started again"
  grep -q "pid .*mount.*demo" "$work/upgrade.out" || fail "the upgrade does not say that the mount is of the version before"
  kill -0 "$server" || fail "the upgrade ended the server"
  inside cmp /usr/bin/nacre /mnt/demo/file || fail "the file is wrong after the upgrade"
  # As it says: in order, and again, under the mount.
  kill "$server"
  wait "$server" || fail "the server did not stop in order"
  serve all
  inside sh -c 'echo after >/mnt/demo/after && sync /mnt/demo/after && cmp /usr/bin/nacre /mnt/demo/file' ||
    fail "the mount does not go on with the server's next version"
  case $(readlink "/proc/$server/exe") in *deleted*) false ;; */nacre) ;; *) false ;; esac || fail "the server's program is not the new one: $(readlink "/proc/$server/exe")"
  ok an_upgrade_restarts_nothing_and_says_what_to_restart
}

removed() {
  inside dpkg -r nacre nacre-client >"$work/remove.out" 2>&1 || { cat "$work/remove.out" >&2; fail "not removed"; }
  grep -q "'/mnt/demo' stays mounted" "$work/remove.out" || fail "the removal says nothing of the mount"
  inside cat /mnt/demo/after >/dev/null || fail "the removal ended a mount"
  inside umount /mnt/demo
  inside dpkg -r nacre-server >"$work/remove.out" 2>&1 || { cat "$work/remove.out" >&2; fail "not removed"; }
  grep -q "goes on serving" "$work/remove.out" || fail "the removal says nothing of the server"
  kill "$server"
  wait "$server" || fail "the server did not stop in order"
  inside dpkg -r nacre-common >"$work/remove.out" 2>&1 || { cat "$work/remove.out" >&2; fail "not removed"; }
  [ -f "$root/etc/nacre/all" ] || fail "a removal took configuration"
  inside find /var/log/nacre -name '*.log' | grep -q . || fail "a removal took logs"
  ok what_runs_outlives_a_removal
}

# purged: what an administrator enabled goes, a target that lies where it should not stays
purged() {
  mkdir -p "$root/etc/systemd/system/multi-user.target.wants" "$root/var/log/nacre/odd" "$root/var/lib/nacre/odd"
  ln -s /lib/systemd/system/nacre-target@.service "$root/etc/systemd/system/multi-user.target.wants/nacre-target@all.service"
  cp "$root/var/lib/nacre/targets/mdt0/superblock" "$root/var/log/nacre/odd/"
  echo x >"$root/etc/default/nacre"
  inside dpkg -P nacre nacre-client nacre-server nacre-common >"$work/purge.out" 2>&1 || { cat "$work/purge.out" >&2; fail "not purged"; }
  grep -q "'/var/log/nacre' stays: a target lies in '/var/log/nacre/odd'" "$work/purge.out" || fail "a target in /var/log/nacre was not seen"
  [ -f "$root/var/log/nacre/odd/superblock" ] || fail "a purge took a target's superblock"
  [ -f "$root/var/lib/nacre/targets/ost0/table.redb" ] || fail "a purge took a target"
  ok a_purge_takes_no_target
  rm -r "$root/var/log/nacre" "$root/var/lib/nacre" "$root/mnt/demo"
  listing >"$work/after"
  diff "$work/before" "$work/after" >"$work/left" || { cat "$work/left" >&2; fail "a purge leaves something, see above"; }
  [ ! -e "$root/run/nacre" ] || fail "a purge leaves /run/nacre"
  ok a_purge_leaves_nothing_else
}

# within: what runs in namespaces of its own; its end ends all processes in them
within() {
  ip link set lo up
  mkdir "$work/debian"
  root_of "$work/debian"
  listing >"$work/before"
  install_packages
  has_what_it_names
  units
  used
  joined
  upgraded
  removed
  purged
  echo "test result: ok. $passed passed; 0 failed;"
}

if [ "${1:-}" = --within ]; then
  work=$2 version=$3 passed=$4 arch=$(dpkg --print-architecture)
  within
  exit
fi
if [ $# = 2 ] && [ "$1" = --bin ]; then program=$(realpath "$2"); elif [ $# != 0 ]; then
  echo "usage: package-test.sh [--bin FILE]" >&2
  exit 2
fi
[ "$(id -u)" = 0 ] || fail "needs root: it makes namespaces and mounts"
needed
fresh_tree
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build
rpms
bundled
timeout --kill-after=5 300 unshare --mount-proc --net --pid --fork --kill-child "$0" --within "$work" "$version" "$passed"
