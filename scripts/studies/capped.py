#!/usr/bin/env python3
"""capped.py [--bin DIR] [--out FILE.csv] [--plot FILE.svg] [--rounds N] [--mib N] [--only STUDY,...]
repeats the tables that studies of parallel file systems print, on servers that are the limit: three object servers, a metadata server
and six clients, each in a network namespace of its own, joined by a bridge. The links of the servers are capped by tbf, or their
processors by a control group; each cap is tried with a plain tool first (a TCP stream, a loop that only computes), and the run ends if
it is not kept within a tenth. Writes each measurement to the CSV, a plot of medians to the SVG, and a Markdown table of ratios to
standard output. Needs root, and a host of its own: scripts/apart.sh scripts/studies/capped.py.

A study's settings are measured in turns. Times of one machine mean little; ratios of one run are what counts."""

import argparse
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from runs import Runs, plot, seconds_of, sh, table

SERVERS, CLIENTS = 3, 6
# A server's link each way, and a client's: two clients are as fast as all servers.
LINK_MBIT, CLIENT_MBIT = 400, 600
# What a server gets of one processor where that is the limit.
QUOTA = 0.15
NET = "10.80.0"
SWITCH, META = "study-sw", "study-m"
MIB = 1 << 20


def server(n):
    return f"study-s{n}"


def client(n):
    return f"study-c{n}"


def address(node):
    """Of a namespace."""
    last = {SWITCH: 250, META: 1}.get(node)
    if last is None:
        last = int(node[7:]) + (10 if node[6] == "s" else 100)
    return f"{NET}.{last}"


class Quota:
    """A control group that has a part of one processor."""

    def __init__(self, name):
        self.unified = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
        self.path = f"/sys/fs/cgroup/{'' if self.unified else 'cpu/'}{name}"
        os.makedirs(self.path, exist_ok=True)
        self.set(None)

    def put(self, name, text):
        with open(f"{self.path}/{name}", "w") as f:
            f.write(text)

    def set(self, part):
        """A part of one processor; None: as much as there is."""
        period = 100_000
        quota = None if part is None else int(part * period)
        if self.unified:
            self.put("cpu.max", f"{'max' if quota is None else quota} {period}")
        else:
            self.put("cpu.cfs_quota_us", "-1" if quota is None else str(quota))

    def enter(self, pid):
        self.put("cgroup.procs", str(pid))

    def end(self):
        try:
            os.rmdir(self.path)
        except OSError as e:
            print(f"capped.py: {self.path} stays: {e}", file=sys.stderr)


def stream(source, sink, seconds=2.0):
    """MiB a second of a plain TCP stream from one namespace to another."""
    program = ("import socket,sys,time\n"
               "s=socket.create_server(('0.0.0.0',7777)) if sys.argv[1]=='sink' else socket.create_connection((sys.argv[2],7777))\n"
               "if sys.argv[1]=='sink':\n"
               "  print('ready',flush=True); c,_=s.accept(); begun=n=0; first=None\n"
               "  while True:\n"
               "    b=c.recv(1<<20)\n"
               "    if not b: break\n"
               "    now=time.monotonic(); first=first or now\n"
               "    if now-first>0.5: n+=len(b); begun=begun or now; last=now\n"
               "  print(n/(last-begun))\n"
               "else:\n"
               f"  end=time.monotonic()+{seconds}; b=bytes(1<<18)\n"
               "  while time.monotonic()<end: s.sendall(b)\n")
    def run(node, *args):
        return subprocess.Popen(["ip", "netns", "exec", node, sys.executable, "-c", program, *args], stdout=subprocess.PIPE, text=True)
    there = run(sink, "sink")
    try:
        assert there.stdout.readline() == "ready\n", "the stream's sink does not start"
        sender = run(source, "source", address(sink))
        assert sender.wait(60) == 0, "the stream's source failed"
        return float(there.communicate(timeout=60)[0]) / MIB
    finally:
        there.kill()
        there.wait()


