//! The fuzz targets, on the stable compiler.
//!
//! libFuzzer needs the instrumentation of LLVM's coverage pass and no more; the pass can be asked
//! for with stable flags, so neither a nightly compiler nor `cargo fuzz` has to be installed. (What
//! stable cannot give is the address sanitizer: the decoders are safe code.)

use crate::failure::Failure;
use crate::project;
use crate::step::Step;
use std::fs;
use std::path::PathBuf;

const INSTRUMENTATION: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cdebug-assertions -Coverflow-checks";

pub(crate) fn targets() -> Result<Vec<String>, Failure> {
    project::names("fuzz/fuzz_targets", ".rs")
}

pub(crate) fn build() -> Result<(), Failure> {
    // With --target, build scripts and macros are not instrumented.
    Step::cargo()
        .args(["build", "--release", "--bins"])
        .args(["--manifest-path", "fuzz/Cargo.toml"])
        .args(["--target", &host()?, "--target-dir"])
        .args([built()])
        .env("RUSTFLAGS", INSTRUMENTATION)
        .run()
}

fn built() -> PathBuf {
    project::target().join("fuzz")
}

/// Runs a target for so many seconds. New inputs are kept beside the tools, which clones share, for the
/// next run.
pub(crate) fn one(target: &str, seconds: &str) -> Result<(), Failure> {
    let program = built().join(host()?).join("release").join(target);
    let corpus = project::tools().join("corpus").join(target);
    let found = project::root().join("fuzz/artifacts").join(target);
    for directory in [&corpus, &found] {
        fs::create_dir_all(directory).map_err(Failure::of(directory))?;
    }
    let seeds = project::root().join("fuzz/seeds").join(target);
    Step::new(&program)
        .args(["-rss_limit_mb=2048", "-timeout=10", "-max_len=4096"])
        .args(["-verbosity=0", "-print_final_stats=1", "-reduce_inputs=1"])
        .args([format!("-max_total_time={seconds}")])
        .args([format!("-artifact_prefix={}/", found.display())])
        .args([&corpus])
        .args(seeds.exists().then_some(seeds))
        .run()
}

fn host() -> Result<String, Failure> {
    Step::new("rustc").args(["--print", "host-tuple"]).text()
}
