# A file system of an ordinary user: arguments are an empty folder, a user without an account and the programs' folder.
# Everything here runs in a mount namespace of the test's own, because the host's /dev/fuse may be root's alone.
set -eu
here=$1 uid=$2 bin=$3
fs=$here/fs mnt=$here/mnt
fail() { echo "$*" >&2; exit 1; }
mknod "$here/fuse" c 10 229
chmod 666 "$here/fuse"
mount --bind "$here/fuse" /dev/fuse
mkdir "$here/home"
chown "$uid:$uid" "$here" "$here/home"
cd "$here/home"
as() { env -u NACRE_RUN_DIR HOME="$here/home" PATH="$bin:/usr/sbin:/usr/bin:/sbin:/bin" setpriv --reuid="$1" --regid="$1" --clear-groups "${@:2}"; }
user() { as "$uid" "$@"; }
nacre_root() { "$bin/nacre" "$@"; }
user_in_chroot() { chroot "$here/root" setpriv --reuid="$uid" --regid="$uid" --clear-groups "$bin/$1" "${@:2}"; }
says() { # says STATUS WORDS COMMAND...
  local want=$1 words=$2 out status=0
  shift 2
  out=$("$@" 2>&1) || status=$?
  [ "$status" = "$want" ] || fail "$*: exit status $status, not $want: $out"
  case $out in *"$words"*) ;; *) fail "$*: lacks '$words': $out" ;; esac
}
mine() { # pids of the user's processes
  grep -ls "^Uid:[[:space:]]$uid[[:space:]]" /proc/[0-9]*/status | tr -dc '0-9\n' || :
}
gone() { for _ in $(seq 500); do [ -n "$(mine)" ] || return 0; sleep 0.02; done; fail "left: $(ps -o pid,args -p "$(mine | paste -sd,)")"; }

says 1 "no file system of yours is up" user nacre shell -- true
# Formatted, started, mounted; a relative path means the same inside.
says 0 "nacre shell --dir $fs" user nacre up --dir ../fs --mount ../mnt --osts 2
[ -z "$(ls "$mnt")" ] || fail "the mount is seen outside"
grep -q " $mnt " /proc/mounts && fail "the mount is in this namespace"

# Written and read, by several commands: each enters anew.
says 0 "" user nacre shell -- sh -c "mkdir $mnt/d && echo kept >$mnt/d/f && cp $bin/nacre $mnt/d/big"
says 0 kept user nacre shell --dir "$fs" cat "$mnt/d/f"
says 0 "" user nacre shell -- cmp "$bin/nacre" "$mnt/d/big"
says 0 "big" user nacre shell -- ls "$mnt/d"
says 0 "OST0001" user nacre shell -- lfs df "$mnt"
says 0 "FULL" user nacre shell -- lctl get_param -n 'osc.*OST0000*.import'
says 0 "$here/home" user nacre shell -- pwd
says 3 "" user nacre shell -- sh -c 'exit 3'
says 127 "cannot run 'nonesuch'" user nacre shell -- nonesuch
# What is written is the user's, and nobody else can be named there.
says 0 "0 0" user nacre shell -- stat -c '%u %g' "$mnt/d/f"
says 1 "Invalid argument" user nacre shell -- chown 5 "$mnt/d/f"
[ "$(stat -c %u "$fs/mgt")" = "$uid" ] || fail "the folder is another's"
# A shell without a command is $SHELL, and nothing is asked of a terminal.
as_words() { echo 'echo in here as $(id -u)' | SHELL=/bin/sh user nacre shell; }
says 0 "in here as 0" as_words
# Status and a second up from outside find it; whoever is killed comes back.
says 0 "watched by" user nacre status --dir "$fs"
up=$(user nacre status --dir "$fs" --json)
says 0 "Again up" user nacre up --dir "$fs"
[ "$(user nacre status --dir "$fs" --json)" = "$up" ] || fail "a second up changed something"
kill -9 "$(pgrep -u "$uid" -f "ost0001")"
for _ in $(seq 500); do
  case $(user nacre status --dir "$fs" | grep OST0001) in *" up "*) break ;; esac
  sleep 0.02
done
says 0 kept user nacre shell -- cat "$mnt/d/f"

# Others are told whose it is; root has no business in there either.
says 1 "runs as user $uid" nacre_root status --dir "$fs"
says 1 "runs as user $uid" as 54322 "$bin/nacre" shell --dir "$fs"

# A user of the mount is in the way of down, and named.
: >"$here/ready"
user nacre shell -- sh -c "cd $mnt/d && echo ready && exec sleep 1000" >"$here/ready" &
for _ in $(seq 500); do grep -q ready "$here/ready" && break; sleep 0.02; done
says 16 "sleep" user nacre down --dir "$fs"
kill "$(pgrep -u "$uid" sleep)"
wait %1 || :
says 0 "is down" user nacre down --dir "$fs"
gone
[ ! -e "$fs/run" ] || fail "sockets are left"
says 0 "dead" user nacre status --dir "$fs"
says 1 "is not up: start it with 'nacre up --dir $fs'" user nacre shell --dir "$fs"
says 0 "is down" user nacre down --dir "$fs"

# Its files are there again, then wiped.
says 0 "Again up" user nacre up --dir "$fs"
says 0 kept user nacre shell -- cat "$mnt/d/f"
says 0 "are gone" user nacre wipe --dir "$fs"
gone
[ ! -e "$fs" ] && [ ! -e "$mnt" ] || fail "wipe left $(ls "$here")"

# What cannot be done is said by name.
long=$here/$(printf 'x%.0s' $(seq 80))
says 1 "at most 70, as sockets lie in it" user nacre up --dir "$long"
mkdir "$here/root"
mount --rbind / "$here/root"
says 1 "a container, a chroot" user_in_chroot nacre up --dir "$fs"
chmod 600 "$here/fuse"
says 1 "chmod 666 /dev/fuse" user nacre up --dir "$fs"
gone
