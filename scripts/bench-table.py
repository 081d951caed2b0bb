#!/usr/bin/env python3
"""bench-table.py CSV... [--ours LABEL] [--local LABEL] [--targets FILE] [--peers FILE] - rows 'label,phase,value,unit' of
any number of runs as a Markdown table: the best of ours and of the local directory, their ratio (above 1: ours is faster),
and what targets (phase,x_best_peer,x_local) ask for. With --peers, the best other label of that file (which may be the same) beside ours.
Exit status 1 when a target is missed."""

import argparse
import csv
import sys

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("csv", nargs="+")
p.add_argument("--ours", default="nacre")
p.add_argument("--local", default="local")
p.add_argument("--targets")
p.add_argument("--peers")
args = p.parse_args()

# Conditions of a run, not results.
SKIP = {"load_start", "load_end", "suite_seconds"}


def read(path):
    """(label, phase, value or None, unit) of each row."""
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            try:
                value = float(row["value"])
            except ValueError:
                value = None  # FAIL, SKIP
            if row["phase"] not in SKIP:
                yield row["label"], row["phase"], value, row["unit"]


def better(unit, a, b):
    """The better of two values, either of which may be missing. Seconds are better when fewer."""
    if a is None or b is None:
        return b if a is None else a
    return min(a, b) if unit == "s" else max(a, b)


def factor(unit, ours, other):
    """How many times as fast ours is."""
    if not ours or not other:
        return None
    return other / ours if unit == "s" else ours / other


best, units, failed = {}, {}, {}
for path in args.csv:
    for label, phase, value, unit in read(path):
        if unit != "-":
            units[phase] = unit
        units.setdefault(phase, unit)
        best[label, phase] = better(unit, best.get((label, phase)), value)
        failed[label, phase] = failed.get((label, phase), 0) + (value is None)

peer, peer_name = {}, {}
for label, phase, value, unit in read(args.peers) if args.peers else []:
    if label.startswith(args.local) or label == args.ours:
        continue
    if value is not None and better(unit, peer.get(phase), value) == value:
        peer[phase], peer_name[phase] = value, label

targets = {}
if args.targets:
    with open(args.targets, newline="") as f:
        for row in csv.DictReader(f):
            targets[row["phase"]] = [float(row[k]) if row[k] else None for k in ("x_best_peer", "x_local")]


def number(v):
    return "-" if v is None else f"{v:,.0f}" if v >= 100 else f"{v:.2f}"


def cell(reached, wanted):
    """A ratio and its target; bold where it is missed."""
    if reached is None:
        return "-" if wanted is None else f"- ({wanted:g})"
    if wanted is None:
        return f"{reached:.2f}"
    text = f"{reached:.2f} ({wanted:g})"
    return text if reached >= wanted else f"**{text}**"


missed = 0
print(f"| phase | unit | {args.ours} | {args.local} | x {args.local} (target) | best peer | x peer (target) | failed runs |")
print("|---|---|---:|---:|---:|---:|---:|---:|")
for phase, unit in units.items():
    ours, local = best.get((args.ours, phase)), best.get((args.local, phase))
    want_peer, want_local = targets.get(phase, [None, None])
    x_local, x_peer = factor(unit, ours, local), factor(unit, ours, peer.get(phase))
    for reached, wanted in ((x_local, want_local), (x_peer, want_peer if args.peers else None)):
        missed += wanted is not None and (reached is None or reached < wanted)
    fails = failed.get((args.ours, phase), 0)
    print(
        f"| {phase} | {unit} | {number(ours)} | {number(local)} | {cell(x_local, want_local)} "
        f"| {number(peer.get(phase))} {peer_name.get(phase, '')} | {cell(x_peer, want_peer)} | {fails or ''} |"
    )
if targets:
    print(f"\n{missed} targets missed.")
sys.exit(1 if missed else 0)
