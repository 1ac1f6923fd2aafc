//! Names and attributes that are asked for.

use super::{CHAINS, LOOP, OF_LINKS, OF_ONE_FILE, OF_SMALL_FILES, cold, row, warm};
use crate::row::{Loop, Row};
use crate::workload::stats;

pub(super) static ROWS: [Row; 9] = [
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
