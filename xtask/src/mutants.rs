//! Mutation tests: cargo-mutants with what `.cargo/mutants.toml` says. A run goes on where the last one
//! ended.

use crate::project;
use crate::step::{Failure, Step};
use crate::tools;

/// Runs cargo-mutants with more arguments, such as `--shard 1/4` or `--in-diff FILE`. Fails if a mutant
/// survives.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let output = project::target().join("mutants");
    std::fs::create_dir_all(&output).map_err(Failure::of(&output))?;
    // A test that is killed leaves its mounts behind: in a namespace, for nobody to see.
    Step::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .args([tools::program("cargo-mutants")?])
        .args(["mutants", "--iterate", "--no-shuffle", "--caught"])
        .args(["--colors=never", "--output"])
        .args([output])
        .args(arguments)
        .env("CARGO_PROFILE_DEV_DEBUG", "none")
        .env("RUST_BACKTRACE", "0")
        .run()
}
