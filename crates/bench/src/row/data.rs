//! Rows that read and write one file, by loops of our own.
//!
//! Names: what is in front says by which calls (`direct-`, `mmap-`; nothing for `pread` and `pwrite`), what stands
//! behind says what is different (`-fsync`, `-cold`, `-warm`). `-loop` tells them from those that fio does.

use super::Row;
use crate::job::{Calls, Job, MIB};

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

pub(super) static ROWS: [Row; 8] = [
    Row::data("random-read-4k-loop", PLAIN.random()),
    Row::data("read-1m-loop", PLAIN.blocks(MIB)),
    Row::data("random-write-4k-loop", PLAIN.random().write()),
    Row::data("write-1m-loop", PLAIN.blocks(MIB).write()),
    Row::data("write-4k-fsync-loop", FSYNC.write()),
    Row::data("mmap-random-read-4k-loop", MAPPED.random()),
    Row::data("direct-random-read-4k-loop", DIRECT.random()),
    Row::cold_data("read-1m-cold", PLAIN.blocks(MIB)),
];
