//! Requests counted by the kernel's tracepoint `fuse:fuse_request_send`. Needs tracefs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::guard::{Detach, of_kernel};

/// How long after an operation a background request may still be sent.
const SETTLE_TIME: Duration = Duration::from_millis(100);

/// Per CPU, KiB: room for the 4,096 writes and more.
const BUFFER_KIB: &str = "4096";

/// A private instance of the kernel's tracer that records the requests of one connection. Removed
/// when dropped, with the tracefs that was mounted for it.
pub struct Tracer {
    instance: PathBuf,
    _mounted: Option<Detach<TempDir>>,
}

impl Tracer {
    /// Traces the connection of the mount at `mnt`; fails without tracefs.
    pub fn start(mnt: &Path) -> Result<Self, String> {
        let (root, mounted) = of_kernel("tracefs", Path::new("/sys/kernel/tracing"), "instances")
            .map_err(|error| format!("tracefs cannot be mounted: {error}"))?;
        let connection = rustix::fs::minor(fs::metadata(mnt).unwrap().dev());
        let name = format!("thrufs-test-{}-{connection}", std::process::id());
        // From here on, drop undoes what was done.
        let tracer = Self {
            instance: root.join("instances").join(name),
            _mounted: mounted,
        };
        let text = |error: std::io::Error| format!("{}: {error}", tracer.instance.display());
        fs::create_dir(&tracer.instance).map_err(text)?;
        tracer.set("buffer_size_kb", BUFFER_KIB)?;
        tracer.set(
            "events/fuse/fuse_request_send/filter",
            &format!("connection == {connection}"),
        )?;
        tracer.set("events/fuse/fuse_request_send/enable", "1")?;
        Ok(tracer)
    }

    fn set(&self, file: &str, value: &str) -> Result<(), String> {
        fs::write(self.instance.join(file), value).map_err(|error| format!("{file}: {error}"))
    }

    /// The requests that `operation` causes, by name without `FUSE_`. Panics when the kernel lost some.
    #[track_caller]
    pub fn count(&self, operation: impl FnOnce()) -> Requests {
        // Requests from before.
        self.settled();
        self.set("trace", "").unwrap();
        operation();
        let text = self.settled();
        let mut requests = Requests::new();
        for line in text
            .lines()
            .filter(|line| line.contains("fuse_request_send:"))
        {
            *requests.entry(opcode_of(line)).or_default() += 1;
        }
        assert_eq!(self.lost_events(), 0, "the trace buffer was too small");
        requests
    }

    /// The trace, once nothing more comes.
    fn settled(&self) -> String {
        let read = || fs::read_to_string(self.instance.join("trace")).unwrap();
        let mut before = read();
        loop {
            thread::sleep(SETTLE_TIME);
            let now = read();
            if now.lines().count() == before.lines().count() {
                return now;
            }
            before = now;
        }
    }

    fn lost_events(&self) -> u64 {
        let mut lost = 0;
        for cpu in fs::read_dir(self.instance.join("per_cpu")).unwrap() {
            let stats = fs::read_to_string(cpu.unwrap().path().join("stats")).unwrap();
            for line in stats.lines() {
                if let Some(count) = line.strip_prefix("overrun: ") {
                    lost += count.trim().parse::<u64>().unwrap();
                }
            }
        }
        lost
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.set("events/fuse/fuse_request_send/enable", "0");
        if self.instance.is_dir() {
            // tracefs removes what is in an instance itself.
            if let Err(error) = fs::remove_dir(&self.instance) {
                eprintln!("thrufs-tests: {} stays: {error}", self.instance.display());
            }
        }
    }
}

/// How many of each kind, by name without `FUSE_`.
pub type Requests = BTreeMap<String, u64>;

/// From a line as `... fuse_request_send: connection 51 req 8 opcode 3 (FUSE_GETATTR) len 56`.
fn opcode_of(line: &str) -> String {
    let (_, rest) = line.split_once("opcode ").unwrap();
    match rest
        .split_once('(')
        .and_then(|(_, rest)| rest.split_once(')'))
    {
        Some((name, _)) => name.trim_start_matches("FUSE_").to_owned(),
        None => rest.to_owned(),
    }
}

/// Expected counts, to compare with.
pub fn requests(expected: &[(&str, u64)]) -> Requests {
    expected
        .iter()
        .map(|(name, count)| ((*name).to_owned(), *count))
        .collect()
}
