#!/usr/bin/env python3
"""tuning.py [--bin DIR] [--out FILE.csv] [--plot FILE.svg] [--rounds N] [--mib N] [--only STUDY,...]
measures what settings do, each in turns with the others, several times: buffers and congestion control of TCP with 50 ms of way,
requests in flight and dirty memory, read-ahead, stripes, checksums. Writes each measurement to the CSV, a plot of medians to the
SVG, and a Markdown table of ratios to standard output. Needs root, and a host of its own: scripts/apart.sh scripts/studies/tuning.py.

The long way is two network namespaces joined by two TUN devices and a process that hands on each packet after 25 ms, at a bounded rate:
real TCP with a real round trip, where the kernel has no netem. Times of one machine mean little; ratios of one run are what counts."""

import argparse
import collections
import ctypes
import fcntl
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from runs import Runs, plot, seconds_of, sh, table

DELAY_S = 0.025
RATE_BYTES = 125_000_000
MTU = 9000
QUEUE_BYTES = 16 << 20
LOST_EACH = 10_000
CLIENT, SERVER = "10.79.0.1", "10.79.0.2"
KERNEL = {"tcp_rmem": "4096 131072 6291456", "tcp_wmem": "4096 16384 4194304", "congctl": "cubic"}
BUFFERS = {"tcp_rmem": "4096 131072 134217728", "tcp_wmem": "4096 131072 134217728", "congctl": "cubic"}
BBR = dict(BUFFERS, congctl="bbr")


def tun(name, namespace):
    """A TUN device in a network namespace, which this process enters."""
    with open(f"/run/netns/{namespace}") as f:
        if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), 0x40000000) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x0001 | 0x1000))
    return fd


def forward(here, there):
    """Hands on packets of two devices to each other, late; SIGUSR1 loses one of LOST_EACH from now on, SIGUSR2 none."""
    ends = [tun("way", here), tun("way", there)]
    state = {"lossy": False}
    signal.signal(signal.SIGUSR1, lambda *_: state.update(lossy=True))
    signal.signal(signal.SIGUSR2, lambda *_: state.update(lossy=False))
    queues, held, free, seen = [collections.deque(), collections.deque()], [0, 0], [0.0, 0.0], 0
    print("ready", flush=True)
    while True:
        now = time.monotonic()
        due = min((q[0][0] for q in queues if q), default=now + 1)
        ready = select.select(ends, [], [], max(0.0, min(due - now, 1)))[0]
        for i, fd in enumerate(ends):
            if fd in ready:
                for _ in range(64):
                    try:
                        packet = os.read(fd, 65536)
                    except BlockingIOError:
                        break
                    seen += 1
                    if held[i] > QUEUE_BYTES or (state["lossy"] and seen % LOST_EACH == 0):
                        continue
                    now = time.monotonic()
                    free[i] = max(free[i], now) + len(packet) / RATE_BYTES
                    held[i] += len(packet)
                    queues[i].append((free[i] + DELAY_S, packet))
        now = time.monotonic()
        for i, q in enumerate(queues):
            while q and q[0][0] <= now:
                packet = q.popleft()[1]
                held[i] -= len(packet)
                try:
                    os.write(ends[1 - i], packet)
                except OSError:
                    pass  # A device that takes no more loses it, as a network card does.


