//! The switch of FUSE over io_uring: a parameter of the kernel, for mounts made from then on by
//! servers that ask for it.

use crate::Outcome;
use rustix::io::{FdFlags, fcntl_setfd};
use std::os::fd::IntoRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Switches it on, if it is off, and has it put back when this process has ended, and whatever it
/// will have started or become, in whichever way: a shell outside waits for that.
pub(crate) fn switch_on() -> Outcome<()> {
    let value = std::fs::read_to_string(PARAMETER).map_err(|error| {
        format!(
            "{PARAMETER}: {error}; a comparison of transports needs Linux 6.14 with \
             CONFIG_FUSE_IO_URING"
        )
    })?;
    let before = value.trim();
    if before == "Y" {
        return Ok(());
    }
    let (reader, writer) = std::io::pipe().map_err(|error| error.to_string())?;
    let script = format!(
        "read -r _; echo {before} >{PARAMETER} && echo \"=== {PARAMETER} is {before} again\""
    );
    // In a group of its own: Ctrl-C is for the others. It holds the other end of the pipe alone.
    Command::new("sh")
        .args(["-c", &script])
        .process_group(0)
        .stdin(Stdio::from(reader))
        .spawn()
        .map_err(|error| format!("cannot start sh: {error}"))?;
    // Whoever is started from now on has this end, and the shell's `read` ends with the last.
    fcntl_setfd(&writer, FdFlags::empty()).map_err(|error| error.to_string())?;
    let _ = writer.into_raw_fd();
    std::fs::write(PARAMETER, "Y").map_err(|error| format!("{PARAMETER}: {error}"))?;
    println!(
        "=== {PARAMETER} was {before} and is Y now, for the whole machine; at the end it will be \
         put back"
    );
    Ok(())
}
