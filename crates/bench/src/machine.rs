//! Describes the machine of a result: kernel, processors, memory, commit, date.

use crate::report::figure;
use crate::results::Machine;
use crate::{Outcome, programs};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// What belongs beside every figure.
pub(crate) fn describe() -> Machine {
    let kernel = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let about = read("/proc/cpuinfo").unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_start_matches([' ', '\t', ':']).trim().to_owned())
    };
    let processor = field(&about, "model name").or_else(|| field(&about, "Model"));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = field(&read("/proc/meminfo").unwrap_or_default(), "MemTotal");
    let memory_kib = memory.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let load = read("/proc/loadavg").ok();
    let load = load.and_then(|text| text.split(' ').next()?.parse().ok());
    Machine {
        kernel,
        processor: processor.unwrap_or_else(|| "unknown".to_owned()),
        processors: u32::try_from(processors).unwrap_or(u32::MAX),
        memory_bytes: memory_kib.unwrap_or_default() * 1024,
        load_before: load.unwrap_or_default(),
        hypervisor: hypervisor(&about),
        versions: versions(),
    }
}

/// The name of the hypervisor, as far as that can be seen.
fn hypervisor(about: &str) -> Option<String> {
    let flags = about.lines().find(|line| line.starts_with("flags"));
    let is_guest = flags.is_some_and(|line| line.split(' ').any(|flag| flag == "hypervisor"));
    let kind = read("/sys/hypervisor/type").ok();
    let maker = read("/sys/class/dmi/id/sys_vendor")
        .ok()
        .filter(|_| is_guest);
    let name = kind.or(maker).map(|name| name.trim().to_owned());
    let name = name.filter(|name| !name.is_empty());
    name.or_else(|| is_guest.then(|| "unknown".to_owned()))
}

fn versions() -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    let mut add = |name: &str, said: Option<String>| {
        if let Some(said) = said.filter(|said| !said.is_empty()) {
            versions.insert(name.to_owned(), said);
        }
    };
    // Of the server that is measured, whichever this program is of.
    let server = programs::thrufs().ok();
    let server = server.and_then(|path| said(Command::new(path).arg("--version")));
    add(
        "thrufs",
        server.map(|said| said.trim_start_matches("thrufs ").to_owned()),
    );
    // Of the project's own benchmark: which state of it, and of what it is measured with.
    if let Some(project) = std::env::var_os("PROJECT") {
        add("fio", said(Command::new("fio").arg("--version")));
        let git = |words: &[&str]| {
            let mut command = Command::new("git");
            command.args(["-c", "safe.directory=*", "-C"]).arg(&project);
            said(command.args(words))
        };
        let commit = git(&["rev-parse", "--short=12", "HEAD"]);
        let changed = git(&["status", "--porcelain", "--", "crates", "Cargo.lock"]);
        let changed = changed.is_some_and(|text| !text.is_empty());
        let ending = if changed { " with changes" } else { "" };
        add("commit", commit.map(|commit| commit + ending));
    }
    versions
}

fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

/// A unique name.
pub(crate) fn random_name() -> Outcome<String> {
    Ok(read("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

/// Seconds since 1970 (UTC).
pub(crate) fn seconds_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |time| time.as_secs())
}

/// The moment as part of a file's name, in UTC: `2026-11-22-071503`.
pub(crate) fn date() -> String {
    let seconds = seconds_now();
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let day = figure::date(seconds);
    format!("{day}-{hour:02}{minute:02}{second:02}")
}

fn read(path: &str) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}