class Far:
    """A client with 50 ms between it and its servers."""

    ENDS = (("tune-c", CLIENT, SERVER), ("tune-s", SERVER, CLIENT))

    def __init__(self, args, folder):
        self.bin, self.folder, self.mnt = args.bin, folder, f"{folder}/far"
        self.children = []
        try:
            self.start()
        except BaseException:
            self.end()
            raise

    def start(self):
        folder = self.folder
        for n in ("tune-c", "tune-s"):
            sh(f"ip netns add {n} && ip -n {n} link set lo up")
        self.link = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--forward"], stdout=subprocess.PIPE, text=True)
        self.children.append(self.link)
        assert self.link.stdout.readline() == "ready\n", "the link does not start"
        for n, own, other in self.ENDS:
            sh(f"ip -n {n} addr add {own} peer {other} dev way && ip -n {n} link set way mtu {MTU} txqueuelen 10000 up")
        os.makedirs(self.mnt)
        b, f = self.bin, folder
        sh(f"{b}/mkfs.nacre --quiet --mgs --mdt --fsname=far --index=0 {f}/mdt0")
        for i in range(2):
            sh(f"{b}/mkfs.nacre --quiet --ost --fsname=far --index={i} --mgsnode={SERVER}@tcp {f}/ost{i}")
        self.set(BUFFERS)
        with open(f"{folder}/nacred.log", "w") as log:
            dirs = [f"{folder}/{d}" for d in ("mdt0", "ost0", "ost1")]
            daemon = ["nsenter", "--net=/run/netns/tune-s", f"{b}/nacred", "--nid", f"{SERVER}@tcp", *dirs]
            self.children.append(subprocess.Popen(daemon, stdout=log, stderr=log))
        self.mount()

    def set(self, values):
        for n, own, other in self.ENDS:
            for name in ("tcp_rmem", "tcp_wmem"):
                sh(f"nsenter --net=/run/netns/{n} sysctl -qw net.ipv4.{name}='{values[name]}'")
            # By the route: a namespace may not set what the host does not allow everybody.
            sh(f"ip -n {n} route replace {other}/32 dev way src {own} congctl {values['congctl']}")

    def lose(self, lossy):
        self.link.send_signal(signal.SIGUSR1 if lossy else signal.SIGUSR2)

    def mount(self):
        line = f"nsenter --net=/run/netns/tune-c {self.bin}/mount.nacre {SERVER}@tcp:/far {self.mnt}"
        for left in range(30, -1, -1):
            try:
                sh(line)
                break
            except subprocess.CalledProcessError as e:
                if not left:
                    raise RuntimeError(f"no mount: {e.stderr}") from e
                time.sleep(0.5)
        while len([l for l in sh(f"{self.bin}/lfs osts {self.mnt}").splitlines() if "ACTIVE" in l]) < 2:
            time.sleep(0.1)

    def remount(self):
        sh(f"umount {self.mnt}")
        self.mount()

    def wide(self):
        """The mount bounds nothing that a connection could have on its way."""
        sh(f"{self.bin}/lctl set_param 'osc.*.max_rpcs_in_flight=64' 'osc.*.max_dirty_mb=1024' "
           "'llite.*.max_read_ahead_mb=1024' 'llite.*.max_read_ahead_per_file_mb=256'")

    def end(self):
        subprocess.run(["umount", self.mnt], check=False)
        for c in reversed(self.children):
            c.terminate()
            c.wait()
        for n in ("tune-c", "tune-s"):
            subprocess.run(["ip", "netns", "del", n], check=False)


class Near:
    """Everything on this host: four OSTs."""

    def __init__(self, args, folder):
        self.bin, self.dir, self.mnt = args.bin, f"{folder}/near-fs", f"{folder}/near"
        self.up()

    def up(self):
        sh(f"{self.bin}/nacre up --quiet --dir {self.dir} --mount {self.mnt} --osts 4")

    def cold(self):
        sh(f"{self.bin}/lctl set_param 'ldlm.namespaces.*.lru_size=clear'")

    def end(self):
        subprocess.run([f"{self.bin}/nacre", "down", "--force", "--dir", self.dir], check=False, capture_output=True)


def write(runs, study, setting, turn, path):
    sh(f"rm -f {path}")
    s = seconds_of(f"dd if=/dev/zero of={path} bs=1M count={runs.args.mib} conv=fsync status=none")
    runs.add(study, setting, "write", turn, runs.args.mib, s)


def read(runs, study, setting, turn, path):
    s = seconds_of(f"dd if={path} of=/dev/null bs=1M status=none")
    runs.add(study, setting, "read", turn, runs.args.mib, s)


