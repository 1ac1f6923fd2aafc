//! Rows about names and attributes, by loops of our own; and those that write new files, which have no place among
//! [`data`](super::data), where a file is there and stays.

use super::{Ground, Loop, Row, Work};
use crate::results::Group;
use crate::workload::{self, BLOCK, appends, entries, lists, opens, stats};

/// Of native's rate, for what needs no request once it is cached above.
const GOAL_CACHED: f64 = 0.90;

/// Names that are looked at in a row. No more, because some servers keep a descriptor for each.
const NAMES: usize = 8000;
/// Small files of 4 KiB in one directory.
const SMALL_FILES: Ground = Ground::Kept("tree-small");
/// What `find` walks through.
const TREE: Ground = Ground::Kept("tree-walk");
const LINKS: Ground = Ground::Kept("tree-links");
const CHAINS: Ground = Ground::Kept("tree-chains");
/// A file for opening and asking.
const ONE_FILE: Ground = Ground::Kept("tree-one");

const LOOP: Loop = Loop {
    title: "",
    about: "",
    group: Group::Metadata,
    operations: NAMES,
    inodes: 1,
    ground: Ground::New,
    make: workload::nothing,
    warm: None,
    run: |_, _| Ok(()),
    floor_cannot: None,
};

/// Looks at one file over and over.
const OF_ONE_FILE: Loop = Loop {
    ground: ONE_FILE,
    make: workload::one_file,
    inodes: 0,
    ..LOOP
};
/// Looks at many files.
const OF_SMALL_FILES: Loop = Loop {
    ground: SMALL_FILES,
    make: workload::small_files,
    ..LOOP
};
/// Walks through a tree.
const OF_TREE: Loop = Loop {
    ground: TREE,
    make: lists::make_tree,
    floor_cannot: Some("its directories are empty"),
    ..LOOP
};
const OF_LINKS: Loop = Loop {
    ground: LINKS,
    make: stats::make_links,
    floor_cannot: Some("it has no links"),
    ..LOOP
};

const fn warm(name: &'static str, work: Loop) -> Row {
    Row {
        goal: Some(GOAL_CACHED),
        ..row(name, work)
    }
}

const fn cold(name: &'static str, work: Loop) -> Row {
    Row {
        cold: true,
        ..row(name, work)
    }
}

const fn row(name: &'static str, work: Loop) -> Row {
    Row {
        name,
        bytes: 0,
        cold: false,
        goal: None,
        work: Work::Loop(work),
    }
}

const fn append(name: &'static str, bytes: usize, work: Loop) -> Row {
    Row {
        bytes: bytes as u64,
        ..row(name, work)
    }
}

pub(super) static ROWS: [&[Row]; 4] = [&ATTRIBUTES, &LISTS, &OPENS, &ENTRIES];

