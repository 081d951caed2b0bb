#!/usr/bin/env python3
"""campaign-watched.py [--nacre BINARY] [--files N] [--mib N] [--pairs N] - what it costs to be watched, as Markdown: a user's work while
all servers and the mount are scraped each second, the console samples and three of its pages are open, and the mount probes its targets,
against the same work while nobody looks, and that against itself; so many times in turns. For each row the geometric mean of the ratios
of speed with its 95 % interval, and the processor time of the servers. Needs root and FUSE; run it with scripts/apart.sh."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request

from paired import Bench

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("--nacre", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "target", "release", "nacre"))
p.add_argument("--files", type=int, default=6000)
p.add_argument("--mib", type=int, default=384)
p.add_argument("--pairs", type=int, default=9)
args = p.parse_args()
NACRE = os.path.abspath(args.nacre)
LCTL = os.path.join(os.path.dirname(NACRE), "lctl")
WORK = tempfile.mkdtemp(prefix="nacre-watched.")
FS, MNT = os.path.join(WORK, "fs"), os.path.join(WORK, "mnt")
# Pages that somebody has open ask again every two seconds.
PAGES = ["/api/overview", "/api/performance", "/api/top"]
PROBE = "llite.*.probe_interval"


def run(*words):
    return subprocess.run([str(w) for w in words], check=True, capture_output=True, text=True).stdout


class Watch:
    """Whoever looks, on threads of this process."""

    def __init__(self):
        with open(os.path.join(FS, "metrics.json"), encoding="utf-8") as f:
            self.targets = [t for group in json.load(f) for t in group["targets"]]
        assert self.targets, "somebody tells metrics"
        with open(os.path.join(FS, "dashboard", "operator.token"), encoding="utf-8") as f:
            self.token = f.read().strip()
        self.console = self.find_console()
        self.address = self.targets[0].rsplit(":", 1)[0]
        self.over = None
        self.looks = 0
        self.failed = 0
        self.probe = run(LCTL, "get_param", "-n", PROBE).split()[0]
        self.threads = []

    @staticmethod
    def find_console():
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    if b"dashboard" in f.read().split(b"\0")[:3] and FS in os.readlink(f"/proc/{pid}/cwd") + open(f"/proc/{pid}/cmdline").read():
                        return int(pid)
            except OSError:
                pass
        sys.exit("campaign-watched.py: no console runs")

    def look(self, url, each, headers):
        while not self.over.wait(each):
            try:
                with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
                    answer.read()
                self.looks += 1
            except OSError as e:
                self.failed += 1
                print(f"campaign-watched.py: {url}: {e}", file=sys.stderr)

    def enter(self, watched):
        """The state for the next piece of work."""
        if self.over:
            self.over.set()
            for t in self.threads:
                t.join()
            self.over, self.threads = None, []
        os.kill(self.console, signal.SIGCONT if watched else signal.SIGSTOP)
        run(LCTL, "set_param", f"{PROBE}={self.probe if watched else 0}")
        if watched:
            self.over = threading.Event()
            bearer = {"Authorization": f"Bearer {self.token}"}
            wanted = [(f"http://{t}/metrics", 1, {}) for t in self.targets]
            wanted += [(f"http://{self.address}:9170{page}", 2, bearer) for page in PAGES]
            self.threads = [threading.Thread(target=self.look, args=w, daemon=True) for w in wanted]
            for t in self.threads:
                t.start()


try:
    os.chmod(WORK, 0o755)
    run(NACRE, "up", "--quiet", "--dir", FS, "--mount", MNT, "--osts", 2, "--fsname", "watched", "--metrics", "--dashboard")
    watch = Watch()
    try:
        Bench(FS, MNT, args.files, args.mib).pairs(args.pairs, "nobody looks", "watched", watch.enter)
    finally:
        os.kill(watch.console, signal.SIGCONT)
    print(f"\n{len(watch.targets)} addresses and {len(PAGES)} pages, {watch.looks} answers, {watch.failed} failures")
    sys.exit(1 if watch.failed or not watch.looks else 0)
finally:
    subprocess.run([NACRE, "down", "--dir", FS, "--force"], capture_output=True)
    shutil.rmtree(WORK, ignore_errors=True)
