//! The fuzz targets, on the stable compiler.
//!
//! libFuzzer needs the instrumentation of LLVM's coverage pass and no more; the pass can be asked
//! for with stable flags, so neither a nightly compiler nor `cargo fuzz` has to be installed. (What
//! stable cannot give is the address sanitizer: the decoders are safe code.)

use crate::project;
use crate::step::{Failure, Step};

const INSTRUMENTATION: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cdebug-assertions -Coverflow-checks";

/// Runs every target of `fuzz/fuzz_targets`; together they take `seconds`.
pub(crate) fn run(seconds: &str) -> Result<(), Failure> {
    let total: usize = seconds
        .parse()
        .map_err(|_| Failure::new(format!("not a number of seconds: {seconds}")))?;
    let targets = targets()?;
    let each = (total / targets.len()).max(1);
    let built = project::target().join("fuzz");
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
        .args([&built])
        .env("RUSTFLAGS", INSTRUMENTATION)
        .run()?;
    for target in targets {
        let corpus = project::root().join("fuzz/corpus").join(&target);
        let found = project::root().join("fuzz/artifacts").join(&target);
        for directory in [&corpus, &found] {
            std::fs::create_dir_all(directory)
                .map_err(|error| Failure::new(format!("{}: {error}", directory.display())))?;
        }
        let seeds = project::root().join("fuzz/seeds").join(&target);
        let mut step = Step::new(built.join(&triple).join("release").join(&target))
            .args([
                format!("-max_total_time={each}"),
                "-rss_limit_mb=2048".to_owned(),
                "-timeout=10".to_owned(),
                "-max_len=4096".to_owned(),
                "-print_final_stats=1".to_owned(),
                "-verbosity=0".to_owned(),
                format!("-artifact_prefix={}/", found.display()),
            ])
            .args([corpus]);
        if seeds.exists() {
            step = step.args([seeds]);
        }
        step.run()?;
    }
    Ok(())
}

fn targets() -> Result<Vec<String>, Failure> {
    let directory = project::root().join("fuzz/fuzz_targets");
    let unreadable = |error| Failure::new(format!("{}: {error}", directory.display()));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&directory).map_err(unreadable)? {
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
