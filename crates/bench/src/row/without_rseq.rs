//! Opening and closing once more, by a process without restartable sequences (`rseq(2)`): what they cost is part
//! of a published measurement ([`published`](crate::published)), which says what the process is started with.

use super::{Ground, Loop, Row, Work};
use crate::results::Group;
use crate::workload::{self, opens};

pub(super) static ROWS: [Row; 1] = [Row {
    name: "open-close-no-rseq",
    bytes: 0,
    cold: false,
    goal: None,
    work: Work::Loop(Loop {
        title: "open and close, without rseq",
        about: "One operation is open(2) of one file for reading and close(2), over and over, by a process that glibc \
                was told not to register for restartable sequences.",
        group: Group::Metadata,
        operations: 100_000,
        inodes: 0,
        ground: Ground::Kept("tree-one"),
        make: workload::one_file,
        warm: None,
        run: opens::open_close,
        floor_cannot: None,
    }),
}];
