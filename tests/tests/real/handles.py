"""File handles: argv is `take MOUNT BOOK`, `check MOUNT BOOK` or `walk MOUNT BOOK`. BOOK keeps the handles between the calls."""
import ctypes, errno, json, os, sys

WHAT, M, BOOK = sys.argv[1], sys.argv[2], sys.argv[3]
libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_HANDLE_CONNECTABLE, AT_EMPTY_PATH = -100, 0x002, 0x1000
MAX = 128


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_ubyte * MAX)]


def fail(text):
    e = ctypes.get_errno()
    raise OSError(e, f"{text}: {os.strerror(e)}")


def handle_of(path, flags=0):
    h, mount = Handle(bytes=MAX), ctypes.c_int()
    if libc.name_to_handle_at(AT_FDCWD, path.encode(), ctypes.byref(h), ctypes.byref(mount), flags) != 0:
        fail(f"name_to_handle_at {path}")
    return [h.type, bytes(h.data[: h.bytes]).hex()]


def opened(handle, flags):
    kind, data = handle
    data = bytes.fromhex(data)
    h = Handle(bytes=len(data), type=kind)
    h.data[: len(data)] = data
    top = os.open(M, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fd = libc.open_by_handle_at(top, ctypes.byref(h), flags)
        if fd < 0:
            fail("open_by_handle_at")
        return fd
    finally:
        os.close(top)


def fails(why, f, *args):
    try:
        os.close(f(*args))
    except OSError as e:
        assert e.errno == why, (e, why)
        return
    raise AssertionError(f"{args} was opened")


def refused(handle, why, flags=os.O_RDONLY):
    fails(why, opened, handle, flags)


def read(fd):
    with os.fdopen(fd, "rb") as f:
        return f.read()


SMALL, LARGE = b"a small file's bytes", bytes(range(256)) * 1024


def take():
    os.makedirs(M + "/a/b/c")
    for path, data in (("/a/small", SMALL), ("/a/b/c/large", LARGE), ("/a/gone", SMALL), ("/other", b"x")):
        with open(M + path, "wb") as f:
            f.write(data)
    os.mkdir(M + "/a/gone-dir")
    os.symlink("small", M + "/a/link")
    os.link(M + "/a/small", M + "/second-name")
    names = ["", "/a", "/a/b/c", "/a/small", "/a/b/c/large", "/a/gone", "/a/gone-dir", "/a/link", "/other"]
    book = {n: handle_of(M + n) for n in names}
    try:
        book["connectable"] = handle_of(M + "/a/b/c/large", AT_HANDLE_CONNECTABLE)
    except OSError as e:
        assert e.errno == errno.EINVAL, e  # before Linux 6.13
    with open(BOOK, "w") as f:
        json.dump(book, f)
    for n in ("/a/gone", "/a/gone-dir"):
        os.remove(M + n) if n == "/a/gone" else os.rmdir(M + n)
    # A name does not matter, nor does where it is.
    os.rename(M + "/other", M + "/a/b/moved")


def inode(fd):
    s = os.fstat(fd)
    os.close(fd)
    return s.st_ino


def check():
    with open(BOOK) as f:
        book = json.load(f)
    # The deepest first: nothing else has brought its inode back.
    d = opened(book["/a/b/c"], os.O_RDONLY | os.O_DIRECTORY)
    assert os.listdir(d) == ["large"], os.listdir(d)
    assert os.readlink(f"/proc/self/fd/{d}") == M + "/a/b/c"
    assert inode(os.open("..", os.O_RDONLY, dir_fd=d)) == os.stat(M + "/a/b").st_ino
    os.fchdir(d)
    assert os.getcwd() == M + "/a/b/c"
    os.chdir("/")
    os.close(d)
    assert read(opened(book["/a/small"], os.O_RDONLY)) == SMALL
    assert read(opened(book["/a/b/c/large"], os.O_RDONLY)) == LARGE
    assert read(opened(book["/other"], os.O_RDONLY)) == b"x"
    if "connectable" in book:
        f = opened(book["connectable"], os.O_RDONLY)
        assert os.readlink(f"/proc/self/fd/{f}") == M + "/a/b/c/large"
        assert read(f) == LARGE
    assert os.readlink("", dir_fd=opened(book["/a/link"], os.O_PATH)) == "small"
    assert inode(opened(book[""], os.O_RDONLY)) == os.stat(M).st_ino
    f = opened(book["/a/small"], os.O_RDWR)
    os.pwrite(f, SMALL[:1], 0)
    s = os.fstat(f)
    assert (s.st_nlink, s.st_size, s.st_ino) == (2, len(SMALL), os.stat(M + "/a/small").st_ino)
    os.close(f)
    # The same handle again: nothing is made anew.
    assert handle_of(M + "/a/small") == book["/a/small"]
    refused(book["/a/gone"], errno.ESTALE)
    refused(book["/a/gone-dir"], errno.ESTALE)
    kind, data = book["/a/small"]
    # Another generation; an object, a sequence that nobody has; a number that no FID has.
    for at, byte in ((8, 0x5A), (4, 0x3F), (1, 0x7F), (3, 0xC0), (0, 0xFF)):
        wrong = bytearray.fromhex(data)
        wrong[at] ^= byte
        refused([kind, wrong.hex()], errno.ESTALE)


def below():
    """On a mount of /a/b, handles from a mount of the whole."""
    with open(BOOK) as f:
        book = json.load(f)
    d = opened(book["/a/b/c"], os.O_RDONLY | os.O_DIRECTORY)
    assert os.readlink(f"/proc/self/fd/{d}") == M + "/c" and os.listdir(d) == ["large"]
    os.close(d)
    assert read(opened(book["/a/b/c/large"], os.O_RDONLY)) == LARGE
    assert read(opened(book["/a/small"], os.O_RDONLY)) == SMALL
    # No path leads there.
    refused(book["/a"], errno.ESTALE)
    refused(book["/a/gone"], errno.ESTALE)
    assert handle_of(M + "/c") == book["/a/b/c"]


def unprivileged():
    """Only who may look into every directory may open a handle."""
    with open(BOOK) as f:
        book = json.load(f)
    os.setuid(65534)
    refused(book["/a/small"], errno.EPERM)
    fd = os.open(M + "/a/small", os.O_RDONLY)
    os.close(fd)
    assert handle_of(M + "/a/small") == book["/a/small"]


def held():
    """A file without a name lives as long as it is open, for its handle too, and not longer."""
    path = M + "/held"
    f = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(f, SMALL)
    h = handle_of(path)
    os.unlink(path)
    drop()
    assert read(opened(h, os.O_RDONLY)) == SMALL
    os.close(f)
    refused(h, errno.ESTALE)
    # The kernel knows it still: whoever has a path looks again, and who has none is told that it is gone.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT))
    place = os.open(path, os.O_PATH)
    os.unlink(path)
    fails(errno.ESTALE, os.open, f"/proc/self/fd/{place}", os.O_RDONLY)
    os.close(place)


def drop():
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("2")


globals()[WHAT]()
