"""A program's set-id bits and file capabilities after each kind of change: argv is the file by two mounts, and where it is
copied from. Root gives it privileges by the first mount; root or user 1000 changes it by the second."""
import ctypes, mmap, os, stat, sys

FIRST, SECOND, SOURCE = sys.argv[1:4]
CAPABILITY = "security.capability"
# cap_setuid+ep, as setcap(8) stores it.
VALUE = bytes([1, 0, 0, 2, 0x80] + [0] * 15)
USER = 1000
libc = ctypes.CDLL(None, use_errno=True)


def fallocate(mode):
    fd = os.open(SECOND, os.O_WRONLY)
    if libc.fallocate(fd, mode, ctypes.c_long(0), ctypes.c_long(4096)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")
    os.close(fd)


def write():
    fd = os.open(SECOND, os.O_WRONLY)
    os.pwrite(fd, b"new", 3)
    os.close(fd)


def write_direct():
    fd = os.open(SECOND, os.O_WRONLY | os.O_DIRECT)
    os.pwrite(fd, mmap.mmap(-1, 4096), 0)
    os.close(fd)


def append():
    fd = os.open(SECOND, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"new")
    os.close(fd)


def copy():
    fd, source = os.open(SECOND, os.O_WRONLY), os.open(SOURCE, os.O_RDONLY)
    if os.copy_file_range(source, fd, 100) != 100:
        raise OSError("copy_file_range")
    os.close(fd)


def send():
    fd, source = os.open(SECOND, os.O_WRONLY), os.open(SOURCE, os.O_RDONLY)
    os.sendfile(fd, source, 0, 100)
    os.close(fd)


def open_truncated():
    os.close(os.open(SECOND, os.O_WRONLY | os.O_TRUNC))


def store():
    fd = os.open(SECOND, os.O_RDWR)
    m = mmap.mmap(fd, 4096)
    m[7] = 1
    m.flush()
    m.close()
    os.close(fd)


CHANGES = [
    write, write_direct, append, copy, send, open_truncated, store,
    lambda: os.truncate(SECOND, 100), lambda: fallocate(0), lambda: fallocate(3), lambda: fallocate(0x10),
]

for number, change in enumerate(CHANGES):
    for user in (USER, 0):
        with open(FIRST, "wb") as f:
            f.write(b"p" * 8192)
        os.setxattr(FIRST, CAPABILITY, VALUE)
        os.chmod(FIRST, 0o6777)
        what = f"{getattr(change, '__name__', '')} {number} by {user}"
        for path in (FIRST, SECOND):
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o6777 and os.getxattr(path, CAPABILITY) == VALUE, what
        child = os.fork()
        if child == 0:
            try:
                if user:
                    os.setgroups([])
                    os.setgid(user)
                    os.setuid(user)
                change()
                os._exit(0)
            except BaseException as e:
                print(what, e, file=sys.stderr)
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0, what
        for path in (FIRST, SECOND):
            mode = stat.S_IMODE(os.stat(path).st_mode)
            assert mode == (0o777 if user else 0o6777), f"{what}: {mode:o}"
            assert CAPABILITY not in os.listxattr(path), what
            try:
                raise AssertionError(f"{what}: {os.getxattr(path, CAPABILITY)}")
            except OSError as e:
                assert e.errno == 61, f"{what}: {e}"
