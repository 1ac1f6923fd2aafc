//! close(2) that is done when it returns.

use super::{Original, Place, Written, nobody, told};
use crate::results::published::Unit::PerSecond;

/// What is appended to the name of a row that is measured without restartable sequences.
pub(super) const WITHOUT_RSEQ: &str = "-no-rseq";

const fn column(original: &'static str, variant: &'static str) -> Place {
    Place {
        original,
        here: "native",
        variant,
        absent: "",
    }
}

pub(super) const ORIGINAL: Original = Original {
    name: "close",
    title: "Synchronous close",
    sources: &[Written {
        author: "Mateusz Guzik",
        title: "[PATCH] fs: use __fput_sync in close(2)",
        date: "2023-08-07",
        place: "linux-fsdevel, <20230806230627.1394689-1-mjguzik@gmail.com>; merged into Linux 6.6 as \
                021a160abf62",
    }],
    setting: "Sapphire Rapids, open1_processes -t 1 of will-it-scale (open and close of a file of its own, over \
              and over) on tmpfs. The patched kernel had the same figure with rseq and without.",
    differences: &[
        "The kernel here has the change: its figures belong to the last column, with rseq and without. Kernels from \
         before and after it are compared in a guest, by `cargo xtask vm-bench --open1 --save`.",
        "Without rseq means GLIBC_TUNABLES=glibc.pthread.rseq=0 for the process that measures.",
        "The loop is of our own, in the manner of open1.",
        "A mount's figures stand in the run's own table: rows open-close and open-close-no-rseq.",
    ],
    columns: &[
        column("with rseq", ""),
        column("without rseq", WITHOUT_RSEQ),
        nobody("patched", "in a guest"),
    ],
    lines: &[
        told(
            "open and close",
            "open-close",
            1,
            PerSecond,
            &[1_329_857.0, 1_421_667.0, 1_523_521.0],
        ),
        told(
            "open and close",
            "open-close",
            2,
            PerSecond,
            &[
                super::NOT_PUBLISHED,
                super::NOT_PUBLISHED,
                super::NOT_PUBLISHED,
            ],
        ),
    ],
};

/// What a process that measures a row is started with, besides what it inherits.
#[must_use]
pub fn environment(row: &str) -> &'static [(&'static str, &'static str)] {
    if row.ends_with(WITHOUT_RSEQ) {
        &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")]
    } else {
        &[]
    }
}
