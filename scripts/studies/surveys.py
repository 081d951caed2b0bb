#!/usr/bin/env python3
"""surveys.py [--bin DIR] [--out FILE.csv] [--plot FILE.svg] [--rounds N] [--mib N] [--only STUDY,...]
compares what `nacre survey` says of each layer with what a plain tool says of the same one, in turns: sgpdd-survey and fio on the file
system under the targets, obdfilter-survey (case=network) and iperf3 between two hosts, obdfilter-survey (case=netdisk), ost-survey and
fio through a mount. Four hosts, each in a network namespace of its own: a metadata server, two object servers, a client; the links of
the object servers are capped, so that both tools have the same limit. Writes each measurement to the CSV, a plot of medians to the
SVG, and a Markdown table of ratios to standard output. Needs root, fio, iperf3, and a host of its own:
scripts/apart.sh scripts/studies/surveys.py."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import capped
from capped import Site, address, client, server
from runs import Runs, plot, sh, table

# A site for this: fewer hosts than the other studies have.
capped.SERVERS, capped.CLIENTS = 2, 1
MIB = 1 << 20
STORAGE = [(1, 1), (4, 4)]
THREADS = 4


def fio(options):
    """MiB a second of all jobs together."""
    found = json.loads(sh(f"fio --output-format=json --thread --group_reporting --bs=1M --ioengine=psync {options}"))["jobs"][0]
    return max(found[d]["bw_bytes"] for d in ("read", "write")) / MIB


def survey(site, node, words, at=None):
    """The document of a survey that runs on a host. With `at`, as if the mount's daemon were there."""
    where = f"ip netns exec {node}" if node else ""
    return json.loads(sh(f"{where} {site.bin}/nacre survey {words} --json -q", **({"cwd": at} if at else {})))


def rates_of(document):
    """Rates of the last point, by test."""
    tests = document["points"][-1]["tests"]
    failed = [t["failed"] for t in tests if t["failed"]]
    assert not failed, f"a survey failed: {failed}"
    return {t["test"]: t["rate"] for t in tests}


def each_turn(runs, study, tools):
    """All tools in turns, which begin with another one each time."""
    for turn in range(1, runs.args.rounds + 1):
        order = tools[turn % len(tools):] + tools[:turn % len(tools)]
        for name, measure in order:
            for direction, rate in measure().items():
                runs.add(study, name, direction, turn, rate, 1)


def study_storage(runs, site):
    size = runs.args.mib * 4
    path = f"{site.folder}/storage"
    # As a disk, it has all its blocks: no tool measures how they are found.
    sh(f"dd if=/dev/zero of={path} bs=1M count={size} conv=fsync status=none")

    def by_fio(regions):
        common = f"--filename={path} --direct=1 --numjobs={regions} --size={size // regions}M --offset_increment={size // regions}M"
        write = fio(f"--name=w --rw=write --end_fsync=1 {common}")
        read = fio(f"--name=r --rw=read {common}")
        return {"write": write, "read": read}

    for regions, threads in STORAGE:
        words = f"sgpdd size={size} crglo={regions} crghi={regions} thrlo={threads} thrhi={threads} scsidevs={path} --destroy"
        tools = [("fio", lambda r=regions: by_fio(r)), ("sgpdd-survey", lambda w=words: rates_of(survey(site, None, w)))]
        each_turn(runs, f"storage, {regions} regions, {threads} threads", tools)
    os.remove(path)


