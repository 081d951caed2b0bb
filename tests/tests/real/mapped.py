"""Programs for mmap.rs: argv is NAME and what it needs. Two mounts of one file system map the same files."""
import mmap, os, random, shutil, signal, struct, subprocess, sys, threading, time

PAGE = 4096


def check(what, is_, should):
    if is_ != should:
        sys.exit(f"{what}: {is_!r}, not {should!r}")


def turns(a, b, size):
    """Stores through a mapping on one mount are loaded through a mapping on the other at once, in turns."""
    a, b = sys.argv[2] if a is None else a, sys.argv[3] if b is None else b
    fds = [os.open(p, os.O_RDWR) for p in (a, b)]
    maps = [mmap.mmap(f, size) for f in fds]
    pages = max(1, size // PAGE)
    rng = random.Random(size)
    for turn in range(400):
        at = rng.randrange(pages) * PAGE + rng.randrange(min(size, PAGE) - 8)
        value = struct.pack("<Q", turn + 1)
        me, other = maps[turn % 2], maps[1 - turn % 2]
        me[at : at + 8] = value
        check(f"turn {turn} at {at}", other[at : at + 8], value)
        if turn % 5 == 0:
            # The same by write(2) and read(2) on the other side.
            check(f"turn {turn}: read", os.pread(fds[1 - turn % 2], 8, at), value)
            os.pwrite(fds[1 - turn % 2], value[::-1], at)
            check(f"turn {turn}: after a write", me[at : at + 8], value[::-1])
    for m in maps:
        m.close()


def read_only():
    """A mapping of a file that is open for reading on one mount follows writes of the other."""
    size = int(sys.argv[4])
    w = os.open(sys.argv[2], os.O_WRONLY)
    r = os.open(sys.argv[3], os.O_RDONLY)
    os.pwrite(w, b"\0" * size, 0)
    shared = mmap.mmap(r, size, mmap.MAP_SHARED, mmap.PROT_READ)
    for turn in range(300):
        at = (turn * 7919) % (size - 8)
        value = struct.pack("<Q", turn + 1)
        os.pwrite(w, value, at)
        check(f"turn {turn} at {at}", shared[at : at + 8], value)


def in_turns():
    turns(None, None, int(sys.argv[4]))


def handed_over():
    """Two processes, each with a mapping on a mount of its own, hand a counter over by pipes."""
    size, rounds = int(sys.argv[4]), int(sys.argv[5])
    ab, ba = os.pipe(), os.pipe()
    pid = os.fork()
    path, get, put = (sys.argv[2], ba[0], ab[1]) if pid else (sys.argv[3], ab[0], ba[1])
    f = os.open(path, os.O_RDWR)
    m = mmap.mmap(f, size)
    places = list(range(0, size - 8, max(8, size // 37 // 8 * 8)))
    for n in range(rounds):
        at = places[n % len(places)]
        if pid == 0 or n > 0:
            if len(os.read(get, 1)) != 1:
                sys.exit(1)
            before = at if pid == 0 else places[(n - 1) % len(places)]
            wanted = 2 * n + 1 if pid == 0 else 2 * n
            check(f"round {n} at {before}", struct.unpack_from("<Q", m, before)[0], wanted)
        struct.pack_into("<Q", m, at, 2 * n + (2 if pid == 0 else 1))
        os.write(put, b"x")
    if pid == 0:
        os._exit(0)
    check("the other", os.waitpid(pid, 0)[1], 0)


def storm():
    """Counters in a file that two mounts map and a third process writes: each has one writer and only grows."""
    a, b, seconds, size = sys.argv[2], sys.argv[3], float(sys.argv[4]), int(sys.argv[5])
    end = time.time() + seconds
    slots, writers = size // 64, 3
    pids = []

    def loads(m, seen, rng):
        for _ in range(8):
            s = rng.randrange(slots)
            v = struct.unpack_from("<Q", m, s * 64)[0]
            if v < seen.get(s, 0):
                sys.exit(f"slot {s} fell from {seen[s]} to {v}")
            seen[s] = v

    for w, path in enumerate((a, b, a)):
        pid = os.fork()
        if pid:
            pids.append(pid)
            continue
        rng, seen, mine, n = random.Random(w), {}, {}, 0
        f = os.open(path, os.O_RDWR)
        m = mmap.mmap(f, size)
        while time.time() < end:
            s = rng.randrange(slots // writers) * writers + w
            n += 1
            mine[s] = n
            if w < 2:
                struct.pack_into("<Q", m, s * 64, n)
            else:
                os.pwrite(f, struct.pack("<Q", n), s * 64)
            if n % 50 == 0:
                m.flush()
            loads(m, seen, rng)
            for k in rng.sample(sorted(mine), min(2, len(mine))):
                check(f"own slot {k}", struct.unpack_from("<Q", m, k * 64)[0], mine[k])
        with open(f"{a}.{w}", "w") as out:
            for k, v in mine.items():
                print(k, v, file=out)
        os._exit(0)
    bad = [w for w, p in enumerate(pids) if os.waitpid(p, 0)[1]]
    if bad:
        sys.exit(f"failed: {bad}")
    total = 0
    for path in (a, b):
        data = open(path, "rb").read()
        for w in range(3):
            for line in open(f"{b}.{w}"):
                k, v = map(int, line.split())
                total += v
                check(f"slot {k} of {w}", struct.unpack_from("<Q", data, k * 64)[0], v)
    print("stores", sum(int(open(f"{a}.{w}").read().split()[-1]) for w in range(3)))


def bus_error():
    """Behind the end of a file that the other mount cut lies nothing: SIGBUS, no hang."""
    a, b = sys.argv[2], sys.argv[3]
    size = 1 << 20
    with open(a, "wb") as f:
        f.write(b"x" * size)
    for path in (b, a):
        pid = os.fork()
        if pid == 0:
            f = os.open(b, os.O_RDWR)
            m = mmap.mmap(f, size)
            for at in range(0, size, PAGE):
                m[at] = 1
            os.truncate(path, 5000)
            check("below the end", m[100], ord("x"))
            check("stored", m[0], 1)
            check("in the last page", m[4999:5100], b"x" + b"\0" * 100)
            m[size - 1] = 1
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        check("ended by", status & 127, signal.SIGBUS)
        check("size", os.stat(a).st_size, 5000)
        with open(a, "wb") as f:
            f.write(b"x" * size)


def cut_and_store():
    """One mount cuts and extends a file that the other stores into by a mapping: nothing hangs."""
    a, b, seconds = sys.argv[2], sys.argv[3], float(sys.argv[4])
    size = 256 * 1024
    os.truncate(a, size)
    end = time.time() + seconds
    pids = []
    for path in (a, b):
        for cut in (False, True):
            pid = os.fork()
            if pid:
                pids.append(pid)
                continue
            f = os.open(path, os.O_RDWR)
            rng = random.Random(len(pids))
            done = 0
            if cut:
                while time.time() < end:
                    try:
                        os.ftruncate(f, rng.randrange(size // 2))
                        os.ftruncate(f, size)
                        done += 1
                    except InterruptedError:
                        pass
                    time.sleep(0.002)
                print("cuts", done, flush=True)
                os._exit(0 if done else 1)
            # A page that is gone when it is touched is SIGBUS: in a child, again and again.
            while time.time() < end:
                child = os.fork()
                if child == 0:
                    m = mmap.mmap(f, size)
                    while time.time() < end:
                        m[rng.randrange(size)] = 7
                    os._exit(0)
                os.waitpid(child, 0)
            os._exit(0)
    check("all ended well", [os.waitpid(p, 0)[1] for p in pids], [0] * len(pids))


def longer_map(f, size):
    """A mapping longer than the file, which Python's own refuses."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    at = libc.mmap(None, size, 3, 1, f, 0)
    if at in (None, ctypes.c_void_p(-1).value):
        sys.exit("mmap: " + os.strerror(ctypes.get_errno()))
    return (ctypes.c_ubyte * size).from_address(at)


def appended():
    """What the other mount appends is seen through a mapping, once this side asked for the size."""
    a, b = sys.argv[2], sys.argv[3]
    log = os.open(a, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(log, b"0" * 100)
    f = os.open(b, os.O_RDWR)
    m = longer_map(f, 1 << 20)
    size = 100
    rng = random.Random(5)
    for turn in range(120):
        n = rng.randrange(1, 3000)
        os.write(log, bytes([65 + turn % 26]) * n)
        size += n
        check("size", os.fstat(f).st_size, size)
        # The kernel throws a size away that it is told while something about the inode is being invalidated.
        end = time.time() + 5
        while os.lseek(f, 0, os.SEEK_END) != size and time.time() < end:
            pass
        check("end", os.lseek(f, 0, os.SEEK_END), size)
        check(f"turn {turn}: appended", bytes(m[size - n : size]), bytes([65 + turn % 26]) * n)
        m[size - 1] = 33
        log_now = os.open(a, os.O_RDONLY)
        check(f"turn {turn}: stored", os.pread(log_now, 1, size - 1), b"!")
        check("size after a store", os.fstat(log_now).st_size, size)
        os.close(log_now)


def holes_and_copies():
    """Changes of this mount that are no writes show in its own mapping and in the other's."""
    import ctypes
    a, b = sys.argv[2], sys.argv[3]
    libc = ctypes.CDLL(None, use_errno=True)
    size = 1 << 20
    with open(a, "wb") as f:
        f.write(b"y" * size)
    fa, fb = os.open(a, os.O_RDWR), os.open(b, os.O_RDWR)
    ma, mb = mmap.mmap(fa, size), mmap.mmap(fb, size)
    for at in range(0, size, PAGE):
        check("before", (ma[at], mb[at]), (ord("y"), ord("y")))
    mb[PAGE] = 1
    # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
    if libc.fallocate(fa, 3, ctypes.c_long(0), ctypes.c_long(2 * PAGE)) != 0:
        sys.exit("fallocate: " + os.strerror(ctypes.get_errno()))
    check("a hole", (ma[PAGE], mb[PAGE], mb[0]), (0, 0, 0))
    mb[5 * PAGE] = 2
    check("copied", os.copy_file_range(fa, fa, PAGE, 5 * PAGE, 9 * PAGE), PAGE)
    check("the copy", (ma[9 * PAGE], mb[9 * PAGE]), (2, 2))
    os.ftruncate(fa, 4 * PAGE)
    os.ftruncate(fa, size)
    check("cut and extended", (ma[5 * PAGE], mb[5 * PAGE]), (0, 0))


def durable():
    """Stores, then msync or fsync, then says so and waits to be killed."""
    a, how = sys.argv[2], sys.argv[3]
    f = os.open(a, os.O_RDWR | os.O_CREAT)
    os.ftruncate(f, 1 << 20)
    m = mmap.mmap(f, 1 << 20)
    for at in range(0, 1 << 20, PAGE):
        m[at : at + 4] = b"kept"
    if how == "fsync":
        os.fsync(f)
    else:
        m.flush()
        os.fsync(f)
    print("done", flush=True)
    sys.stdin.readline()


def database():
    """SQLite with mapped I/O on two mounts in turns."""
    import sqlite3
    a, b = sys.argv[2], sys.argv[3]
    db = sqlite3.connect(a)
    db.execute("pragma mmap_size=67108864")
    db.execute("create table t (n integer primary key, v blob)")
    db.commit()
    other = sqlite3.connect(b)
    other.execute("pragma mmap_size=67108864")
    conns = [db, other]
    for turn in range(60):
        c, d = conns[turn % 2], conns[1 - turn % 2]
        with c:
            c.execute("insert into t values (?, ?)", (turn, os.urandom(3000)))
            c.execute("update t set v = ? where n = ?", (b"%d" % turn, turn // 2))
        check(f"turn {turn}", d.execute("select count(*) from t").fetchone()[0], turn + 1)
        check("updated", d.execute("select v from t where n = ?", (turn // 2,)).fetchone()[0], b"%d" % turn)
    check("integrity", other.execute("pragma integrity_check").fetchone()[0], "ok")


def rewritten():
    """A program that the other mount rewrites in place, or makes longer or shorter, is the new one when it is started next."""
    a, b, turns = sys.argv[2], sys.argv[3], int(sys.argv[4])
    made = os.open(b, os.O_WRONLY)
    os.fchmod(made, 0o755)
    programs = [open(shutil.which(n), "rb").read() for n in ("true", "false")]

    def script(turn):
        return b"#!%s/bin/sh\n%s\nexit %d\n" % (b"/" * (turn % 5), b"#" * (turn * 397 % 9000), turn % 2)

    for turn in range(turns):
        data = programs[turn % 2] if turn % 4 < 2 else script(turn)
        if turn % 3 == 0:
            os.ftruncate(made, 0)
        os.pwrite(made, data, 0)
        os.ftruncate(made, len(data))
        for again in range(2):
            check(f"turn {turn}, start {again}", subprocess.run([a]).returncode, turn % 2)


def exact():
    """A read that begins after the other mount's append is over sees it, and a read is one step with a write; beside other reads."""
    a, b, seconds, size = sys.argv[2], sys.argv[3], float(sys.argv[4]), int(sys.argv[5])
    record, ends = 3 * PAGE, time.time() + seconds
    if size < record:
        record = 100
    shared = mmap.mmap(-1, PAGE)
    with open(b, "r+b") as f:
        f.write(b"\1" * size)
    shared[:8] = struct.pack("<Q", size)
    pids = []
    for n in range(3):
        pid = os.fork()
        if pid:
            pids.append(pid)
            continue
        f = os.open(a, os.O_RDONLY)
        while time.time() < ends:
            end = struct.unpack("<Q", shared[:8])[0]
            data = os.pread(f, PAGE, end - 100)
            check(f"bytes up to {end}", (len(data) >= 100, data[:100]), (True, b"\1" * 100))
            check("contents of a record", len(set(os.pread(f, record, 0))), 1)
        os._exit(0)
    f = os.open(b, os.O_RDWR)
    rng, end, turn = random.Random(7), size, 0
    while time.time() < ends:
        os.pwrite(f, b"\1" * 100, end)
        end += 100
        shared[:8] = struct.pack("<Q", end)
        os.pwrite(f, bytes([turn % 200 + 2]) * record, 0)
        turn += 1
        time.sleep(rng.random() * 0.004)
    check("the readers", [os.waitpid(p, 0)[1] for p in pids], [0] * len(pids))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
