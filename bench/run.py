#!/usr/bin/env python3
"""The project's own comparisons: Thrufs beside the file system beneath and other servers, in interleaved rounds.

`cargo xtask bench ARGUMENT...` builds what is measured and runs this as root. Loops are those of `thrufs bench`; rows of
reads and writes without `-loop` or `-cold` are fio's; git and a compiler are programs. Everything is mounted in a mount
and a process namespace of its own, and goes with them. Ctrl-C ends a run with what it has.
"""

import argparse
import concurrent.futures
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from math import comb
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent
INSIDE = "THRUFS_BENCH_INSIDE"

# `thrufs mount -o`: what is cached above is cached as libfuse's server does it, unless a name ends in `:CACHE`.
THRUFS = {
    "thrufs": "",
    "dev": "transport=dev,nopassthrough",
    "ring": "transport=uring,nopassthrough",
    "dev+pt": "transport=dev",
    "ring+pt": "transport=uring",
    "followed": "transport=dev,cache=auto",
    "asked": "transport=dev,cache=auto,follow=no",
    "opens": "transport=dev,opens=local,cache=auto",
}
CACHE = "always"
# Scripts of `peers`, and options.
PEERS = {
    "libfuse": ("passthrough_hp", ["--nopassthrough"]),
    "libfuse-uring": ("passthrough_hp", ["--nopassthrough", "-o", "io_uring"]),
    "libfuse+pt": ("passthrough_hp", []),
    "libfuse-uring+pt": ("passthrough_hp", ["-o", "io_uring"]),
}
for script in ("passthrough", "passthrough_ll", "passthrough_hp", "bindfs", "mergerfs", "go-fuse"):
    PEERS[script] = (script, [])
ALL_LIBFUSE = ["libfuse", "libfuse-uring", "libfuse+pt", "libfuse-uring+pt"]

PROGRAMS = ["git-status", "git-clone", "build-small"]
FIO = (
    "read-4k write-4k write-4k-fsync random-read-4k random-write-4k random-write-4k-fsync read-1m write-1m write-1m-fsync "
    "direct-random-read-4k direct-random-write-4k direct-read-1m direct-write-1m aio16-random-read-4k "
    "aio16-random-write-4k aio64-random-read-4k aio64-random-write-4k mmap-read-4k mmap-random-read-4k "
    "mmap-random-write-4k write-4k-xattr"
).split()
REACHING = (
    "stat-cold stat-missing open-close lookup-cold small-file-read-cold create create-write-4k rename unlink mkdir "
    "find-cold find-stat-cold"
).split()
USUAL = (
    "random-read-4k-cold random-write-4k-loop append-4k read-128k-cold read-1m-cold "
    "direct-read-1m-cold append-1m open-close stat-one-warm stat-cold stat-missing readdir-cold small-file-read-cold "
    "create create-write-4k mkdir rename unlink"
).split()
FOLLOWING = (
    "random-write-4k-loop append-4k find-stat-warm stat-warm stat-one-warm create-write-4k create rename unlink mkdir "
    "open-close readdir-cold find-stat-cold small-file-read-cold git-status build-small"
).split()

# The tables that are published: rows and targets.
TABLES = {
    "usual": (USUAL, ["thrufs", "libfuse", "libfuse+pt"]),
    "requests": (REACHING, ["dev", "ring", *ALL_LIBFUSE]),
    "passthrough": (FIO, ["dev+pt", "ring+pt", "libfuse+pt", "libfuse-uring+pt"]),
    "following": (FOLLOWING, ["followed", "asked"]),
    "programs": (
        ["find-warm", "find-stat-warm", "small-file-read-warm", *PROGRAMS],
        ["dev+pt:auto", "ring+pt:auto", "libfuse-uring", "libfuse-uring+pt"],
    ),
    "opens": (
        ["open-close", "small-file-read-warm", "read-1m-cold", "random-write-4k-loop", *PROGRAMS],
        ["dev+pt:auto", "opens"],
    ),
    "peers": (["git-clone", *USUAL], ["dev:auto", "ring:auto", "dev+pt:auto", "ring+pt:auto", *PEERS]),
    "picture": (
        ["random-read-4k-cold", "lookup-cold", "open-close", "create", "find-stat-cold"],
        ["ring", "ring+pt", *ALL_LIBFUSE],
    ),
}


