//! How steps of a run fail, and how this program starts itself.

use std::process::Command;

/// Whatever stops a run, as a text for people.
pub(crate) type Outcome<T> = Result<T, String>;

/// The first argument of processes that a run starts; the second is their role.
pub(crate) const ROLE: &str = "--bench";

/// This program again, in another role.
pub(crate) fn again(role: &str, argument: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args([ROLE, role, argument]);
    command
}
