//! Where a result comes from.

use crate::Outcome;
use std::process::Command;

/// What belongs beside every figure, as pairs of name and text.
pub(crate) fn describe() -> Outcome<Vec<(&'static str, String)>> {
    let kernel = read("/proc/sys/kernel/osrelease")?.trim().to_owned();
    let processor = read("/proc/cpuinfo")?
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map(|rest| rest.trim_start_matches([' ', '\t', ':']).to_owned())
        .unwrap_or_else(|| "unknown".to_owned());
    let cores = std::thread::available_parallelism().map_err(|error| error.to_string())?;
    let memory = read("/proc/meminfo")?
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .map(|rest| rest.trim().to_owned())
        .unwrap_or_default();
    let project = std::env::var("PROJECT").unwrap_or_else(|_| ".".to_owned());
    let git = |words: &[&str]| {
        let output = Command::new("git")
            .args(["-c", "safe.directory=*", "-C", &project])
            .args(words)
            .output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let mut commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_default();
    if !git(&["status", "--porcelain", "--", "crates", "Cargo.lock"])
        .unwrap_or_default()
        .is_empty()
    {
        commit.push_str(" with changes");
    }
    let load = read("/proc/loadavg")?
        .split(' ')
        .next()
        .unwrap_or_default()
        .to_owned();
    Ok(vec![
        ("kernel", kernel),
        ("processor", processor),
        ("cores", cores.to_string()),
        ("memory", memory),
        ("commit", commit),
        ("load before", load),
    ])
}

/// A name that nobody else has.
pub(crate) fn random_name() -> Outcome<String> {
    Ok(read("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

fn read(path: &str) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}
