#!/usr/bin/env python3
"""campaign-flood.py [--seconds N] [--share PERCENT] [--policies fair,fifo] [--nacre BINARY] [--work DIR] [--csv] - what a flood leaves to others.

One user creates small files with 32 processes, another writes 8 streams, on one mount (or --mounts N); on another mount a third user lists a
directory with ls -l, one has a single process that creates files, and one a single stream. Each server has a processor quota
of its own (a control group), so that servers are the limit and not this machine's clients. Prints for each policy of
nrs_policies how long ls takes, and what the single processes get, alone and beside the flood; with --csv rows for
docs/results/measurements.csv. Asked: p99 of ls at most 5 times as long, at least 40 % left. Needs root, FUSE and control
groups of either version."""

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("--seconds", type=int, default=15)
p.add_argument("--share", type=int, default=20, help="percent of a processor that each server has")
p.add_argument("--policies", default="fair,fifo")
p.add_argument("--creators", type=int, default=32)
p.add_argument("--streams", type=int, default=8)
p.add_argument("--places", type=int, default=0, help="nrs_places; 0: as it is unless set")
p.add_argument("--mounts", type=int, default=1, help="mounts that the flood comes from")
p.add_argument("--nacre", default=os.path.join(HERE, "..", "target", "release", "nacre"))
p.add_argument("--work")
p.add_argument("--csv", action="store_true")
p.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
args = p.parse_args()
# The shortest quota that Linux has: a server that has used it up stands still for the rest of its period.
QUOTA_US = 1000
CREATOR, STREAMER, LISTER, ALONE, READER = 5001, 5002, 5003, 5004, 5005
FILES = 100


