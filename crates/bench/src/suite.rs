//! The suites: which rows, by how many processes, which targets, and for how long.

use crate::setup::TargetSetup;
use crate::{Outcome, extension};

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
        setups: None,
        asks: None,
    },
    Suite {
        name: "full",
        about: "every row, in about an hour",
        rows: "full",
        jobs: &[1, 2],
        lowers: &[],
        rounds: None,
        percent: 100,
        seconds: Some(3600),
        setups: None,
        asks: None,
    },
];

fn all() -> impl Iterator<Item = &'static Suite> {
    SUITES.iter().chain(extension().suites)
}

/// The suite of that name.
pub(crate) fn named(name: &str) -> Outcome<&'static Suite> {
    all()
        .find(|suite| suite.name == name)
        .ok_or_else(|| format!("there is no suite {name}"))
}

/// Names of all suites, and what each is, for people.
#[must_use]
pub fn suites() -> Vec<(&'static str, &'static str)> {
    all().map(|suite| (suite.name, suite.about)).collect()
}
