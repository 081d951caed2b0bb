#!/usr/bin/env python3
"""campaign-quota.py [--nacre BINARY] [--files N] [--mib N] [--pairs N] - what limits cost a user, as Markdown: files a second that he
makes, and MiB a second that he writes, without limits, far from his limit, and near it. Three times each in turns, medians. With --pairs,
the states instead: a user's work with limits enforced against the same with usage only counted, and counted against counted, so many times
in turns; for each row the geometric mean of the ratios of speed with its 95 % interval, and the processor time of the servers. Needs root
and FUSE; run it with scripts/apart.sh. docs/purge-against-quota.md has the figures."""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

from paired import USER, Bench, as_user, make, write

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("--nacre", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "target", "release", "nacre"))
p.add_argument("--files", type=int, default=5000)
p.add_argument("--mib", type=int, default=256)
p.add_argument("--pairs", type=int, default=0)
args = p.parse_args()
NACRE = os.path.abspath(args.nacre)
LFS, LCTL = (os.path.join(os.path.dirname(NACRE), name) for name in ("lfs", "lctl"))
WORK = tempfile.mkdtemp(prefix="nacre-quota.")
FS, MNT = os.path.join(WORK, "fs"), os.path.join(WORK, "mnt")


def run(*words):
    return subprocess.run([str(w) for w in words], check=True, capture_output=True, text=True).stdout


def used():
    """KiB and inodes."""
    words = run(LFS, "quota", "-q", "-u", USER, MNT).split()
    return int(words[1].strip("*")), int(words[5].strip("*"))


def limit(kib, inodes):
    run(LFS, "setquota", "-u", USER, "-b", 0, "-B", kib, "-i", 0, "-I", inodes, MNT)


def limits(way):
    """Before work that takes all of `mib` and `files`."""
    kib, inodes = used()
    if way == "none":
        limit(0, 0)
    elif way == "far":
        limit(kib + 100 * args.mib * 1024, inodes + 100 * args.files)
    else:
        # A twentieth is left when it is done.
        limit(kib + args.mib * 1024 * 21 // 20, inodes + args.files * 21 // 20)


def enforce(on):
    value = "ugp" if on else "none"
    run(LCTL, "set_param", f"osd-*.*.quota_slave.enabled={value}")
    limit(1 << 30, 1 << 24)


try:
    os.chmod(WORK, 0o755)
    run(NACRE, "up", "--quiet", "--dir", FS, "--mount", MNT, "--osts", 2, "--fsname", "quota")
    if args.pairs:
        Bench(FS, MNT, args.files, args.mib).pairs(args.pairs, "usage only counted", "enforced", enforce)
        sys.exit()
    rates = {}
    for turn in range(3):
        for way in ("none", "far", "near"):
            folder = f"{MNT}/{way}{turn}"
            os.mkdir(folder)
            os.chown(folder, USER, USER)
            for what, work, amount in (("files", lambda f: make(f, args.files), args.files), ("MiB", lambda f: write(f"{f}/data", args.mib), args.mib)):
                limits(way)
                rates.setdefault((way, what), []).append(amount / as_user(lambda: work(folder)))
            shutil.rmtree(folder)
    print("| limits | files made a second | MiB written a second |")
    print("|---|---:|---:|")
    for way in ("none", "far", "near"):
        print(f"| {way} | {statistics.median(rates[way, 'files']):,.0f} | {statistics.median(rates[way, 'MiB']):,.0f} |")
finally:
    subprocess.run([NACRE, "down", "--dir", FS, "--force"], capture_output=True)
    shutil.rmtree(WORK, ignore_errors=True)
