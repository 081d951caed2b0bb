"""What users of every kind may do with files and directories under modes and access lists: a line each, to be
compared with what another file system says. Argument: an empty directory, in which root may do everything."""
import errno
import itertools
import os
import struct
import sys

base = sys.argv[1]
OWNER, GROUP, NAMED, NAMED_GROUP = 61001, 62001, 61003, 62003
# uid, gid, other groups
WHO = {
    "root": (0, 0, []),
    "owner": (OWNER, 62009, []),
    "group": (61002, GROUP, []),
    "second group": (61002, 62009, [GROUP]),
    "named": (NAMED, 62009, []),
    "named, in the group": (NAMED, GROUP, []),
    "named group": (61004, NAMED_GROUP, []),
    "both groups": (61005, 62009, [GROUP, NAMED_GROUP]),
    "other": (61006, 62009, []),
}
USER_OBJ, USER, GROUP_OBJ, GROUP_TAG, MASK, OTHER = 1, 2, 4, 8, 16, 32
NONE = 0xFFFFFFFF


def acl(owner, named, group, named_group, mask, other):
    entries = [(USER_OBJ, owner, NONE), (USER, named, NAMED), (GROUP_OBJ, group, NONE),
               (GROUP_TAG, named_group, NAMED_GROUP), (MASK, mask, NONE), (OTHER, other, NONE)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in entries)


# Modes without lists, and lists in which each entry decides once, the mask included.
MODES = [0o600, 0o640, 0o604, 0o660, 0o666, 0o400, 0o000, 0o755, 0o070]
LISTS = [
    acl(6, 6, 0, 0, 6, 0), acl(6, 4, 6, 0, 6, 0), acl(6, 0, 6, 6, 6, 6), acl(6, 6, 6, 6, 4, 0),
    acl(6, 6, 6, 6, 0, 6), acl(0, 6, 4, 2, 7, 0), acl(4, 2, 4, 6, 6, 4), acl(6, 7, 0, 4, 7, 4),
]


def said(act):
    try:
        act()
        return "yes"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))


def as_user(uid, gid, groups, work):
    """`work` in a process of its own; what it gives."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            os.write(w, work().encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(w)
    with os.fdopen(r, "rb") as f:
        text = f.read().decode()
    _, status = os.waitpid(pid, 0)
    assert status == 0 and text, (uid, status)
    return text


def opened(path, flags):
    os.close(os.open(path, flags))


def looks(path, is_dir):
    a_list = os.getxattr(path, "system.posix_acl_access") if "list" in path else acl(6, 4, 4, 4, 4, 4)
    acts = [
        ("read", lambda: opened(path, os.O_RDONLY)),
        ("write", lambda: opened(path, os.O_WRONLY) if not is_dir else opened(path + "/new", os.O_WRONLY | os.O_CREAT)),
        ("search", lambda: os.stat(path + "/in") if is_dir else os.stat(path)),
        ("getxattr", lambda: os.getxattr(path, "user.storm.checksum.adler32")),
        ("listxattr", lambda: os.listxattr(path)),
        ("setxattr", lambda: os.setxattr(path, "user.storm.checksum.adler32", b"0badc0de")),
        ("removexattr", lambda: os.removexattr(path, "user.gone")),
        ("getxattr of nothing", lambda: os.getxattr(path, "user.nothing")),
        ("removexattr of nothing", lambda: os.removexattr(path, "user.nothing")),
        ("trusted", lambda: os.getxattr(path, "trusted.kept")),
        ("security", lambda: os.setxattr(path, "security.ours", b"x")),
        ("getfacl", lambda: os.getxattr(path, "system.posix_acl_access")),
        ("setfacl", lambda: os.setxattr(path, "system.posix_acl_access", a_list)),
        ("chmod", lambda: os.chmod(path, os.stat(path).st_mode & 0o7777)),
        ("utime", lambda: os.utime(path)),
    ]
    return " ".join(f"{what}={said(act)}" for what, act in acts)


def make(path, is_dir):
    if is_dir:
        os.mkdir(path)
        open(path + "/in", "w").close()
    else:
        open(path, "w").close()
    os.setxattr(path, "user.storm.checksum.adler32", b"1")
    os.setxattr(path, "user.gone", b"1")
    os.setxattr(path, "trusted.kept", b"1")
    os.chown(path, OWNER, GROUP)


os.chmod(base, 0o755)
kinds = [(f"mode{m:o}", m, None) for m in MODES] + [(f"list{n}", None, a) for n, a in enumerate(LISTS)]
for (name, mode, a_list), is_dir, who in itertools.product(kinds, [False, True], WHO):
    path = f"{base}/{name}{'.dir' if is_dir else ''}.{who.replace(' ', '_').replace(',', '')}"
    make(path, is_dir)
    if a_list is None:
        os.chmod(path, mode)
    else:
        os.setxattr(path, "system.posix_acl_access", a_list)
    rights = as_user(*WHO[who], lambda: looks(path, is_dir))
    bits = as_user(*WHO[who], lambda: "".join(str(int(os.access(path, m))) for m in (4, 2, 1)))
    print(f"{name} {'directory' if is_dir else 'file'} {who}: {rights} access={bits} mode={os.stat(path).st_mode:o}")
