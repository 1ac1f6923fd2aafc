//! The suites: which rows, by how many processes, and which targets.

mod goals;

use crate::peers::PEERS;
use crate::rows::TRANSPORTS;
use crate::targets::{floor, libfuse, ours, ours_by_itself, peer};
use thrufs_bench::Suite;
use thrufs_bench::setup::{Data, Mode, TargetSetup, Transport};

/// What comparisons have in common.
const COMPARISON: Suite = Suite {
    name: "",
    about: "",
    rows: "",
    jobs: &[1],
    lowers: &["tmpfs", "ext4"],
    rounds: Some(5),
    percent: 100,
    seconds: None,
    setups: None,
    asks: None,
};

pub(crate) const ALL: &[Suite] = &[
    Suite {
        name: "usual",
        about: "Thrufs and libfuse's passthrough_hp, on tmpfs and on ext4",
        rows: "usual",
        setups: Some(usual),
        ..COMPARISON
    },
    Suite {
        name: "transports",
        about: "/dev/fuse and io_uring, of Thrufs, libfuse and the floor",
        rows: "transports",
        setups: Some(transports),
        asks: Some(asks_of_transports),
        ..COMPARISON
    },
    Suite {
        name: "passthrough",
        about: "files that the kernel uses by itself, of Thrufs and libfuse",
        rows: "passthrough",
        jobs: &[1, 2],
        setups: Some(passthrough),
        ..COMPARISON
    },
    Suite {
        name: "builds",
        about: "building a small C project and this one",
        rows: "builds",
        setups: Some(builds),
        ..COMPARISON
    },
    Suite {
        name: "peers",
        about: "all modes of Thrufs and all peers, each with its defaults",
        rows: "quick",
        setups: Some(peers),
        ..COMPARISON
    },
    Suite {
        name: "goals",
        about: "what the project's goals and its table of peers need, of all modes, in half an hour",
        rows: "goals",
        jobs: &[1, 2],
        lowers: &["tmpfs"],
        setups: Some(goals::setups),
        asks: Some(goals::asks),
        ..COMPARISON
    },
];

fn usual() -> Vec<TargetSetup> {
    vec![
        ours_by_itself("cache=always"),
        libfuse(Transport::Dev, Data::Served),
        libfuse(Transport::Dev, Data::Through),
    ]
}

fn transports() -> Vec<TargetSetup> {
    let both = [Transport::Dev, Transport::Ring];
    let served = |one: fn(Transport, Data) -> TargetSetup| both.map(|over| one(over, Data::Served));
    [served(ours), served(libfuse), both.map(floor)].concat()
}

/// The floor, which keeps nothing, can do no others than the suite's own rows.
fn asks_of_transports(row: &str, target: &str, _: u32) -> bool {
    TRANSPORTS.contains(&row) || !target.starts_with("floor-")
}

fn passthrough() -> Vec<TargetSetup> {
    vec![
        ours(Transport::Dev, Data::Through),
        ours(Transport::Ring, Data::Through),
        libfuse(Transport::Dev, Data::Through),
        ours(Transport::Dev, Data::Served),
        libfuse(Transport::Dev, Data::Served),
    ]
}

fn by_default(mode: Mode) -> TargetSetup {
    mode.setup(None, false)
}

fn builds() -> Vec<TargetSetup> {
    vec![
        by_default(Mode::of(Transport::Dev, Data::Through)),
        by_default(Mode::of(Transport::Ring, Data::Through)),
        libfuse(Transport::Dev, Data::Through),
    ]
}

fn peers() -> Vec<TargetSetup> {
    let peers = PEERS.iter().map(|(name, _)| peer(name));
    Mode::ALL.into_iter().map(by_default).chain(peers).collect()
}

#[cfg(test)]
mod tests {
    use super::ALL;
    use crate::LAB;
    use std::collections::BTreeSet;
    use thrufs_bench::row::listed;
    use thrufs_bench::setup::TargetSetup;

    #[test]
    fn every_suite_has_rows_and_targets_of_its_own_names() {
        thrufs_bench::extend(&LAB);
        for suite in ALL {
            assert!(!listed(suite.rows).unwrap().is_empty(), "{}", suite.name);
            let setups = suite.setups.unwrap()();
            let names: BTreeSet<&str> = setups.iter().map(TargetSetup::name).collect();
            assert_eq!(names.len(), setups.len(), "{names:?}");
        }
    }

    #[test]
    fn the_floor_is_asked_what_it_can_do() {
        let asks = ALL
            .iter()
            .find(|suite| suite.name == "transports")
            .unwrap()
            .asks
            .unwrap();
        assert!(asks("stat-cold", "floor-dev", 1) && !asks("find-cold", "floor-dev", 1));
        assert!(asks("find-cold", "dev", 1));
    }
}
