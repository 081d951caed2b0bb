"""Work of one user in eight rows, done in several states in turns, and compared: for campaigns that ask what something costs. `Bench`
has the file system that the work is done in, and how much of it."""

import math
import mmap
import os
import random
import shutil
import statistics
import sys
import time

USER = 4711


def as_user(work):
    """Runs it in a process of the user; seconds that it took there."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(USER)
            os.setuid(USER)
            begun = time.time()
            work()
            os.write(w, str(time.time() - begun).encode())
        except OSError as e:
            print(f"{sys.argv[0]}: {e}", file=sys.stderr)
        os._exit(0)
    os.close(w)
    said = os.read(r, 100)
    os.close(r)
    os.waitpid(pid, 0)
    if not said:
        sys.exit(f"{sys.argv[0]}: the user's work failed")
    return float(said)


def flush(folder):
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def write(path, mib):
    fd, piece = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), bytes(1 << 20)
    for _ in range(mib):
        os.write(fd, piece)
    os.fsync(fd)
    os.close(fd)


def make(folder, files):
    for n in range(files):
        os.close(os.open(f"{folder}/f{n}", os.O_CREAT | os.O_WRONLY, 0o600))
    flush(folder)


def interval(ratios):
    """Geometric mean, and its 95 % interval by resampling."""
    logs, rng = [math.log(r) for r in ratios], random.Random(1)
    means = sorted(statistics.fmean(rng.choices(logs, k=len(logs))) for _ in range(4000))
    return tuple(math.exp(v) for v in (statistics.fmean(logs), means[100], means[3899]))


class Bench:
    def __init__(self, fs, mount, files, mib):
        self.fs, self.mount, self.files, self.mib = fs, mount, files, mib
        # In this order: a row uses what an earlier one made.
        self.rows = [
            ("files made", lambda folder: make(folder, files)),
            ("small files written", self.small),
            ("files renamed", self.rename),
            ("files removed", self.remove),
            ("records appended", self.append),
            ("stream written", lambda folder: write(f"{folder}/data", mib)),
            ("blocks rewritten", self.rewrite),
            ("stream written with O_DIRECT", self.direct),
        ]

    def small(self, folder):
        for n in range(self.files // 4):
            fd = os.open(f"{folder}/s{n}", os.O_CREAT | os.O_WRONLY, 0o600)
            os.write(fd, bytes(4096))
            os.close(fd)
        flush(folder)

    def rename(self, folder):
        for n in range(self.files):
            os.rename(f"{folder}/f{n}", f"{folder}/g{n}")
        flush(folder)

    def remove(self, folder):
        for n in range(self.files):
            os.unlink(f"{folder}/g{n}")
        flush(folder)

    def append(self, folder):
        fd, piece = os.open(f"{folder}/log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), bytes(512)
        for _ in range(self.files * 4):
            os.write(fd, piece)
        os.fsync(fd)
        os.close(fd)

    def rewrite(self, folder):
        fd, piece = os.open(f"{folder}/data", os.O_WRONLY), bytes(65536)
        for n in range(self.mib * 4):
            os.pwrite(fd, piece, n * 7919 % (self.mib * 16) * 65536)
        os.fsync(fd)
        os.close(fd)

    def direct(self, folder):
        fd, piece = os.open(f"{folder}/direct", os.O_CREAT | os.O_WRONLY | os.O_DIRECT, 0o600), mmap.mmap(-1, 1 << 20)
        for n in range(self.mib // 4):
            os.pwrite(fd, piece, n << 20)
        os.close(fd)

    def servers_cpu(self):
        """Seconds of processor that the servers have used."""
        ticks = 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    words = f.read().split(b"\0")
                if self.fs.encode() in b" ".join(words) and b"nacred" in words[0]:
                    with open(f"/proc/{pid}/stat") as f:
                        ticks += sum(map(int, f.read().rpartition(")")[2].split()[11:13]))
            except OSError:
                pass
        return ticks / os.sysconf("SC_CLK_TCK")

    def once(self, name):
        """Seconds of each row, and processor seconds of the servers for all of them."""
        folder = f"{self.mount}/{name}"
        os.mkdir(folder)
        os.chown(folder, USER, USER)
        cpu = self.servers_cpu()
        seconds = [as_user(lambda: work(folder)) for _, work in self.rows]
        cpu = self.servers_cpu() - cpu
        shutil.rmtree(folder)
        return seconds + [cpu]

    def pairs(self, turns, plain, other, enter):
        """`turns` times in turns: the state `plain`, the state `other`, and `plain` again, each after enter(is_other). Prints a table of
        speeds against `plain`."""
        self.once("warm")
        again = f"{plain} again"
        found = {other: [], again: []}
        for turn in range(turns):
            # Each of the three is first, second and last equally often.
            order = [plain, other, again]
            order = order[turn % 3 :] + order[: turn % 3]
            seconds = {}
            for way in order:
                enter(way == other)
                seconds[way] = self.once(f"{way.replace(' ', '-')}{turn}")
            for way, rows in found.items():
                rows.append([a / b for a, b in zip(seconds[plain], seconds[way])])
            print(f"pair {turn + 1} of {turns}", file=sys.stderr)
        enter(False)
        print(f"| speed against {plain} | {other} | {again} |")
        print("|---|---:|---:|")
        for n, name in enumerate([name for name, _ in self.rows] + ["processor time of the servers"]):
            cells = ["{:.3f} ({:.3f} to {:.3f})".format(*interval([r[n] for r in rows])) for rows in found.values()]
            print(f"| {name} | {' | '.join(cells)} |")
        cells = ["{:.3f} ({:.3f} to {:.3f})".format(*interval([v for r in rows for v in r[:-1]])) for rows in found.values()]
        print(f"| all rows | {' | '.join(cells)} |")
