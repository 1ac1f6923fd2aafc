//! Mutation tests: cargo-mutants with `.cargo/mutants.toml`. A run continues where the last one ended.

use crate::failure::Failure;
use crate::project;
use crate::step::Step;
use crate::tools;

const PACKAGES: &[&str] = &[
    "thrufs",
    "thrufs-hostdir",
    "thrufs-sys",
    "thrufs-virtio",
    "thrufs-tests",
];

/// Tests in one process, without a mount of ours.
const PROGRAMS: &[&str] = &[
    "--lib",
    "--test=served",
    "--test=sharing",
    "--test=succession",
    "--test=copies",
    "--test=device",
];

/// Those of them that are slow or random.
const SKIPPED: &[&str] = &[
    "migration::",
    "arbitrary_descriptors_and_requests_are_survived",
    "arbitrary_vhost_user_messages_are_survived",
    "any_byte_of_a_state",
    "scribbled_on",
    "whoever_goes_on",
];

/// Time limit of a mutant's tests, in seconds: ten times the usual.
const TIMEOUT: &str = "120";

/// Runs cargo-mutants with more arguments, such as `--shard 1/4` or `--in-diff FILE`. Fails if a mutant
/// survives.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let output = project::target().join("mutants");
    std::fs::create_dir_all(&output).map_err(Failure::of(&output))?;
    let runs_none = |argument: &String| argument.starts_with("--list") || argument == "--help";
    if !arguments.iter().any(runs_none) {
        pass_unchanged()?;
    }
    in_namespace(tools::program("cargo-mutants")?)
        .args(["mutants", "--iterate", "--no-shuffle", "--caught"])
        .args(["--colors=never", "--baseline=skip", "--timeout", TIMEOUT])
        .args(["--output".as_ref(), output.as_path()])
        .args(PACKAGES.iter().map(|it| format!("--test-package={it}")))
        .args(PROGRAMS.iter().map(|it| format!("--cargo-arg={it}")))
        .args(["--cargo-test-arg=--"])
        .args(skipped().map(|argument| format!("--cargo-test-arg={argument}")))
        .args(arguments)
        .run()
}

/// cargo-mutants itself would only try tests of the changed packages.
fn pass_unchanged() -> Result<(), Failure> {
    in_namespace("cargo")
        .args(["test"])
        .args(PACKAGES.iter().flat_map(|package| ["--package", package]))
        .args(PROGRAMS)
        .args(["--"])
        .args(skipped())
        .run()
}

fn skipped() -> impl Iterator<Item = &'static str> {
    SKIPPED.iter().flat_map(|test| ["--skip", test])
}

/// A killed test leaves its mounts behind, which end with this namespace.
fn in_namespace(program: impl AsRef<std::ffi::OsStr>) -> Step {
    Step::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .args([program])
        .env("CARGO_PROFILE_DEV_DEBUG", "none")
        .env("RUST_BACKTRACE", "0")
}
