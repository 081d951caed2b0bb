"""Programs for inodes.rs: argv is NAME MOUNT MOUNT2."""
import ctypes, errno, fcntl, mmap, os, stat, struct, sys, time

NAME, M, M2 = sys.argv[1], sys.argv[2], sys.argv[3]
libc = ctypes.CDLL(None, use_errno=True)


def refused(why, call, *args, **named):
    try:
        r = call(*args, **named)
    except OSError as e:
        assert e.errno == why, (call, args, e, errno.errorcode[why])
        return
    raise AssertionError(f"{call} {args} gave {r}")


def removed_directories():
    for here, how in ((True, "rmdir"), (True, "rename"), (False, "rmdir")):
        for hold in ("cwd", "open", "path"):
            removed(f"{M}/{how}-{hold}-{here}", here, how, hold)


def removed(d, here, how, hold):
    os.mkdir(d, 0o750)
    os.chown(d, 7, 8)
    ino = os.stat(d).st_ino
    fd = os.open(d, os.O_PATH if hold == "path" else os.O_RDONLY) if hold != "cwd" else None
    os.chdir("/" if fd is not None else d)
    other = d if here else d.replace(M, M2, 1)
    if how == "rename":
        os.mkdir(d + ".new")
        os.rename(d + ".new", d)
    else:
        os.rmdir(other)
    at = {"dir_fd": fd} if fd is not None else {}
    for s in (os.stat(".", **at), os.lstat(".", **at)) + ((os.fstat(fd),) if fd is not None else ()):
        assert (s.st_ino, s.st_nlink, stat.S_IMODE(s.st_mode), s.st_uid, s.st_gid) == (ino, 0, 0o750, 7, 8), (d, s)
        assert stat.S_ISDIR(s.st_mode)
    assert os.stat("..", **at).st_ino == os.stat(M).st_ino
    f = os.open(".", os.O_RDONLY | os.O_DIRECTORY, **at)
    assert os.listdir(f) == []
    os.fsync(f)
    os.fchmod(f, 0o711)
    os.utime(f, (1, 2))
    s = os.fstat(f)
    assert (stat.S_IMODE(s.st_mode), s.st_atime, s.st_mtime, s.st_nlink) == (0o711, 1, 2, 0), s
    assert os.listxattr(f) == []
    refused(errno.ENODATA, os.getxattr, f, "user.x")
    refused(errno.ENOENT, os.stat, "x", **at)
    refused(errno.ENOENT, os.open, "x", os.O_CREAT | os.O_RDWR, **at)
    refused(errno.ENOENT, os.mkdir, "x", **at)
    os.fchdir(f)
    os.close(f)
    assert os.statvfs(".").f_namemax == 255 and os.access(".", os.R_OK | os.W_OK | os.X_OK)
    if here:
        refused(errno.ENOENT, os.getcwd)
    os.chdir("/")
    if fd is not None:
        os.close(fd)
    if how == "rename":
        os.rmdir(d)
    refused(errno.ENOENT, os.stat, d)


GET, SET = 0x80086601, 0x40086602
SYNC, APPEND, IMMUTABLE, NODUMP, NOATIME = 0x8, 0x20, 0x10, 0x40, 0x80
SETTABLE = SYNC | APPEND | IMMUTABLE | NODUMP | NOATIME


def flags(path, new=None):
    f = os.open(path, os.O_RDONLY)
    try:
        if new is not None:
            kept = struct.unpack("I", fcntl.ioctl(f, GET, b"\0" * 8)[:4])[0] & ~SETTABLE
            fcntl.ioctl(f, SET, struct.pack("Q", new | kept))
        return struct.unpack("I", fcntl.ioctl(f, GET, b"\0" * 8)[:4])[0] & SETTABLE
    finally:
        os.close(f)


