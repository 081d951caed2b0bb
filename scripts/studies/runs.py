"""What the studies of this folder share: measurements as they come, their CSV, a Markdown table and a plot."""

import csv
import datetime
import statistics
import subprocess
import sys
import time


def sh(line, **more):
    return subprocess.run(["bash", "-euc", line], check=True, capture_output=True, text=True, **more).stdout


class Runs:
    """Measurements, as they come."""

    def __init__(self, args, rate="mib_per_s"):
        self.args, self.rate, self.rows = args, rate, []
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
        self.commit, self.date = commit.stdout.strip() or "unknown", datetime.date.today().isoformat()

    def add(self, study, setting, direction, turn, amount, seconds, unit="MiB/s"):
        self.rows.append((study, setting, direction, turn, amount / seconds))
        print(f"{study}: {setting}, {direction}, {turn}: {amount / seconds:.0f} {unit}", file=sys.stderr, flush=True)

    def of(self, study):
        """Medians and spreads, by direction and setting, in the order of measuring."""
        out = {}
        for _, setting, direction, _, rate in (r for r in self.rows if r[0] == study):
            out.setdefault(direction, {}).setdefault(setting, []).append(rate)
        return out

    def studies(self):
        return list(dict.fromkeys(r[0] for r in self.rows))

    def save(self, path):
        with open(path, "w", newline="") as f:
            w = csv.writer(f, lineterminator="\n")
            w.writerow(["date", "commit", "study", "setting", "direction", "turn", self.rate])
            w.writerows([self.date, self.commit, *r[:4], f"{r[4]:.1f}"] for r in self.rows)


def seconds_of(line):
    begin = time.monotonic()
    sh(line)
    return time.monotonic() - begin


def table(runs):
    """Markdown: the median as a ratio to that of the first setting, and how far the turns lay apart."""
    out = []
    for study in runs.studies():
        out += [f"### {study}", "| setting | direction | ratio | spread |", "|---|---|---:|---:|"]
        for direction, settings in runs.of(study).items():
            first = statistics.median(next(iter(settings.values())))
            for setting, rates in settings.items():
                m = statistics.median(rates)
                out.append(f"| {setting} | {direction} | {m / first:.2f} | {(max(rates) - min(rates)) / m:.2f} |")
    return "\n".join(out)


def plot(runs):
    """Bars of ratios, a panel each study and direction, with a line from the lowest to the highest of the turns."""
    panels = [(s, d, settings) for s in runs.studies() for d, settings in runs.of(s).items()]
    row, left, width, head = 20, 230, 420, 34
    height = sum(head + row * len(p[2]) + 14 for p in panels) + 10
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 90}" height="{height}" '
           'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>']
    y = 10
    for study, direction, settings in panels:
        first = statistics.median(next(iter(settings.values())))
        most = max(max(r) for r in settings.values()) / first
        out.append(f'<text x="10" y="{y + 16}" font-weight="bold">{study}: {direction}, ratio to the first</text>')
        y += head - 8
        for setting, rates in settings.items():
            m, low, high = statistics.median(rates) / first, min(rates) / first, max(rates) / first
            x = [left + v / most * width for v in (m, low, high)]
            out.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{setting}</text>')
            out.append(f'<rect x="{left}" y="{y + 3}" width="{x[0] - left:.1f}" height="{row - 6}" fill="#4a7fb5"/>')
            out.append(f'<line x1="{x[1]:.1f}" x2="{x[2]:.1f}" y1="{y + row / 2}" y2="{y + row / 2}" stroke="#222" stroke-width="2"/>')
            out.append(f'<text x="{max(x) + 8:.1f}" y="{y + 14}">{m:.2f}</text>')
            y += row
        y += 22
    return "\n".join([*out, "</svg>"]) + "\n"
