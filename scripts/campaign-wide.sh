#!/usr/bin/env bash
# campaign-wide.sh [PRESET] - makes the file system of a preset of nacre deploy (wide: 336 OSTs of 14 servers) in namespaces, each host
# with a network, mounts and control sockets of its own, and says how long that takes, how much memory the command and the servers
# have at most, and how long lfs df takes; wipes it. One row of CSV on standard output, everything else on standard error.
# Root, and a release build in CARGO_TARGET_DIR (target); scripts/apart.sh around it.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
bin=$(cd "${CARGO_TARGET_DIR:-$here/target}/release" && pwd)
preset=${1:-wide}
site=$(mktemp -d)
export PATH=$site/bin:$PATH
mkdir "$site/bin" && "$bin/nacre" install-links "$site/bin" >&2 && ln -s "$bin/nacre" "$site/bin/nacre"
nacre deploy preset "$preset" >"$site/plain.toml"
mapfile -t names < <(sed -n 's/^name = "\(.*\)"/\1/p' "$site/plain.toml")
mapfile -t nids < <(sed -n 's/^nids = "\(.*\)"/\1/p' "$site/plain.toml")

finish() {
  nacre deploy wipe --yes -q "$site/cluster.toml" >&2 || true
  for h in "${names[@]}"; do
    [ ! -f "$site/$h/pid" ] || kill "$(cat "$site/$h/pid")" 2>/dev/null || true
    ip netns del "w-$h" 2>/dev/null || true
  done
  ip netns del w-switch 2>/dev/null || true
  rm -rf "$site"
}
trap finish EXIT

printf '#!/bin/sh\nh=%s/$1; shift\nexec nsenter -t "$(cat "$h/pid")" --mount --net --uts "$@"\n' "$site" >"$site/on"
chmod 755 "$site/on"
mtu=$(sed -n 's/^mtu = //p' "$site/plain.toml")
ip netns add w-switch && ip -n w-switch link add sw0 type bridge && ip -n w-switch link set sw0 up
script=
for i in "${!names[@]}"; do
  h=${names[$i]} a=10.77.0.$((i + 1))
  ip netns add "w-$h" && ip -n "w-$h" link set lo up
  ip -n w-switch link add "p$i" type veth peer name eth0 netns "w-$h"
  ip -n w-switch link set "p$i" mtu "${mtu:-1500}" master sw0 up
  ip -n "w-$h" link set eth0 mtu "${mtu:-1500}"
  ip -n "w-$h" addr add "$a/24" dev eth0 && ip -n "w-$h" link set eth0 up
  mkdir -p "$site/$h/etc" "$site/$h/log"
  ip netns exec "w-$h" unshare --mount --uts sh -euc "hostname $h; mkdir -p /etc/nacre /var/log/nacre /run/nacre
    mount -t tmpfs none /run/nacre; mount --bind $site/$h/etc /etc/nacre; mount --bind $site/$h/log /var/log/nacre
    echo \$\$ >$site/$h/pid.new; mv $site/$h/pid.new $site/$h/pid; exec sleep infinity" >&2 &
  script="$script; s|\"${nids[$i]}\"|\"$a@tcp\"|; s|ssh = \"root@$h\"|exec = \"$site/on $h\"|"
done
for h in "${names[@]}"; do until [ -f "$site/$h/pid" ]; do sleep 0.1; done; done
sed "s|/srv/nacre|$site/srv|; s|/mnt/|$site/mnt-|; s|^\(fsname = .*\)|\1\nservice = \"process\"|$script" "$site/plain.toml" >"$site/cluster.toml"
mount=$(sed -n 's/^dir = "\(.*mnt-.*\)"/\1/p' "$site/cluster.toml")
client=$(awk '/^name/ { gsub(/"/, "", $3); n = $3 } /^roles.*client/ { print n; exit }' "$site/cluster.toml")
osts=$(nacre deploy plan --json "$site/cluster.toml" | grep -c '"what": "make .*-OST') || true

now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f", b - a }'; }
began=$(now)
python3 - "$site/cluster.toml" >"$site/apply.kib" <<'END'
import resource, subprocess, sys
subprocess.run(["nacre", "deploy", "apply", "-q", sys.argv[1]], check=True, stdout=sys.stderr)
# Of the largest of its children: the command itself and what it ran.
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
END
apply=$(since "$began")
began=$(now)
nacre deploy apply "$site/cluster.toml" | grep -q 'nothing was done'
again=$(since "$began")
until [ "$("$site/on" "$client" lfs osts "$mount" | grep -c ACTIVE)" = "$osts" ]; do sleep 0.2; done
peak=$(for p in /proc/[0-9]*; do
  if { tr "\0" " " <"$p/cmdline"; } 2>/dev/null | grep -q "^nacred.*$site/srv/ost"; then sed -n 's/^VmHWM:[[:space:]]*\([0-9]*\) kB/\1/p' "$p/status"; fi
done | sort -n | tail -1)
worst=0
for _ in 1 2 3 4 5; do
  began=$(now)
  rows=$("$site/on" "$client" lfs df "$mount" | grep -c '\[OST:')
  [ "$rows" = "$osts" ]
  worst=$(awk -v a="$worst" -v b="$(awk -v x="$began" -v y="$(now)" 'BEGIN { printf "%.3f", y - x }')" 'BEGIN { print (b > a) ? b : a }')
done
"$site/on" "$client" sh -euc "lfs setstripe -c -1 $mount/all; cp /bin/bash $mount/all; cmp /bin/bash $mount/all"
disk=$(du -sm "$site/srv" | cut -f1)
began=$(now)
nacre deploy wipe --yes -q "$site/cluster.toml" >&2
echo "preset,osts,hosts,apply_s,again_s,apply_rss_kib,server_peak_kib,lfs_df_worst_s,disk_mib,wipe_s"
echo "$preset,$osts,${#names[@]},$apply,$again,$(cat "$site/apply.kib"),$peak,$worst,$disk,$(since "$began")"
