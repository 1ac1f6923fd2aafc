//! Describes the machine of a result, and gives names and dates of a run.

use crate::outcome::Outcome;
use crate::report::figure;
use crate::results::Machine;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// What belongs beside every figure.
pub(crate) fn describe() -> Machine {
    let about = read("/proc/cpuinfo");
    let processor = field(&about, "model name").or_else(|| field(&about, "Model"));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    // Of the server that is measured, whichever this program is of.
    let thrufs = crate::target::thrufs();
    let output = thrufs
        .ok()
        .and_then(|path| Command::new(path).arg("-V").output().ok());
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let version = said
        .unwrap_or_default()
        .trim_start_matches("thrufs ")
        .to_owned();
    Machine {
        kernel: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
        processor: processor.unwrap_or("unknown").to_owned(),
        processors: u32::try_from(processors).unwrap_or(u32::MAX),
        memory_bytes: memory_kib("MemTotal").unwrap_or_default() * 1024,
        versions: [("thrufs".to_owned(), version)].into(),
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim_start_matches([' ', '\t', ':']).trim())
}

/// A line of /proc/meminfo.
pub(crate) fn memory_kib(name: &str) -> Option<u64> {
    field(&read("/proc/meminfo"), name)?
        .split(' ')
        .next()?
        .parse()
        .ok()
}

/// A unique name.
pub(crate) fn random_name() -> Outcome<String> {
    let path = "/proc/sys/kernel/random/uuid";
    let read = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    Ok(read.trim().to_owned())
}

/// Seconds since 1970 (UTC).
pub(crate) fn seconds_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |time| time.as_secs())
}

/// The moment as part of a file's name, in UTC: `2026-11-22-071503`.
pub(crate) fn date() -> String {
    figure::moment(seconds_now(), "+%Y-%m-%d-%H%M%S")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
