//! The fuzz targets, on the stable compiler.
//!
//! libFuzzer needs the instrumentation of LLVM's coverage pass and no more; the pass can be asked
//! for with stable flags, so neither a nightly compiler nor `cargo fuzz` has to be installed. (What
//! stable cannot give is the address sanitizer: the decoders are safe code.)

use crate::project;
use crate::step::{Failure, Step};
use std::fs;
use std::path::{Path, PathBuf};

const INSTRUMENTATION: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cdebug-assertions -Coverflow-checks";

/// Builds every target of `fuzz/fuzz_targets`.
pub(crate) fn build() -> Result<(), Failure> {
    let triple = host()?;
    // With --target, build scripts and macros are spared the instrumentation.
    Step::cargo()
        .args([
            "build",
            "--release",
            "--bins",
            "--manifest-path",
            "fuzz/Cargo.toml",
            "--target",
        ])
        .args([&triple, "--target-dir"])
        .args([built()])
        .env("RUSTFLAGS", INSTRUMENTATION)
        .run()
}

fn built() -> PathBuf {
    project::target().join("fuzz")
}

/// Runs a target for so many seconds. What was found to reach code that nothing else reached is kept
/// beside the tools, which clones share, and is where the next run begins.
pub(crate) fn one(target: &str, seconds: &str) -> Result<(), Failure> {
    let program = built().join(host()?).join("release").join(target);
    let corpora = project::tools().join("corpus");
    let corpus = corpora.join(target);
    let merged = corpora.join(format!("{target}.new"));
    let found = project::root().join("fuzz/artifacts").join(target);
    let unusable = |path: &Path, error| Failure::new(format!("{}: {error}", path.display()));
    // One that an interrupted run left.
    let _ = fs::remove_dir_all(&merged);
    for directory in [&corpus, &merged, &found] {
        fs::create_dir_all(directory).map_err(|error| unusable(directory, error))?;
    }
    let seeds = project::root().join("fuzz/seeds").join(target);
    let seeds = seeds.exists().then_some(seeds);
    let fuzzer = || {
        Step::new(&program).args([
            "-rss_limit_mb=2048".to_owned(),
            "-timeout=10".to_owned(),
            "-max_len=4096".to_owned(),
            "-verbosity=0".to_owned(),
            format!("-artifact_prefix={}/", found.display()),
        ])
    };
    fuzzer()
        .args([
            format!("-max_total_time={seconds}"),
            "-print_final_stats=1".to_owned(),
        ])
        .args([&corpus])
        .args(&seeds)
        .run()?;
    // The smallest of what reaches the same code.
    let (merges, _, errors) = fuzzer()
        .args([Path::new("-merge=1"), &merged, &corpus])
        .args(&seeds)
        .capture()?;
    if !merges {
        return Err(Failure::new(format!(
            "{target}: merging what was found\n{errors}"
        )));
    }
    fs::remove_dir_all(&corpus).map_err(|error| unusable(&corpus, error))?;
    fs::rename(&merged, &corpus).map_err(|error| unusable(&merged, error))?;
    let kept = fs::read_dir(&corpus)
        .map_err(|error| unusable(&corpus, error))?
        .count();
    println!("{target}: {kept} inputs kept in {}", corpus.display());
    Ok(())
}

/// Their names.
pub(crate) fn targets() -> Result<Vec<String>, Failure> {
    let directory = project::root().join("fuzz/fuzz_targets");
    let unreadable = |error| Failure::new(format!("{}: {error}", directory.display()));
    let mut names = Vec::new();
    for entry in fs::read_dir(&directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "rs")
            && let Some(stem) = path.file_stem().and_then(|stem| stem.to_str())
        {
            names.push(stem.to_owned());
        }
    }
    names.sort();
    if names.is_empty() {
        return Err(Failure::new(format!(
            "{}: no fuzz targets",
            directory.display()
        )));
    }
    Ok(names)
}

fn host() -> Result<String, Failure> {
    let (_, version, _) = Step::new("rustc").args(["-vV"]).capture()?;
    version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .ok_or_else(|| Failure::new("rustc -vV does not name its host"))
}
