//! The suites: which rows, by how many processes, which targets, and for how long.

use crate::Outcome;
use crate::extension::{Suite, extension};

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
