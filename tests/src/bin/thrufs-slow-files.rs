//! A slow file system, to lie beneath the one under test.
//!
//! ```text
//! thrufs-slow-files MOUNTPOINT [GATE [auto_unmount]]
//!     mounts, prints "ok", serves until standard input closes
//! ```
//!
//! Its root has `file-0` to `file-9`, which answer at once, `slow-0` to `slow-9`, which are slow to be
//! looked up and again for their attributes, `sync-0` to `sync-9` with a slow fsync, `full-0` to
//! `full-9`, to which everything can be written, and a close that reports ENOSPC, and `page-0`
//! to `page-9`, of one page of bytes 0xff, which are slow to be read.
//! What is slow prints "slow", and waits until there is a file named GATE.
//! Nothing is cached.

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{self, Read, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use thrufs::session::{Threads, Transport};
use thrufs::{Errno, MountOptions, Opcode, Result, SessionConfig, mount};
use thrufs_testing::memory::{Asked, File, Files, Settings};

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// As many requests may block while others are served.
const READERS: usize = 16;

const PAGE_BYTES: usize = 4096;

fn wait(gate: &Path) {
    println!("slow");
    while !gate.exists() {
        thread::sleep(POLL_INTERVAL);
    }
}

fn hook(asked: &Asked<'_>, gate: Option<&Path>) -> Result<()> {
    let is_slow = match asked.opcode {
        Opcode::Lookup | Opcode::Getattr | Opcode::Setattr => asked.is_one_of("slow-"),
        Opcode::Fsync => asked.is_one_of("sync-"),
        Opcode::Read => true,
        Opcode::Flush if asked.is_one_of("full-") => return Err(Errno::ENOSPC),
        // Files need none.
        Opcode::Open => return Err(Errno::ENOSYS),
        _ => false,
    };
    if let Some(gate) = gate.filter(|_| is_slow) {
        wait(gate);
    }
    Ok(())
}

/// Listed as empty, so that a walk of the machine's whole tree passes.
fn files(gate: Option<PathBuf>) -> Arc<Files> {
    let files = Files::new(Settings {
        unlisted: true,
        hook: Some(Box::new(move |asked| hook(asked, gate.as_deref()))),
        ..Settings::default()
    });
    for number in 0..10 {
        for kind in ["file", "slow", "sync", "full", "page"] {
            let data = [0xff; PAGE_BYTES];
            let data = if kind == "page" { &data[..] } else { b"" };
            let valid = Duration::ZERO;
            let file = File {
                valid,
                ..File::with(data)
            };
            files.put(&format!("{kind}-{number}"), file);
        }
    }
    files
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: thrufs-slow-files MOUNTPOINT [GATE [auto_unmount]]";
    let target = args.next().ok_or(usage)?;
    let gate = args.next().map(PathBuf::from);
    let auto_unmount = args.next().is_some_and(|option| option == "auto_unmount");
    let config = SessionConfig {
        threads: Threads {
            readers: NonZeroUsize::new(READERS),
            pair: false,
        },
        transport: Transport::Dev,
        ..SessionConfig::default()
    };
    let options = MountOptions {
        auto_unmount,
        ..MountOptions::new("slow")
    };
    let session = mount(files(gate).serve(), target, &options, config)?;
    println!("ok");
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    session.unmount()?;
    Ok(())
}
