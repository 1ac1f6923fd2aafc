//! The optimised programs that real programs and measurements use.

use crate::failure::Failure;
use crate::project;
use crate::step::Step;
use std::path::PathBuf;

/// The release build of the command, with the benchmark and the test client beside it; `THRUFS` overrides
/// it.
pub(crate) fn build() -> Result<PathBuf, Failure> {
    if let Some(elsewhere) = std::env::var_os("THRUFS") {
        return Ok(PathBuf::from(elsewhere));
    }
    let build = ["build", "--release", "--locked"];
    let programs = ["thrufs", "thrufs-bench", "thrufs-client"];
    let programs = programs.iter().flat_map(|name| ["--bin", name]);
    Step::cargo().args(build).args(programs).run()?;
    Ok(project::target().join("release/thrufs"))
}
