#!/usr/bin/env python3
"""campaign-growth.py [osts] [procs] [files] [--nacre BINARY] [--work DIR] [--scale N] - how cost grows, as Markdown tables:
with 1 to 8 OSTs, with 1 to 16 client processes, with 10^3 to 10^6 files in a tree (10^7: campaign-memory.sh files).
A new file system for each row of the first and the last; the client is mounted anew before cold phases. Needs root and FUSE.
--scale N divides sizes and counts, to try it out."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("what", nargs="*", default=[])
p.add_argument("--nacre", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "target", "release", "nacre"))
p.add_argument("--work")
p.add_argument("--scale", type=int, default=1)
args = p.parse_args()
NACRE = os.path.abspath(args.nacre)
WORK = args.work or tempfile.mkdtemp(prefix="nacre-growth.")
FS, MNT = os.path.join(WORK, "fs"), os.path.join(WORK, "mnt")


def nacre(*words, **kw):
    return subprocess.run([NACRE, *map(str, words)], check=True, capture_output=True, text=True, **kw).stdout


class FileSystem:
    """One that is up inside a with, and gone behind it."""

    def __init__(self, osts):
        self.osts = osts

    def __enter__(self):
        nacre("up", "--quiet", "--dir", FS, "--mount", MNT, "--osts", self.osts, "--fsname", "grow")
        self.hook = f"umount {MNT} && {NACRE} up --quiet --dir {FS} --mount {MNT}"
        return self

    def __exit__(self, *_):
        subprocess.run([NACRE, "down", "--dir", FS, "--force"], capture_output=True)
        subprocess.run([NACRE, "wipe", "--dir", FS], capture_output=True)

    def bench(self, procs, *words):
        """Best rate of each phase."""
        out = json.loads(nacre("bench", "-np", procs, *words, "-q", "--json", "--drop-caches", "--hook", self.hook, MNT))
        best = {}
        for row in out["rows"]:
            best[row["phase"]] = max(best.get(row["phase"], 0), row["rate"])
        return best


def ior(fs, procs, mib):
    return fs.bench(procs, "ior", "-F", "-t", "1m", "-b", f"{mib}m", "-e", "-C")


def mdtest(fs, procs, files):
    # A directory for each thousand files of each process.
    leaves = max(1, files // procs // 1000)
    words = ["mdtest", "-n", files // procs, "-u", "-F", "-N", "1"]
    if leaves > 1:
        words += ["-z", "1", "-b", leaves, "-L", "-I", 1000]
    return fs.bench(procs, *words)


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---:|" * len(head))
    for r in rows:
        print("| " + " | ".join(f"{x:,.0f}" if isinstance(x, float) else f"{x:,}" for x in r) + " |", flush=True)
    print()


def get(rates, word):
    return float(next((v for k, v in rates.items() if word in k.lower()), 0.0))


def osts():
    def row(n):
        with FileSystem(n) as fs:
            r = ior(fs, 4, 256 // args.scale)
            return n, get(r, "write"), get(r, "read")

    table(["OSTs", "write MiB/s", "read cold MiB/s"], (row(n) for n in (1, 2, 4, 8)))


def procs():
    with FileSystem(4) as fs:

        def row(n):
            r = ior(fs, n, 1024 // n // args.scale)
            m = mdtest(fs, n, 16000 // args.scale)
            return n, get(r, "write"), get(r, "read"), get(m, "creation"), get(m, "stat"), get(m, "removal")

        head = ["processes", "write MiB/s", "read cold MiB/s", "create/s", "stat cold/s", "remove/s"]
        table(head, (row(n) for n in (1, 2, 4, 8, 16)))


def files():
    def row(n):
        with FileSystem(2) as fs:
            m = mdtest(fs, 2, n)
            return n, get(m, "creation"), get(m, "stat"), get(m, "removal")

    table(["files", "create/s", "stat cold/s", "remove/s"], (row(10**k // args.scale) for k in (3, 4, 5, 6)))


known = {"osts": osts, "procs": procs, "files": files}
wrong = [w for w in args.what if w not in known]
if wrong:
    sys.exit(f"campaign-growth.py: no '{wrong[0]}'; there are {', '.join(known)}")
try:
    for w in args.what or known:
        known[w]()
except subprocess.CalledProcessError as e:
    sys.exit(f"{' '.join(e.cmd)}: {e.stderr.strip()}")
finally:
    shutil.rmtree(WORK, ignore_errors=True)
