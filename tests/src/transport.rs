//! The transport of a server under test, and the proof that it is used.
//!
//! Tests name one transport, never `auto`, which would hide what was tested. A server that cannot use
//! io_uring falls back to `/dev/fuse`: so a mount that asks for io_uring is checked ([`prove`]).
//!
//! **The kernel's switch** is one for the whole machine, and a test turns it off temporarily. So a test
//! that mounts over io_uring holds a shared lock on its file meanwhile, and the test that turns it off an
//! exclusive one.

use std::fmt;
use std::fs::{self, File};
use std::path::Path;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use thrufs_test_report::skipped;

use crate::mount_point::must_skip;

/// The kernel offers FUSE over io_uring while this file says `Y`.
pub const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// How long another test may keep the switch off.
const SWITCH_PATIENCE: Duration = Duration::from_secs(10);

const OPTION: &str = "transport=";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Dev,
    Uring,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dev => "transport=dev",
            Self::Uring => "transport=uring",
        })
    }
}

impl Transport {
    /// The one that `options` ask for: `/dev/fuse` unless they say otherwise.
    pub fn of(options: &str) -> Self {
        let asked = |option: &str| option == Self::Uring.to_string();
        if options.split(',').any(asked) {
            Self::Uring
        } else {
            Self::Dev
        }
    }

    /// `options`, as after `-o`, over this transport.
    pub fn with(self, options: &str) -> String {
        if options.is_empty() {
            self.to_string()
        } else {
            format!("{self},{options}")
        }
    }

    /// Why it is unavailable here, if so.
    pub fn is_missing(self) -> Option<String> {
        match self {
            Self::Dev => None,
            Self::Uring => no_ring(),
        }
    }
}

/// Runs a test over each transport in turn, and reports what is skipped.
pub fn over_each(run: impl Fn(Transport)) {
    if must_skip() {
        return;
    }
    for transport in [Transport::Dev, Transport::Uring] {
        match transport.is_missing() {
            Some(reason) => skipped(format!("{transport}: {reason}")),
            None => {
                // The last such line names the transport of a failure.
                eprintln!("{}: {transport}", thrufs_test_report::test());
                run(transport);
            }
        }
    }
}

/// For the first line of a `#[test]` of io_uring: true if it must skip, which is reported.
pub fn must_skip_ring() -> bool {
    if must_skip() {
        return true;
    }
    let reason = no_ring();
    if let Some(reason) = &reason {
        skipped(reason);
    }
    reason.is_some()
}

/// Why the kernel offers no FUSE over io_uring, if so.
pub fn no_ring() -> Option<String> {
    static REASON: OnceLock<Option<String>> = OnceLock::new();
    REASON.get_or_init(find_no_ring).clone()
}

fn find_no_ring() -> Option<String> {
    if !Path::new(SWITCH).exists() {
        return Some(format!(
            "no FUSE over io_uring in this kernel (Linux 6.14 has it): no {SWITCH}"
        ));
    }
    let deadline = Instant::now() + SWITCH_PATIENCE;
    while !is_switched_on() {
        if Instant::now() > deadline {
            return Some(format!("{SWITCH} is off: `cargo xtask setup` turns it on"));
        }
        thread::sleep(Duration::from_millis(100));
    }
    None
}

fn is_switched_on() -> bool {
    fs::read_to_string(SWITCH).is_ok_and(|text| text.trim() == "Y")
}

/// Keeps the switch as it is while a mount with `options` is made. `None` where it does not matter.
pub fn hold_switch(options: &str) -> Result<Option<File>, String> {
    if Transport::of(options) == Transport::Dev {
        return Ok(None);
    }
    let text = |error: std::io::Error| format!("{SWITCH}: {error}");
    let file = File::open(SWITCH).map_err(text)?;
    flock(&file, FlockOperation::LockShared).map_err(|error| text(error.into()))?;
    Ok(Some(file))
}

/// `options`, with the transport named if they do not.
pub fn named(options: &str) -> String {
    let has_one = options.split(',').any(|option| option.starts_with(OPTION));
    if has_one {
        options.to_owned()
    } else {
        Transport::Dev.with(options)
    }
}

/// Checks that a running server uses the transport that `options` name; the error says what it uses
/// instead.
pub fn prove(options: &str, server: u32) -> Result<(), String> {
    let worker = worker_of(server).ok_or("the server has no worker")?;
    match (Transport::of(options), has_ring(worker)) {
        (Transport::Uring, false) => Err("its requests do not come by io_uring".to_owned()),
        (Transport::Dev, true) => Err("its requests come by io_uring".to_owned()),
        _ => Ok(()),
    }
}

/// The process that answers requests: the supervisor's only child.
pub fn worker_of(server: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{server}/task/{server}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Whether a process holds a ring. A server makes some before it knows whether the kernel will use them,
/// and keeps them only then.
pub fn has_ring(process: u32) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{process}/fd")) else {
        return false;
    };
    descriptors
        .flatten()
        .filter_map(|descriptor| fs::read_link(descriptor.path()).ok())
        .any(|target| target == Path::new("anon_inode:[io_uring]"))
}