def arguments():
    parser = argparse.ArgumentParser(prog="cargo xtask bench", description=__doc__.split("\n\n")[0])
    parser.add_argument("table", choices=TABLES, help="which of the published tables")
    parser.add_argument("--rows", type=lambda text: text.split(","), help="its rows (names of `thrufs bench --list`, fio's)")
    parser.add_argument("--targets", type=lambda text: text.split(","), help=f"its targets: {', '.join([*THRUFS, *PEERS])}")
    parser.add_argument("--before", type=Path, help="another `thrufs`, as a target `before`, mounted by its defaults")
    parser.add_argument("--lower", default="tmpfs", choices=("tmpfs", "ext4"), help="what lies beneath")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--percent", type=int, default=100, help="work of a measurement")
    parser.add_argument("--jobs", type=int, default=1, help="processes of a loop at once; the other rows go by one")
    parser.add_argument("--name", help="keep the results as bench/results/NAME.json")
    return parser.parse_args()


def run(*command, **more):
    return subprocess.run([str(word) for word in command], check=True, **more)


def output(*command):
    if not shutil.which(command[0]):
        return ""
    found = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else ""


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


class Target:
    """What is measured: the directory of its own beneath, and where it is seen."""

    def __init__(self, name, source, point):
        self.name, self.beneath = name, source / name
        self.beneath.mkdir()
        self.seen = (point or source) / name
        self.point, self.server, self.options = point, None, ""


def thrufs():
    return Path(os.environ.get("THRUFS", PROJECT / "target/release/thrufs"))


def command_of(name, options, source, point):
    """How a target is mounted."""
    if name == "before":
        return [options.before.resolve(), "mount", "-f", "-o", "control=none", source, point]
    mode, _, cache = name.partition(":")
    if mode in THRUFS:
        cache = "" if "cache=" in THRUFS[mode] else f"cache={cache or CACHE}"
        words = [word for word in (THRUFS[mode], cache, "control=none") if word]
        return [thrufs(), "mount", "-f", "-o", ",".join(words), source, point]
    if name not in PEERS:
        sys.exit(f"bench: there is no target {name}")
    script, words = PEERS[name]
    return [HERE / "peers" / script, "start", source, point, *words]


def mounted(name, options, work, source):
    """A target with its mount, checked to be what its name says."""
    point = work / f"mnt-{name}"
    point.mkdir()
    target = Target(name, source, point)
    command = command_of(name, options, source, point)
    target.options = " ".join([Path(command[0]).name, *map(str, command[1:-2])]) if name not in PEERS else " ".join(PEERS[name][1])
    if name in PEERS:
        run(HERE / "peers" / PEERS[name][0], "install", stdin=subprocess.DEVNULL)
    log = work / f"{name}.log"
    with log.open("w") as said:
        target.server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    for _ in range(400):
        if point.is_mount() or target.server.poll() is not None:
            break
        time.sleep(0.05)
    if not point.is_mount():
        raise RuntimeError(f"no mount: {log.read_text()[-400:]}")
    wants_ring = "uring" in name or name.startswith("ring")
    if has_ring(target.server.pid) != wants_ring and name not in ("thrufs", "before"):
        raise RuntimeError(f"it {'has no' if wants_ring else 'has an'} io_uring: {log.read_text()[-400:]}")
    if "passthrough is off" in log.read_text() and "+pt" in name:
        raise RuntimeError(log.read_text()[-400:])
    return target


