//! Programs that are run to their end.

use std::io;
use std::process::{Command, Stdio};

/// What it says, when it succeeds; what it has said last is part of the error.
pub(crate) fn done(command: &mut Command) -> io::Result<Vec<u8>> {
    let output = command.stdin(Stdio::null()).output();
    let program = command.get_program().to_string_lossy();
    let output = output.map_err(|error| io::Error::other(format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().rev().take(5).collect();
    let last: Vec<&str> = lines.into_iter().rev().collect();
    let status = output.status;
    Err(io::Error::other(format!(
        "{program}: {status}: {}",
        last.join("; ")
    )))
}
