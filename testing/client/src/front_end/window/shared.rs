//! What the window's thread and its users share.

use super::config::{WindowBehaviour, WindowConfig};
use super::hooks::{Hooks, WindowCounts};
use super::table::{Live, Table};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;
use vhost::VhostUserMemoryRegionInfo;
use vhost::vhost_user::{Frontend, VhostUserFrontend};

/// The guest address of a window: beyond the guest's memory.
const GUEST_BASE: u64 = 1 << 40;

pub(super) struct Shared {
    table: RwLock<Table>,
    pub(super) hooks: Hooks,
    /// This side's end of the channel.
    pub(super) stream: UnixStream,
    pub(super) config: WindowConfig,
    main_thread: Mutex<()>,
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
            hooks: Hooks::new(config.answers_withheld),
            stream,
            config,
            main_thread: Mutex::new(()),
            link,
        }
    }

    pub(super) fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn table_to_change(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_as_qemu(&self) -> bool {
        self.config.behaviour == WindowBehaviour::AsQemu
    }

    /// The right to do what QEMU's main thread does; `None` where there is no such thread.
    pub(super) fn main_thread(&self) -> Option<MutexGuard<'_, ()>> {
        let lock = || self.main_thread.lock();
        self.is_as_qemu()
            .then(|| lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Brings a mapping into force, and announces it.
    pub(super) fn insert(&self, live: Live, file: BorrowedFd<'_>) {
        let region = VhostUserMemoryRegionInfo {
            mmap_handle: file.as_raw_fd(),
            ..region(&live)
        };
        let count = {
            let mut table = self.table_to_change();
            table.insert(live);
            table.len()
        };
        self.hooks.count(|counts| {
            counts.maps += 1;
            counts.live = count;
            counts.live_max = counts.live_max.max(count);
        });
        if self.is_as_qemu() {
            self.announce(
                |link| link.add_mem_region(&region).map(drop),
                |counts| &mut counts.announced,
            );
        }
    }

    /// Ends a mapping, and withdraws its announcement.
    pub(super) fn remove(&self, offset: u64) {
        let (live, count) = {
            let mut table = self.table_to_change();
            (table.remove(offset), table.len())
        };
        self.hooks.count(|counts| {
            counts.unmaps += 1;
            counts.live = count;
        });
        if let Some(live) = live {
            self.withdraw(&live);
        }
    }

    /// Ends all mappings.
    pub(super) fn clear(&self) {
        let all = self.table_to_change().clear();
        self.hooks.count(|counts| counts.live = 0);
        for live in &all {
            self.withdraw(live);
        }
    }

    fn withdraw(&self, live: &Live) {
        if !self.is_as_qemu() {
            return;
        }
        self.announce(
            |link| link.remove_mem_region(&region(live)),
            |counts| &mut counts.withdrawn,
        );
    }

    /// Sends a message with NEED_REPLY, and counts it in `done` once it is confirmed.
    fn announce(
        &self,
        send: impl FnOnce(&mut Frontend) -> vhost::Result<()>,
        done: impl FnOnce(&mut WindowCounts) -> &mut u64,
    ) {
        let begun = Instant::now();
        let sent = send(&mut self.link.clone());
        let waited = begun.elapsed();
        self.hooks.count(|counts| {
            counts.announcement_wait_max = counts.announcement_wait_max.max(waited);
            *match sent {
                Ok(()) => done(counts),
                Err(_) => &mut counts.announcements_failed,
            } += 1;
        });
    }
}

pub(super) fn guest_address(offset: u64) -> u64 {
    GUEST_BASE + offset
}

/// The region of a mapping in announcements, without a descriptor.
fn region(live: &Live) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: guest_address(live.about.offset),
        memory_size: live.about.length,
        userspace_addr: live.bytes.address(),
        mmap_offset: live.about.file_offset,
        mmap_handle: -1,
    }
}
