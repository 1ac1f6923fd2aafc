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
//! Nothing is cached, and nothing that is written is kept.

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{self, Read, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use thrufs::layout::Attr;
use thrufs::session::{Threads, Transport};
use thrufs::{
    Attributes, Context, DirectorySink, Entry, Errno, FileHandle, FileSystem, Generation,
    MountOptions, Name, NodeId, ReadAnswer, ReadArgs, ReadReply, Result, SessionConfig, SetAttr,
    WriteArgs, WriteSource, mount,
};

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// As many requests may block while others are served.
const READERS: usize = 16;

const FIRST_FILE: u64 = 10;
const FIRST_SLOW: u64 = 20;
const FIRST_SYNC: u64 = 30;
const FIRST_FULL: u64 = 40;
const FIRST_PAGE: u64 = 50;

const PAGE_BYTES: u64 = 4096;

struct SlowFiles {
    gate: Option<PathBuf>,
}

fn node_of(name: &[u8]) -> Option<u64> {
    let numbered = [
        (&b"file-"[..], FIRST_FILE),
        (&b"slow-"[..], FIRST_SLOW),
        (&b"sync-"[..], FIRST_SYNC),
        (&b"full-"[..], FIRST_FULL),
        (&b"page-"[..], FIRST_PAGE),
    ];
    numbered
        .iter()
        .find_map(|(prefix, first)| match name.strip_prefix(*prefix)? {
            [digit @ b'0'..=b'9'] => Some(first + u64::from(digit - b'0')),
            _ => None,
        })
}

impl SlowFiles {
    fn wait(&self) {
        let Some(gate) = &self.gate else { return };
        println!("slow");
        while !gate.exists() {
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn attributes_of(&self, node: u64) -> Attr {
        if (FIRST_SLOW..FIRST_SYNC).contains(&node) {
            self.wait();
        }
        let (mode, nlink) = match node {
            1 => (0o040_755, 2),
            _ => (0o100_644, 1),
        };
        Attr {
            ino: node,
            mode,
            nlink,
            size: if node >= FIRST_PAGE { PAGE_BYTES } else { 0 },
            ..Attr::default()
        }
    }
}

impl FileSystem for SlowFiles {
    fn lookup(&self, _: &Context<'_>, _: NodeId, name: Name<'_>) -> Result<Entry> {
        let node = node_of(name.as_bytes()).ok_or(Errno::ENOENT)?;
        Ok(Entry {
            node: NodeId(node),
            generation: Generation(0),
            attr: self.attributes_of(node),
            entry_timeout: Duration::ZERO,
            attr_timeout: Duration::ZERO,
        })
    }

    fn getattr(&self, _: &Context<'_>, node: NodeId, _: Option<FileHandle>) -> Result<Attributes> {
        Ok(Attributes {
            attr: self.attributes_of(node.0),
            timeout: Duration::ZERO,
        })
    }

    fn setattr(&self, _: &Context<'_>, node: NodeId, _: &SetAttr) -> Result<Attributes> {
        Ok(Attributes {
            attr: self.attributes_of(node.0),
            timeout: Duration::ZERO,
        })
    }

    fn read(
        &self,
        _: &Context<'_>,
        _: NodeId,
        _: &ReadArgs,
        reply: ReadReply<'_>,
    ) -> Result<ReadAnswer> {
        self.wait();
        reply.fill(|buffer| {
            buffer.fill(0xff);
            Ok(buffer.len())
        })
    }

    fn write(
        &self,
        _: &Context<'_>,
        _: NodeId,
        _: &WriteArgs,
        source: WriteSource<'_>,
    ) -> Result<usize> {
        Ok(source.len())
    }

    /// Empty, so that a walk of the machine's whole tree passes.
    fn readdir(
        &self,
        _: &Context<'_>,
        _: NodeId,
        _: FileHandle,
        _: u64,
        _: &mut DirectorySink<'_>,
    ) -> Result<()> {
        Ok(())
    }

    fn fsync(&self, _: &Context<'_>, node: NodeId, _: FileHandle, _: bool) -> Result<()> {
        if (FIRST_SYNC..FIRST_FULL).contains(&node.0) {
            self.wait();
        }
        Ok(())
    }

    fn flush(
        &self,
        _: &Context<'_>,
        node: NodeId,
        _: FileHandle,
        _: thrufs::LockOwner,
    ) -> Result<()> {
        if (FIRST_FULL..FIRST_PAGE).contains(&node.0) {
            return Err(Errno::ENOSPC);
        }
        Ok(())
    }
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
    let session = mount(SlowFiles { gate }, target, &options, config)?;
    println!("ok");
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    session.unmount()?;
    Ok(())
}
