//! FUSE passthrough: reads and writes that the kernel carries out on the files beneath.

use super::{Original, Written, place, told};
use crate::results::published::Unit::{MibPerSecond, Seconds};

pub(super) const ORIGINAL: Original = Original {
    name: "passthrough",
    title: "FUSE passthrough",
    sources: &[Written {
        author: "Alessio Balsini",
        title: "[PATCH RESEND V11 0/7] fuse: Add support for passthrough read/write",
        date: "2021-01-18",
        place: "linux-fsdevel, <20210118192748.584213-1-balsini@android.com>",
    }],
    setting: "Intel Xeon W-2135 with 64 GiB, Linux 5.11-rc4 with the patches, ext4 on a RAM disk of 40 GiB that \
              leaves no memory to cache it; libfuse's passthrough_hp; fio 3.24, engine sync, 4 KiB, a file of \
              35 GiB, fsync_on_close=1, caches dropped, ten runs with a minute's pause; the time of building \
              Linux with as many jobs as processors, average of ten.",
    differences: &[
        "Beneath is tmpfs, which needs no copy from a disk to the cache: native is faster, and what FUSE adds \
         weighs more.",
        "The file is smaller and lies in the cache beneath; nothing of it lies in that of the mount.",
        "fio's engine is psync, the same calls with an offset. Reads are not followed by an fsync.",
        "Rounds are interleaved, without pauses.",
        "The server is Thrufs: over /dev/fuse, its data by the server (`dev`) and past it (`dev+pt`). It asks for \
         KILLPRIV_V2; whether the original's did is not said.",
        "What is built is a C project of many small files, not Linux.",
    ],
    columns: &[
        place("native", "native"),
        place("FUSE", "dev"),
        place("passthrough", "dev+pt"),
    ],
    lines: &[
        told(
            "read, 4 KiB",
            "read-4k",
            1,
            MibPerSecond,
            &[1839.0, 471.0, 1791.0],
        ),
        told(
            "write, 4 KiB, fsync",
            "write-4k-fsync",
            1,
            MibPerSecond,
            &[1322.0, 95.0, 1068.0],
        ),
        told(
            "random read, 4 KiB",
            "random-read-4k",
            1,
            MibPerSecond,
            &[1135.0, 25.0, 860.0],
        ),
        told(
            "random write, 4 KiB, fsync",
            "random-write-4k-fsync",
            1,
            MibPerSecond,
            &[1005.0, 76.0, 813.0],
        ),
        told(
            "a build",
            "build-c",
            1,
            Seconds,
            &[109.423, 144.566, 133.820],
        ),
    ],
};
