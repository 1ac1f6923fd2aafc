//! KILLPRIV_V2: the kernel need not ask for a file's capabilities before each write.

use super::{Original, Written, place, told};
use crate::results::published::Unit::MbPerSecond;

pub(super) const ORIGINAL: Original = Original {
    name: "killpriv",
    title: "KILLPRIV_V2",
    sources: &[
        Written {
            author: "Vivek Goyal",
            title: "[PATCH] virtiofs: Enable SB_NOSEC flag to improve small write performance",
            date: "2020-07-16",
            place: "linux-fsdevel, <20200716144032.GC422759@redhat.com>",
        },
        Written {
            author: "Vivek Goyal",
            title: "[PATCH v3 0/6] fuse: Implement FUSE_HANDLE_KILLPRIV_V2 and enable SB_NOSEC",
            date: "2020-10-09",
            place: "linux-fsdevel, <20201009181512.65496-1-vgoyal@redhat.com>",
        },
    ],
    setting: "virtio-fs in a guest, virtiofsd with cache=auto and extended attributes; fio, libaio, 4 KiB at random, \
              depth 64, a file of 4 GiB, direct=1, though the writes took the kernel's cached path, as the message \
              says; figures are the messages' round numbers, the first of a patch without KILLPRIV_V2 (the flag alone), the \
              second of the series that was merged.",
    differences: &[
        "FUSE on the host, over /dev/fuse, instead of virtio-fs in a guest: a request costs far less.",
        "fio is told to write buffered. With libaio, which then does one write after the other.",
        "The server is Thrufs' library with KILLPRIV_V2 (`v2`) and without (`no-v2`), data going by the server.",
    ],
    columns: &[place("before", "no-v2"), place("after", "v2")],
    lines: &[
        told(
            "random write, 4 KiB, depth 64 (first message)",
            "aio64-buffered-random-write-4k-xattr",
            1,
            MbPerSecond,
            &[40.0, 300.0],
        ),
        told(
            "random write, 4 KiB (second message)",
            "aio64-buffered-random-write-4k-xattr",
            1,
            MbPerSecond,
            &[50.0, 250.0],
        ),
    ],
};
