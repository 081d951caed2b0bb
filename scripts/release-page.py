#!/usr/bin/env python3
"""release-page.py [--check] - makes docs/releases.md from docs/results/releases.csv: what a release costs beside the one before.

--check: writes nothing; exit status 1 if the page is not what the table says.
"""
import csv
import itertools
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs/results/releases.csv"
PAGE = ROOT / "docs/releases.md"

HEAD = """# What a release costs

Made by `scripts/release-page.py` from [results/releases.csv](results/releases.csv): change it there.
The same work on two builds in turns, on one machine (`scripts/release-measure.py`).
CPU seconds are those of the servers, the mount and the program, user and system together; of each figure the least of all rounds stands here, as others may work on the machine beside it.
A ratio below 1 is less than before.
"""


def ratio(row, what):
    before, now = float(row[what + "_before"]), float(row[what])
    return now / before if before > 0 else float("nan")


def mean(ratios):
    """Geometric."""
    real = [r for r in ratios if r > 0]
    return math.exp(sum(map(math.log, real)) / len(real)) if real else float("nan")


def section(commit, before, rows):
    """One comparison as lines."""
    note = f"; {rows[0]['note']}" if rows[0]["note"] else ""
    out = [
        f"## {commit} beside {before}",
        "",
        f"{rows[0]['date']}, {rows[0]['rounds']} rounds{note}.",
        "",
        "| work | CPU s before | CPU s | ratio | wall s before | wall s | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        cells = [r["work"], r["cpu_before"], r["cpu"], f"{ratio(r, 'cpu'):.2f}", r["wall_before"], r["wall"], f"{ratio(r, 'wall'):.2f}"]
        out.append("| " + " | ".join(cells) + " |")
    cpu, wall = (mean([ratio(r, w) for r in rows]) for w in ("cpu", "wall"))
    out.append(f"| geometric mean | | | **{cpu:.2f}** | | | **{wall:.2f}** |")
    return out


def page():
    rows = list(csv.DictReader(TABLE.open(newline="")))
    parts = []
    for (date, commit, before), some in itertools.groupby(rows, key=lambda r: (r["date"], r["commit"], r["before"])):
        parts.append("\n".join(section(commit, before, list(some))))
    # The newest first.
    return HEAD + "\n" + "\n\n".join(reversed(parts)) + "\n"


def main():
    text = page()
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or PAGE.read_text() != text:
            sys.exit(f"{PAGE.relative_to(ROOT)} is not what {TABLE.relative_to(ROOT)} says: run scripts/release-page.py")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
