//! Mutation tests: `tests/mutants.sh`, with `.cargo/mutants.toml`.

use crate::failure::Failure;
use crate::project;
use crate::step::Step;
use crate::tools;

/// Runs cargo-mutants with more arguments, such as `--shard 1/4` or `--in-diff FILE`. Fails if a mutant survives.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    // A killed test leaves its mounts behind, which end with this namespace.
    Step::confined()
        .args(["tests/mutants.sh"])
        .args(arguments)
        .env("MUTANTS", tools::program("cargo-mutants")?)
        .env("OUTPUT", project::target().join("mutants"))
        .run()
}
