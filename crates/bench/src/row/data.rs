//! Rows that read and write one file, by loops of our own.
//!
//! Names: what is in front says by which calls (`direct-`, `mmap-`; nothing for `pread` and `pwrite`), what stands
//! behind says what is different (`-fsync`, `-cold`, `-warm`). `-loop` tells them from those that fio does.

use super::{Row, Work, is_cold};
use crate::job::{Cache, Calls, Job, KIB, MIB};

/// Of native's rate, where files go straight through.
const GOAL: f64 = 0.95;

const PLAIN: Job = Job::PLAIN;
const DIRECT: Job = Job {
    direct: true,
    ..PLAIN
};
const MAPPED: Job = Job {
    calls: Calls::Mmap,
    ..PLAIN
};
const FSYNC: Job = Job {
    fsync: true,
    ..PLAIN
};
const WARM: Job = Job {
    cache: Cache::Above,
    ..PLAIN
};

const fn row(name: &'static str, job: Job) -> Row {
    Row {
        name,
        bytes: job.block_bytes,
        cold: is_cold(&job),
        goal: Some(GOAL),
        work: Work::Data(job),
    }
}

/// Once through: what is cold is so once.
const fn cold(name: &'static str, job: Job) -> Row {
    let (cache, passes) = (Cache::Nowhere, 1);
    row(
        name,
        Job {
            cache,
            passes,
            ..job
        },
    )
}

pub(super) static ROWS: [Row; 17] = [
    row("random-read-4k-loop", PLAIN.random()),
    row("read-1m-loop", PLAIN.blocks(MIB)),
    row("random-write-4k-loop", PLAIN.random().write()),
    row("write-1m-loop", PLAIN.blocks(MIB).write()),
    row("write-4k-fsync-loop", FSYNC.write()),
    row("mmap-random-read-4k-loop", MAPPED.random()),
    row("mmap-random-write-4k-loop", MAPPED.random().write()),
    row("direct-random-read-4k-loop", DIRECT.random()),
    row("direct-random-write-4k-loop", DIRECT.random().write()),
    row("direct-read-1m-loop", DIRECT.blocks(MIB)),
    row("random-read-4k-warm", WARM.random()),
    cold("read-4k-cold", PLAIN),
    cold("random-read-4k-cold", PLAIN.random()),
    cold("read-128k-cold", PLAIN.blocks(128 * KIB)),
    cold("read-1m-cold", PLAIN.blocks(MIB)),
    cold("mmap-random-read-4k-cold", MAPPED.random()),
    cold("direct-read-1m-cold", DIRECT.blocks(MIB)),
];
