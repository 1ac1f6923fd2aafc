//! `cargo xtask bench` keeps what a run has found, however that has ended. The benchmark is a script here.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a script begins with: `$out` is the folder of the report.
const PRELUDE: &str = "\
#!/bin/sh
while [ \"$1\" != --out ]; do shift; done
out=$2
report() { mkdir \"$out\"; echo found > \"$out/results.json\"; }
";

/// A chore with a script for the benchmark.
struct Chore {
    top: PathBuf,
    child: Child,
}

impl Chore {
    /// Nothing for who is not root: the chore would refuse.
    fn start(name: &str, script: &str) -> Option<Chore> {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            eprintln!("skipped: root is needed");
            return None;
        }
        let top = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("bench-{name}-{}", std::process::id()));
        let program = top.join("release/thrufs");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(&program, format!("{PRELUDE}{script}")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(["bench", "--rounds", "3"])
            // Nothing is built.
            .env("CARGO", "true")
            .env("CARGO_TARGET_DIR", &top)
            .env("RESULTS", top.join("results"))
            .env("STARTED", top.join("started"))
            // As from a terminal, Ctrl-C is for all of them.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Some(Chore { top, child })
    }

    /// As a terminal does.
    fn signal(&self, name: &str) {
        let group = format!("-{}", self.child.id());
        let status = Command::new("kill")
            .args(["-s", name, "--", &group])
            .status();
        assert!(status.unwrap().success());
    }

    fn within(&mut self, what: &str, mut is_so: impl FnMut(&mut Chore) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            assert!(start.elapsed() < PATIENCE, "{what}");
            sleep(Duration::from_millis(10));
        }
    }

    fn has_started(&mut self) {
        self.within("the benchmark to start", |chore| {
            chore.top.join("started").exists()
        });
    }

    fn ends(&mut self) -> ExitStatus {
        self.within("the chore to end", |chore| {
            chore.child.try_wait().unwrap().is_some()
        });
        self.child.wait().unwrap()
    }

    /// What stands in the files that were kept, each of which is called by a number.
    fn kept(&self) -> Vec<String> {
        let entries = match fs::read_dir(self.top.join("results")) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
            entries => entries.unwrap(),
        };
        let texts = entries.map(|entry| {
            let path = entry.unwrap().path();
            assert_eq!(path.extension().unwrap(), "json");
            let number = path.file_stem().unwrap().to_str().unwrap().parse::<u64>();
            assert!(number.unwrap() > 1_700_000_000, "{path:?}");
            fs::read_to_string(path).unwrap()
        });
        texts.collect()
    }
}

impl Drop for Chore {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal("KILL");
            let _ = self.child.wait();
        }
        let _ = fs::remove_dir_all(&self.top);
    }
}

/// Says that it runs, and makes its report when it is told to stop, which takes a while.
const STOPPED: &str = "\
trap 'sleep 0.3; report; exit 130' INT HUP
: > \"$STARTED\"
while :; do sleep 0.05; done
";

#[test]
fn what_a_stopped_run_has_found_is_kept() {
    for signal in ["INT", "HUP"] {
        let Some(mut chore) = Chore::start(signal, STOPPED) else {
            return;
        };
        chore.has_started();
        chore.signal(signal);
        let status = chore.ends();
        assert_eq!(status.code(), Some(1), "{status}");
        assert_eq!(chore.kept(), ["found\n"], "{signal}");
    }
}

#[test]
fn what_a_run_with_failed_cells_has_found_is_kept() {
    let Some(mut chore) = Chore::start("failed", "report; exit 1\n") else {
        return;
    };
    assert_eq!(chore.ends().code(), Some(1));
    assert_eq!(chore.kept(), ["found\n"]);
}

#[test]
fn a_run_that_was_refused_has_found_nothing() {
    let Some(mut chore) = Chore::start("refused", "exit 1\n") else {
        return;
    };
    assert_eq!(chore.ends().code(), Some(1));
    assert!(chore.kept().is_empty());
}