def within(what, is_now, cap):
    print(f"{what}: {is_now:.3g} where the cap is {cap:.3g}", file=sys.stderr, flush=True)
    if not 0.9 <= is_now / cap <= 1.1:
        sys.exit(f"capped.py: {what}: {is_now:.3g} is not within a tenth of its cap, {cap:.3g}: nothing measured under it would count")


class Site:
    """Servers and clients, joined."""

    def __init__(self, args, folder):
        self.bin, self.folder, self.children, self.quotas = args.bin, folder, [], []
        self.nodes = [META, *(server(n) for n in range(SERVERS)), *(client(n) for n in range(CLIENTS))]
        try:
            self.join()
            self.start()
        except BaseException:
            self.end()
            raise

    def join(self):
        sh(f"ip netns add {SWITCH} && ip -n {SWITCH} link add bridge0 type bridge && ip -n {SWITCH} link set bridge0 up")
        for n in self.nodes:
            sh(f"ip netns add {n} && ip -n {n} link set lo up && "
               f"ip link add name way netns {n} type veth peer name {n} netns {SWITCH} && "
               f"ip -n {n} addr add {address(n)}/24 dev way && ip -n {n} link set dev way up && "
               f"ip -n {SWITCH} link set dev {n} master bridge0 up")

    def cap(self, node, mbit):
        """Bounds what a node sends and gets; None: nothing does."""
        for at, dev in ((node, "way"), (SWITCH, node)):
            sh(f"tc -n {at} qdisc del dev {dev} root 2>/dev/null || true")
            if mbit:
                sh(f"tc -n {at} qdisc add dev {dev} root tbf rate {mbit}mbit burst 512kb latency 50ms")

    def by_links(self):
        """The servers' links are the limit, and the clients' own."""
        for q in self.quotas:
            q.set(None)
        for n in range(SERVERS):
            self.cap(server(n), LINK_MBIT)
        for n in range(CLIENTS):
            self.cap(client(n), CLIENT_MBIT)

    def by_processors(self):
        for n in self.nodes:
            self.cap(n, None)
        for q in self.quotas:
            q.set(QUOTA)

    def try_caps(self):
        """Each kind with a plain tool. A stream is slower than its link by the headers of its packets."""
        self.by_links()
        for node, mbit in ((server(0), LINK_MBIT), (client(0), CLIENT_MBIT)):
            within(f"link to {node}", stream(META, node), mbit * 1e6 / 8 / MIB * 0.957)
            within(f"link from {node}", stream(node, META), mbit * 1e6 / 8 / MIB * 0.957)
        q = Quota("nacre-study-tried")
        try:
            q.set(QUOTA)
            before, begun = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, time.monotonic()
            loop = subprocess.Popen([sys.executable, "-c", "import time\nend=time.monotonic()+3\nwhile time.monotonic()<end: pass"])
            q.enter(loop.pid)
            loop.wait()
            used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
            within("part of a processor", used / (time.monotonic() - begun), QUOTA)
        finally:
            q.end()

    def serve(self, node, name, dirs):
        quota = Quota(f"nacre-{name}")
        self.quotas.append(quota)
        with open(f"{self.folder}/{name}.log", "w") as log:
            line = ["ip", "netns", "exec", node, f"{self.bin}/nacred", "--nid", f"{address(node)}@tcp", *dirs]
            child = subprocess.Popen(line, stdout=log, stderr=log)
        self.children.append(child)
        quota.enter(child.pid)

    def start(self):
        b, f, mgs = self.bin, self.folder, f"{address(META)}@tcp"
        sh(f"{b}/mkfs.nacre --quiet --mgs --mdt --fsname=study --index=0 {f}/mdt0")
        self.serve(META, "study-mdt", [f"{f}/mdt0"])
        for n in range(SERVERS):
            sh(f"{b}/mkfs.nacre --quiet --ost --fsname=study --index={n} --mgsnode={mgs} {f}/ost{n}")
            self.serve(server(n), f"study-ost{n}", [f"{f}/ost{n}"])
        for n in range(CLIENTS):
            os.makedirs(self.mnt(n))
            self.mount(n)

    def mnt(self, n):
        return f"{self.folder}/mnt{n}"

    def mount(self, n):
        line = f"nsenter --net=/run/netns/{client(n)} {self.bin}/mount.nacre {address(META)}@tcp:/study {self.mnt(n)}"
        for left in range(30, -1, -1):
            try:
                sh(line)
                break
            except subprocess.CalledProcessError as e:
                if not left:
                    raise RuntimeError(f"no mount: {e.stderr}") from e
                time.sleep(0.5)
        until = time.monotonic() + 30
        while sh(f"{self.bin}/lfs osts {self.mnt(n)}").count("ACTIVE") < SERVERS:
            if time.monotonic() > until:
                raise RuntimeError(f"{self.mnt(n)} has not all OSTs after 30 s")
            time.sleep(0.1)

    def set(self, values):
        words = " ".join(f"'{name}={value}'" for name, value in values.items())
        sh(f"{self.bin}/lctl set_param {words}")

    def cold(self):
        self.set({"ldlm.namespaces.*.lru_size": "clear"})

    def layout(self, path, osts):
        indices = ",".join(str(i) for i in range(osts))
        sh(f"rm -f {path}; {self.bin}/lfs setstripe -c {osts} -o {indices} -S 1M {path}")

    def end(self):
        for n in range(CLIENTS):
            if os.path.ismount(self.mnt(n)):
                subprocess.run(["umount", self.mnt(n)], check=False)
        for c in reversed(self.children):
            c.terminate()
        for c in reversed(self.children):
            try:
                c.wait(20)
            except subprocess.TimeoutExpired:
                c.kill()
                c.wait()
        for q in self.quotas:
            q.end()
        for n in [*self.nodes, SWITCH]:
            subprocess.run(["ip", "netns", "del", n], check=False, capture_output=True)


