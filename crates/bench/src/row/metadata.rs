//! Rows about names and attributes, by loops of our own; and one that writes a new file, which has no place among
//! [`data`](super::data), where a file is there and stays.

use super::{Loop, LoopDirectory, REPEATS, Row};
use crate::results::Group;
use crate::workload::{self, BLOCK, lists};

/// Looks at one file over and over.
pub const OF_ONE_FILE: Loop = Loop {
    directory: LoopDirectory::Kept("tree-one"),
    make: workload::make_one_file,
    inodes: 0,
    ..Loop::NEW
};
/// Looks at many files of 4 KiB in one directory.
pub const OF_SMALL_FILES: Loop = Loop {
    directory: LoopDirectory::Kept("tree-small"),
    make: workload::make_small_files,
    ..Loop::NEW
};
/// Walks through a tree.
pub const OF_TREE: Loop = Loop {
    directory: LoopDirectory::Kept("tree-walk"),
    make: lists::make_tree,
    ..Loop::NEW
};
/// Looks at files beneath four directories of their own.
pub const OF_CHAINS: Loop = Loop {
    operations: 1500,
    inodes: 5,
    directory: LoopDirectory::Kept("tree-chains"),
    make: workload::make_chains,
    ..Loop::NEW
};

pub(super) static ROWS: [Row; 14] = [
    Row::warm(
        "stat-warm",
        Loop {
            title: "stat, cached",
            about: "One operation is lstat(2) of one of 8,000 files in a directory. All were asked for before.",
            warm: Some(workload::stat_each),
            repeats: REPEATS,
            run: workload::stat_each,
            ..OF_SMALL_FILES
        },
    ),
    Row::cold(
        "stat-cold",
        Loop {
            title: "stat, nothing cached",
            about: "One operation is lstat(2) of a file that was not looked up yet, in a directory of 8,000.",
            run: workload::stat_each,
            ..OF_SMALL_FILES
        },
    ),
    Row::looped(
        "stat-missing",
        Loop {
            title: "stat of missing names",
            about: "One operation is lstat(2) of a name that is not there and was not looked up yet.",
            inodes: 0,
            run: workload::stat_missing,
            ..Loop::NEW
        },
    ),
    Row {
        more_jobs: true,
        ..Row::cold(
            "lookup-cold",
            Loop {
                title: "stat of a deep path, nothing cached",
                about: "One operation is lstat(2) of a file beneath four directories of its own, none of which was looked up \
                yet: five lookups.",
                run: workload::stat_each_chain,
                ..OF_CHAINS
            },
        )
    },
    Row::cold(
        "readdir-cold",
        Loop {
            title: "list a directory, nothing cached",
            about: "One operation is a name of a directory of 8,000, as ls(1) lists them.",
            run: lists::list,
            ..OF_SMALL_FILES
        },
    ),
    Row::cold(
        "find-stat-cold",
        Loop {
            title: "walk a tree with attributes, nothing cached",
            about: "One operation is a name in a tree of 8,000 in some 200 directories and lstat(2) of it, as find -size \
                does.",
            run: lists::find_stat,
            ..OF_TREE
        },
    ),
    Row::warm(
        "find-stat-warm",
        Loop {
            title: "walk a tree with attributes, cached",
            about: "One operation is a name in a tree of 8,000 in some 200 directories and lstat(2) of it. All were \
                looked at before.",
            warm: Some(lists::find_stat),
            repeats: REPEATS,
            run: lists::find_stat,
            ..OF_TREE
        },
    ),
    Row {
        more_jobs: true,
        ..Row::looped(
            "open-close",
            Loop {
                title: "open and close",
                about: "One operation is open(2) of one file for reading and close(2), over and over, as open1 of \
                will-it-scale does.",
                operations: 100_000,
                run: workload::open_close,
                ..OF_ONE_FILE
            },
        )
    },
    Row::cold(
        "small-file-read-cold",
        Loop {
            title: "read small files, nothing cached",
            about: "One operation is open(2), read(2) and close(2) of a file of 4 KiB that was not looked up yet, in a \
                directory of 8,000.",
            run: workload::read_each,
            ..OF_SMALL_FILES
        },
    ),
    Row::looped(
        "create-write-4k",
        Loop {
            title: "create and write 4 KiB",
            about: "One operation is open(2) of a new name, write(2) of 4 KiB and close(2).",
            run: workload::create_write_4k,
            ..Loop::NEW
        },
    ),
    Row::looped(
        "rename",
        Loop {
            title: "rename",
            about: "One operation is rename(2) of a file that was looked at before, to a new name in its directory.",
            make: workload::make_empty_files,
            warm: Some(workload::stat_each),
            run: workload::rename,
            ..Loop::NEW
        },
    ),
    Row::looped(
        "unlink",
        Loop {
            title: "unlink",
            about: "One operation is unlink(2) of an empty file that was looked at before.",
            make: workload::make_empty_files,
            warm: Some(workload::stat_each),
            run: workload::unlink,
            ..Loop::NEW
        },
    ),
    Row::looped(
        "mkdir",
        Loop {
            title: "mkdir",
            about: "One operation is mkdir(2) of a new name.",
            run: workload::mkdir,
            ..Loop::NEW
        },
    ),
    Row {
        bytes: BLOCK as u64,
        ..Row::looped(
            "append-4k",
            Loop {
                title: "write a new file, 4 KiB",
                about: "One operation is write(2) of 4 KiB at the end of a file that was made for it.",
                group: Group::Data,
                operations: 65_536,
                inodes: 0,
                run: workload::append_4k,
                ..Loop::NEW
            },
        )
    },
];
