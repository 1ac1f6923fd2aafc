//! Rows that run whole programs.

use super::{Row, Work};
use crate::build::Project;
use crate::git::Git;

/// Building is to take no more than 1.05 times as long as natively.
const GOAL_BUILD: f64 = 1.0 / 1.05;
/// What is cached is to be as fast as natively, nearly.
const GOAL_CACHED: f64 = 0.90;

const fn row(name: &'static str, goal: Option<f64>, work: Work) -> Row {
    Row {
        name,
        bytes: 0,
        cold: false,
        goal,
        work,
    }
}

pub(super) static ROWS: [Row; 4] = [
    row("build-small", Some(GOAL_BUILD), Work::Build(Project::Small)),
    row("build-cargo", Some(GOAL_BUILD), Work::Build(Project::Cargo)),
    row("git-status", Some(GOAL_CACHED), Work::Git(Git::Status)),
    row("git-clone", None, Work::Git(Git::Clone)),
];
