//! Directories that are listed, and trees that are walked through.

use super::{OF_SMALL_FILES, OF_TREE, cold, warm};
use crate::row::{Loop, Row};
use crate::workload::lists;

pub(super) static ROWS: [Row; 6] = [
    cold(
        "readdir-cold",
        Loop {
            title: "list a directory, nothing cached",
            about: "One operation is a name of a directory of 8,000, as ls(1) lists them.",
            run: lists::list,
            ..OF_SMALL_FILES
        },
    ),
    cold(
        "readdir-stat-cold",
        Loop {
            title: "list a directory with attributes, nothing cached",
            about: "One operation is a name of a directory of 8,000 and lstat(2) of it, as ls -l does.",
            run: lists::list_stat,
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
