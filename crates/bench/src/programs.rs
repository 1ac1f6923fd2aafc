//! The programs that a run starts: this one again, and the server beside it.

use crate::Outcome;
use std::path::PathBuf;
use std::process::Command;

/// The first argument of processes that a run starts.
pub const ROLE: &str = "--bench";

/// This program again, in another role.
pub(crate) fn again(role: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args([ROLE, role]);
    command
}

/// The command that is measured: `thrufs`, beside this program.
///
/// # Errors
///
/// Where it is not.
pub(crate) fn thrufs() -> Outcome<PathBuf> {
    let own = std::env::current_exe();
    let own = own.map_err(|error| format!("cannot find thrufs: {error}"))?;
    let thrufs = own.with_file_name("thrufs");
    if thrufs.is_file() {
        return Ok(thrufs);
    }
    let shown = thrufs.display();
    Err(format!(
        "{shown} is not there: the benchmark measures the thrufs beside it"
    ))
}