def at_once(lines):
    """Seconds until all of these commands, begun together, have ended."""
    begun = time.monotonic()
    children = [subprocess.Popen(["bash", "-euc", line]) for line in lines]
    failed = [c.wait() for c in children]
    assert not any(failed), f"one of {lines} failed"
    return time.monotonic() - begun


def writing(path, mib, block="1M"):
    count = mib * MIB // size_of(block)
    return f"dd if=/dev/zero of={path} bs={block} count={count} conv=fsync,notrunc status=none"


def reading(path, block="1M"):
    return f"dd if={path} of=/dev/null bs={block} status=none"


def size_of(block):
    return int(block[:-1]) * {"K": 1 << 10, "M": MIB}[block[-1]]


def both(runs, site, study, setting, turn, path, mib, block="1M"):
    """Writes and reads one file that is there already, without what the client has of it."""
    runs.add(study, setting, "write", turn, mib, at_once([writing(path, mib, block)]))
    site.cold()
    runs.add(study, setting, "read", turn, mib, at_once([reading(path, block)]))


def study_servers(runs, site):
    site.by_links()
    site.cap(client(0), None)
    for turn in range(1, runs.args.rounds + 1):
        for osts in (1, 2, 3):
            path = f"{site.mnt(0)}/servers"
            site.layout(path, osts)
            both(runs, site, "bandwidth by servers", f"{osts} of {SERVERS}", turn, path, runs.args.mib * osts)


def study_clients(runs, site):
    """All servers are full with two clients: six are three times that."""
    site.by_links()
    for turn in range(1, runs.args.rounds + 1):
        for count in (1, 2, 3, 4, 6):
            paths = [f"{site.mnt(n)}/clients{n}" for n in range(count)]
            mib = runs.args.mib * SERVERS // max(count, 2)
            for path in paths:
                site.layout(path, SERVERS)
            setting = f"{count} clients, {count / 2:g} times what fills the servers"
            runs.add("clients", setting, "write", turn, mib * count, at_once([writing(p, mib) for p in paths]))
            site.cold()
            runs.add("clients", setting, "read", turn, mib * count, at_once([reading(p) for p in paths]))