def has_ring(pid):
    """Whether the process, or one that descends from it, has an io_uring: libfuse goes on without one."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if os.readlink(descriptor) == "anon_inode:[io_uring]":
                return True
        except FileNotFoundError:
            pass
    children = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return any(has_ring(child) for some in children for child in some)


def lower(kind, work):
    """A file system beneath, for the run."""
    point = work / "lower"
    point.mkdir()
    if kind == "tmpfs":
        run("mount", "-t", "tmpfs", "-o", "size=8G", "none", point)
    else:
        image = work / "image"
        run("truncate", "-s", "16G", image)
        # Tables initialised at once: no background thread writes during the rounds.
        run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
        run("mount", "-o", "loop", image, point)
    source = point / "source"
    source.mkdir()
    return source


# fio: a name says in front by which calls (`direct-`, `aio16-`, `mmap-`), then order and size, and behind what is
# different. The file is gone through twice (five times in blocks of 1 MiB), opened anew for each measurement under a name
# that no mount has seen; its data lie in the cache of the file system beneath and not in that of the mount.


def fio_job(row):
    words = row.split("-")
    depth = next((int(word[3:]) for word in words if word.startswith("aio")), 1)
    engine = "libaio" if depth > 1 else "mmap" if "mmap" in words else "psync"
    way = "write" if "write" in words else "read"
    return {
        "name": "row",
        "ioengine": engine,
        "rw": f"rand{way}" if "random" in words else way,
        "bs": "1m" if "1m" in words else "4k",
        "iodepth": depth,
        "direct": int(depth > 1 or "direct" in words),
        "fsync_on_close": int("fsync" in words),
        "loops": 5 if "1m" in words else 2,
        # In the process that is there, on the file that is there. `invalidate` would drop what is cached beneath
        # natively, and above through a mount; `gtod_reduce`: no clock is read for each block.
        "thread": 1,
        "allow_file_create": 0,
        "invalidate": 0,
        "random_generator": "lfsr",
        "iomem_align": 4096,
        "gtod_reduce": 1,
        "runtime": "60s",
    }


def fio(row, target, number, percent):
    size = max(1, 256 * percent // 100) << 20
    kept = target.beneath / ("fio-xattr" if row.endswith("xattr") else "fio")
    if not kept.exists():
        piece = random.Random(1).randbytes(1 << 20)
        with kept.open("wb") as file:
            for _ in range(size >> 20):
                file.write(piece)
            os.fsync(file.fileno())
        if row.endswith("xattr"):
            os.setxattr(kept, "user.bench", b"1")
    name = f"{row}-{number}"
    os.link(kept, target.beneath / name)
    with kept.open("rb") as file:
        os.fdatasync(file.fileno())
        while file.read(1 << 20):
            pass
    words = [f"--{key}={value}" for key, value in fio_job(row).items()]
    said = subprocess.run(
        ["fio", "--output-format=json", *words, f"--filename={target.seen / name}", f"--size={size}"],
        capture_output=True, text=True,
    )
    (target.seen / name).unlink()
    if said.returncode != 0:
        raise RuntimeError(said.stderr.strip() or said.stdout.strip())
    job = json.loads(said.stdout[said.stdout.index("{"):])["jobs"][0]
    operations = sum(job[way]["total_ios"] for way in ("read", "write"))
    return operations, sum(job[way]["runtime"] for way in ("read", "write")) * 1_000_000


# Programs: each operation is a whole one.


def git(directory, *words):
    command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "safe.directory=*", "-C", directory]
    return run(*command, *words, capture_output=True, text=True).stdout


def repository(target, percent):
    tree = target.beneath / "repository"
    if not tree.exists():
        files = max(20, 2000 * percent // 100)
        drawn = random.Random(1)
        tree.mkdir()
        for number in range(files):
            path = tree / f"d{number // 20:03}/f{number:04}"
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(f"{drawn.random()}\n" for _ in range(100)))
            # Older than the index, or git would have to look into each to be sure.
            os.utime(path, (1_600_000_000, 1_600_000_000))
        git(tree, "init", "--quiet")
        git(tree, "add", "--all")
        git(tree, "commit", "--quiet", "--message", "first")
        git(tree, "gc", "--quiet")
    return tree


def git_status(target, _, percent):
    repository(target, percent)
    tree = target.seen / "repository"
    # The one writes down what the files are like here, the other finds it written.
    git(tree, "status", "--porcelain")
    git(tree, "status", "--porcelain")
    start = time.monotonic_ns()
    for _ in range(10):
        if git(tree, "--no-optional-locks", "status", "--porcelain"):
            raise RuntimeError("git takes the tree for changed")
    return 10, time.monotonic_ns() - start


def git_clone(target, number, percent):
    tree, into = repository(target, percent), target.seen / f"clone-{number}"
    start = time.monotonic_ns()
    # As from another machine: by a pack.
    git("/", "clone", "--quiet", "--no-local", tree, into)
    time_taken = time.monotonic_ns() - start
    shutil.rmtree(into)
    return 1, time_taken


def build_small(target, number, percent):
    """160 C files of 12 headers each, by as many compilers as there are processors."""
    fresh, files = target.beneath / f"build-{number}", max(16, 160 * percent // 100)
    (fresh / "include").mkdir(parents=True)
    for at in range(80):
        text = f"struct part_{at} {{ int value; char text[64]; }};\n"
        text += f"static inline int get_{at}(const struct part_{at} *part) {{ return part->value + {at}; }}\n"
        (fresh / f"include/part-{at}.h").write_text(f"#ifndef H{at}\n#define H{at}\n{text}#endif\n")
    for at in range(files):
        used = [(at * 7 + step * 11) % 80 for step in range(12)]
        text = "".join(f"#include <part-{one}.h>\n" for one in used) + "#include <stdio.h>\n"
        text += f"int f{at}(int x) {{ struct part_{used[0]} part = {{ x, \"\" }}; return printf(\"%d\", get_{used[0]}(&part)); }}\n"
        (fresh / f"f{at}.c").write_text(text)
    project = target.seen / fresh.name

    def compiled(at):
        run("cc", "-Iinclude", "-O0", "-c", f"f{at}.c", "-o", f"f{at}.o", cwd=project)

    start = time.monotonic_ns()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compiled, range(files)))
    run("ar", "rcs", "lib.a", *(f"f{at}.o" for at in range(files)), cwd=project)
    time_taken = time.monotonic_ns() - start
    shutil.rmtree(project)
    return 1, time_taken


def one(row, target, number, percent):
    """Operations and nanoseconds of a measurement of fio or a program."""
    if row in PROGRAMS:
        return globals()[row.replace("-", "_")](target, number, percent)
    return fio(row, target, number, percent)


def loops(rows, options, targets, work, cells, remarks):
    """Those of `thrufs bench`, which goes its own rounds over the mounts."""
    report = work / "report"
    against = [word for target in targets[1:] for word in ("--against", f"{target.name}={target.point}")]
    command = [thrufs().with_name("thrufs-bench"), targets[0].beneath.parent, "--modes", "none", *against]
    command += ["--rows", ",".join(rows), "--rounds", options.rounds, "--percent", options.percent]
    command += ["--jobs", options.jobs, "--out", report]
    ended = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    if not report.exists():
        raise RuntimeError(f"thrufs-bench has measured nothing: {ended.returncode}")
    found = json.loads((report / "results.json").read_text())
    cells += found["cells"]
    remarks += found["remarks"]
    if found["ending"] != "complete":
        raise KeyboardInterrupt


def measure(rows, options, targets, cells):
    """fio and programs, by one process."""
    by_name = {(row, target.name): dict(row=row, contestant=target.name, lower=options.lower, jobs=1, samples=[], absence=None)
               for row in rows for target in targets}
    cells += by_name.values()
    for number in range(options.rounds):
        for row in rows:
            for turn in range(len(targets)):
                # Each is first once: the first bears what the row before has left to be written back.
                target = targets[(turn + number) % len(targets)]
                cell = by_name[row, target.name]
                if cell["absence"]:
                    continue
                say(f"round {number + 1} of {options.rounds}: {row} on {target.name}")
                try:
                    operations, nanoseconds = one(row, target, number, options.percent)
                except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
                    say(f"FAILED: {row} on {target.name}: {error}")
                    cell["absence"] = {"failed": True, "why": str(error)}
                else:
                    cell["samples"].append({"round": number, "operations": operations, "nanoseconds": max(nanoseconds, 1)})


def described(options):
    """The machine, and the state of the project."""
    cpus = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    commit = output("git", "-c", "safe.directory=*", "-C", PROJECT, "rev-parse", "--short=12", "HEAD")
    if output("git", "-c", "safe.directory=*", "-C", PROJECT, "status", "--porcelain", "--", "crates", "Cargo.lock"):
        commit += " with changes"
    versions = {"thrufs": output(thrufs(), "--version").removeprefix("thrufs "), "commit": commit, "fio": output("fio", "--version")}
    versions |= {script: output(HERE / "peers" / script, "version") for script, _ in (PEERS[name] for name in options.targets if name in PEERS)}
    return {
        "kernel": os.uname().release,
        "processor": cpus[1] if cpus else "unknown",
        "processors": len(os.sched_getaffinity(0)),
        "memory_bytes": int(memory[1]) * 1024,
        "load_before": os.getloadavg()[0],
        "versions": versions,
    }


def interval(values):
    """The ends of the narrowest interval that has the true median with a chance of 0.9, or of all of them."""
    values, rank = sorted(values), 1
    count = len(values)
    while 2 * (rank + 1) <= count and 1 - 2 * sum(comb(count, k) for k in range(rank + 1)) / 2**count >= 0.9:
        rank += 1
    return values[rank - 1], values[count - rank]


def table(results):
    """The table, as pages have it: native's rate, and ratios to it of the same round."""
    names = [one["name"] for one in results["contestants"] if not one["absent"]]
    cells = {(cell["row"], cell["contestant"]): cell for cell in results["cells"]}
    rates = {
        key: {sample["round"]: sample["operations"] * 1e9 / sample["nanoseconds"] for sample in cell["samples"]}
        for key, cell in cells.items()
        if not cell["absence"]
    }
    lines = [f"| {results['lower']} below | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for row in dict.fromkeys(row for row, _ in cells):
        native = rates.get((row, "native"), {})
        shown = [rate_of(row, median(native.values())) if native else "–"]
        for name in names[1:]:
            pairs = [rate / native[number] for number, rate in rates.get((row, name), {}).items() if number in native]
            least, most = interval(pairs) if pairs else (0, 0)
            shown.append(f"{median(pairs):.3f} [{least:.3f} to {most:.3f}]" if pairs else "–")
        lines.append(f"| {row} | {' | '.join(shown)} |")
    return "\n".join(lines)


def rate_of(row, rate):
    if row in PROGRAMS:
        return f"{1e3 / rate:.3g} ms"
    size = re.search(r"-(4k|128k|1m)", row)
    if size and re.search("read-|write-|append-", row) and not row.startswith(("create", "small")):
        return f"{rate * {'4k': 4096, '128k': 131072, '1m': 1048576}[size[1]] / 1e6:,.0f} MB/s"
    return f"{rate / 1e3:,.1f} k/s"


def inside(options):
    """The run, in its namespaces."""
    options.rows = options.rows or TABLES[options.table][0]
    options.targets = options.targets or TABLES[options.table][1]
    options.targets += ["before"] if options.before else []
    started, remarks, cells, absent = time.time(), [], [], {}
    results = dict(format=1, command=[Path(sys.argv[0]).name, *sys.argv[1:]], started=int(started), percent=options.percent, ending="complete", lower=options.lower)
    with tempfile.TemporaryDirectory(prefix="thrufs-bench-") as name:
        work = Path(name)
        source = lower(options.lower, work)
        targets = [Target("native", source, None)]
        for name in options.targets:
            try:
                targets.append(mounted(name, options, work, source))
            except (RuntimeError, subprocess.CalledProcessError) as error:
                say(f"{name} does not take part: {error}")
                absent[name] = str(error)
        # Once all are installed.
        results["machine"] = described(options)
        own = [row for row in options.rows if row in FIO or row in PROGRAMS]
        try:
            if others := [row for row in options.rows if row not in own]:
                loops(others, options, targets, work, cells, remarks)
            measure(own, options, targets, cells)
        except KeyboardInterrupt:
            results["ending"] = "interrupted"
        finally:
            for target in targets[1:]:
                subprocess.run(["umount", "--lazy", target.point], check=False)
                target.server.kill()
            subprocess.run(["umount", "--lazy", work / "lower"], check=False)
    options_of = {target.name: target.options for target in targets}
    results["contestants"] = [
        {"name": name, "options": options_of.get(name, ""), "absent": absent.get(name)} for name in ["native", *options.targets]
    ]
    results |= {"seconds": time.time() - started, "cells": cells, "remarks": remarks}
    print(table(results))
    text = ",\n".join(
        f'"{key}": ' + ("[\n" + ",\n".join(map(json.dumps, value)) + "\n]" if key == "cells" else json.dumps(value))
        for key, value in results.items()
    )
    if options.name:
        kept = Path(os.environ.get("RESULTS", HERE / "results")) / f"{options.name}.json"
        kept.parent.mkdir(exist_ok=True)
        kept.write_text("{\n" + text + "\n}\n")
        say(kept)
    return 1 if absent or any(cell["absence"] and cell["absence"]["failed"] for cell in cells) else 0


def main():
    options = arguments()
    if os.geteuid() != 0:
        sys.exit("bench: mounting needs root")
    if INSIDE in os.environ:
        sys.exit(inside(options))
    # Nothing of it can outlive this.
    words = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
    os.environ[INSIDE] = "1"
    os.execvp(words[0], [*words, sys.executable, *sys.argv])


if __name__ == "__main__":
    main()
