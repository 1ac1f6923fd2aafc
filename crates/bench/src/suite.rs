//! The suites: which rows, by how many processes, who takes part, and for how long.

mod goals;

use crate::Outcome;
use crate::entrant::{Data, Entrant, Mode, Transport};

/// A set of rows and contestants that belong together.
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    /// For people.
    pub(crate) about: &'static str,
    /// Names of rows and groups.
    pub(crate) rows: &'static str,
    pub(crate) jobs: &'static [u32],
    /// File systems that are made for it; none for one that asks about a directory.
    pub(crate) lowers: &'static [&'static str],
    /// Rounds; as many as there is time for, where there is none.
    pub(crate) rounds: Option<u32>,
    /// Work of a measurement, in hundredths of the usual.
    pub(crate) percent: u32,
    /// The time that it may take.
    pub(crate) seconds: Option<u32>,
    /// Whether FUSE over io_uring is turned on in the kernel for the run.
    pub(crate) turns_ring_on: bool,
    /// Who takes part besides native; none where the command line says it.
    pub(crate) entrants: Option<fn() -> Vec<Entrant>>,
    /// Whether a row, by its name, is measured at one of them, by so many processes; where there is none, every
    /// row is at everybody.
    pub(crate) asks: Option<fn(&str, &str, u32) -> bool>,
}

const BOTH: &[&str] = &["tmpfs", "ext4"];

/// What most of the comparisons have in common.
const COMPARISON: Suite = Suite {
    name: "",
    about: "",
    rows: "",
    jobs: &[1],
    lowers: BOTH,
    rounds: Some(5),
    percent: 100,
    seconds: None,
    turns_ring_on: true,
    entrants: None,
    asks: None,
};

const SUITES: &[Suite] = &[
    Suite {
        name: "quick",
        about: "the headline rows in two to three minutes",
        rows: "quick",
        jobs: &[1, 2],
        lowers: &[],
        rounds: None,
        percent: 50,
        seconds: Some(120),
        turns_ring_on: false,
        ..COMPARISON
    },
    Suite {
        name: "full",
        about: "every row, in about an hour",
        rows: "full",
        jobs: &[1, 2],
        lowers: &[],
        rounds: None,
        seconds: Some(3600),
        turns_ring_on: false,
        ..COMPARISON
    },
    Suite {
        name: "usual",
        about: "Thrufs and libfuse's passthrough_hp, on tmpfs and on ext4",
        rows: "usual",
        turns_ring_on: false,
        entrants: Some(usual),
        ..COMPARISON
    },
    Suite {
        name: "transports",
        about: "/dev/fuse and io_uring, of Thrufs, libfuse and the floor",
        rows: "transports",
        entrants: Some(transports),
        ..COMPARISON
    },
    Suite {
        name: "passthrough",
        about: "files that the kernel uses by itself, of Thrufs and libfuse",
        rows: "passthrough",
        jobs: &[1, 2],
        entrants: Some(passthrough),
        ..COMPARISON
    },
    Suite {
        name: "builds",
        about: "building a small C project and this one",
        rows: "builds",
        entrants: Some(builds),
        ..COMPARISON
    },
    Suite {
        name: "goals",
        about: "what the project's goals and its table of peers need, of all modes, in half an hour",
        rows: "goals",
        jobs: &[1, 2],
        lowers: &["tmpfs"],
        entrants: Some(goals::entrants),
        asks: Some(goals::asks),
        ..COMPARISON
    },
];

/// The suite of that name.
pub(crate) fn named(name: &str) -> Outcome<&'static Suite> {
    let mut all = SUITES.iter();
    all.find(|suite| suite.name == name)
        .ok_or_else(|| format!("there is no suite {name}"))
}

/// Names of all suites, and what each is, for people.
#[must_use]
pub fn suites() -> Vec<(&'static str, &'static str)> {
    let all = SUITES.iter();
    all.map(|suite| (suite.name, suite.about)).collect()
}

/// Ours over one transport, with data going by the server or past it, and everything cached that the
/// other servers are asked to cache.
fn ours(transport: Transport, data: Data) -> Entrant {
    Mode { transport, data }.entrant(Some("always"), false)
}

/// libfuse's server in the same modes.
fn libfuse(transport: Transport, data: Data) -> Entrant {
    Entrant::Libfuse(Mode::of(transport, data))
}

fn usual() -> Vec<Entrant> {
    vec![
        Entrant::ours_by_itself("cache=always"),
        libfuse(Transport::Dev, Data::Served),
        libfuse(Transport::Dev, Data::Through),
    ]
}

fn transports() -> Vec<Entrant> {
    vec![
        ours(Transport::Dev, Data::Served),
        ours(Transport::Ring, Data::Served),
        libfuse(Transport::Dev, Data::Served),
        libfuse(Transport::Ring, Data::Served),
        Entrant::Floor("floor-dev".to_owned()),
        Entrant::Floor("floor-uring".to_owned()),
    ]
}

fn passthrough() -> Vec<Entrant> {
    vec![
        ours(Transport::Dev, Data::Through),
        ours(Transport::Ring, Data::Through),
        libfuse(Transport::Dev, Data::Through),
        ours(Transport::Dev, Data::Served),
        libfuse(Transport::Dev, Data::Served),
    ]
}

fn builds() -> Vec<Entrant> {
    let by_default = |transport| {
        let data = Data::Through;
        Mode { transport, data }.entrant(None, false)
    };
    vec![
        by_default(Transport::Dev),
        by_default(Transport::Ring),
        libfuse(Transport::Dev, Data::Through),
    ]
}
