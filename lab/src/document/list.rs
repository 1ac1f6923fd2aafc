//! The project's goals, row by row. On tmpfs, which shows the server's own cost.

use super::memory::Bound;

/// A goal.
pub(super) struct Want {
    /// For people.
    pub(super) what: &'static str,
    /// Names of rows that show it, under whichever they were measured.
    pub(super) rows: &'static [&'static str],
    pub(super) jobs: u32,
    pub(super) aim: Aim,
}

/// What is wanted of a row.
#[derive(Clone, Copy)]
pub(super) enum Aim {
    /// So much of native's rate, where the kernel uses the file beneath by itself.
    Through(f64),
    /// So much of native's rate, with what is kept following changes beneath.
    Coherent(f64),
    /// No more than so many times native's time.
    Time(f64),
    /// No more than so many times the time of the floor and of native together.
    Floor(f64),
    /// So many times the rate of libfuse's best mode.
    Libfuse(f64),
    /// No more than so many requests for so many operations; of one kind, if it is named.
    Requests {
        opcode: Option<&'static str>,
        most: f64,
        each: u32,
    },
    /// So many times virtiofsd's rate.
    Share(f64),
    /// Memory or descriptors.
    Memory(Bound),
    /// Shown by something else than the benchmark, if by anything.
    Elsewhere {
        goal: &'static str,
        whence: &'static str,
    },
}

impl Aim {
    /// For people.
    pub(super) fn goal(self) -> String {
        match self {
            Aim::Through(least) | Aim::Coherent(least) => format!("≥ {least:.2} of native"),
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

const fn through(what: &'static str, rows: &'static [&'static str]) -> Want {
    want(what, rows, Aim::Through(0.95))
}

const fn several(what: &'static str, rows: &'static [&'static str]) -> Want {
    want(what, rows, Aim::Through(0.90))
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

const THROUGH: &[Want] = &[
    through("read 4k", &["read-4k", "fio-read-4k"]),
    through("read 4k cold", &["read-4k-cold"]),
    through("write 4k", &["write-4k", "fio-write-4k"]),
    through("random read 4k", &["random-read-4k", "fio-random-read-4k"]),
    through("random read 4k cold", &["random-read-4k-cold"]),
    through(
        "random write 4k",
        &["random-write-4k", "fio-random-write-4k"],
    ),
    through("read 1 MiB", &["read-1m", "fio-read-1m"]),
    through("read 1 MiB cold", &["read-1m-cold"]),
    through("write 1 MiB", &["write-1m", "fio-write-1m"]),
    through("mmap read 4k", &["mmap-read-4k", "fio-mmap-read-4k"]),
    through(
        "mmap random read 4k",
        &["mmap-random-read-4k", "fio-mmap-random-read-4k"],
    ),
    through(
        "mmap random write 4k",
        &["mmap-random-write-4k", "fio-mmap-random-write-4k"],
    ),
    through(
        "O_DIRECT random read 4k",
        &["direct-random-read-4k", "fio-direct-random-read-4k"],
    ),
    through(
        "O_DIRECT random write 4k",
        &["direct-random-write-4k", "fio-direct-random-write-4k"],
    ),
    through(
        "O_DIRECT read 1 MiB",
        &[
            "direct-read-1m",
            "direct-read-1m-cold",
            "fio-direct-read-1m",
        ],
    ),
    through(
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
    // The RELEASE, which has no waiter, is counted.
    requests(
        "requests for opening and closing a warm file (one waited for)",
        &["open-close"],
        2.0,
    ),
    // LOOKUP, CREATE, and from Linux 6.18 the GETATTR of the directory; the RELEASE, which has no waiter.
    requests(
        "requests for creating a file (three waited for)",
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
        "not in pairs of one run: see [Shares](#shares)",
    ),
    elsewhere(
        "4k random read and write, mmap, in a guest with DAX",
        "≥ 7 × without",
        "there is no DAX window yet",
    ),
];

const MEMORY: &[Want] = &[
    memory(
        "idle mount, both processes, pages shared with others in parts",
        Bound::Idle(8 << 20),
    ),
    memory("cached inode", Bound::Inode(300)),
    memory("ring entry, untouched", Bound::Untouched),
    memory(
        "files served under `RLIMIT_NOFILE` 1024",
        Bound::Files(10_000_000),
    ),
];

/// All, by what they are about.
pub(super) const GOALS: &[(&str, &[Want])] = &[
    ("files that the kernel uses by itself", THROUGH),
    ("counts", COUNTED),
    ("kept above, and following changes beneath", COHERENT),
    ("names and attributes that must reach the server", REACHING),
    ("builds", BUILDS),
    ("virtio-fs, one queue, driven at the socket", SHARES),
    ("memory and descriptors", MEMORY),
];

/// Of each goal that a mount can show in a suite that builds nothing: what it is, the rows that show it, by how
/// many processes, and some of the targets that it takes.
#[cfg(test)]
pub(crate) fn of_mounts() -> Vec<(
    &'static str,
    &'static [&'static str],
    u32,
    &'static [&'static str],
)> {
    let areas = [THROUGH, COUNTED, COHERENT, REACHING];
    let wants = areas.into_iter().flatten();
    let with_targets = |want: &'static Want| {
        let targets: &[&str] = match want.aim {
            Aim::Through(_) => &["dev+pt", "ring+pt"],
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
