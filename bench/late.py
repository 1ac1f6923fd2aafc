#!/usr/bin/env python3
"""Requests that are answered later, by several libraries: one file that takes 5 ms to read, and many threads that read
it at once (bench/late). As root, on an idle machine: bench/late.py [--reads N] [--rounds N] [--repeat N] [--name NAME]

`--reads` threads (10,000) each read `--rounds` times (10) with direct I/O. `--repeat` rounds (3) go through all
servers; the table has the medians: the time of all reads, the time on a CPU of the server for one, and the most memory
and threads that the server had."""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SERVERS = [
    ("thrufs-late", {}, "Thrufs, late answers by one thread, io_uring"),
    ("thrufs-late", {"TRANSPORT": "dev"}, "Thrufs, late answers by one thread, `/dev/fuse`"),
    ("thrufs-async", {}, "Thrufs, `async fn` on tokio, io_uring"),
    ("thrufs-async", {"TRANSPORT": "dev"}, "Thrufs, `async fn` on tokio, `/dev/fuse`"),
    ("fuse3", {}, "fuse3 0.9.0, `async fn` on tokio"),
    ("fuser-threads", {}, "fuser 0.18.0, a thread for each read"),
    ("fractal-fuse", {}, "fractal-fuse 0.6.1, `async fn` on compio, io_uring"),
]
PATIENCE = 300


def build():
    command = ["cargo", "build", "--release", "--manifest-path", HERE / "late/Cargo.toml", "--message-format", "json"]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    made = [json.loads(line) for line in out.splitlines()]
    return next(message["executable"] for message in made if message.get("executable"))


def status(process):
    """The most memory in MiB, and the threads, of a process."""
    lines = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["VmHWM"].split()[0]) / 1024, int(fields["Threads"])


def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(program, server, variables, reads, rounds):
    with tempfile.TemporaryDirectory(prefix="thrufs-late-") as target:
        served = subprocess.Popen([program, server, target], env={**os.environ, **variables})
        try:
            deadline = time.monotonic() + 20
            while not os.path.ismount(target):
                if served.poll() is not None or time.monotonic() > deadline:
                    return "does not start"
                time.sleep(0.05)
            client = [program, "read", f"{target}/file"]
            subprocess.run([*client, "100", "1"], check=True, stdout=subprocess.PIPE, timeout=PATIENCE)
            before, threads = cpu_seconds(served), 0
            reading = subprocess.Popen([*client, str(reads), str(rounds)], stdout=subprocess.PIPE, text=True)
            deadline = time.monotonic() + PATIENCE
            while reading.poll() is None and time.monotonic() < deadline:
                threads = max(threads, status(served)[1])
                time.sleep(0.05)
            if reading.poll() != 0:
                reading.kill()
                return "does not finish"
            cpu = cpu_seconds(served) - before
            seconds = float(reading.stdout.read())
            return seconds, cpu / (reads * rounds) * 1e6, status(served)[0], threads
        finally:
            served.kill()
            served.wait()
            subprocess.run(["umount", "-l", target], check=False, stderr=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("reads", 10_000), ("rounds", 10), ("repeat", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--name")
    options = parser.parse_args()
    program = os.environ.get("PROGRAM") or build()
    samples = {title: [] for _, _, title in SERVERS}
    load = os.getloadavg()
    for _ in range(options.repeat):
        for server, variables, title in SERVERS:
            samples[title].append(measure(program, server, variables, options.reads, options.rounds))
    print(f"{options.reads} reads of 5 ms at once, {options.rounds} times; {os.cpu_count()} CPUs, load {load[0]:.1f}\n")
    print("| server | seconds | µs of CPU for a read | MiB | threads |\n|---|---|---|---|---|")
    for title, measured in samples.items():
        failed = [sample for sample in measured if isinstance(sample, str)]
        if failed:
            print(f"| {title} | {failed[0]} | | | |")
            continue
        seconds, cpu, memory, threads = (statistics.median(column) for column in zip(*measured))
        print(f"| {title} | {seconds:.2f} | {cpu:.1f} | {memory:.0f} | {threads:.0f} |")
    if options.name:
        result = {"kernel": platform.release(), "cpus": os.cpu_count(), "load": load, "samples": samples, **vars(options)}
        (HERE / f"results/{options.name}.json").write_text(json.dumps(result, indent=1) + "\n")


main()
