# Files by their FIDs: arguments are a mount and the program lfs.
cd "$1"
lfs=$2
fail() { echo "$*" >&2; exit 1; }
refused() { # refused WORDS COMMAND...
    local words=$1 out
    shift
    if out=$("$@" 2>&1); then fail "$* is not refused"; fi
    case $out in *"$words"*) ;; *) fail "$*: $out" ;; esac
}
as_user() { setpriv --reuid=1000 --regid=1000 --clear-groups "$@"; }

mkdir -p d/sub closed
echo one >d/f
ln d/f d/other
echo secret >closed/f
chmod 644 closed/f
chmod 700 closed
f=$("$lfs" path2fid d/f)
d=$("$lfs" path2fid d)
secret=$("$lfs" path2fid closed/f)
for top in .lustre .nacre; do
    listed=fid
    # As with Lustre, what the check found without a name lies there.
    [ $top = .nacre ] || listed=$(printf 'fid\nlost+found')
    [ "$(ls $top)" = "$listed" ] || fail "$top lists $(ls $top)"
    [ -z "$(ls $top/fid)" ] || fail "files are listed"
    [ "$(cat "$top/fid/$f")" = one ] || fail "not the file"
    [ "$(stat -c '%i %h' "$top/fid/$f")" = "$(stat -c '%i %h' d/f)" ] || fail "another file"
    [ "$(readlink "$top/fid/$d")" = ../../d ] || fail "not the directory"
    [ "$(ls "$top/fid/$d")" = "$(ls d)" ] || fail "not what is in the directory"
    refused "No such file" cat "$top/fid/[0x200000400:0xffff:0x0]"
    refused "No such file" cat "$top/fid/nonsense"
    refused "Operation not permitted" rm -f "$top/fid/$f"
    refused "Operation not permitted" touch "$top/new"
    refused "File exists" mkdir $top
    refused "Operation not permitted" rmdir $top
    refused "Operation not permitted" mv -T closed $top
    [ "$(as_user cat "$top/fid/$f")" = one ] || fail "a user who could find it"
    refused "No such file" as_user cat "$top/fid/$secret"
    [ "$(cat "$top/fid/$secret")" = secret ] || fail "root finds everything"
    refused "No such file" as_user cat "$top/fid/$secret"
done
[ "$(ls -A)" = "$(printf 'closed\nd')" ] || fail "listed: $(ls -A)"
echo two >>".lustre/fid/$f"
[ "$(cat d/other)" = "$(printf 'one\ntwo')" ] || fail "written by FID, read by name"
mv d e
[ "$(cat ".lustre/fid/$d/f")" = "$(cat e/f)" ] || fail "a directory that has another name now"
mv e d
# A file without a name, as long as somebody has it open.
exec 5<>d/f
rm d/f d/other
[ "$(cat ".lustre/fid/$f")" = "$(printf 'one\ntwo')" ] || fail "no name, and open"
exec 5>&-
