#!/usr/bin/env python3
"""release-measure.py BEFORE NOW [--rounds N] [--note TEXT] - the same work on two builds in turns: CPU seconds of the servers, the mount and the
program, and wall seconds. BEFORE and NOW are COMMIT=FOLDER: a commit, and the folder of its programs (make upgrade-drill keeps one below
TARGET/upgrade/COMMIT/target/release). The least of all rounds of each is added to docs/results/releases.csv; scripts/release-page.py makes docs/releases.md.
Needs root and FUSE; runs best under scripts/apart.sh, with nothing beside it."""
import argparse
import csv
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs/results/releases.csv"
HEAD = ["date", "commit", "before", "work", "rounds", "cpu_before", "cpu", "wall_before", "wall", "note"]
TICK = os.sysconf("SC_CLK_TCK")

# Name, and a shell line with $NACRE and a folder $D on the mount.
WORK = [
    ("small files made, looked at, removed", '"$NACRE" bench mdtest --quiet --procs=2 -n 6000 -F -d t "$D"'),
    ("small files with 3,901 bytes, written and read", '"$NACRE" bench mdtest --quiet --procs=2 -n 2000 -F -w 3901 -e 3901 -d u "$D"'),
    ("streams of 1 MiB records, written and read", '"$NACRE" bench ior --quiet --procs=2 -F -e -t 1m -b 256m "$D"'),
    ("one file in records of 47,008 bytes", '"$NACRE" bench ior --quiet --procs=2 -e -t 47008 -b 47008 -s 2000 "$D"'),
    ("a tree packed and unpacked by tar", 'cd "$D" && mkdir in && for i in $(seq 2000); do head -c 5000 /dev/zero >in/f$i; done && tar cf a.tar in && mkdir out && tar xf a.tar -C out && rm -r in out a.tar'),
    ("a database of 300 transactions", 'python3 -c \'import sqlite3, sys\nc = sqlite3.connect(sys.argv[1])\nc.execute("create table t(v)")\nfor i in range(300):\n    c.execute("insert into t values (randomblob(700))")\n    c.commit()\' "$D/db"'),
]


def cpu_of(pids):
    """User and system seconds that these processes have used."""
    total = 0
    for pid in pids:
        fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def run(program, work_dir):
    """{work: (cpu, wall)} of one file system made for it."""
    fs, mnt = work_dir / "fs", work_dir / "mnt"
    nacre = str(program / "nacre")
    mnt.mkdir()
    subprocess.run([nacre, "up", "--quiet", "--dir", fs, "--mount", mnt, "--osts", "2", "--no-watch"], check=True, stdout=subprocess.DEVNULL)
    found = {}
    try:
        status = subprocess.run([nacre, "status", "--dir", fs, "--json"], check=True, capture_output=True, text=True).stdout
        pids = [int(p) for p in re.findall(r'"pid": ?(\d+)', status)]
        for n, (name, line) in enumerate(WORK):
            d = mnt / f"w{n}"
            d.mkdir()
            before, start, own = cpu_of(pids), time.monotonic(), os.times()
            subprocess.run(["bash", "-euc", line], check=True, env={**os.environ, "NACRE": nacre, "D": str(d)}, stdout=subprocess.DEVNULL)
            os.sync()
            wall, now = time.monotonic() - start, os.times()
            mine = now.children_user + now.children_system - own.children_user - own.children_system
            found[name] = (cpu_of(pids) - before + mine, wall)
    finally:
        subprocess.run([nacre, "down", "--force", "--dir", fs], check=False, stdout=subprocess.DEVNULL)
    return found


def build(text):
    commit, sep, folder = text.partition("=")
    folder = pathlib.Path(folder).resolve()
    if not sep or not (folder / "nacre").is_file():
        raise argparse.ArgumentTypeError(f"'{text}': expected COMMIT=FOLDER, with the program nacre in the folder")
    return commit, folder


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("before", type=build)
    p.add_argument("now", type=build)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--note", default="", help="what was so on the machine meanwhile")
    args = p.parse_args()
    if args.rounds < 1:
        p.error("--rounds: at least 1")
    builds, seen = [args.before, args.now], [{}, {}]
    for n in range(args.rounds):
        # The one that is first has the cold caches of the host: they take turns.
        for which in ((0, 1), (1, 0))[n % 2]:
            d = pathlib.Path(tempfile.mkdtemp(prefix="nacre-release-"))
            try:
                for name, pair in run(builds[which][1], d).items():
                    seen[which].setdefault(name, []).append(pair)
            finally:
                shutil.rmtree(d)
            print(f"round {n + 1} of {args.rounds}: {builds[which][0]} done", file=sys.stderr)
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as f:
        w = csv.writer(f, lineterminator="\n")
        if new:
            w.writerow(HEAD)
        for name, _ in WORK:
            figures = [f"{min(x[i] for x in seen[b][name]):.2f}" for i in (0, 1) for b in (0, 1)]
            row = [datetime.date.today().isoformat(), args.now[0], args.before[0], name, args.rounds, *figures, args.note]
            w.writerow(row)
            print(json.dumps(dict(zip(HEAD, row))))


if __name__ == "__main__":
    main()
