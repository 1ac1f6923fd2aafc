//! The benchmark: a program of its own in `bench/`, so that it is always built optimised.

use crate::project;
use crate::step::{Failure, Step};
use crate::tools;
use std::path::PathBuf;

/// Builds the command and the benchmark, and runs the benchmark with `arguments`.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if !tools::is_root()? {
        return Err(Failure::new(
            "the benchmark needs root: it mounts and drops caches",
        ));
    }
    Step::cargo()
        .args(["build", "--release", "--locked", "--bin", "thrufs"])
        .run()?;
    let built = project::target().join("bench");
    Step::cargo()
        .args([
            "build",
            "--release",
            "--manifest-path",
            "bench/Cargo.toml",
            "--target-dir",
        ])
        .args([&built])
        .run()?;
    // Whoever has built them elsewhere says so.
    let peers = std::env::var_os("PEERS").map(PathBuf::from);
    let peers = peers.unwrap_or_else(|| project::target().join("peers"));
    Step::new(built.join("release/thrufs-bench"))
        .args(arguments)
        .env("THRUFS", project::target().join("release/thrufs"))
        .env("PEERS", peers)
        .env("PROJECT", project::root())
        .run()
}
