//! Building projects on a mount.

use super::{Row, Work};
use crate::build::Project;

const fn row(name: &'static str, project: Project) -> Row {
    Row {
        name,
        operations: 1,
        bytes: 0,
        cold: false,
        goal: None,
        work: Work::Build(project),
    }
}

pub(super) const ROWS: &[Row] = &[
    row("build-c", Project::C),
    row("build-cargo", Project::Cargo),
];

pub(super) const GROUP: &[&str] = &["build-c", "build-cargo"];
