//! The suite `goals`: its targets, and which of them are measured in which row.

use crate::rows::{REACHING, REACHING_IN_TREES};
use crate::targets::{floor, libfuse, ours, peer};
use thrufs_bench::setup::{Data, Mode, TargetSetup, Transport};

/// What ours is called where changes beneath are followed: the goals of what is kept above are for that.
const FOLLOWING: &str = "auto";

/// Rows in which those that are served by a server take part too: the peers' figures are known in them.
const DATA_OF_PEERS: &[&str] = &[
    "read-4k-cold",
    "random-read-4k-cold",
    "read-1m-cold",
    "write-4k",
    "random-write-4k",
    "write-1m",
    "mmap-random-read-4k",
    "direct-read-1m",
    "aio16-random-read-4k",
    "aio64-random-read-4k",
    "aio16-random-write-4k",
    "aio64-random-write-4k",
];

/// Names and attributes that are kept above.
const KEPT: &[&str] = &["stat-warm", "find-warm", "find-stat-warm"];
/// The same, where the peers' figures are no question.
const KEPT_OF_OURS: &[&str] = &[
    "small-file-read-warm",
    "git-status",
    "make-idle",
    "ninja-idle",
    "cargo-idle",
    "lookup-warm",
    "readlink-warm",
];
/// Rows whose requests are of interest also where changes are not followed, and the kernel need not ask again after
/// a second.
const KEPT_WITHOUT_REQUESTS: &[&str] = &["stat-warm", "lookup-warm", "readlink-warm"];

/// Rows in which files are registered to be used by the kernel itself.
const REACHING_WITH_FILES: &[&str] = &[
    "open-close",
    "small-file-read-cold",
    "create",
    "create-write-4k",
];
/// Rows that the floor cannot do: its directories are empty, and it has no links.
const NOT_OF_FLOORS: &[&str] = &["find-cold", "find-stat-cold", "readlink-cold"];
/// Those in which bindfs was measured.
const OF_BINDFS: &[&str] = &["open-close", "random-read-4k-cold", "write-4k"];

/// By several processes.
const BY_TWO: &[&str] = &["open-close"];

pub(super) fn setups() -> Vec<TargetSetup> {
    let following = |transport| Mode::of(transport, Data::Through).setup(Some(FOLLOWING), true);
    let mut all = vec![
        ours(Transport::Dev, Data::Served),
        ours(Transport::Ring, Data::Served),
        ours(Transport::Dev, Data::Through),
        ours(Transport::Ring, Data::Through),
        following(Transport::Dev),
        following(Transport::Ring),
    ];
    all.extend(Mode::ALL.map(|mode| libfuse(mode.transport, mode.data)));
    all.extend([Transport::Dev, Transport::Ring].map(floor));
    all.push(peer("bindfs"));
    all
}

/// Whether a row is measured at a target, by so many processes.
pub(super) fn asks(row: &str, target: &str, jobs: u32) -> bool {
    let is_in = |rows: &[&str]| rows.contains(&row);
    if jobs != 1 && !is_in(BY_TWO) {
        return false;
    }
    let reaches = is_in(REACHING) || is_in(REACHING_IN_TREES);
    let is_kept = is_in(KEPT) || is_in(KEPT_OF_OURS);
    match target {
        "native" => true,
        "dev" => reaches,
        "ring" => reaches || is_in(DATA_OF_PEERS),
        "dev+pt" | "ring+pt" if reaches => is_in(REACHING_WITH_FILES),
        "dev+pt" | "ring+pt" => !is_kept || is_in(KEPT_WITHOUT_REQUESTS),
        "dev+pt:auto" | "ring+pt:auto" => is_kept,
        "floor-dev" | "floor-uring" => reaches && !is_in(NOT_OF_FLOORS),
        "bindfs" => is_in(OF_BINDFS),
        libfuse if libfuse.starts_with("libfuse") => reaches || is_in(KEPT) || is_in(DATA_OF_PEERS),
        // One that the command line adds has all rows.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::{NOT_OF_FLOORS, asks, setups};
    use crate::document::goals_of_mounts;
    use thrufs_bench::row;
    use thrufs_bench::setup::TargetSetup;

    /// The targets that are measured in one of the rows, by so many processes.
    fn asked(rows: &[&str], jobs: u32) -> Vec<String> {
        thrufs_bench::extend(&crate::LAB);
        let measured = row::listed("goals").unwrap_or_else(|why| panic!("{why}"));
        let measured = measured.iter().map(|row| row.name);
        let measured: Vec<&str> = measured.filter(|name| rows.contains(name)).collect();
        let setups = setups();
        let names = setups.iter().map(TargetSetup::name);
        let is_asked = |name: &&str| measured.iter().any(|row| asks(row, name, jobs));
        names.filter(is_asked).map(str::to_owned).collect()
    }

    #[test]
    fn every_goal_that_a_mount_can_show_has_its_row_and_its_targets() {
        let goals = goals_of_mounts();
        assert!(goals.len() > 50);
        for (what, rows, jobs, targets) in goals {
            let asked = asked(rows, jobs);
            for target in targets {
                let is_floor = target.starts_with("floor");
                if is_floor && rows.iter().all(|row| NOT_OF_FLOORS.contains(row)) {
                    continue;
                }
                let is_there = asked.iter().any(|name| name == target);
                assert!(is_there, "{what}: {target} among {asked:?}");
            }
        }
    }

    #[test]
    fn a_row_is_measured_only_at_targets_for_which_it_says_something() {
        let asked_alone = |row| asked(&[row], 1);
        assert_eq!(asked_alone("read-4k"), ["dev+pt", "ring+pt"]);
        assert_eq!(asked_alone("git-status"), ["dev+pt:auto", "ring+pt:auto"]);
        assert!(asked_alone("write-4k").contains(&"bindfs".to_owned()));
        assert!(!asked_alone("find-cold").contains(&"floor-dev".to_owned()));
        assert!(asked(&["open-close"], 2).contains(&"libfuse-uring+pt".to_owned()));
        assert!(asked(&["create"], 2).is_empty());
    }
}
