//! The project's goals, row by row, for tmpfs, which shows the server's own cost.

use super::memory::Bound;

/// A goal.
pub(super) struct Want {
    pub(super) what: &'static str,
    /// Names of its row, which differ between runs.
    pub(super) rows: &'static [&'static str],
    pub(super) jobs: u32,
    pub(super) aim: Aim,
}

#[derive(Clone, Copy)]
pub(super) enum Aim {
    /// At least this share of native's rate, with passthrough.
    Passthrough(f64),
    /// At least this share of native's rate, with caches that follow changes beneath.
    Coherent(f64),
    /// At most this multiple of native's time.
    Time(f64),
    /// At most this multiple of the floor's time plus native's.
    Floor(f64),
    /// At least this multiple of the rate of libfuse's best mode.
    Libfuse(f64),
    /// At most `most` requests, of one opcode if it is named, for `each` operations.
    Requests {
        opcode: Option<&'static str>,
        most: f64,
        each: u32,
    },
    /// At least this multiple of virtiofsd's rate.
    Share(f64),
    Memory(Bound),
    /// Not measured by the benchmark.
    Elsewhere {
        goal: &'static str,
        whence: &'static str,
    },
}

impl Aim {
    pub(super) fn goal(self) -> String {
        match self {
            Aim::Passthrough(least) | Aim::Coherent(least) => format!("≥ {least:.2} of native"),
            Aim::Time(most) => format!("≤ {most:.2} × native's time"),
            Aim::Floor(most) => format!("≤ {most:.2} × (floor + native), time"),
            Aim::Libfuse(least) => format!("≥ {least:.1} × libfuse's best"),
            Aim::Requests { most, each: 1, .. } => format!("≤ {most:.0}"),
            Aim::Requests { most, each, .. } => format!("≤ {most:.0} for {each}"),
            Aim::Share(least) => format!("≥ {least:.0} × virtiofsd"),
            Aim::Memory(bound) => bound.goal(),
            Aim::Elsewhere { goal, .. } => goal.to_owned(),
        }
    }
}