def worker(kind, where, report, uid):
    """Works as a user until it is killed, and writes how much it has done into a file of its own, ten times a second."""
    os.setgroups([])
    os.setgid(int(uid))
    os.setuid(int(uid))
    os.makedirs(where, exist_ok=True)
    out, done, told = os.open(report, os.O_CREAT | os.O_WRONLY, 0o644), 0, 0.0
    block = b"x" * (1 << 20)
    while True:
        if kind == "create":
            folder = f"{where}/{done // 2000}"
            if done % 2000 == 0:
                os.mkdir(folder)
            fd = os.open(f"{folder}/{done}", os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644)
            os.write(fd, b"small")
            os.close(fd)
            done += 1
        else:
            # A file of 64 MiB, written to the servers and made anew: so that no cache takes it.
            fd = os.open(f"{where}/stream", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
            for _ in range(64):
                os.write(fd, block)
                os.fsync(fd)
                done += 1
                if time.monotonic() - told > 0.1:
                    told = time.monotonic()
                    os.pwrite(out, b"%12d" % done, 0)
            os.close(fd)
        if time.monotonic() - told > 0.1:
            told = time.monotonic()
            os.pwrite(out, b"%12d" % done, 0)


if args.worker:
    worker(*args.worker)
    sys.exit()

NACRE = os.path.abspath(args.nacre)
WORK = args.work or tempfile.mkdtemp(prefix="nacre-flood.")
os.chmod(WORK, 0o755)
FS, OTHER = os.path.join(WORK, "fs"), os.path.join(WORK, "other")
MOUNTS = [os.path.join(WORK, f"mnt{n}") for n in range(args.mounts)]
MNT = MOUNTS[0]
V2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
GROUPS = "/sys/fs/cgroup" if V2 else "/sys/fs/cgroup/cpu"


def nacre(*words):
    return subprocess.run([NACRE, *map(str, words)], check=True, capture_output=True, text=True).stdout


def lctl(*words):
    return nacre("lctl", *words)


class Capped:
    """A server's control group."""

    def __init__(self, pid):
        self.dir = f"{GROUPS}/nacre-flood-{pid}"
        os.mkdir(self.dir)
        period = QUOTA_US * 100 // args.share
        if V2:
            self.write("cpu.max", f"{QUOTA_US} {period}")
            self.write("cpu.weight", 10000)
        else:
            # Whatever else this machine does: it gets its quota.
            self.write("cpu.shares", 262144)
            self.write("cpu.cfs_period_us", period)
            self.write("cpu.cfs_quota_us", QUOTA_US)
        self.write("cgroup.procs", pid)

    def write(self, name, value):
        with open(f"{self.dir}/{name}", "w") as f:
            f.write(str(value))

    def stat(self):
        with open(f"{self.dir}/cpu.stat") as f:
            return {k: int(v) for k, v in (line.split() for line in f)}

    def end(self):
        # Who is in it has to leave it first, if he is still there.
        for pid in open(f"{self.dir}/cgroup.procs").read().split():
            try:
                with open(f"{GROUPS}/cgroup.procs", "w") as f:
                    f.write(pid)
            except OSError:
                pass
        os.rmdir(self.dir)


class Load:
    """So many processes of one user."""

    def __init__(self, kind, mounts, uid, n, tag):
        self.children, self.reports = [], []
        top = f"{mounts[0]}/{tag}"
        os.mkdir(top)
        os.chown(top, uid, uid)
        out = f"{WORK}/out-{tag}"
        os.mkdir(out)
        os.chown(out, uid, uid)
        for i in range(n):
            self.reports.append(f"{out}/{i}")
            words = [sys.executable, os.path.abspath(__file__), "--worker", kind, f"{mounts[i % len(mounts)]}/{tag}/{i}", self.reports[-1], str(uid)]
            self.children.append(subprocess.Popen(words, stderr=subprocess.DEVNULL))

    def done(self):
        def one(path):
            try:
                with open(path) as f:
                    return int(f.read() or 0)
            except FileNotFoundError:
                return 0

        return sum(map(one, self.reports))

    def rate(self, seconds):
        end = time.monotonic() + 20
        while self.done() == 0 and time.monotonic() < end:
            time.sleep(0.05)
        begin, was = time.monotonic(), self.done()
        time.sleep(seconds)
        return (self.done() - was) / (time.monotonic() - begin)

    def end(self):
        for c in self.children:
            c.kill()
        for c in self.children:
            c.wait()


def percentile(sorted_ms, q):
    return sorted_ms[min(len(sorted_ms) - 1, int(len(sorted_ms) * q))]


def ls(seconds, instance):
    """ls -l of a directory of which the mount knows nothing more: milliseconds, in order."""
    times, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        lctl("set_param", "-n", f"ldlm.namespaces.*{instance}*.lru_size=clear")
        begin = time.monotonic()
        done = subprocess.run(["ls", "-l", f"{OTHER}/listed"], user=LISTER, group=LISTER, extra_groups=[], capture_output=True)
        times.append((time.monotonic() - begin) * 1000)
        assert done.returncode == 0 and done.stdout.count(b"\n") == FILES + 1, done
        time.sleep(0.02)
    slowest = sorted(range(len(times)), key=lambda n: -times[n])[:6]
    print(f"{len(times)} times ls; the slowest:", ", ".join(f"no. {n} {times[n]:.0f} ms" for n in slowest), file=sys.stderr)
    return sorted(times)


def measure(tag, instance):
    seconds = args.seconds
    times = ls(seconds, instance)
    one = Load("create", [OTHER], ALONE, 1, f"one-{tag}")
    creates = one.rate(seconds / 2)
    one.end()
    one = Load("stream", [OTHER], READER, 1, f"stream-{tag}")
    mib = one.rate(seconds / 2)
    one.end()
    return {"p50": percentile(times, 0.5), "p99": percentile(times, 0.99), "n": len(times), "creates": creates, "mib": mib}


def flooded(policy, instance, caps):
    for name in ("mds.MDS.mdt", "ost.OSS.ost_io"):
        lctl("set_param", "-n", f"{name}.nrs_policies={policy}")
        lctl("set_param", "-n", f"{name}.nrs_places={args.places}")
    a = Load("create", MOUNTS, CREATOR, args.creators, f"creates-{policy}")
    b = Load("stream", MOUNTS, STREAMER, args.streams, f"streams-{policy}")
    try:
        a.rate(3)
        before, was, begin = [c.stat() for c in caps], (a.done(), b.done()), time.monotonic()
        m = measure(policy, instance)
        took = time.monotonic() - begin
        m["flood"] = ((a.done() - was[0]) / took, (b.done() - was[1]) / took)
        m["throttled"] = [
            100 * (c.stat()["nr_throttled"] - x["nr_throttled"]) / max(1, c.stat()["nr_periods"] - x["nr_periods"])
            for c, x in zip(caps, before)
        ]
        m["stats"] = lctl("get_param", "-n", "mds.MDS.mdt.nrs_stats")
        return m
    finally:
        a.end()
        b.end()


def servers():
    status = json.loads(nacre("status", "--dir", FS, "--json"))
    return [x["pid"] for x in status["processes"] if x["role"] not in ("client", "console")]


def row(what, figure, unit, note=""):
    if args.csv:
        commit = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=HERE, capture_output=True, text=True).stdout.strip()
        print(f'{datetime.date.today()},{commit},"flood, {what}",`scripts/campaign-flood.py`,{figure:.2f},{unit},{note}')


