"""Who is told that something was lost. Prints what each was told, a line each: a name, and the errnos of one fsync after the
other (0: none)."""

import mmap
import os
import subprocess
import sys

ROOT = sys.argv[1]
NOBODY = 65534
MADE = 500
OLD, NEW = b"o" * 65536, b"n" * 65536


def path(name):
    return os.path.join(ROOT, name)


def opened(name, flags=os.O_RDWR):
    return os.open(path(name), flags)


def errno_of(f, *args):
    try:
        f(*args)
    except OSError as e:
        return e.errno
    return 0


def told(name, *fds):
    print(name, *[errno_of(os.fsync, fd) for fd in fds], flush=True)


def close_of_copy(fd):
    """What a close says while the file stays open."""
    return errno_of(os.close, os.dup(fd))


files = ["child", "two", "closed", "process", "mapped", "calm", "unopened"]
for name in files:
    fd = os.open(path(name), os.O_RDWR | os.O_CREAT, 0o666)
    os.write(fd, OLD)
    os.fsync(fd)
    os.close(fd)
    os.chmod(path(name), 0o666)
for name in ["dir", "calm-dir"]:
    os.mkdir(path(name))
fd = opened(".", os.O_RDONLY | os.O_DIRECTORY)
os.fsync(fd)
os.close(fd)

child, calm = opened("child"), opened("calm")
two = [opened("two"), opened("two")]
closed, reader = opened("closed"), opened("closed", os.O_RDONLY)
dirs = [opened("dir", os.O_RDONLY | os.O_DIRECTORY) for _ in range(2)]
calm_dir = opened("calm-dir", os.O_RDONLY | os.O_DIRECTORY)
mapped = opened("mapped")
pages = mmap.mmap(mapped, len(OLD))

# Another process has it open, and writes nothing.
other_in, to_other = os.pipe()
from_other, other_out = os.pipe()
other = os.fork()
if other == 0:
    fd = opened("process")
    os.write(other_out, b"open")
    os.read(other_in, 1)
    sys.stdout = os.fdopen(other_out, "w")
    told("other process", fd, fd)
    os._exit(0)
os.read(from_other, 4)
process = opened("process")

unopened = opened("unopened")
for fd in [child, two[0], closed, process, unopened]:
    os.pwrite(fd, NEW, 0)
os.close(unopened)
pages[: len(NEW)] = NEW
os.mkdir(path("dir/first"))  # from here on the mount makes directories there by itself
os.fsync(dirs[0])
print("ready", flush=True)
# The servers are stopped: what the mount sends first waits for its answer, and the rest for that.
for some in [range(MADE // 2), range(MADE // 2, MADE)]:
    sys.stdin.readline()
    for i in some:
        os.mkdir(path("dir/%06d" % i))
    print("made", flush=True)
# The mount's daemon was stopped and evicted, and goes on.
there = int(sys.stdin.readline())
print("lost", 1 + MADE - there, flush=True)

# Somebody else looks at what is mapped, and closes.
subprocess.run(["cat", path("mapped")], user=NOBODY, group=NOBODY, extra_groups=[], stdout=subprocess.DEVNULL)
# A program that merely inherits the descriptor ends.
subprocess.run(["/bin/true"], pass_fds=[child])
# A look before anybody else's fsync: nobody of these has a stake.
told("calm", calm)
told("calm-dir", calm_dir)
print("close of a copy", *[close_of_copy(closed) for _ in range(2)], flush=True)
print("close of a reader", close_of_copy(reader), flush=True)
told("closed", closed, closed)
told("reader", reader, reader)
told("child", child, child)
told("two, first", two[0], two[0])
told("two, second", two[1], two[1])
told("process", process, process)
os.write(to_other, b"x")
print(os.read(from_other, 100).decode().strip(), flush=True)
os.waitpid(other, 0)
print("mapped", errno_of(pages.flush), errno_of(pages.flush), flush=True)
told("dir, first", dirs[0], dirs[0])
told("dir, second", dirs[1], dirs[1])
late = opened("unopened")
told("unopened", late, late)
told("later", opened("two"))
told("calm again", calm)
print("end", flush=True)
os._exit(0)
