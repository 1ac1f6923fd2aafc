#!/usr/bin/env python3
"""What an operation on a name costs, here and with libfuse: time, requests, system calls, switches, CPU of both sides.

`cargo xtask bench --cost ARGUMENT...` builds Thrufs and runs this as root. Each measurement has a fresh file system,
server and client; servers take turns. Counts come from a second run of each, under perf(1), which slows it.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median

PROJECT = Path(__file__).resolve().parent.parent
THRUFS = os.environ.get("THRUFS", str(PROJECT / "target/release/thrufs"))
SERVERS = {
    "ring": lambda source, point: [THRUFS, "mount", "-f", "-o", "transport=uring", source, point],
    "dev": lambda source, point: [THRUFS, "mount", "-f", "-o", "transport=dev", source, point],
    "libfuse-uring": lambda source, point: [PROJECT / "bench/peers/passthrough_hp", "start", source, point, "-o", "io_uring"],
    "libfuse": lambda source, point: [PROJECT / "bench/peers/passthrough_hp", "start", source, point],
}
# Small file systems of their own, one file each.
OWN = {
    "hello": lambda source, point: [PROJECT / "target/release/examples/hello", point],
    "hello_ll": lambda source, point: [PROJECT / "bench/peers/hello_ll", "start", "none", point, "-o", "io_uring"],
    "fractal-fuse": lambda source, point: [PROJECT / "bench/peers/fractal-fuse", "start", "none", point],
}
ROWS = {
    "stat": "os.lstat(f'f{i}')",
    "missing": "os.path.lexists(f'n{i}')",
    "readdir": "sum(1 for e in os.scandir('.') if e.stat(follow_symlinks=False)) if i == 0 else None",
    "open": "os.close(os.open(f'f{i}', os.O_RDONLY))",
    "create": "os.close(os.open(f'n{i}', os.O_CREAT | os.O_EXCL | os.O_WRONLY))",
    "mkdir": "os.mkdir(f'n{i}')",
    "rename": "os.rename(f'f{i}', f'n{i}')",
    "unlink": "os.unlink(f'f{i}')",
}
# With what each process begins.
OWN_ROWS = {
    "lookup": ("", "os.path.lexists(f'n{i}')"),
    "getattr": ("import ctypes; statx = ctypes.CDLL(None).statx; into = ctypes.create_string_buffer(256)",
                "statx(-100, b'hello', 0x2000, 0x7ff, into)"),
    "read": ("file = os.open('hello', os.O_RDONLY | os.O_DIRECT); into = [bytearray(4096)]", "os.preadv(file, into, 0)"),
}
# These names were looked up before.
WARM = ("open", "rename", "unlink")
CLIENT = """
import os, sys, time
os.chdir(sys.argv[1]); count = int(sys.argv[2]); code = compile(sys.argv[3], 'row', 'eval'); exec(sys.argv[5])
if sys.argv[4] == 'warm':
    for i in range(count): os.lstat(f'f{i}')
print('ready', flush=True); sys.stdin.readline()
cpu = lambda: int(open('/proc/self/schedstat').read().split()[0])
before, start = cpu(), time.perf_counter_ns()
for i in range(count): eval(code)
print(time.perf_counter_ns() - start, cpu() - before, flush=True)
"""


def arguments():
    parser = argparse.ArgumentParser(prog="cargo xtask bench --cost", description=__doc__.split("\n\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--servers", type=lambda text: text.split(","), default=["ring", "libfuse-uring"], help=", ".join(SERVERS))
    parser.add_argument("--own", action="store_true", help=f"file systems with one file: {', '.join(OWN)}; rows: {', '.join(OWN_ROWS)}")
    parser.add_argument("--cpu", help="callers on this CPU only")
    parser.add_argument("--lower", default="tmpfs", choices=("tmpfs", "ext4"))
    parser.add_argument("--jobs", type=int, default=1, help="callers, each in a directory of its own")
    parser.add_argument("--count", type=int, default=8000, help="operations of each caller")
    parser.add_argument("--rounds", type=int, default=5)
    run = parser.parse_args()
    if run.own:
        run.servers = list(OWN)
    run.rows = run.rows or list(OWN_ROWS if run.own else ROWS)
    return run


def processes(pid):
    """A process and those that it has started."""
    children = [Path(f"/proc/{pid}/task/{thread}/children").read_text().split() for thread in os.listdir(f"/proc/{pid}/task")]
    return [pid, *(it for child in sum(children, []) for it in processes(int(child)))]


def threads(pids):
    """Time on a CPU of each thread, in ns, and its name."""
    found = {}
    for path in (task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()):
        found[path.name] = (int((path / "schedstat").read_text().split()[0]), (path / "comm").read_text().strip())
    return found


def perf(pids, events):
    events = [word for event in events for word in ("-e", event)]
    command = ["perf", "stat", "-x,", *events, "-p", ",".join(map(str, pids))]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def counts(process, operations):
    process.send_signal(signal.SIGINT)
    lines = (line.split(",") for line in process.communicate()[1].splitlines())
    found = {words[2].split(":sys_enter_")[-1]: int(words[0]) / operations for words in lines if len(words) > 3 and words[0].isdigit()}
    return {name: count for name, count in found.items() if count > 0.02}


@contextmanager
def serving(command, point, needs_ring):
    """The process ids of a server that this command starts and that serves `point`, with a ring if it needs one."""
    served = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while not os.path.ismount(point):
            if served.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"bench: does not mount: {command}")
            time.sleep(0.05)
        time.sleep(0.3)
        pids = processes(served.pid)
        rings = [fd for pid in pids for fd in Path(f"/proc/{pid}/fd").iterdir() if "[io_uring]" in os.readlink(fd)]
        if needs_ring and not rings:
            sys.exit(f"bench: has no ring (fuse.enable_uring, liburing-dev, libnuma-dev?): {command}")
        yield pids
    finally:
        subprocess.run(["umount", "--lazy", point], stderr=subprocess.DEVNULL)
        served.terminate()
        served.wait()


def end_cleanly():
    """Has SIGTERM take mounts and servers away, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: ended"))


