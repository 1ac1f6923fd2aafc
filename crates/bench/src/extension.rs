//! What another program adds to this one: suites, rows, roles.

use crate::Outcome;
use crate::row::Row;
use crate::setup::TargetSetup;
use std::sync::OnceLock;

/// A set of rows and targets that belong together.
pub struct Suite {
    /// The word by which it is asked for.
    pub name: &'static str,
    /// For people.
    pub about: &'static str,
    /// Names of rows and groups.
    pub rows: &'static str,
    /// How many processes measure at once.
    pub jobs: &'static [u32],
    /// File systems that are made for it; none for one that asks about a directory.
    pub lowers: &'static [&'static str],
    /// Rounds; as many as there is time for, where there is none.
    pub rounds: Option<u32>,
    /// Work of a measurement, in hundredths of the usual.
    pub percent: u32,
    /// The time that it may take.
    pub seconds: Option<u32>,
    /// The targets besides native; none where the command line says it.
    pub setups: Option<fn() -> Vec<TargetSetup>>,
    /// Whether a row, by its name, is measured at one of them, by so many processes; where there is none, every
    /// row is at every target.
    pub asks: Option<fn(&str, &str, u32) -> bool>,
}

/// What a program has besides what is here. Every process of a run is that program again.
pub struct BenchExtension {
    /// More suites.
    pub suites: &'static [Suite],
    /// Makes more rows.
    pub rows: fn() -> Vec<Row>,
    /// Names of several rows.
    pub sets: fn() -> Vec<(&'static str, Vec<&'static str>)>,
    /// Gets what the targets need, before the run.
    pub fetch: fn(&[TargetSetup]),
    /// Carries out a role that is none of [`ROLE`](crate::ROLE)'s here; none if it is not its either.
    pub role: fn(&str, &[String]) -> Option<Outcome<()>>,
}

impl BenchExtension {
    /// Nothing besides.
    pub const NONE: BenchExtension = BenchExtension {
        suites: &[],
        rows: Vec::new,
        sets: Vec::new,
        fetch: |_| (),
        role: |_, _| None,
    };
}

static EXTENSION: OnceLock<&BenchExtension> = OnceLock::new();

/// Has this process know what is there besides, from the first call on.
pub fn extend(extension: &'static BenchExtension) {
    EXTENSION.get_or_init(|| extension);
}

pub(crate) fn extension() -> &'static BenchExtension {
    EXTENSION.get_or_init(|| &BenchExtension::NONE)
}
