"""Programs for kernel.rs: argv is NAME MOUNT [MOUNT2]. Waiting ones run until they are killed."""
import ctypes, fcntl, mmap, os, signal, struct, subprocess, sys, time

NAME, M = sys.argv[1], sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
DATA = M + "/data"
SIZE = 4 << 20


def many_descriptors():
    fds = [os.open(DATA, os.O_RDWR) for _ in range(200)]
    for f in fds[:50]:
        fcntl.lockf(f, fcntl.LOCK_SH)
    m = mmap.mmap(fds[0], SIZE)
    while True:
        for i in range(0, SIZE, 4096):
            m[i] = (m[i] + 1) & 255
        m.flush()


def record_locks():
    f = os.open(M + "/locked", os.O_RDWR | os.O_CREAT)
    while True:
        fcntl.lockf(f, fcntl.LOCK_EX)
        fcntl.lockf(f, fcntl.LOCK_UN)


def flocks():
    f = os.open(M + "/locked", os.O_RDWR | os.O_CREAT)
    while True:
        fcntl.flock(f, fcntl.LOCK_EX)
        fcntl.flock(f, fcntl.LOCK_UN)


def page_faults():
    f = os.open(DATA, os.O_RDONLY)
    while True:
        m = mmap.mmap(f, SIZE, mmap.MAP_PRIVATE, mmap.PROT_READ)
        sum(m[i] for i in range(0, SIZE, 4096))
        m.close()


def truncate_under_mapping():
    f = os.open(M + "/cut", os.O_RDWR | os.O_CREAT)
    while True:
        os.ftruncate(f, SIZE)
        m = mmap.mmap(f, SIZE)
        m[0] = 1
        m[SIZE - 1] = 2
        m.close()
        os.ftruncate(f, 0)


def run_program():
    while True:
        subprocess.run([M + "/program", "0.01"])


def work_in_directory():
    os.makedirs(M + "/here", exist_ok=True)
    os.chdir(M + "/here")
    while True:
        os.listdir(".")
        os.mkdir("sub")
        os.rmdir("sub")


def asynchronous_io():
    if os.uname().machine != "x86_64":
        time.sleep(1000)
    io_setup, io_getevents, io_submit = 206, 208, 209
    f = os.open(DATA, os.O_RDONLY | os.O_DIRECT)
    ctx = ctypes.c_ulong(0)
    assert libc.syscall(io_setup, 64, ctypes.byref(ctx)) == 0
    buf = mmap.mmap(-1, 1 << 20)
    at = ctypes.addressof(ctypes.c_char.from_buffer(buf))
    while True:
        b = ctypes.create_string_buffer(struct.pack("<QIIHhIQQqQII", 0, 0, 0, 0, 0, f, at, 1 << 20, 0, 0, 0, 0), 64)
        assert libc.syscall(io_submit, ctx, 1, (ctypes.c_void_p * 1)(ctypes.addressof(b))) == 1
        libc.syscall(io_getevents, ctx, 1, 1, ctypes.create_string_buffer(32), None)


def attributes_and_space():
    while True:
        os.setxattr(DATA, "user.x", b"1")
        os.getxattr(DATA, "user.x")
        os.statvfs(M)


def alarms():
    """Signals that are caught must not make a call fail; raw calls, because Python repeats EINTR itself."""
    signal.signal(signal.SIGALRM, lambda *a: None)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    f = os.open(M + "/alarmed", os.O_RDWR | os.O_CREAT)
    d = (M + "/alarmed.dir").encode()
    b = ctypes.create_string_buffer(8)
    calls = [
        lambda: libc.pwrite(f, b"abcd", 4, 0), lambda: libc.pread(f, b, 4, 0), lambda: libc.access(d, 0) * 0,
        lambda: libc.mkdir(d, 0o755), lambda: libc.rmdir(d), lambda: libc.ftruncate(f, 100), lambda: libc.fsync(f),
    ]
    end = time.monotonic() + float(sys.argv[3])
    n = 0
    while time.monotonic() < end:
        for i, call in enumerate(calls):
            n += 1
            if call() < 0:
                sys.exit("call %d failed: %s" % (i, os.strerror(ctypes.get_errno())))
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(n, "calls")


