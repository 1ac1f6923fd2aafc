//! The project's own comparisons: what they measure is built optimised, and the scripts of `bench/` measure it.

use crate::failure::Failure;
use crate::project;
use crate::release;
use crate::ring;
use crate::step::Step;
use crate::tools::{self, Tier};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    tools::need_root()?;
    let server = release::build()?;
    let (first, rest) = match arguments {
        [first, rest @ ..] => (first.as_str(), rest),
        [] => ("", arguments),
    };
    match first {
        "--shares" | "--window" => scripted("shares.py", &server, arguments),
        "--memory" => scripted("memory.sh", &server, rest),
        "--runs" => scripted("runs.sh", &server, rest),
        "--cost" => ring::turn_on().and_then(|()| scripted("cost.py", &server, rest)),
        "--work" => ring::turn_on().and_then(|()| scripted("work.py", &server, rest)),
        _ => ring::turn_on().and_then(|()| become_script(&server, arguments)),
    }
}

/// Becomes `bench/run.py`: Ctrl-C is for that alone, which keeps what it has measured.
fn become_script(server: &Path, arguments: &[String]) -> Result<(), Failure> {
    let script = project::root().join("bench/run.py");
    let error = Command::new(&script)
        .args(arguments)
        .env("THRUFS", server)
        .env("PEERS", project::peers())
        .env("PROJECT", project::root())
        .exec();
    Err(Failure::of(&script)(error))
}

/// Runs a script of `bench/`: shares for virtual machines beside virtiofsd or through a window, memory, programs in
/// sandboxes, what operations on names cost, or real work.
fn scripted(script: &str, server: &Path, arguments: &[String]) -> Result<(), Failure> {
    tools::set_up(Tier::Full)?;
    // One is of Python.
    Step::confined()
        .args(["-c", "exec \"$0\" \"$@\""])
        .args([Path::new("bench").join(script)])
        .args(arguments)
        .env("THRUFS", server)
        .env("VIRTIOFSD", tools::program("virtiofsd")?)
        .env("PROJECT", project::root())
        .run()
}
