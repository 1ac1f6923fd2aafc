//! Files that are opened.

use super::{OF_ONE_FILE, OF_SMALL_FILES, cold, row, warm};
use crate::row::{Loop, Row};
use crate::workload::opens;

pub(super) static ROWS: [Row; 4] = [
    row(
        "open-close",
        Loop {
            title: "open and close",
            about: "One operation is open(2) of one file for reading and close(2), over and over, as open1 of \
                will-it-scale does.",
            operations: 100_000,
            run: opens::open_close,
            ..OF_ONE_FILE
        },
    ),
    row(
        "open-close-write",
        Loop {
            title: "open for writing and close",
            about: "One operation is open(2) of one file with O_RDWR | O_CREAT, and close(2), over and over.",
            operations: 100_000,
            run: opens::open_close_write,
            ..OF_ONE_FILE
        },
    ),
    cold(
        "small-file-read-cold",
        Loop {
            title: "read small files, nothing cached",
            about: "One operation is open(2), read(2) and close(2) of a file of 4 KiB that nobody has asked for yet, in a \
                directory of 8,000.",
            run: opens::read_each,
            ..OF_SMALL_FILES
        },
    ),
    warm(
        "small-file-read-warm",
        Loop {
            title: "read small files, cached",
            about: "One operation is open(2), read(2) and close(2) of one of 8,000 files of 4 KiB. All were read before.",
            warm: Some(opens::warm_contents),
            run: opens::read_each_again,
            ..OF_SMALL_FILES
        },
    ),
];
