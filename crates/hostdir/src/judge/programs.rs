//! The programs that callers execute.

use rustix::fs::{Mode, OFlags};
use std::os::fd::OwnedFd;

/// Finds the programs that callers execute, for a process that cannot read them in `/proc`.
pub trait Programs: std::fmt::Debug + Send + Sync {
    /// The path of the program that a caller executes, by its process id as requests give it.
    fn program(&self, caller: u32) -> Option<Vec<u8>>;
}

#[derive(Debug)]
pub(super) struct ProcPrograms(OwnedFd);

impl ProcPrograms {
    pub(super) fn open() -> Option<ProcPrograms> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let processes = rustix::fs::open("/proc", flags, Mode::empty());
        processes.ok().map(ProcPrograms)
    }
}

impl Programs for ProcPrograms {
    fn program(&self, caller: u32) -> Option<Vec<u8>> {
        let link = rustix::fs::readlinkat(&self.0, format!("{caller}/exe"), Vec::new());
        Some(link.ok()?.into_bytes())
    }
}
