#!/usr/bin/env python3
"""Measures a share of Thrufs beside one of virtiofsd, and with QEMU beside 9p, in a guest.

`cargo xtask vm-test compare` measures (`tests/guest/host/compare.sh`); this prints the medians, and in brackets ours as
a multiple of the other: the median of the rounds, in which the two followed each other, and the least and the greatest.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

PROJECT = Path(__file__).resolve().parent.parent
OURS = "thrufs"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--guest", default="uml", choices=("uml", "qemu"))
    parser.add_argument("--lower", default="tmpfs", choices=("tmpfs", "ext4"), help="what lies beneath")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2, help="how long a row is measured in each round")
    parser.add_argument("--cache", default="never", choices=("never", "auto", "always"), help="of both servers")
    parser.add_argument("--with", dest="more", default="", metavar="OPTIONS", help="more options of our share")
    parser.add_argument("--rows", default="", metavar="EXPRESSION", help="a regular expression of names of rows")
    parser.add_argument("--name", help="keep every value as bench/results/NAME-guest.json")
    return parser.parse_args()


def table(rows):
    for (row, unit), targets in rows.items():
        line = f"{f'{row} ({unit})':24}"
        for target, values in targets.items():
            line += f"  {target} {median(values):.0f}"
            ratios = [ours / value for ours, value in zip(targets.get(OURS, ()), values)]
            if target != OURS and ratios:
                line += f" ({median(ratios):.2f}, {min(ratios):.2f}–{max(ratios):.2f})"
        print(line)


def main():
    asked = arguments()
    with tempfile.NamedTemporaryFile("r") as measured:
        variables = {
            "ROUNDS": str(asked.rounds),
            "SECONDS_EACH": str(asked.seconds),
            "CACHE": asked.cache,
            "WITH": asked.more,
            "ROWS": asked.rows,
            "MEASURED": measured.name,
        }
        command = ["cargo", "xtask", "vm-test", "--guest", asked.guest, "--lower", asked.lower, "compare"]
        code = subprocess.run(command, cwd=PROJECT, env=os.environ | variables).returncode
        # What was measured before a failure counts as well.
        lines = [line.split() for line in measured]
    if not lines:
        sys.exit(code or "nothing was measured")
    rows = {}
    for row, target, unit, value in lines:
        rows.setdefault((row, unit), {}).setdefault(target, []).append(float(value))
    print()
    table(rows)
    if asked.name:
        git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=PROJECT, capture_output=True, text=True, check=True)
        kept = {"commit": git.stdout.strip(), "host_kernel": os.uname().release} | vars(asked)
        kept["rows"] = [{"row": row, "unit": unit} | targets for (row, unit), targets in rows.items()]
        path = PROJECT / "bench/results" / f"{asked.name}-guest.json"
        path.write_text(json.dumps(kept, indent=2) + "\n")
        print(f"kept in {path}")
    sys.exit(code)


if __name__ == "__main__":
    main()