def main():
    nacre("up", "--quiet", "--dir", FS, *(w for m in [*MOUNTS, OTHER] for w in ("--mount", m)), "--osts", 1, "--fsname", "flood")
    caps = [Capped(pid) for pid in servers()]
    try:
        os.mkdir(f"{OTHER}/listed")
        # Files with objects: ls -l asks the object target, too.
        nacre("lfs", "setstripe", "-c", "1", f"{OTHER}/listed")
        for n in range(FILES):
            with open(f"{OTHER}/listed/file{n}", "w") as f:
                f.write("x" * (n + 1))
        os.chmod(MNT, 0o755)
        instance = nacre("lfs", "getname", "-i", OTHER).strip()
        idle = measure("idle", instance)
        print("| | ls -l p50 | p99 | one process creates | one stream | the flood creates | and streams | of its periods each server was at its quota |")
        print("|---|---|---|---|---|---|---|---|")
        print(f"| idle | {idle['p50']:.1f} ms | {idle['p99']:.1f} ms | {idle['creates']:.0f}/s | {idle['mib']:.1f} MiB/s | | | |", flush=True)
        for policy in args.policies.split(","):
            m = flooded(policy, instance, caps)
            t = ", ".join(f"{x:.0f} %" for x in m["throttled"])
            print(
                f"| {policy} | {m['p50']:.1f} ms ({m['p50'] / idle['p50']:.1f}x) | {m['p99']:.1f} ms ({m['p99'] / idle['p99']:.1f}x) "
                f"| {m['creates']:.0f}/s ({100 * m['creates'] / idle['creates']:.0f} %) | {m['mib']:.1f} MiB/s ({100 * m['mib'] / idle['mib']:.0f} %) "
                f"| {m['flood'][0]:.0f}/s | {m['flood'][1]:.1f} MiB/s | {t} |",
                flush=True,
            )
            print(m["stats"], file=sys.stderr)
            row(f"{policy}: p99 of ls beside that when idle", m["p99"] / idle["p99"], "ratio", f"{m['n']} times; idle {idle['p99']:.1f} ms; asked: 5")
            row(f"{policy}: creates of one process, of those alone", 100 * m["creates"] / idle["creates"], "%", f"{m['creates']:.0f}/s; asked: 40")
            row(f"{policy}: one stream, of that alone", 100 * m["mib"] / idle["mib"], "%", f"{m['mib']:.1f} MiB/s; asked: 40")
    finally:
        for c in caps:
            c.end()


try:
    main()
finally:
    subprocess.run([NACRE, "down", "--dir", FS, "--force"], capture_output=True)
    subprocess.run([NACRE, "wipe", "--dir", FS], capture_output=True)
    if not args.work:
        shutil.rmtree(WORK, ignore_errors=True)
