//! A worker that is killed again and again under load: each request gets one answer, which is true, and
//! nothing is done twice.
//!
//! This program is its own worker: it starts itself with the connection as standard input and the journal
//! as standard output. What it serves ([`lower`]) has no state but the disk, so that the device is tested;
//! it delays the answer to each change, where a death leaves most in doubt.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod load;
mod lower;

use libtest_mimic::{Arguments, Trial};
use lower::Plain;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tempfile::TempDir;
use thrufs_client::{Client, FrontEnd, FrontEndConfig};
use thrufs_virtio::{ConnectionOptions, Device, DeviceConfig, Journal, VhostProxy};

const WORKER: &str = "THRUFS_RESUME_WORKER";

fn main() -> ExitCode {
    if let Some(directory) = std::env::var_os(WORKER) {
        return work(directory.into());
    }
    let trials = [
        ("killed_under_load", load::killed_under_load as fn()),
        ("killed_twice_in_a_row", load::killed_twice_in_a_row),
        ("killed_in_the_handshake", load::killed_in_the_handshake),
        ("a_guest_that_begins_anew", load::a_guest_that_begins_anew),
    ];
    let trials = trials.into_iter().map(|(name, trial)| {
        Trial::test(name, move || {
            trial();
            Ok(())
        })
    });
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn descriptor(of: impl AsFd) -> OwnedFd {
    of.as_fd().try_clone_to_owned().unwrap()
}

fn work(directory: PathBuf) -> ExitCode {
    let stream = UnixStream::from(descriptor(io::stdin()));
    let journal = Journal::from_memory(descriptor(io::stdout())).unwrap();
    let config = DeviceConfig {
        request_queues: load::QUEUES.try_into().unwrap(),
        ..DeviceConfig::default()
    };
    let make = move || Ok(Arc::new(Plain::new(&directory)));
    let device = Device::new(make, config).unwrap();
    let options = ConnectionOptions {
        journal: Some(journal),
        ..ConnectionOptions::default()
    };
    match device.serve_with(stream, options) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("worker: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What a supervisor has: the connection, and the current worker.
struct Ground {
    place: TempDir,
    proxy: VhostProxy,
    journal: Journal,
    worker: Mutex<Option<Child>>,
}

impl Ground {
    /// With a worker; returns the front end's side of the connection.
    fn new() -> (Ground, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let journal = Journal::new().unwrap();
        let ground = Ground {
            place: TempDir::with_prefix("thrufs-resume-").unwrap(),
            proxy: VhostProxy::start(ours, journal.clone()).unwrap(),
            journal,
            worker: Mutex::default(),
        };
        ground.start();
        (ground, theirs)
    }

    fn directory(&self) -> &Path {
        self.place.path()
    }

    fn worker(&self) -> MutexGuard<'_, Option<Child>> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .env(WORKER, self.directory())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(descriptor(&self.journal)))
            .spawn()
            .unwrap();
        *self.worker() = Some(child);
        self.proxy.attach(ours);
    }

    fn kill(&self) {
        if let Some(mut child) = self.worker().take() {
            child.kill().unwrap();
            let status = child.wait().unwrap();
            assert_eq!(status.code(), None, "it had ended by itself: {status}");
            self.journal.count_death();
        }
    }

    /// Starts the next worker.
    fn replace(&self) {
        self.kill();
        self.start();
    }

    fn mount(stream: UnixStream) -> Client<FrontEnd> {
        let config = FrontEndConfig {
            request_queues: load::QUEUES,
            time_limit: Some(Duration::from_secs(60)),
            ..FrontEndConfig::default()
        };
        Client::mount(FrontEnd::over(stream, &config).unwrap()).unwrap()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Some(mut child) = self.worker().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
