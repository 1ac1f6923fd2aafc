//! `cargo xtask bench` keeps a run's results, however that has ended. The benchmark is a script here.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What a script begins with: `$out` is the folder of the report.
const PRELUDE: &str = "\
#!/bin/sh
while [ \"$1\" != --out ]; do shift; done
out=$2
report() { mkdir \"$out\"; echo found > \"$out/results.json\"; }
";

/// Prints that it runs, and makes its report on the stop signal, which takes a while.
const STOPPED: &str = "\
trap 'sleep 0.3; report; exit 130' INT HUP
: > \"$STARTED\"
while :; do sleep 0.05; done
";

/// Runs the chore with this script, sends all of its processes a signal if one is named, as a terminal
/// does, and asserts what it has kept.
fn run(name: &str, script: &str, signal: Option<&str>, kept: &[&str]) {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("skipped: root is needed");
        return;
    }
    let top = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let program = top.join("thrufs-lab");
    fs::create_dir_all(top.join("results")).unwrap();
    fs::write(&program, format!("{PRELUDE}{script}")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let started = top.join("started");
    let mut chore = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["bench", "--rounds", "3"])
        .env("THRUFS", top.join("thrufs"))
        .env("CARGO_TARGET_DIR", &top)
        .env("RESULTS", top.join("results"))
        .env("STARTED", &started)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    if let Some(signal) = signal {
        let start = Instant::now();
        while !started.exists() {
            assert!(start.elapsed() < Duration::from_secs(60));
            sleep(Duration::from_millis(10));
        }
        // The shell's own: kill(1) of procps takes small groups, as PID namespaces have them, for signals.
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -s {signal} -- -{}", chore.id())])
            .status();
        assert!(sent.unwrap().success());
    }
    assert_eq!(chore.wait().unwrap().code(), Some(1));
    let entries = fs::read_dir(top.join("results")).unwrap();
    let found = entries.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    assert_eq!(found.collect::<Vec<_>>(), kept, "{name}");
    fs::remove_dir_all(&top).unwrap();
}

#[test]
fn what_a_stopped_run_has_found_is_kept() {
    run("interrupted", STOPPED, Some("INT"), &["found\n"]);
    run("hung-up", STOPPED, Some("HUP"), &["found\n"]);
}

#[test]
fn what_a_run_with_failed_cells_has_found_is_kept() {
    run("failed", "report; exit 1\n", None, &["found\n"]);
}

#[test]
fn a_run_that_was_refused_has_found_nothing() {
    run("refused", "exit 1\n", None, &[]);
}