def ofd_locks():
    """F_OFD locks and flocks go with the last close, also on the other mount."""
    set_ofd = 37
    spec = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
    for there in (M, sys.argv[3]):
        f = os.open(M + "/ofd", os.O_RDWR | os.O_CREAT)
        g = os.open(there + "/ofd", os.O_RDWR)
        fcntl.fcntl(f, set_ofd, spec)
        try:
            fcntl.fcntl(g, set_ofd, spec)
            sys.exit("two hold an exclusive lock")
        except OSError:
            pass
        os.close(f)
        for _ in range(200):
            try:
                fcntl.fcntl(g, set_ofd, spec)
                break
            except OSError:
                time.sleep(0.01)
        else:
            sys.exit("a lock outlived its descriptor")
        os.close(g)
    for n in range(200):  # on one mount a close is over when the next lock is asked for
        f = os.open(M + "/ofd", os.O_RDWR)
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(f)


def interrupted_waits():
    """A wait for a lock ends with EINTR at a caught signal, and what waited is not in the way afterwards."""
    signal.signal(signal.SIGALRM, lambda *a: None)
    f = os.open(M + "/wait", os.O_RDWR | os.O_CREAT)
    g = os.open(sys.argv[3] + "/wait", os.O_RDWR)
    spec = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
    for name in ("flock", "record lock"):
        if name == "flock":
            fcntl.flock(f, fcntl.LOCK_EX)
            wait, free = lambda: libc.flock(g, fcntl.LOCK_EX), lambda h: fcntl.flock(h, fcntl.LOCK_UN)
        else:
            fcntl.fcntl(f, 37, spec)  # F_OFD_SETLK: two owners in one process
            wait, free = lambda: libc.fcntl(g, 38, spec), lambda h: fcntl.lockf(h, fcntl.LOCK_UN)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        t = time.monotonic()
        if wait() != -1 or ctypes.get_errno() != 4:
            sys.exit("a %s was not interrupted: %s" % (name, os.strerror(ctypes.get_errno())))
        if time.monotonic() - t > 1.5:
            sys.exit("the interrupt of a %s took too long" % name)
        if name == "flock":
            free(f)
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            fcntl.fcntl(f, 37, struct.pack("hhqqi4x", fcntl.F_UNLCK, 0, 0, 0, 0))
            fcntl.fcntl(f, 37, spec)


def directory_positions():
    libc.opendir.restype = libc.readdir.restype = ctypes.c_void_p
    libc.telldir.restype = ctypes.c_long
    for name in ("readdir", "telldir", "rewinddir", "closedir"):
        getattr(libc, name).argtypes = [ctypes.c_void_p]
    libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
    os.mkdir(M + "/many")
    names = {b"f%d" % i for i in range(3000)}
    for n in names:
        os.close(os.open(M.encode() + b"/many/" + n, os.O_CREAT | os.O_WRONLY))
    d = libc.opendir((M + "/many").encode())

    def read():
        e = libc.readdir(d)
        return ctypes.string_at(e + 19) if e else None

    seen = [(libc.telldir(d), read()) for _ in range(3002)]
    assert [n for _, n in seen[:2]] == [b".", b".."], seen[:3]
    assert read() is None and {n for _, n in seen[2:]} == names
    for pos, name in seen[::-97]:
        libc.seekdir(d, pos)
        assert read() == name, (pos, name)
    libc.rewinddir(d)
    assert read() == b"."
    libc.closedir(d)
    left = 0
    for e in os.scandir(M + "/many"):
        os.unlink(e.path)
        left += 1
    assert left == 3000 and os.listdir(M + "/many") == []


def shutdown():
    f = os.open(M, os.O_RDONLY)
    g = os.open(DATA, os.O_RDWR)
    fcntl.ioctl(f, 0x8004587D, struct.pack("I", 0))
    for call in (lambda: os.stat(DATA), lambda: os.pwrite(g, b"x", 0), lambda: os.listdir(M)):
        try:
            call()
            sys.exit("a call went through after the shutdown")
        except OSError:
            pass


globals()[NAME]()