def fallocate(f, mode):
    if libc.fallocate(f, mode, ctypes.c_long(0), ctypes.c_long(4)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def copied(source, f):
    return os.copy_file_range(source, f, 4, 0, 0)


def content(name):
    seen = [open(m + name, "rb").read() for m in (M, M2)]
    assert seen[0] == seen[1], seen
    return seen[0]


def flagged_files():
    """Small, with its inode; and on objects."""
    for name, size in (("/small", 10), ("/large", 300_000)):
        for mount in (M, M2):
            append_only(name, b"0" * size, mount)
            immutable(name, b"0" * size, mount)
    with open(M + "/plain", "wb") as f:
        f.write(b"x")
    assert flags(M + "/plain", NODUMP) == NODUMP == flags(M2 + "/plain")
    with open(M + "/plain", "ab") as f:
        f.write(b"y")
    os.truncate(M + "/plain", 1)
    os.unlink(M + "/plain")


def made(name, data):
    with open(M + name, "wb") as f:
        f.write(data)
    source = os.open(M + "/source", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.write(source, b"source")
    return source, os.open(M + name, os.O_RDWR)


def append_only(name, data, setter):
    """`setter`: the mount on which the flag is set."""
    p = M + name
    source, before = made(name, data)
    mapped = mmap.mmap(before, 10)
    flags(setter + name, APPEND)
    for how in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_TRUNC | os.O_APPEND):
        refused(errno.EPERM, os.open, p, how)
    for call, args in (
        (os.truncate, (p, 1)),
        (os.truncate, (p, 1 << 20)),
        (os.ftruncate, (before, 1)),
        (os.unlink, (p,)),
        (os.rename, (p, p + "2")),
        (os.rename, (M + "/source", p)),
        (os.link, (p, p + "2")),
        (os.chmod, (p, 0o600)),
        (os.chown, (p, 1, 1)),
        (os.utime, (p, (1, 1))),
        (os.setxattr, (p, "user.x", b"1")),
    ):
        refused(errno.EPERM, call, *args)
    f = os.open(p, os.O_RDWR | os.O_APPEND)
    assert os.write(f, b"abc") == 3
    for mode in (3, 0x10, 0x11):
        refused(errno.EPERM, fallocate, f, mode)
        refused(errno.EPERM, fallocate, before, mode)
    fallocate(f, 1)
    refused(errno.EBADF, copied, source, f)  # Linux: not onto O_APPEND
    fcntl.fcntl(f, fcntl.F_SETFL, 0)
    refused(errno.EPERM, os.pwrite, f, b"over", 0)
    refused(errno.EPERM, copied, source, f)
    fcntl.fcntl(f, fcntl.F_SETFL, os.O_APPEND)
    assert os.pwrite(f, b"def", 0) == 3
    assert content(name) == data + b"abcdef", content(name)[:20]
    # Who had it open for more than appending before goes on, as on ext4.
    assert os.pwrite(before, b"AB", 0) == 2 and copied(source, before) == 4
    mapped[9] = ord("M")
    mapped.flush()
    mapped.close()
    os.close(before)
    kept = content(name)
    assert kept[:10] == b"sour00000M" and kept[-6:] == b"abcdef", kept[:12]
    # A mapping cannot be refused: what is stored into it is.
    m = mmap.mmap(f, 10)
    m[0] = ord("X")
    refused(errno.EPERM, m.flush)
    m.close()
    os.close(f)
    assert os.pread(source, 6, 0) == b"source" and content(name) == kept
    flags(setter + name, 0)
    os.truncate(p, 1)
    os.unlink(p)
    os.close(source)


def immutable(name, data, setter):
    p = M + name
    source, before = made(name, data)
    appending = os.open(p, os.O_WRONLY | os.O_APPEND)
    flags(setter + name, IMMUTABLE)
    for call, args in (
        (os.open, (p, os.O_WRONLY | os.O_APPEND)),
        (os.open, (p, os.O_RDWR)),
        (os.pwrite, (before, b"Z", 0)),
        (os.write, (appending, b"Z")),
        (fallocate, (before, 0)),
        (fallocate, (before, 1)),
        (fallocate, (before, 3)),
        (copied, (source, before)),
        (os.ftruncate, (before, 1)),
        (os.unlink, (p,)),
        (os.rename, (p, p + "2")),
        (os.link, (p, p + "2")),
        (os.chown, (p, -1, -1)),
        (os.utime, (p,)),
        (os.removexattr, (p, "user.x")),
    ):
        refused(errno.EPERM, call, *args)
    assert content(name) == data and copied(before, source) == 4
    flags(setter + name, 0)
    assert os.pwrite(before, b"Z", 0) == 1
    for f in (before, appending, source):
        os.close(f)
    os.unlink(p)


def inherited_flags():
    """What is made in a directory with flags has them, as on ext4; and a file that has them and is moved keeps its own."""
    d = M + "/flags"
    os.mkdir(d)
    with open(d + "/before", "w") as f:
        f.write("x")
    assert flags(d, SYNC | NODUMP | NOATIME) == SYNC | NODUMP | NOATIME
    for m in (M, M2):
        with open(m + "/flags/file", "w") as f:
            f.write("x")
        os.mkdir(m + "/flags/sub")
        os.mkdir(m + "/flags/sub/sub")
        for name in ("/flags/file", "/flags/sub", "/flags/sub/sub"):
            for seen in (M, M2):
                assert flags(seen + name) == SYNC | NODUMP | NOATIME, (m, seen, name)
        os.unlink(m + "/flags/file")
        os.rmdir(m + "/flags/sub/sub")
        os.rmdir(m + "/flags/sub")
    flags(d, APPEND | NODUMP)
    with open(d + "/file", "w") as f:
        f.write("x")
    assert flags(d + "/file") == NODUMP and flags(d + "/before") == 0
    flags(d, 0)


def synchronous():
    """Written, and not a moment passes before the mount's daemon is killed."""
    for name, data in (("/small", b"s" * 10), ("/large", b"l" * 300_000)):
        f = os.open(M + name, os.O_CREAT | os.O_RDWR)
        os.close(f)
        flags(M + name, SYNC)
        f = os.open(M + name, os.O_RDWR)
        assert os.write(f, data) == len(data)
    os.kill(int(sys.argv[4]), 9)


def written():
    assert open(M + "/small", "rb").read() == b"s" * 10
    assert open(M + "/large", "rb").read() == b"l" * 300_000


def read_by(how, path):
    with open(path, "rb") as f:
        if how == "read":
            assert f.read(5) == b"00000"
        elif how == "map":
            with mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
                assert m[0] == ord("0")
        else:
            with open(os.path.dirname(path) + "/copy", "wb") as to:
                assert os.copy_file_range(f.fileno(), to.fileno(), 5) == 5


def access_times():
    """Each kind of read shows, on either mount; of a file with `chattr +A` none does."""
    for size in (10, 300_000):
        for name in ("/kept", "/shown"):
            with open(M + name, "wb") as f:
                f.write(b"0" * size)
        flags(M + "/kept", NOATIME)
        for mount in (M, M2):
            for how in ("read", "map", "copy"):
                for name in ("/kept", "/shown"):
                    os.utime(M + name, (1, 2))
                    read_by(how, mount + name)
                end = time.monotonic() + 20
                while os.stat(M + "/shown").st_atime < 2:
                    assert time.monotonic() < end, (size, mount, how)
                    time.sleep(0.02)
                for m in (M, M2):
                    assert os.stat(m + "/kept").st_atime == 1, (size, mount, how)


globals()[NAME]()
