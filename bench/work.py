#!/usr/bin/env python3
"""Work that people do, on ext4: natively, here by the defaults, and over libfuse's ring.

`cargo xtask bench --work [ROUNDS]` builds Thrufs and runs this as root. Each round does all of it once in each place,
beginning with another one; a figure is the median of the rounds' ratios to native (more is better).
"""

import os
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import median

from cost import PROJECT, SERVERS, end_cleanly, serving

TARGETS = ["native", "thrufs", "opens=local", "libfuse-uring"]
START = SERVERS | {
    "thrufs": lambda source, point: [*SERVERS["ring"](source, point)[:3], source, point],
    "opens=local": lambda source, point: [*SERVERS["ring"](source, point)[:3], "-o", "opens=local", source, point],
}
# Packages with some 3,000 files.
PACKAGES = ["eslint@9.15.0", "typescript@5.7.2"]
# What is read has been dropped from all caches before the rows that say so.
ROWS = {
    "git clone": "git clone -q --no-hardlinks {project} clone",
    "git status": "git -C clone status --porcelain",
    "untar": "tar -xf {scratch}/tree.tar --one-top-level=untarred",
    "grep -r, cold": "grep -rq 'no such line' untarred || true",
    "grep -r": "grep -rq 'no such line' untarred || true",
    "npm ci": "cp -r {scratch}/packages packages && cd packages && npm ci --offline --silent --cache {scratch}/npm",
    "cargo build": "cd clone && cargo build -q --offline --locked -p thrufs-abi",
    "rm -rf": "rm -rf clone untarred packages",
}


def shell(command, place):
    start = time.monotonic()
    subprocess.run(["bash", "-ec", command], cwd=place, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - start


def once(name, place, scratch):
    source, point = place / "source", place / "point"
    source.mkdir()
    point.mkdir()
    served = nullcontext() if name == "native" else serving(START[name](source, point), point, True)
    here = source if name == "native" else point
    try:
        with served:
            times = {}
            for row, command in ROWS.items():
                os.sync()
                if "cold" in row:
                    Path("/proc/sys/vm/drop_caches").write_text("3")
                times[row] = shell(command.format(project=PROJECT, scratch=scratch), here)
            return times
    finally:
        subprocess.run(["rm", "-rf", source, point], check=True)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    end_cleanly()
    subprocess.run([PROJECT / "bench/peers/passthrough_hp", "install"], check=True)
    with tempfile.TemporaryDirectory(prefix="thrufs-work.") as directory:
        scratch, place = Path(directory), Path(directory) / "place"
        place.mkdir()
        (scratch / "packages").mkdir()
        shell(f"git -C {PROJECT} archive HEAD -o {scratch}/tree.tar", scratch)
        # Fills the cache that `npm ci` takes all from.
        fill = f"npm install --silent --package-lock-only {' '.join(PACKAGES)} && npm ci --silent --cache {scratch}/npm"
        shell(f"{fill} && rm -rf node_modules", scratch / "packages")
        shell("truncate -s 6G image && mkfs.ext4 -qF image && mount -o loop image place", scratch)
        found = {name: [] for name in TARGETS}
        try:
            for number in range(rounds):
                for name in TARGETS[number % len(TARGETS):] + TARGETS[:number % len(TARGETS)]:
                    print(f"bench: round {number + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
                    found[name].append(once(name, place, scratch))
        finally:
            subprocess.run(["umount", place], check=True)
    print(f"| ext4 below, {rounds} rounds | native | " + " | ".join(TARGETS[1:]) + " |\n|---|" + "---|" * len(TARGETS))
    for row in ROWS:
        cells = [f"{median(times[row] for times in found['native']):.2f} s"]
        for name in TARGETS[1:]:
            ratios = sorted(native[row] / times[row] for native, times in zip(found["native"], found[name]))
            cells.append(f"{median(ratios):.2f} [{ratios[0]:.2f} to {ratios[-1]:.2f}]")
        print(f"| {row} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
