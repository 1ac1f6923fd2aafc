#!/usr/bin/env python3
"""Draws docs/speed.svg from results in bench/results: `bench/picture.py [--check]`.

A mark is the median of the rounds of one run, its line reaches from the slowest round to the fastest, and "times" is the
median of the rounds' ratios. `--check` fails where the picture is not what the results make.
"""

import json
import math
import sys
from datetime import datetime, timezone
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
PICTURE = HERE.parent / "docs" / "speed.svg"
MOUNTS = "2026-11-30-picture-tmpfs.json"
SHARES = "2026-11-30-shares-tmpfs-q1.json"
# The run of shares does not name these; docs/performance.md does.
SHARES_COMMIT, VIRTIOFSD = "1077f351", "1.14.0"
LIBFUSE = "3.18.3"

# What a reader calls it, the row of the mounts, the row of the shares.
ROWS = [
    ("read 4 KiB at random", "random-read-4k-cold", "random-read-4k-d1"),
    ("look up a name", "lookup-cold", "lookup"),
    ("open and close a file", "open-close", "open-release"),
    ("create a file", "create", "create-unlink"),
    ("list with attributes", "find-stat-cold", "readdirplus"),
]
THRUFS = ("ring+pt", "ring")  # the default where the kernel has io_uring; rows without data lack the first
LIBFUSE_MODES = ("libfuse", "libfuse-uring", "libfuse+pt", "libfuse-uring+pt")

WIDTH, LEFT, RIGHT = 860, 230, 620
LANE, GAP, TOP = 22, 14, 96
LEAST, MOST = 1e3, 3e6

STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de }
  text { font-family: system-ui, 'DejaVu Sans', sans-serif; font-size: 13px; fill: #1f2328 }
  .small { font-size: 11px; fill: #59636e }
  .title { font-size: 15px; font-weight: 600 }
  .grid { stroke: #d0d7de; stroke-width: 1 }
  .native { stroke: #59636e; fill: #59636e }
  .thrufs { stroke: #0b6bcb; fill: #0b6bcb }
  .other { stroke: #bc4c00; fill: #bc4c00 }
  .spread { stroke-width: 2; opacity: 0.35 }
  .hollow { fill: none; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #3d444d }
    text { fill: #f0f6fc }
    .small { fill: #9198a1 }
    .grid { stroke: #3d444d }
    .native { stroke: #9198a1; fill: #9198a1 }
    .thrufs { stroke: #58a6ff; fill: #58a6ff }
    .other { stroke: #f0883e; fill: #f0883e }
    .hollow { fill: none }
  }
"""


def mounts():
    """Rates by row and server, and where they come from."""
    run = json.loads((HERE / "results" / MOUNTS).read_text())
    rates = {}
    for cell in run["cells"]:
        if cell["lower"] == "tmpfs" and cell["jobs"] == 1 and cell["samples"]:
            rounds = sorted(cell["samples"], key=lambda sample: sample["round"])
            rates[cell["row"], cell["contestant"]] = [
                sample["operations"] / sample["nanoseconds"] * 1e9 for sample in rounds
            ]
    return rates, run


def shares():
    """Rates by row and server."""
    run = json.loads((HERE / "results" / SHARES).read_text())
    return {
        (one["row"], one["contestant"]): [
            operations / nanoseconds * 1e9 for operations, nanoseconds in one["operations_and_nanoseconds"]
        ]
        for one in run["series"]
    }


def ratio(rates, others):
    return median(rate / other for rate, other in zip(rates, others))


def place(rate):
    return LEFT + (RIGHT - LEFT) * math.log(rate / LEAST) / math.log(MOST / LEAST)


def figure(rate):
    return f"{rate / 1e6:.2f} M" if rate >= 1e6 else f"{rate / 1e3:.0f} k" if rate >= 1e4 else f"{rate / 1e3:.1f} k"


def mark(kind, rates, y):
    x = place(median(rates))
    yield (
        f'<line class="{kind} spread" x1="{place(min(rates)):.1f}" x2="{place(max(rates)):.1f}" y1="{y}" y2="{y}"/>'
    )
    yield shape(kind, x, y)


def shape(kind, x, y):
    if kind == "native":
        return f'<rect class="native" x="{x - 1.5:.1f}" y="{y - 7}" width="3" height="14"/>'
    if kind == "thrufs":
        return f'<circle class="thrufs" cx="{x:.1f}" cy="{y}" r="5"/>'
    return f'<rect class="other hollow" x="{x - 4.5:.1f}" y="{y - 4.5}" width="9" height="9"/>'


def picture():
    mounted, run = mounts()
    shared = shares()
    machine = run["machine"]
    date = datetime.fromtimestamp(run["started"], timezone.utc).date()
    commit = machine["versions"]["commit"].split()[0][:7]
    height = TOP + len(ROWS) * (2 * LANE + GAP) + 76
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img" aria-label="Operations in a second: native, Thrufs, libfuse and virtiofsd in five rows">',
        f"<style>{STYLE}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>',
        '<text class="title" x="20" y="30">Operations in a second, one process, tmpfs below (further right is faster)</text>',
    ]
    x = 26
    for kind, text in (
        ("native", "the file system itself"),
        ("thrufs", "Thrufs"),
        ("other", f"libfuse {LIBFUSE} passthrough_hp, its best mode in each row; virtiofsd {VIRTIOFSD}"),
    ):
        out += [shape(kind, x, 52), f'<text x="{x + 12}" y="56">{text}</text>']
        x += 30 + 7 * len(text)
    bottom = TOP + len(ROWS) * (2 * LANE + GAP) - GAP + 4
    for rate in (1e3, 1e4, 1e5, 1e6):
        at = place(rate)
        out += [
            f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP - 14}" y2="{bottom}"/>',
            f'<text class="small" x="{at:.1f}" y="{TOP - 18}" text-anchor="middle">{rate / 1e3:,.0f} k/s</text>',
        ]
    for number, (name, row, share) in enumerate(ROWS):
        y = TOP + number * (2 * LANE + GAP)
        native = mounted[row, "native"]
        ours = next(mounted[row, mode] for mode in THRUFS if (row, mode) in mounted)
        modes = [mounted[row, mode] for mode in LIBFUSE_MODES if (row, mode) in mounted]
        theirs = max(modes, key=lambda rates: ratio(rates, native))
        lanes = (
            ("mount", (("native", native), ("other", theirs), ("thrufs", ours)), "libfuse"),
            ("share", (("other", shared[share, "virtiofsd"]), ("thrufs", shared[share, "thrufs"])), "virtiofsd"),
        )
        out.append(f'<text x="20" y="{y + 5}">{name}</text>')
        for lane, (where, servers, peer) in enumerate(lanes):
            at = y + lane * LANE
            out.append(f'<text class="small" x="{LEFT - 12}" y="{at + 4}" text-anchor="end">{where}</text>')
            for kind, rates in servers:
                out += mark(kind, rates, at)
            rates = dict(servers)
            times = ratio(rates["thrufs"], rates["other"])
            out.append(
                f'<text class="small" x="{RIGHT + 14}" y="{at + 4}">{figure(median(rates["thrufs"]))}, '
                f'{peer} {figure(median(rates["other"]))}: {times:.2f} times</text>'
            )
    notes = (
        f'Linux {machine["kernel"]}, {machine["processor"]}, {machine["processors"]} CPUs, a shared machine; {date}, '
        f"commits {commit} (mounts) and {SHARES_COMMIT} (shares). Nothing cached above.",
        "Mounts: io_uring, passthrough. Shares: one queue, one request at a time, driven at the socket, without a guest.",
        "Marks: medians. Lines: all rounds. Times: Thrufs over the other, median of the rounds' ratios.",
        f"bench/results/{MOUNTS}, bench/results/{SHARES}",
    )
    for number, note in enumerate(notes):
        out.append(f'<text class="small" x="20" y="{bottom + 22 + 15 * number}">{note}</text>')
    return "\n".join(out) + "\n</svg>\n"


def main():
    made = picture()
    if sys.argv[1:] == ["--check"]:
        if PICTURE.read_text() != made:
            sys.exit(f"{PICTURE} is not what the results make; bench/picture.py draws it anew")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        PICTURE.write_text(made)


if __name__ == "__main__":
    main()
