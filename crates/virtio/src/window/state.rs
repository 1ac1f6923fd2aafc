//! What other threads see of the window.

use super::abilities::Abilities;
use super::channel::WaitLimit;
use super::table::{FileId, Table};
use crate::journal::WindowRecord;
use crate::mailbox::signal;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use thrufs::metrics::WindowEvent;
use thrufs::{Metrics, NodeId, WindowCoverage};

pub(super) fn file_id(file: impl AsFd) -> io::Result<FileId> {
    let stat = rustix::fs::fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Has the thread of the window unmap a file.
pub(super) type Withdraw = Box<dyn Fn(NodeId) + Send + Sync>;

pub(crate) struct WindowState {
    pub(super) table: Mutex<Table>,
    /// The file with which the front end is probed.
    pub(super) probed: Mutex<Option<FileId>>,
    /// How many regions of memory were added that are parts of the window.
    announced: AtomicU64,
    pub(super) abilities: OnceLock<Abilities>,
    pub(super) withdraw: OnceLock<Withdraw>,
    /// Signalled when a session has ended.
    eventfd: OwnedFd,
    pub(super) metrics: Arc<Metrics>,
}

impl fmt::Debug for WindowState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("WindowState");
        shown.field("table", &self.table).finish_non_exhaustive()
    }
}

impl WindowState {
    /// Of a window of `bytes`, with the mappings in `record`.
    pub(super) fn new(
        bytes: u64,
        record: Option<&WindowRecord>,
        metrics: &Arc<Metrics>,
    ) -> io::Result<WindowState> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let table = Table::new(bytes, record.cloned());
        metrics.count_window(WindowEvent::Mappings(table.len() as u64));
        let state = WindowState {
            table: Mutex::new(table),
            probed: Mutex::default(),
            announced: AtomicU64::new(0),
            abilities: OnceLock::new(),
            withdraw: OnceLock::new(),
            eventfd: eventfd(0, flags)?,
            metrics: Arc::clone(metrics),
        };
        if let Some(known) = record.and_then(|record| Abilities::decode(record.abilities())) {
            let _ = state.abilities.set(known);
        }
        Ok(state)
    }

    /// Whether a region of memory with this file is a part of the window: the front end maps the file there.
    pub(crate) fn is_part(&self, file: impl AsFd) -> bool {
        let has_mapped = |id| *self.probed.lock() == Some(id) || self.table.lock().has_mapped(id);
        file_id(file).is_ok_and(has_mapped)
    }

    /// Such a region was added.
    pub(crate) fn note_announced(&self) {
        self.announced.fetch_add(1, Ordering::SeqCst);
    }

    /// How many such regions there were so far.
    pub(super) fn announced(&self) -> u64 {
        self.announced.load(Ordering::SeqCst)
    }

    /// Wakes the thread of the window, which gives up what a session that has ended waits for.
    pub(crate) fn interrupt(&self) {
        signal(self.eventfd.as_fd());
    }

    /// A wait for the front end until the timeout, or until the session has ended, which `is_over` says.
    pub(super) fn wait_limit<'a>(
        &'a self,
        timeout: Duration,
        is_over: &'a dyn Fn() -> bool,
    ) -> WaitLimit<'a> {
        WaitLimit {
            deadline: Instant::now() + timeout,
            eventfd: &self.eventfd,
            is_over,
        }
    }

    pub(crate) fn abilities(&self) -> Option<Abilities> {
        self.abilities.get().copied()
    }
}

impl WindowCoverage for WindowState {
    fn maps_beyond_end(&self) -> bool {
        self.abilities().is_some_and(|can| can.map_beyond_end)
    }

    fn maps_read_only(&self) -> bool {
        self.abilities().is_some_and(|can| can.map_read_only)
    }

    fn mappings(&self, node: NodeId) -> usize {
        self.table.lock().of_node(node.0).len()
    }

    fn covered(&self, node: NodeId) -> Option<u64> {
        if self.maps_beyond_end() {
            return None;
        }
        self.table.lock().covered(node.0)
    }

    fn withdraw(&self, node: NodeId) {
        if let Some(withdraw) = self.withdraw.get() {
            withdraw(node);
        }
    }
}
