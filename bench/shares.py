#!/usr/bin/env python3
"""Measures `thrufs share` at its socket, by `thrufs-client bench`, which makes requests as a guest would.

Beside virtiofsd in interleaved rounds (`cargo xtask bench --shares`); or reads through the DAX window beside READ requests
to the same server (`cargo xtask bench --window`). xtask says where the programs are.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

PROJECT = Path(os.environ["PROJECT"])
THRUFS = os.environ["THRUFS"]
CLIENT = os.environ.get("THRUFS_CLIENT", Path(THRUFS).with_name("thrufs-client"))
VIRTIOFSD = os.environ["VIRTIOFSD"]
FILE = 64 << 20

# By name, as `thrufs-client bench` takes them.
ROWS = {name: name for name in ("getattr", "lookup", "open-release", "create-unlink", "readdirplus")}
for size, count in (("4k", 4 << 10), ("128k", 128 << 10), ("1m", 1 << 20)):
    for way in ("read", "write"):
        order = "random" if size == "4k" else "sequential"
        name = f"random-{way}-4k-d1" if size == "4k" else f"{way}-{size}"
        ROWS[name] = f"{way} {order} {count} {count} {FILE}"


def window_rows(window):
    """The part of a row behind its way, by name."""
    small, large, a_range = 4 << 10, 1 << 20, 2 << 20
    return {
        "random 4 KiB, half of the window": f"random {small} {small} {window // 2}",
        "random 4 KiB, the whole window": f"random {small} {small} {window}",
        "random 4 KiB, twice the window": f"random {small} {small} {2 * window}",
        "sequential 4 KiB, half of the window": f"sequential {small} {small} {window // 2}",
        "sequential 4 KiB, twice the window": f"sequential {small} {small} {2 * window}",
        "sequential 1 MiB, half of the window": f"sequential {large} {large} {window // 2}",
        "sequential 1 MiB, twice the window": f"sequential {large} {large} {2 * window}",
        "4 KiB of each range, twice the window": f"sequential {small} {a_range} {2 * window}",
    }


def arguments():
    parser = argparse.ArgumentParser(prog="cargo xtask bench", description=__doc__.split("\n\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--shares", action="store_true", help="beside virtiofsd")
    what.add_argument("--window", action="store_true", help="through the DAX window beside READ requests")
    parser.add_argument("--lower", default="tmpfs", choices=("tmpfs", "ext4"), help="what lies beneath")
    parser.add_argument("--queues", type=int, default=1, help="of ours; virtiofsd has one, and is left out of more")
    parser.add_argument("--window-mib", type=int, default=64, metavar="N", help="size of the window")
    parser.add_argument("--as-qemu", action="store_true", help="behave as QEMU 11.1, not as specified")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sample", type=int, default=300, metavar="MS", help="how long a row is measured in each round")
    parser.add_argument("--name", help="keep the table and every sample as bench/results/NAME.{md,json}")
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows by their beginnings [default: all]")
    return parser.parse_args()


class Target:
    """A server and its client, as what a table calls a column."""

    def __init__(self, work, name, command, options, client):
        socket, directory = work / f"{name}.socket", work / "lower" / name
        directory.mkdir()
        log = open(work / f"{name}.log", "w")
        words = [str(word) for word in command(socket, directory)]
        self.name, self.server, self.client = name, subprocess.Popen(words, stderr=log), None
        for _ in range(100):
            if socket.is_socket():
                break
            time.sleep(0.1)
        words = [CLIENT, "--socket", socket, "--queues", options.queues, "bench", *client]
        self.client = subprocess.Popen(
            [str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def sample(self, row, milliseconds):
        print(milliseconds, row, file=self.client.stdin, flush=True)
        answer = self.client.stdout.readline().split()
        if len(answer) != 2:
            raise SystemExit(f"shares.py: {self.name}: {row} was not measured")
        return [int(number) for number in answer]

    def end(self):
        if self.client:
            self.client.stdin.close()
            self.client.wait()
        self.server.terminate()
        self.server.wait()


def lower(kind, work):
    point = work / "lower"
    point.mkdir()
    if kind == "tmpfs":
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4G", "none", point], check=True)
    else:
        image = work / "image"
        subprocess.run(["truncate", "-s", "4G", image], check=True)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, point], check=True)


def measure(columns, rows, options):
    """Samples by row and column; `columns` has a target and the row's words for each."""
    samples = {(row, name): [] for row in rows for name in columns}
    for number in range(-1, options.rounds):
        for row in rows:
            # Another one begins each time. The first round warms up.
            for name in list(columns)[:: 1 if number % 2 else -1]:
                target, words = columns[name]
                time_ms = options.sample if number >= 0 else max(options.sample // 10, 1)
                sample = target.sample(words(row), time_ms)
                if number >= 0:
                    samples[row, name].append(sample)
    return samples


def table(columns, rows, samples):
    rates = {key: [count * 1e9 / spent for count, spent in value] for key, value in samples.items()}
    first, *others = columns
    heads = ["row", *columns, *(f"{first} / {other}" for other in others)]
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for row in rows:
        cells = [f"{median(rates[row, name]) / 1e3:.1f} k/s" for name in columns]
        for other in others:
            pairs = [one / two for one, two in zip(rates[row, first], rates[row, other])]
            cells.append(f"{median(pairs):.2f} ({min(pairs):.2f} to {max(pairs):.2f})")
        yield f"| {row} | {' | '.join(cells)} |"


def main():
    options = arguments()
    window = options.window_mib << 20
    work = Path(tempfile.mkdtemp())
    targets = []
    try:
        lower(options.lower, work)
        if options.window:
            share = lambda socket, directory: (
                THRUFS, "share", "--socket", socket, "--dax-window", f"{options.window_mib}M",
                "--dax", "*.img", "--dax-min-size", "4K", directory,
            )  # fmt: skip
            how = "as-qemu" if options.as_qemu else "as-specified"
            client = ["--window", how, "--file-bytes", 2 * window, "--entries", 500]
            targets.append(Target(work, "thrufs", share, options, client))
            rows = window_rows(window) | {"files of 16 KiB, each once": None}
            words = lambda way: lambda row: f"{way} {rows[row]}" if rows[row] else f"small-{way}"
            columns = {"window": (targets[0], words("load")), "READ": (targets[0], words("read"))}
        else:
            share = lambda socket, directory: (THRUFS, "share", "--socket", socket, "--queues", options.queues, directory)
            other = lambda socket, directory: (VIRTIOFSD, f"--socket-path={socket}", f"--shared-dir={directory}")
            rows, client = ROWS, ["--file-bytes", FILE]
            targets.append(Target(work, "thrufs", share, options, client))
            if options.queues == 1:
                targets.append(Target(work, "virtiofsd", other, options, client))
            columns = {target.name: (target, rows.get) for target in targets}
        rows = {row: words for row, words in rows.items() if row.startswith(tuple(options.rows or ("",)))}
        if not rows:
            raise SystemExit(f"shares.py: no row begins with {' or '.join(options.rows)}")
        samples = measure(columns, rows, options)
        lines = [machine(options), "", *table(columns, rows, samples)]
        lines += ["", f"{options.rounds} rounds, interleaved, {options.sample} ms each; median (ratios: least to greatest)."]
        print("\n".join(lines))
        if options.name:
            keep(options, "\n".join(lines), samples)
    finally:
        for target in targets:
            target.end()
        subprocess.run(["umount", work / "lower"], check=False)
        subprocess.run(["rm", "-rf", "--one-file-system", work], check=True)


def machine(options):
    said = lambda *command: subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")[0]
    commit = said("git", "-c", "safe.directory=*", "-C", str(PROJECT), "rev-parse", "--short", "HEAD")
    names = [line.split(": ")[1] for line in Path("/proc/cpuinfo").read_text().split("\n") if line.startswith("model name")]
    versions = f"{said(THRUFS, '--version')}, {said(VIRTIOFSD, '--version')}"
    return (
        f"Linux {os.uname().release}, {names[0] if names else 'unknown'}, {os.cpu_count()} CPUs, commit {commit}\n"
        f"{versions}, {options.lower} below, queues of ours: {options.queues}"
    )


def keep(options, text, samples):
    results = PROJECT / "bench" / "results"
    ending = f"shares-{options.lower}-q{options.queues}" if options.shares else "window"
    series = [
        {"row": row, "contestant": name, "operations_and_nanoseconds": value} for (row, name), value in samples.items()
    ]
    run = {"rounds": options.rounds, "sample_ms": options.sample, "file_bytes": FILE, "series": series}
    (results / f"{options.name}-{ending}.md").write_text(text + "\n")
    (results / f"{options.name}-{ending}.json").write_text(json.dumps(run, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