const fn want(what: &'static str, rows: &'static [&'static str], aim: Aim) -> Want {
    Want {
        what,
        rows,
        jobs: 1,
        aim,
    }
}

const fn passthrough(what: &'static str, rows: &'static [&'static str]) -> Want {
    want(what, rows, Aim::Passthrough(0.95))
}

const fn several(what: &'static str, rows: &'static [&'static str]) -> Want {
    want(what, rows, Aim::Passthrough(0.90))
}

const fn coherent(what: &'static str, rows: &'static [&'static str]) -> Want {
    want(what, rows, Aim::Coherent(0.90))
}

const fn floor(what: &'static str, rows: &'static [&'static str]) -> Want {
    want(what, rows, Aim::Floor(1.15))
}

const fn libfuse(what: &'static str, rows: &'static [&'static str]) -> Want {
    want(what, rows, Aim::Libfuse(1.5))
}

const fn by_two(want: Want) -> Want {
    Want { jobs: 2, ..want }
}

const fn requests(what: &'static str, rows: &'static [&'static str], most: f64) -> Want {
    let (opcode, each) = (None, 1);
    want(what, rows, Aim::Requests { opcode, most, each })
}

const fn share(what: &'static str, rows: &'static [&'static str]) -> Want {
    want(what, rows, Aim::Share(2.0))
}

const fn memory(what: &'static str, bound: Bound) -> Want {
    want(what, &[], Aim::Memory(bound))
}

const fn elsewhere(what: &'static str, goal: &'static str, whence: &'static str) -> Want {
    want(what, &[], Aim::Elsewhere { goal, whence })
}

const PASSTHROUGH: &[Want] = &[
    passthrough("read 4k", &["read-4k", "fio-read-4k"]),
    passthrough("read 4k cold", &["read-4k-cold"]),
    passthrough("write 4k", &["write-4k", "fio-write-4k"]),
    passthrough("random read 4k", &["random-read-4k", "fio-random-read-4k"]),
    passthrough("random read 4k cold", &["random-read-4k-cold"]),
    passthrough(
        "random write 4k",
        &["random-write-4k", "fio-random-write-4k"],
    ),
    passthrough("read 1 MiB", &["read-1m", "fio-read-1m"]),
    passthrough("read 1 MiB cold", &["read-1m-cold"]),
    passthrough("write 1 MiB", &["write-1m", "fio-write-1m"]),
    passthrough("mmap read 4k", &["mmap-read-4k", "fio-mmap-read-4k"]),
    passthrough(
        "mmap random read 4k",
        &["mmap-random-read-4k", "fio-mmap-random-read-4k"],
    ),
    passthrough(
        "mmap random write 4k",
        &["mmap-random-write-4k", "fio-mmap-random-write-4k"],
    ),
    passthrough(
        "O_DIRECT random read 4k",
        &["direct-random-read-4k", "fio-direct-random-read-4k"],
    ),
    passthrough(
        "O_DIRECT random write 4k",
        &["direct-random-write-4k", "fio-direct-random-write-4k"],
    ),
    passthrough(
        "O_DIRECT read 1 MiB",
        &[
            "direct-read-1m",
            "direct-read-1m-cold",
            "fio-direct-read-1m",
        ],
    ),
    passthrough(
        "O_DIRECT write 1 MiB",
        &["direct-write-1m", "fio-direct-write-1m"],
    ),
    several(
        "libaio O_DIRECT random read, depth 16",
        &["aio16-random-read-4k", "fio-aio16-random-read-4k"],
    ),
    several(
        "libaio O_DIRECT random read, depth 64",
        &["aio64-random-read-4k", "fio-aio64-random-read-4k"],
    ),
    several(
        "libaio O_DIRECT random write, depth 16",
        &["aio16-random-write-4k", "fio-aio16-random-write-4k"],
    ),
    several(
        "libaio O_DIRECT random write, depth 64",
        &["aio64-random-write-4k", "fio-aio64-random-write-4k"],
    ),
];

const COUNTED: &[Want] = &[
    want(
        "GETXATTR, small writes",
        &[
            "write-4k-xattr",
            "random-write-4k-xattr",
            "random-write-4k",
            "write-4k",
            "append-4k",
        ],
        Aim::Requests {
            opcode: Some("GETXATTR"),
            most: 1.0,
            each: 4096,
        },
    ),
    // The RELEASE, which is asynchronous, is counted.
    requests(
        "requests for opening and closing a warm file (one synchronous)",
        &["open-close"],
        2.0,
    ),
    // LOOKUP, CREATE, and from Linux 6.18 the GETATTR of the directory; the RELEASE, which is asynchronous.
    requests(
        "requests for creating a file (three synchronous)",
        &["create"],
        4.0,
    ),
    requests(
        "requests for a warm stat",
        &["stat-warm", "stat-one-warm"],
        0.0,
    ),
    requests("requests for a warm lookup", &["lookup-warm"], 0.0),
    requests("requests for a warm readlink", &["readlink-warm"], 0.0),
];

const COHERENT: &[Want] = &[
    coherent("stat warm", &["stat-warm"]),
    coherent("find warm", &["find-warm"]),
    coherent("find + stat warm", &["find-stat-warm"]),
    coherent("git status", &["git-status"]),
    coherent("make that has nothing to do", &["make-idle"]),
    coherent("ninja that has nothing to do", &["ninja-idle"]),
    coherent("cargo build that has nothing to do", &["cargo-idle"]),
    coherent("small files, read warm", &["small-file-read-warm"]),
];

const REACHING: &[Want] = &[
    floor("stat cold", &["stat-cold"]),
    libfuse("stat cold", &["stat-cold"]),
    floor("stat missing names", &["stat-missing"]),
    libfuse("stat missing names", &["stat-missing"]),
    floor("open + close", &["open-close"]),
    libfuse("open + close", &["open-close"]),
    by_two(floor("open + close, 2 processes", &["open-close"])),
    by_two(libfuse("open + close, 2 processes", &["open-close"])),
    floor("lookup cold", &["lookup-cold"]),
    libfuse("lookup cold", &["lookup-cold"]),
    floor("readlink cold", &["readlink-cold"]),
    libfuse("readlink cold", &["readlink-cold"]),
    floor("small files, read cold", &["small-file-read-cold"]),
    libfuse("small files, read cold", &["small-file-read-cold"]),
    floor("create", &["create"]),
    libfuse("create", &["create"]),
    floor("create + write 4 KiB", &["create-write-4k"]),
    libfuse("create + write 4 KiB", &["create-write-4k"]),
    floor("rename", &["rename"]),
    libfuse("rename", &["rename"]),
    floor("unlink", &["unlink"]),
    libfuse("unlink", &["unlink"]),
    floor("mkdir", &["mkdir"]),
    libfuse("mkdir", &["mkdir"]),
    floor("rmdir", &["rmdir"]),
    libfuse("rmdir", &["rmdir"]),
    libfuse("find cold", &["find-cold"]),
    libfuse("find + stat cold", &["find-stat-cold"]),
];

const BUILDS: &[Want] = &[
    want(
        "building a C project",
        &["build-c", "build-small"],
        Aim::Time(1.05),
    ),
    want("cargo build", &["build-cargo"], Aim::Time(1.05)),
];

const SHARES: &[Want] = &[
    share("getattr", &["getattr"]),
    share("getattr, 16 in flight", &["getattr-d16"]),
    share("lookup", &["lookup"]),
    share("lookup, 16 in flight", &["lookup-d16"]),
    share("create", &["create-unlink"]),
    share("read 4k", &["random-read-4k-d1"]),
    share("read 4k, 16 in flight", &["random-read-4k-d16"]),
    share("read 4k, 64 in flight", &["random-read-4k-d64"]),
    share("write 4k", &["random-write-4k-d1"]),
    share("write 4k, 16 in flight", &["random-write-4k-d16"]),
    share("write 4k, 64 in flight", &["random-write-4k-d64"]),
    elsewhere(
        "two queues",
        "scale with cores",
        "not in one run: see [Shares](#shares)",
    ),
    elsewhere(
        "4k random read and write, mmap, in a guest with DAX",
        "≥ 7 × without",
        "not in a guest: see [DAX window](../../docs/sharing.md#dax-window)",
    ),
];

const MEMORY: &[Want] = &[
    memory(
        "idle mount, both processes, shared pages counted in parts",
        Bound::Idle(8 << 20),
    ),
    memory("cached inode", Bound::Inode(300)),
    memory("ring entry, untouched", Bound::Untouched),
    memory(
        "files served under `RLIMIT_NOFILE` 1024",
        Bound::Files(10_000_000),
    ),
];

/// All goals, by area.
pub(super) const GOALS: &[(&str, &[Want])] = &[
    ("passthrough", PASSTHROUGH),
    ("counts", COUNTED),
    (
        "cached names and attributes that follow changes beneath",
        COHERENT,
    ),
    ("names and attributes that must reach the server", REACHING),
    ("builds", BUILDS),
    ("virtio-fs, one queue, driven at the socket", SHARES),
    ("memory and descriptors", MEMORY),
];

/// Of each goal for mounts, except builds: its title, its rows, the number of processes, and some of its targets.
#[cfg(test)]
pub(crate) fn of_mounts() -> Vec<(
    &'static str,
    &'static [&'static str],
    u32,
    &'static [&'static str],
)> {
    let areas = [PASSTHROUGH, COUNTED, COHERENT, REACHING];
    let wants = areas.into_iter().flatten();
    let with_targets = |want: &'static Want| {
        let targets: &[&str] = match want.aim {
            Aim::Passthrough(_) => &["dev+pt", "ring+pt"],
            Aim::Coherent(_) => &["dev+pt:auto", "ring+pt:auto"],
            Aim::Floor(_) => &["dev", "ring", "floor-dev", "floor-uring"],
            Aim::Libfuse(_) => &[
                "ring",
                "libfuse",
                "libfuse-uring",
                "libfuse+pt",
                "libfuse-uring+pt",
            ],
            Aim::Requests { .. }
            | Aim::Time(_)
            | Aim::Share(_)
            | Aim::Memory(_)
            | Aim::Elsewhere { .. } => &[],
        };
        (want.what, want.rows, want.jobs, targets)
    };
    wants.map(with_targets).collect()
}
