//! virtio-fs against 9p against virtio-fs with DAX, in a guest.

use super::{NOT_PUBLISHED, Original, Told, Written, nobody, place, told};
use crate::results::published::Unit::PerSecond;

/// The rows are those of `cargo xtask vm-bench --guest qemu`.
pub(super) const ORIGINAL: Original = Original {
    name: "virtiofs",
    title: "virtio-fs, 9p and DAX",
    sources: &[
        Written {
            author: "Vivek Goyal",
            title: "Some performance numbers for virtiofs, DAX and virtio-9p",
            date: "2020-12-10",
            place: "qemu-devel, https://lists.gnu.org/archive/html/qemu-devel/2020-12/msg02704.html",
        },
        Written {
            author: "Vivek Goyal",
            title: "virtiofs-tests, performance-results/dec-10-2020/results.txt",
            date: "2020-12-10",
            place: "https://github.com/rhvgoyal/virtiofs-tests, commit 8da22499eeb9",
        },
    ],
    setting: "A host of 40 cores with 376 GiB and an SSD, a guest with 32 processors and 64 GB under KVM; virtiofsd \
              (the one in C) with cache=none and no pool of threads, 9p with cache=none and msize=16MB, a DAX window \
              of 16 GB; fio, 4 KiB, depth 16 where the engine has one, one job or four, each with a file of 4 GiB; \
              average of three runs. What could not be done without caches (maps) has no figure.",
    differences: &[
        "The guest is emulated, without KVM: a processor costs tens of times as much, and what is measured is above \
         all how much of it each way needs. It has two processors and little memory.",
        "The guest has Linux 6.12 of Debian trixie, four years younger than the original.",
        "Files of 128 MiB, which the host has in memory.",
        "virtiofsd is 1.14, the one in Rust; beside it stands Thrufs. Both may map files for reading without caches.",
        "libaio reads and writes with O_DIRECT, one in flight for each job.",
        "DAX is not served by Thrufs yet: that column has no figures of ours.",
    ],
    columns: &[
        place("9p", "9p"),
        place("virtio-fs", "thrufs"),
        place("virtio-fs", "virtiofsd"),
        nobody("virtio-fs, DAX", "not served"),
    ],
    lines: LINES,
};

/// Operations in a second of 9p, virtio-fs (twice: two of ours stand for it) and virtio-fs with DAX.
const fn line(what: &'static str, row: &'static str, jobs: u32, values: &'static [f64]) -> Told {
    told(what, row, jobs, PerSecond, values)
}

const LINES: &[Told] = &[
    line(
        "read, psync",
        "read-psync-1",
        1,
        &[24600.0, 24600.0, 24600.0, 165_000.0],
    ),
    line(
        "read, psync",
        "read-psync-4",
        4,
        &[99400.0, 90000.0, 90000.0, 570_200.0],
    ),
    line(
        "read, mmap",
        "read-mmap-1",
        1,
        &[16000.0, NOT_PUBLISHED, NOT_PUBLISHED, 228_700.0],
    ),
    line(
        "read, mmap",
        "read-mmap-4",
        4,
        &[64100.0, NOT_PUBLISHED, NOT_PUBLISHED, 712_100.0],
    ),
    line(
        "read, libaio",
        "read-libaio-1",
        1,
        &[23200.0, 64800.0, 64800.0, 101_500.0],
    ),
    line(
        "read, libaio",
        "read-libaio-4",
        4,
        &[87300.0, 82200.0, 82200.0, 368_000.0],
    ),
    line(
        "random read, psync",
        "randread-psync-1",
        1,
        &[25300.0, 26200.0, 26200.0, 165_600.0],
    ),
    line(
        "random read, psync",
        "randread-psync-4",
        4,
        &[95800.0, 87700.0, 87700.0, 129_900.0],
    ),
    line(
        "random read, mmap",
        "randread-mmap-1",
        1,
        &[17100.0, NOT_PUBLISHED, NOT_PUBLISHED, 219_700.0],
    ),
    line(
        "random read, mmap",
        "randread-mmap-4",
        4,
        &[62000.0, NOT_PUBLISHED, NOT_PUBLISHED, 263_800.0],
    ),
    line(
        "random read, libaio",
        "randread-libaio-1",
        1,
        &[22700.0, 66600.0, 66600.0, 96800.0],
    ),
    line(
        "random read, libaio",
        "randread-libaio-4",
        4,
        &[88600.0, 69600.0, 69600.0, 93600.0],
    ),
    line(
        "write, psync",
        "write-psync-1",
        1,
        &[23300.0, 23800.0, 23800.0, 121_600.0],
    ),
    line(
        "write, psync",
        "write-psync-4",
        4,
        &[84900.0, 80300.0, 80300.0, 320_800.0],
    ),
    line(
        "write, mmap",
        "write-mmap-1",
        1,
        &[NOT_PUBLISHED, NOT_PUBLISHED, NOT_PUBLISHED, 324_300.0],
    ),
    line(
        "write, mmap",
        "write-mmap-4",
        4,
        &[NOT_PUBLISHED, NOT_PUBLISHED, NOT_PUBLISHED, 451_500.0],
    ),
    line(
        "write, libaio",
        "write-libaio-1",
        1,
        &[21900.0, 63600.0, 63600.0, 71100.0],
    ),
    line(
        "write, libaio",
        "write-libaio-4",
        4,
        &[84900.0, 80100.0, 80100.0, 243_800.0],
    ),
    line(
        "random write, psync",
        "randwrite-psync-1",
        1,
        &[23700.0, 24300.0, 24300.0, 120_000.0],
    ),
    line(
        "random write, psync",
        "randwrite-psync-4",
        4,
        &[84000.0, 80900.0, 80900.0, 129_800.0],
    ),
    line(
        "random write, mmap",
        "randwrite-mmap-1",
        1,
        &[NOT_PUBLISHED, NOT_PUBLISHED, NOT_PUBLISHED, 218_000.0],
    ),
    line(
        "random write, mmap",
        "randwrite-mmap-4",
        4,
        &[NOT_PUBLISHED, NOT_PUBLISHED, NOT_PUBLISHED, 279_700.0],
    ),
    line(
        "random write, libaio",
        "randwrite-libaio-1",
        1,
        &[21400.0, 63100.0, 63100.0, 70500.0],
    ),
    line(
        "random write, libaio",
        "randwrite-libaio-4",
        4,
        &[82300.0, 80900.0, 80900.0, 91500.0],
    ),
];