def study_network(runs, site):
    at, other = client(0), server(0)

    def by_iperf():
        def run(reverse):
            serves = subprocess.Popen(["ip", "netns", "exec", other, "iperf3", "-s", "-1", "-J"], stdout=subprocess.DEVNULL)
            try:
                for left in range(50, -1, -1):
                    line = f"ip netns exec {at} iperf3 -c {address(other)} -t 5 -O 1 -P {THREADS} -J {'-R' if reverse else ''}"
                    done = subprocess.run(line.split(), capture_output=True, text=True, check=False)
                    # It may end well and have measured nothing, as its server was not there yet.
                    found = json.loads(done.stdout or "{}").get("end", {}).get("sum_received")
                    if not done.returncode and found:
                        return found["bits_per_second"] / 8 / MIB
                    assert left, f"iperf3: {done.stdout}{done.stderr}"
                    time.sleep(0.1)
            finally:
                serves.kill()
                serves.wait()
        return {"write": run(False), "read": run(True)}

    words = f"obdfilter case=network targets={address(other)}@tcp thrlo={THREADS} thrhi={THREADS} size={runs.args.mib * 2} tests_str='write read'"
    serves = subprocess.Popen(["ip", "netns", "exec", other, f"{site.bin}/nacre", "lst", "serve", "--nid", f"{address(other)}@tcp"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        each_turn(runs, "network", [("iperf3", by_iperf), ("obdfilter-survey", lambda: rates_of(survey(site, at, words)))])
    finally:
        serves.terminate()
        serves.wait()


def study_client(runs, site):
    mnt, mib = site.mnt(0), runs.args.mib

    def by_fio():
        names = [f"{mnt}/fio{n}" for n in range(capped.SERVERS)]
        for n, path in enumerate(names):
            sh(f"{site.bin}/lfs setstripe -c 1 -i {n} {path}")
        jobs = THREADS * capped.SERVERS
        part = mib * capped.SERVERS // jobs

        def run(rw):
            # Each job a part of one of the files.
            words = " ".join(f"--name=j{j} --filename={names[j % len(names)]} --offset={j // len(names) * part}M" for j in range(jobs))
            site.cold()
            return fio(f"--direct=1 --rw={rw} --size={part}M {'--end_fsync=1' if rw == 'write' else ''} {words}")
        rates = {rw: run(rw) for rw in ("write", "read")}
        for path in names:
            os.remove(path)
        return rates

    osts = " ".join(f"study-OST{n:04x}" for n in range(capped.SERVERS))
    words = (f"obdfilter case=netdisk targets='{osts}' size={mib} nobjlo=1 nobjhi=1 thrlo={THREADS} thrhi={THREADS} "
             "tests_str='write read'")
    each_turn(runs, "client, all OSTs", [("fio", by_fio), ("obdfilter-survey", lambda: rates_of(survey(site, None, words)))])


def study_ost(runs, site):
    mnt, mib = site.mnt(0), runs.args.mib

    def by_fio():
        path = f"{mnt}/fio"
        sh(f"{site.bin}/lfs setstripe -c 1 -i 0 {path}")
        common = f"--filename={path} --direct=1 --numjobs=1 --size={mib}M"
        write = fio(f"--name=w --rw=write --end_fsync=1 {common}")
        site.cold()
        read = fio(f"--name=r --rw=read {common}")
        os.remove(path)
        return {"write": write, "read": read}

    def by_survey():
        one = survey(site, None, f"ost size={mib} {mnt}")["osts"][0]
        return {"write": one["write"], "read": one["read"]}

    each_turn(runs, "client, one OST", [("fio", by_fio), ("ost-survey", by_survey)])


STUDIES = {"storage": study_storage, "network": study_network, "client": study_client, "ost": study_ost}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    p.add_argument("--bin", default=os.path.join(here, "..", "..", "target", "release"), type=os.path.abspath)
    p.add_argument("--out")
    p.add_argument("--plot")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--mib", type=int, default=256)
    p.add_argument("--only")
    args = p.parse_args()
    wanted = args.only.split(",") if args.only else list(STUDIES)
    unknown = [s for s in wanted if s not in STUDIES]
    if unknown:
        p.error(f"no study '{unknown[0]}': there are {', '.join(STUDIES)}")
    for tool in ("fio", "iperf3"):
        if not shutil.which(tool):
            sys.exit(f"surveys.py: {tool} is not installed")
    runs = Runs(args)
    with tempfile.TemporaryDirectory(prefix="nacre-surveys.") as folder:
        site = Site(args, folder)
        try:
            site.by_links()
            site.cap(client(0), None)
            for name in wanted:
                STUDIES[name](runs, site)
        finally:
            site.end()
    if args.out:
        runs.save(args.out)
    if args.plot:
        with open(args.plot, "w") as f:
            f.write(plot(runs))
    print(table(runs))


if __name__ == "__main__":
    main()