def study_tcp(runs, far):
    settings = [("kernel's own", KERNEL, False), ("large buffers", BUFFERS, False), ("large buffers, BBR", BBR, False),
                ("large buffers, loss", BUFFERS, True), ("large buffers, BBR, loss", BBR, True)]
    for turn in range(1, runs.args.rounds + 1):
        for name, values, lossy in settings:
            far.set(values)
            far.lose(lossy)
            for step in (write, read):
                far.remount()
                far.wide()
                step(runs, "TCP at 50 ms", name, turn, f"{far.mnt}/tcp")
    far.set(BUFFERS)
    far.lose(False)


def study_flight(runs, far):
    for turn in range(1, runs.args.rounds + 1):
        for flight in (1, 8, 64):
            for dirty in (8, 32, 256):
                far.remount()
                sh(f"{far.bin}/lctl set_param 'osc.*.max_rpcs_in_flight={flight}' 'osc.*.max_dirty_mb={dirty}'")
                write(runs, "requests x dirty at 50 ms", f"{flight} in flight, {dirty} MiB dirty", turn, f"{far.mnt}/flight")


def study_ahead(runs, far):
    write(runs, "preparing", "none", 0, f"{far.mnt}/ahead")
    for turn in range(1, runs.args.rounds + 1):
        for ahead in (0, 4, 16, 64, 256):
            far.remount()
            sh(f"{far.bin}/lctl set_param 'osc.*.max_rpcs_in_flight=64' 'llite.*.max_read_ahead_mb=1024' "
               f"'llite.*.max_read_ahead_per_file_mb={ahead}'")
            read(runs, "read-ahead at 50 ms", f"{ahead} MiB a file", turn, f"{far.mnt}/ahead")
    runs.rows = [r for r in runs.rows if r[0] != "preparing"]


def study_stripes(runs, near):
    for turn in range(1, runs.args.rounds + 1):
        for stripes in (1, 2, 4):
            path = f"{near.mnt}/stripes{stripes}"
            sh(f"rm -f {path}; {near.bin}/lfs setstripe -c {stripes} -S 1M {path}")
            s = seconds_of(f"dd if=/dev/zero of={path} bs=1M count={runs.args.mib} conv=fsync,notrunc status=none")
            runs.add("stripes, one host", f"on {stripes} of 4", "write", turn, runs.args.mib, s)
            near.cold()
            read(runs, "stripes, one host", f"on {stripes} of 4", turn, path)


def study_checksums(runs, near):
    path = f"{near.mnt}/sums"
    for turn in range(1, runs.args.rounds + 3):
        for on in (1, 0):
            sh(f"{near.bin}/lctl set_param 'osc.*.checksums={on}'")
            setting = "on" if on else "off"
            write(runs, "checksums, one host", setting, turn, path)
            near.cold()
            read(runs, "checksums, one host", setting, turn, path)
    sh(f"{near.bin}/lctl set_param 'osc.*.checksums=1'")


FAR = {"tcp": study_tcp, "flight": study_flight, "ahead": study_ahead}
NEAR = {"stripes": study_stripes, "checksums": study_checksums}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    p.add_argument("--bin", default=os.path.join(here, "../../target/release"))
    p.add_argument("--out", default="tuning.csv")
    p.add_argument("--plot", default="tuning.svg")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--mib", type=int, default=128)
    p.add_argument("--only", default=",".join([*FAR, *NEAR]))
    p.add_argument("--forward", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if args.forward:
        return forward("tune-c", "tune-s")
    wanted = args.only.split(",")
    for w in wanted:
        if w not in FAR and w not in NEAR:
            p.error(f"'{w}' is no study: {', '.join([*FAR, *NEAR])}")
    args.bin = os.path.abspath(args.bin)
    folder, runs = tempfile.mkdtemp(prefix="tuning-"), Runs(args)
    try:
        for kind, studies in ((Far, FAR), (Near, NEAR)):
            chosen = [s for name, s in studies.items() if name in wanted]
            if not chosen:
                continue
            site = kind(args, folder)
            try:
                for s in chosen:
                    s(runs, site)
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
