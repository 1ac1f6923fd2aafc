//! FUSE over io_uring.

use super::{Original, Told, Written, place, told};
use crate::results::published::Unit::{MibPerSecond, PerSecond};

pub(super) const ORIGINAL: Original = Original {
    name: "ring",
    title: "FUSE over io_uring",
    sources: &[Written {
        author: "Bernd Schubert",
        title: "[PATCH RFC v2 00/19] fuse: fuse-over-io-uring",
        date: "2024-05-29",
        place: "linux-fsdevel, <20240529-fuse-uring-for-6-9-rfc2-out-v1-0-d149476b1d65@ddn.com>",
    }],
    setting: "Xeon E5-2650 with 32 processors (hyper-threads), Linux 6.2 with an early form of the patches, which \
              shared memory with the server; for reads a passthrough_hp that was changed not to read the files \
              at all; creates by threads. The message names no unit for reads and maps; MiB/s is taken here.",
    differences: &[
        "Thrufs reads the files, from tmpfs; the original's server answered without.",
        "The kernel's interface is the one that was merged into 6.14: data are copied, requests of the background \
         stay on the processor.",
        "Reads of maps are sequential as in the original. Its kernel turned them around, which it calls weird.",
        "Creates are by processes, each in a directory of its own.",
        "With more processes than processors nothing new is learnt here: the greater numbers are not measured.",
    ],
    columns: &[place("/dev/fuse", "dev"), place("io_uring", "ring")],
    lines: LINES,
};

/// Paged reads of 128 KiB.
const fn small(jobs: u32, values: &'static [f64]) -> Told {
    told("read, 128 KiB", "read-128k", jobs, MibPerSecond, values)
}

/// Paged reads of 1 MiB.
const fn big(jobs: u32, values: &'static [f64]) -> Told {
    told("read, 1 MiB", "read-1m", jobs, MibPerSecond, values)
}

/// Reads past the cache.
const fn direct(jobs: u32, values: &'static [f64]) -> Told {
    told(
        "direct read, 1 MiB",
        "direct-read-1m",
        jobs,
        MibPerSecond,
        values,
    )
}

const fn mapped(jobs: u32, values: &'static [f64]) -> Told {
    told(
        "read of a map, 4 KiB",
        "mmap-read-4k",
        jobs,
        MibPerSecond,
        values,
    )
}

const fn create(jobs: u32, values: &'static [f64]) -> Told {
    told("create", "create", jobs, PerSecond, values)
}

const LINES: &[Told] = &[
    small(1, &[1117.0, 1921.0]),
    small(2, &[2502.0, 3527.0]),
    small(4, &[5052.0, 6125.0]),
    small(8, &[6273.0, 10855.0]),
    small(16, &[6373.0, 11320.0]),
    small(24, &[6111.0, 9015.0]),
    small(32, &[5725.0, 7968.0]),
    big(1, &[1902.0, 1942.0]),
    big(2, &[3066.0, 3260.0]),
    big(4, &[5994.0, 6097.0]),
    big(8, &[7101.0, 10491.0]),
    big(16, &[7660.0, 11419.0]),
    big(24, &[7600.0, 9029.0]),
    big(32, &[6986.0, 7961.0]),
    direct(1, &[2023.0, 3998.0]),
    direct(2, &[3375.0, 7950.0]),
    direct(4, &[3823.0, 15022.0]),
    direct(8, &[7796.0, 22591.0]),
    direct(16, &[8520.0, 27864.0]),
    direct(24, &[8361.0, 20617.0]),
    direct(32, &[8717.0, 12971.0]),
    mapped(1, &[130.0, 323.0]),
    mapped(2, &[219.0, 538.0]),
    mapped(4, &[503.0, 1040.0]),
    mapped(8, &[1472.0, 2039.0]),
    mapped(16, &[2191.0, 3518.0]),
    mapped(24, &[2453.0, 4561.0]),
    mapped(32, &[2178.0, 5628.0]),
    create(1, &[3944.0, 10121.0]),
    create(2, &[8580.0, 24524.0]),
    create(4, &[16628.0, 44426.0]),
    create(8, &[46746.0, 56716.0]),
    create(16, &[79740.0, 102_966.0]),
    create(20, &[80284.0, 119_502.0]),
];
