//! Rows that read and write one file.
//!
//! Names: what is in front says by which calls (`direct-`, `aio16-`, `uring16-`, `mmap-`; nothing for `pread` and
//! `pwrite`), what stands behind says what is different (`-fsync`, `-xattr`, `-cold`, `-warm`, `-loop`).

use super::{Row, Work, is_cold};
use crate::job::{By, Cache, Calls, Job, KIB, MIB};

/// Of native's rate, where files go straight through.
const GOAL: f64 = 0.95;
/// With asynchronous I/O.
const GOAL_AIO: f64 = 0.90;

const PLAIN: Job = Job::PLAIN;
const DIRECT: Job = Job {
    direct: true,
    ..PLAIN
};
const AIO_16: Job = Job {
    calls: Calls::Libaio,
    depth: 16,
    ..DIRECT
};
const AIO_64: Job = Job {
    depth: 64,
    ..AIO_16
};
const URING_16: Job = Job {
    calls: Calls::IoUring,
    ..AIO_16
};
const URING_64: Job = Job {
    calls: Calls::IoUring,
    ..AIO_64
};
const MAPPED: Job = Job {
    calls: Calls::Mmap,
    ..PLAIN
};
const FSYNC: Job = Job {
    fsync: true,
    ..PLAIN
};
const ATTRIBUTE: Job = Job {
    attribute: true,
    ..PLAIN
};
const OWN: Job = Job {
    by: By::Own,
    ..PLAIN
};
const COLD: Job = Job {
    cache: Cache::Nowhere,
    passes: 1,
    ..OWN
};
const WARM: Job = Job {
    cache: Cache::Above,
    ..OWN
};

const fn row(name: &'static str, goal: f64, job: Job) -> Row {
    Row {
        name,
        bytes: job.block_bytes,
        cold: is_cold(&job),
        goal: Some(goal),
        work: Work::Data(job),
    }
}

/// Once through: what is cold is so once.
const fn cold(name: &'static str, job: Job) -> Row {
    row(name, GOAL, Job { passes: 1, ..job })
}

/// In a row and at random, reads and writes, of three sizes.
macro_rules! family {
    ($prefix:literal, $goal:expr, $job:expr) => {
        [
            row(concat!($prefix, "read-4k"), $goal, $job.blocks(4 * KIB)),
            row(concat!($prefix, "read-128k"), $goal, $job.blocks(128 * KIB)),
            row(concat!($prefix, "read-1m"), $goal, $job.blocks(MIB)),
            row(
                concat!($prefix, "random-read-4k"),
                $goal,
                $job.blocks(4 * KIB).random(),
            ),
            row(
                concat!($prefix, "random-read-128k"),
                $goal,
                $job.blocks(128 * KIB).random(),
            ),
            row(
                concat!($prefix, "random-read-1m"),
                $goal,
                $job.blocks(MIB).random(),
            ),
            row(
                concat!($prefix, "write-4k"),
                $goal,
                $job.blocks(4 * KIB).write(),
            ),
            row(
                concat!($prefix, "write-128k"),
                $goal,
                $job.blocks(128 * KIB).write(),
            ),
            row(
                concat!($prefix, "write-1m"),
                $goal,
                $job.blocks(MIB).write(),
            ),
            row(
                concat!($prefix, "random-write-4k"),
                $goal,
                $job.blocks(4 * KIB).random().write(),
            ),
            row(
                concat!($prefix, "random-write-128k"),
                $goal,
                $job.blocks(128 * KIB).random().write(),
            ),
            row(
                concat!($prefix, "random-write-1m"),
                $goal,
                $job.blocks(MIB).random().write(),
            ),
        ]
    };
}

static PLAIN_ROWS: [Row; 12] = family!("", GOAL, PLAIN);
static DIRECT_ROWS: [Row; 12] = family!("direct-", GOAL, DIRECT);
static AIO_16_ROWS: [Row; 12] = family!("aio16-", GOAL_AIO, AIO_16);
static AIO_64_ROWS: [Row; 12] = family!("aio64-", GOAL_AIO, AIO_64);
static URING_16_ROWS: [Row; 12] = family!("uring16-", GOAL_AIO, URING_16);
static URING_64_ROWS: [Row; 12] = family!("uring64-", GOAL_AIO, URING_64);
static MAPPED_ROWS: [Row; 12] = family!("mmap-", GOAL, MAPPED);

static OTHERS: [Row; 26] = [
    row("write-4k-fsync", GOAL, FSYNC.write()),
    row("write-128k-fsync", GOAL, FSYNC.blocks(128 * KIB).write()),
    row("write-1m-fsync", GOAL, FSYNC.blocks(MIB).write()),
    row("random-write-4k-fsync", GOAL, FSYNC.random().write()),
    row("direct-write-1m-fsync", GOAL, {
        let job = FSYNC.blocks(MIB).write();
        Job {
            direct: true,
            ..job
        }
    }),
    row("write-512-xattr", GOAL, ATTRIBUTE.blocks(512).write()),
    row("write-4k-xattr", GOAL, ATTRIBUTE.write()),
    row("random-write-4k-xattr", GOAL, ATTRIBUTE.random().write()),
    row("aio64-buffered-random-write-4k-xattr", GOAL, {
        let job = ATTRIBUTE.random().write();
        Job {
            calls: Calls::Libaio,
            depth: 64,
            ..job
        }
    }),
    row("random-write-4k-xattr-loop", GOAL, {
        let job = ATTRIBUTE.random().write();
        Job { by: By::Own, ..job }
    }),
    row("read-4k-loop", GOAL, OWN),
    row("random-read-4k-loop", GOAL, OWN.random()),
    row("read-1m-loop", GOAL, OWN.blocks(MIB)),
    row("write-4k-loop", GOAL, OWN.write()),
    row("random-write-4k-loop", GOAL, OWN.random().write()),
    row("write-1m-loop", GOAL, OWN.blocks(MIB).write()),
    row("mmap-random-read-4k-loop", GOAL, {
        let job = OWN.random();
        Job {
            calls: Calls::Mmap,
            ..job
        }
    }),
    row("direct-read-1m-loop", GOAL, {
        let job = OWN.blocks(MIB);
        Job {
            direct: true,
            ..job
        }
    }),
    cold("read-4k-cold", COLD),
    cold("random-read-4k-cold", COLD.random()),
    cold("read-128k-cold", COLD.blocks(128 * KIB)),
    cold("read-1m-cold", COLD.blocks(MIB)),
    cold("mmap-random-read-4k-cold", {
        let job = COLD.random();
        Job {
            calls: Calls::Mmap,
            ..job
        }
    }),
    cold("direct-read-1m-cold", {
        let job = COLD.blocks(MIB);
        Job {
            direct: true,
            ..job
        }
    }),
    row("read-4k-warm", GOAL, WARM),
    row("random-read-4k-warm", GOAL, WARM.random()),
];

pub(super) static ROWS: [&[Row]; 8] = [
    &PLAIN_ROWS,
    &DIRECT_ROWS,
    &AIO_16_ROWS,
    &AIO_64_ROWS,
    &URING_16_ROWS,
    &URING_64_ROWS,
    &MAPPED_ROWS,
    &OTHERS,
];