def study_flight(runs, site):
    """Requests in flight, dirty memory and checksums where the servers' processors are the limit."""
    site.by_processors()
    path = f"{site.mnt(0)}/flight"
    for turn in range(1, runs.args.rounds + 1):
        for flight in (1, 8, 32):
            for dirty in (4, 32, 128):
                for sums in (1, 0):
                    site.set({"osc.*.max_rpcs_in_flight": flight, "osc.*.max_dirty_mb": dirty, "osc.*.checksums": sums})
                    site.layout(path, SERVERS)
                    setting = f"{flight} in flight, {dirty} MiB dirty, checksums {'on' if sums else 'off'}"
                    both(runs, site, "in flight x dirty x checksums", setting, turn, path, runs.args.mib)
    site.set({"osc.*.max_rpcs_in_flight": 8, "osc.*.max_dirty_mb": 32, "osc.*.checksums": 1})


def study_records(runs, site):
    site.by_links()
    for turn in range(1, runs.args.rounds + 1):
        for block in ("4K", "16K", "64K", "256K", "1M"):
            path = f"{site.mnt(0)}/records"
            site.layout(path, SERVERS)
            both(runs, site, "size of records", f"{block}iB", turn, path, runs.args.mib, block)


def study_blocks(runs, site):
    site.by_links()
    site.cap(client(0), None)
    for turn in range(1, runs.args.rounds + 1):
        for osts in (1, 2, 3):
            for block in ("64K", "1M", "4M"):
                path = f"{site.mnt(0)}/blocks"
                site.layout(path, osts)
                both(runs, site, "blocks x OSTs", f"{block}iB blocks on {osts} OSTs", turn, path, runs.args.mib, block)


def make(folder, first, count):
    for n in range(first, first + count):
        os.close(os.open(f"{folder}/f{n}", os.O_CREAT | os.O_WRONLY, 0o600))
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def study_directory(runs, site):
    """Files made, looked at and removed in a directory that has so many already; the metadata server's processor is the limit."""
    some = 2000
    for turn in range(1, runs.args.rounds + 1):
        for have in (0, 1000, 10_000, 50_000):
            site.by_links()
            folder = f"{site.mnt(0)}/d{turn}.{have}"
            os.makedirs(folder)
            make(folder, some, have)
            site.cold()
            site.by_processors()
            for what in ("create", "stat", "remove"):
                begun = time.monotonic()
                if what == "create":
                    make(folder, 0, some)
                    site.cold()
                elif what == "stat":
                    for n in range(some):
                        os.stat(f"{folder}/f{n}")
                else:
                    for n in range(some):
                        os.unlink(f"{folder}/f{n}")
                    fd = os.open(folder, os.O_RDONLY)
                    os.fsync(fd)
                    os.close(fd)
                runs.add("files in a directory", f"{have} there", what, turn, some, time.monotonic() - begun, "files/s")
            site.by_links()
            shutil.rmtree(folder)


STUDIES = {"servers": study_servers, "clients": study_clients, "records": study_records, "blocks": study_blocks,
           "flight": study_flight, "directory": study_directory}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    p.add_argument("--bin", default=os.path.join(here, "../../target/release"))
    p.add_argument("--out", default="capped.csv")
    p.add_argument("--plot", default="capped.svg")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--mib", type=int, default=96, help="written for each server")
    p.add_argument("--only", default=",".join(STUDIES))
    args = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wanted = args.only.split(",")
    for w in wanted:
        if w not in STUDIES:
            p.error(f"'{w}' is no study: {', '.join(STUDIES)}")
    args.bin = os.path.abspath(args.bin)
    folder, runs = tempfile.mkdtemp(prefix="capped-"), Runs(args, "rate")
    try:
        site = Site(args, folder)
        try:
            site.try_caps()
            for w in wanted:
                STUDIES[w](runs, site)
        finally:
            site.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    runs.save(args.out)
    with open(args.plot, "w") as f:
        f.write(plot(runs))
    print(table(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