static ATTRIBUTES: [Row; 10] = [
    warm(
        "stat-warm",
        Loop {
            title: "stat, cached",
            about: "One operation is lstat(2) of one of 8,000 files in a directory. All were asked for before.",
            warm: Some(stats::warm_files),
            run: stats::each_again,
            ..OF_SMALL_FILES
        },
    ),
    warm(
        "stat-one-warm",
        Loop {
            title: "stat of one file, cached",
            about: "One operation is lstat(2) of one file, over and over.",
            operations: 200_000,
            run: stats::one,
            ..OF_ONE_FILE
        },
    ),
    cold(
        "stat-cold",
        Loop {
            title: "stat, nothing cached",
            about: "One operation is lstat(2) of a file that nobody has asked for yet, in a directory of 8,000.",
            run: stats::each,
            ..OF_SMALL_FILES
        },
    ),
    cold(
        "stat-birth-cold",
        Loop {
            title: "stat with the time of birth, nothing cached",
            about: "One operation is statx(2), with the time of birth, of a file that nobody has asked for yet, in a \
                directory of 8,000. A server that does not know it is asked once.",
            run: stats::each_birth,
            ..OF_SMALL_FILES
        },
    ),
    row(
        "stat-missing",
        Loop {
            title: "stat of missing names",
            about: "One operation is lstat(2) of a name that is not there and that nobody has asked for yet.",
            inodes: 0,
            run: stats::missing,
            ..LOOP
        },
    ),
    warm(
        "stat-missing-warm",
        Loop {
            title: "stat of missing names, cached",
            about: "One operation is lstat(2) of one of 8,000 names that are not there. All were asked for before.",
            inodes: 0,
            warm: Some(stats::warm_missing),
            run: stats::missing_again,
            ..LOOP
        },
    ),
    cold(
        "lookup-cold",
        Loop {
            title: "stat of a deep path, nothing cached",
            about: "One operation is lstat(2) of a file beneath four directories of its own, of which nobody has asked \
                for any: five lookups.",
            operations: 1500,
            inodes: 5,
            ground: CHAINS,
            make: stats::make_chains,
            run: stats::each_chain,
            ..LOOP
        },
    ),
    warm(
        "lookup-warm",
        Loop {
            title: "stat of a deep path, cached",
            about: "One operation is lstat(2) of a file beneath four directories of its own. All were asked for before.",
            operations: 1500,
            inodes: 5,
            ground: CHAINS,
            make: stats::make_chains,
            warm: Some(stats::warm_chains),
            run: stats::each_chain_again,
            ..LOOP
        },
    ),
    warm(
        "readlink-warm",
        Loop {
            title: "readlink, cached",
            about: "One operation is readlink(2) of one of 8,000 symbolic links. All were read before.",
            warm: Some(stats::warm_links),
            run: stats::each_link_again,
            ..OF_LINKS
        },
    ),
    cold(
        "readlink-cold",
        Loop {
            title: "readlink, nothing cached",
            about: "One operation is readlink(2) of a symbolic link that nobody has read yet, in a directory of 8,000.",
            run: stats::each_link,
            ..OF_LINKS
        },
    ),
];

static LISTS: [Row; 8] = [
    cold(
        "readdir-cold",
        Loop {
            title: "list a directory, nothing cached",
            about: "One operation is a name of a directory of 8,000, as ls(1) lists them.",
            run: lists::list,
            floor_cannot: OF_TREE.floor_cannot,
            ..OF_SMALL_FILES
        },
    ),
    warm(
        "readdir-warm",
        Loop {
            title: "list a directory, cached",
            about: "One operation is a name of a directory of 8,000 that was listed before.",
            warm: Some(lists::warm_list),
            run: lists::list_again,
            floor_cannot: OF_TREE.floor_cannot,
            ..OF_SMALL_FILES
        },
    ),
    cold(
        "readdir-stat-cold",
        Loop {
            title: "list a directory with attributes, nothing cached",
            about: "One operation is a name of a directory of 8,000 and lstat(2) of it, as ls -l does.",
            run: lists::list_stat,
            floor_cannot: OF_TREE.floor_cannot,
            ..OF_SMALL_FILES
        },
    ),
    warm(
        "readdir-stat-warm",
        Loop {
            title: "list a directory with attributes, cached",
            about: "One operation is a name of a directory of 8,000 and lstat(2) of it, as ls -l does. All were looked at \
                before.",
            warm: Some(lists::warm_list),
            run: lists::list_stat_again,
            floor_cannot: OF_TREE.floor_cannot,
            ..OF_SMALL_FILES
        },
    ),
    cold(
        "find-cold",
        Loop {
            title: "walk a tree, nothing cached",
            about: "One operation is a name in a tree of 8,000 in some 200 directories, as find(1) comes by it.",
            run: lists::find,
            ..OF_TREE
        },
    ),
    warm(
        "find-warm",
        Loop {
            title: "walk a tree, cached",
            about: "One operation is a name in a tree of 8,000 in some 200 directories that was walked through before.",
            warm: Some(lists::warm_list),
            run: lists::find_again,
            ..OF_TREE
        },
    ),
    cold(
        "find-stat-cold",
        Loop {
            title: "walk a tree with attributes, nothing cached",
            about: "One operation is a name in a tree of 8,000 in some 200 directories and lstat(2) of it, as find -size \
                does.",
            run: lists::find_stat,
            ..OF_TREE
        },
    ),
    warm(
        "find-stat-warm",
        Loop {
            title: "walk a tree with attributes, cached",
            about: "One operation is a name in a tree of 8,000 in some 200 directories and lstat(2) of it. All were \
                looked at before.",
            warm: Some(lists::warm_list),
            run: lists::find_stat_again,
            ..OF_TREE
        },
    ),
];

static OPENS: [Row; 4] = [
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

static ENTRIES: [Row; 8] = [
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
