//! What the window's thread and its users share.

use super::config::{WindowBehaviour, WindowConfig};
use super::table::{Live, Refusal, Table};
use super::wire;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};
use vhost::VhostUserMemoryRegionInfo;
use vhost::vhost_user::{Frontend, VhostUserFrontend};

/// The guest address of a window: beyond the guest's memory.
const GUEST_BASE: u64 = 1 << 40;

/// What the back end has done with a window, counted since the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowCounts {
    /// Mappings that came into force.
    pub maps: u64,
    /// Messages that were refused.
    pub refused: u64,
    /// The last refusal.
    pub last_refusal: Option<Refusal>,
    /// Messages that were answered.
    pub answers: u64,
    /// Mappings in force now.
    pub live: usize,
    /// ADD_MEM_REG and REM_MEM_REG that the back end has confirmed.
    pub announced: u64,
    /// Those that it refused, or did not answer before the connection ended.
    pub announcements_failed: u64,
    /// Longest that one waited for its answer.
    pub announcement_wait_max: Duration,
}

#[derive(Default)]
struct Progress {
    counts: WindowCounts,
    withholding: bool,
    /// Codes and results of answers that are withheld, in their order.
    withheld: Vec<(u32, u64)>,
}

pub(super) struct Shared {
    table: RwLock<Table>,
    progress: Mutex<Progress>,
    changed: Condvar,
    /// This side's end of the channel.
    pub(super) stream: UnixStream,
    config: WindowConfig,
    link: Frontend,
}

impl Shared {
    pub(super) fn new(
        size: u64,
        config: WindowConfig,
        stream: UnixStream,
        link: Frontend,
    ) -> Shared {
        Shared {
            table: RwLock::new(Table::new(size)),
            progress: Mutex::default(),
            changed: Condvar::new(),
            stream,
            config,
            link,
        }
    }

    pub(super) fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the table, and counts what is in force then.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut table);
        let live = table.len();
        drop(table);
        self.count(|counts| counts.live = live);
        changed
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn counts(&self) -> WindowCounts {
        self.progress().counts
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut WindowCounts)) {
        change(&mut self.progress().counts);
        self.changed.notify_all();
    }

    pub(super) fn wait_until(
        &self,
        limit: Duration,
        mut holds: impl FnMut(&WindowCounts) -> bool,
    ) -> bool {
        let misses = |progress: &mut Progress| !holds(&progress.counts);
        let waited = self
            .changed
            .wait_timeout_while(self.progress(), limit, misses);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Answers a message, or keeps the answer.
    pub(super) fn answer(&self, code: u32, result: u64) -> io::Result<()> {
        let mut progress = self.progress();
        if progress.withholding {
            progress.withheld.push((code, result));
            return Ok(());
        }
        progress.counts.answers += 1;
        wire::reply(&self.stream, code, result)
    }

    pub(super) fn withhold(&self) {
        self.progress().withholding = true;
    }

    /// Sends the answers that were withheld.
    pub(super) fn answer_again(&self) -> io::Result<()> {
        let mut progress = self.progress();
        progress.withholding = false;
        for (code, result) in std::mem::take(&mut progress.withheld) {
            progress.counts.answers += 1;
            wire::reply(&self.stream, code, result)?;
        }
        Ok(())
    }

    pub(super) fn is_as_qemu(&self) -> bool {
        self.config.behaviour == WindowBehaviour::AsQemu
    }

    /// Brings a mapping into force, and announces it.
    pub(super) fn insert(&self, live: Live, file: BorrowedFd<'_>) {
        let region = VhostUserMemoryRegionInfo {
            mmap_handle: file.as_raw_fd(),
            ..region(&live)
        };
        self.change(|table| table.insert(live));
        self.count(|counts| counts.maps += 1);
        self.announce(|link| link.add_mem_region(&region).map(drop));
    }

    /// Ends a mapping, and withdraws its announcement.
    pub(super) fn remove(&self, offset: u64) {
        if let Some(live) = self.change(|table| table.remove(offset)) {
            self.announce(|link| link.remove_mem_region(&region(&live)));
        }
    }

    /// Sends a message with NEED_REPLY, as QEMU does.
    fn announce(&self, send: impl FnOnce(&mut Frontend) -> vhost::Result<()>) {
        if !self.is_as_qemu() {
            return;
        }
        let begun = Instant::now();
        let sent = send(&mut self.link.clone());
        let waited = begun.elapsed();
        self.count(|counts| {
            counts.announcement_wait_max = counts.announcement_wait_max.max(waited);
            *match sent {
                Ok(()) => &mut counts.announced,
                Err(_) => &mut counts.announcements_failed,
            } += 1;
        });
    }
}

/// The region of a mapping in announcements, without a descriptor.
fn region(live: &Live) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: GUEST_BASE + live.about.offset,
        memory_size: live.about.length,
        userspace_addr: live.bytes.address(),
        mmap_offset: live.about.file_offset,
        mmap_handle: -1,
    }
}