def measure(run, server, row, place, is_counted):
    source, point = place / "source", place / "point"
    for directory in (source, point):
        directory.mkdir()
    for job in range(run.jobs):
        (source / str(job)).mkdir()
        for number in range(run.count):
            (source / str(job) / f"f{number}").write_text("x")
    with serving((SERVERS | OWN)[server](source, point), point, run.own or server in ("ring", "libfuse-uring")) as pids:
        Path("/proc/sys/vm/drop_caches").write_text("3")
        warm = "warm" if row in WARM else "cold"
        begin, code = OWN_ROWS[row] if run.own else ("", ROWS[row])
        if run.cpu:
            begin = f"os.sched_setaffinity(0, [{run.cpu}]); {begin}"
        places = [point if run.own else point / str(job) for job in range(run.jobs)]
        clients = [subprocess.Popen([sys.executable, "-c", CLIENT, place, str(run.count), code, warm, begin], text=True,
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE) for place in places]
        for client in clients:
            client.stdout.readline()
        if is_counted:
            calls = [event for event in subprocess.check_output(["perf", "list", "--raw-dump", "tracepoint"], text=True).split()
                     if event.startswith("syscalls:sys_enter_")]
            above = perf([client.pid for client in clients], ["fuse:fuse_request_send"])
            below = perf(pids, ["context-switches", "sched:sched_wakeup", *calls])
            time.sleep(2)
        before = threads(pids)
        for client in clients:
            client.stdin.write("\n")
            client.stdin.flush()
        times = [tuple(map(int, client.stdout.readline().split())) for client in clients]
        after = threads(pids)
        operations = run.count * run.jobs
        if is_counted:
            return counts(above, operations) | counts(below, operations)
        by_name = {}
        for thread, (spent, name) in after.items():
            name = re.sub(r"-?\d+$", "", name)
            by_name[name] = by_name.get(name, 0) + (spent - before.get(thread, (0,))[0]) / operations / 1000
        return max(spent for spent, _ in times) / run.count / 1000, sum(cpu for _, cpu in times) / operations / 1000, by_name


def in_fresh(run, place, *what):
    if run.lower == "tmpfs":
        subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
    else:
        image = place.with_suffix(".image")
        image.touch()
        os.truncate(image, 2 << 30)
        subprocess.run(["mkfs.ext4", "-qF", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, place], check=True)
    try:
        return measure(run, *what)
    finally:
        subprocess.run(["umount", place], check=True)


def main():
    run = arguments()
    end_cleanly()
    if run.own:
        subprocess.run(["cargo", "build", "-q", "--release", "--locked", "-p", "thrufs", "--example", "hello"], cwd=PROJECT, check=True)
        for name in list(OWN)[1:]:
            subprocess.run([PROJECT / "bench/peers" / name, "install"], check=True)
    if any(server.startswith("libfuse") for server in run.servers):
        subprocess.run([PROJECT / "bench/peers/passthrough_hp", "install"], check=True)
    print(f"{run.lower}, {run.jobs} callers, {run.count} operations each, medians of {run.rounds} rounds; µs of an operation")
    with tempfile.TemporaryDirectory(prefix="thrufs-cost.") as directory:
        place = Path(directory) / "place"
        place.mkdir()
        for row in run.rows:
            found = {server: [] for server in run.servers}
            for _ in range(run.rounds):
                for server in run.servers:
                    found[server].append(in_fresh(run, place, server, row, place, False))
            for server, rounds in found.items():
                names = {name for _, _, by_name in rounds for name in by_name}
                cpu = {name: median(by_name.get(name, 0) for _, _, by_name in rounds) for name in names}
                spent = sorted(cpu.items(), key=lambda pair: -pair[1])
                text = ", ".join(f"{name} {time:.1f}" for name, time in spent if time > 0.2)
                wall = sorted(wall for wall, _, _ in rounds)
                print(f"{row:8} {server:14} {median(wall):6.1f} [{wall[0]:.1f} to {wall[-1]:.1f}]  CPU: client "
                      f"{median(client for _, client, _ in rounds):.1f}, {text}")
                counted = in_fresh(run, place, server, row, place, True)
                print("         " + ", ".join(f"{name} {count:.2f}" for name, count in counted.items()), flush=True)


if __name__ == "__main__":
    main()
