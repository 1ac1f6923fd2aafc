//! The rows of a comparison of passthrough: reads and writes by fio, and what opening costs.

use super::{KIB, MIB, Row, Work};
use crate::fio::Job;

/// Read and write by system calls, one at a time.
const PLAIN: Job = Job {
    engine: "psync",
    pattern: "read",
    block_bytes: 4 * KIB,
    depth: 1,
    direct: false,
    fsync_on_close: false,
    passes: 3,
};
const PLAIN_BIG: Job = Job {
    block_bytes: MIB,
    passes: 8,
    ..PLAIN
};
const DIRECT: Job = Job {
    direct: true,
    passes: 2,
    ..PLAIN
};
const DIRECT_BIG: Job = Job {
    direct: true,
    ..PLAIN_BIG
};
/// Several at once.
const AIO_16: Job = Job {
    engine: "libaio",
    depth: 16,
    ..DIRECT
};
const AIO_64: Job = Job {
    depth: 64,
    ..AIO_16
};
/// The file in memory. It is mapped anew for each pass: a page that was touched is no longer the file
/// system's matter.
const MAPPED: Job = Job {
    engine: "mmap",
    passes: 6,
    ..PLAIN
};

const fn row(name: &'static str, pattern: &'static str, job: Job) -> Row {
    fio(name, 0.95, Job { pattern, ..job })
}

const fn row_fsync(name: &'static str, pattern: &'static str, job: Job) -> Row {
    let fsync_on_close = true;
    let job = Job {
        pattern,
        fsync_on_close,
        ..job
    };
    fio(name, 0.95, job)
}

const fn row_aio(name: &'static str, pattern: &'static str, job: Job) -> Row {
    fio(name, 0.90, Job { pattern, ..job })
}

const fn fio(name: &'static str, goal: f64, job: Job) -> Row {
    Row {
        name,
        // What fio does is told by the job.
        operations: 0,
        bytes: job.block_bytes,
        // Each file is new to the mount.
        cold: false,
        goal: Some(goal),
        work: Work::Fio(job),
    }
}

pub(super) const ROWS: &[Row] = &[
    row("fio-read-4k", "read", PLAIN),
    row("fio-write-4k", "write", PLAIN),
    row_fsync("fio-write-4k-fsync", "write", PLAIN),
    row("fio-random-read-4k", "randread", PLAIN),
    row("fio-random-write-4k", "randwrite", PLAIN),
    row_fsync("fio-random-write-4k-fsync", "randwrite", PLAIN),
    row("fio-read-1m", "read", PLAIN_BIG),
    row("fio-write-1m", "write", PLAIN_BIG),
    row_fsync("fio-write-1m-fsync", "write", PLAIN_BIG),
    row("fio-direct-random-read-4k", "randread", DIRECT),
    row("fio-direct-random-write-4k", "randwrite", DIRECT),
    row("fio-direct-read-1m", "read", DIRECT_BIG),
    row("fio-direct-write-1m", "write", DIRECT_BIG),
    row_aio("fio-aio16-read-4k", "read", AIO_16),
    row_aio("fio-aio16-write-4k", "write", AIO_16),
    row_aio("fio-aio16-random-read-4k", "randread", AIO_16),
    row_aio("fio-aio16-random-write-4k", "randwrite", AIO_16),
    row_aio("fio-aio64-read-4k", "read", AIO_64),
    row_aio("fio-aio64-write-4k", "write", AIO_64),
    row_aio("fio-aio64-random-read-4k", "randread", AIO_64),
    row_aio("fio-aio64-random-write-4k", "randwrite", AIO_64),
    row("fio-mmap-read-4k", "read", MAPPED),
    row("fio-mmap-random-read-4k", "randread", MAPPED),
    row("fio-mmap-random-write-4k", "randwrite", MAPPED),
];

pub(super) const GROUP: &[&str] = &[
    "fio-read-4k",
    "fio-write-4k",
    "fio-write-4k-fsync",
    "fio-random-read-4k",
    "fio-random-write-4k",
    "fio-random-write-4k-fsync",
    "fio-read-1m",
    "fio-write-1m",
    "fio-write-1m-fsync",
    "fio-direct-random-read-4k",
    "fio-direct-random-write-4k",
    "fio-direct-read-1m",
    "fio-direct-write-1m",
    "fio-aio16-read-4k",
    "fio-aio16-write-4k",
    "fio-aio16-random-read-4k",
    "fio-aio16-random-write-4k",
    "fio-aio64-read-4k",
    "fio-aio64-write-4k",
    "fio-aio64-random-read-4k",
    "fio-aio64-random-write-4k",
    "fio-mmap-read-4k",
    "fio-mmap-random-read-4k",
    "fio-mmap-random-write-4k",
    // The lower file system's cache is empty as well.
    "random-read-4k-cold",
    "read-1m-cold",
    "mmap-read-4k-cold",
    // Where it costs: every file is registered before it is used.
    "open-close",
    "open-close-write",
    "small-file-read-cold",
    "create-write-4k",
];
