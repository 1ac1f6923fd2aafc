//! Names that are made, renamed and removed; and new files that are written.

use super::{LOOP, append, row};
use crate::results::Group;
use crate::row::{Loop, Row};
use crate::workload::{self, BLOCK, appends, entries, stats};

pub(super) static ROWS: [Row; 8] = [
    row(
        "create",
        Loop {
            title: "create",
            about: "One operation is open(2) with O_CREAT | O_EXCL of a new name, and close(2).",
            run: entries::create,
            ..LOOP
        },
    ),
    row(
        "create-write-4k",
        Loop {
            title: "create and write 4 KiB",
            about: "One operation is open(2) of a new name, write(2) of 4 KiB and close(2).",
            run: entries::create_write_4k,
            ..LOOP
        },
    ),
    row(
        "unlink",
        Loop {
            title: "unlink",
            about: "One operation is unlink(2) of an empty file that was looked at before.",
            make: workload::empty_files,
            warm: Some(stats::warm_files),
            run: entries::unlink,
            ..LOOP
        },
    ),
    row(
        "rename",
        Loop {
            title: "rename",
            about: "One operation is rename(2) of a file that was looked at before, to a new name in its directory.",
            make: workload::empty_files,
            warm: Some(stats::warm_files),
            run: entries::rename,
            ..LOOP
        },
    ),
    row(
        "mkdir",
        Loop {
            title: "mkdir",
            about: "One operation is mkdir(2) of a new name.",
            run: entries::mkdir,
            ..LOOP
        },
    ),
    row(
        "rmdir",
        Loop {
            title: "rmdir",
            about: "One operation is rmdir(2) of an empty directory that was looked at before.",
            make: entries::make_directories,
            warm: Some(entries::warm_directories),
            run: entries::rmdir,
            ..LOOP
        },
    ),
    append(
        "append-4k",
        BLOCK,
        Loop {
            title: "write a new file, 4 KiB",
            about: "One operation is write(2) of 4 KiB at the end of a file that was made for it.",
            group: Group::Data,
            operations: 65_536,
            inodes: 0,
            run: appends::append_4k,
            ..LOOP
        },
    ),
    append(
        "append-1m",
        1 << 20,
        Loop {
            title: "write a new file, 1 MiB",
            about: "One operation is write(2) of 1 MiB at the end of a file that was made for it.",
            group: Group::Data,
            operations: 256,
            inodes: 0,
            run: appends::append_1m,
            ..LOOP
        },
    ),
];
