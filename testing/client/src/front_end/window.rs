//! The DAX window: a shared memory region of the device (`VHOST_USER_PROTOCOL_F_SHMEM`), into which the back end
//! maps parts of files by SHMEM_MAP and SHMEM_UNMAP on a channel of its own.
//!
//! | module | content |
//! |---|---|
//! | `config` | which rules the front end follows |
//! | `wire` | messages of the channel |
//! | `table` | live mappings by offset; what is refused |
//! | `shared` | what the thread and users share: counts, announcing mappings to the back end, withheld answers |
//! | `channel` | the thread that carries out messages |
//!
//! A thread reads the channel. Those who access the window look up an offset in the table and copy bytes while
//! they hold its read lock, so a mapping that was confirmed to be removed is accessed by none. Copies are by
//! system calls, which fail beyond the end of a file, except for those of [`HeldWindow`].

mod channel;
mod config;
mod shared;
mod table;
mod wire;

pub use config::{WindowBehaviour, WindowConfig};
pub use shared::WindowCounts;
pub use table::WindowMapping;

use rustix::io::Errno;
use shared::Shared;
use std::io;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::Duration;
use table::{Live, Table};
use vhost::vhost_user::Frontend;

/// Why an access to a window failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// It is beyond the window.
    #[error("it is beyond the window")]
    Outside,
    /// Nothing is mapped at this offset.
    #[error("nothing is mapped at {0:#x}")]
    Unmapped(u64),
    /// The memory cannot be accessed: EFAULT beyond the end of the file, and for a store where it is mapped for
    /// reading. Part of the bytes may be copied.
    #[error("{1} at {0:#x} or after it")]
    Failed(u64, Errno),
}

/// The window of a front end, as its guest sees it. Clones are of the same window; it outlives the front end, and
/// then nothing is mapped any longer.
#[derive(Clone)]
pub struct Window {
    shared: Arc<Shared>,
}

impl Window {
    /// Bytes of the window, as the back end said.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.shared.table().size()
    }

    /// Copies bytes of the window.
    ///
    /// # Errors
    ///
    /// [`WindowError::Failed`] with EFAULT beyond the end of the file.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), WindowError> {
        each_part(
            &self.shared.table(),
            offset,
            bytes.len(),
            |live, at, part| live.bytes.read_bytes(at, &mut bytes[part]),
        )
    }

    /// Copies bytes to the window.
    ///
    /// # Errors
    ///
    /// [`WindowError::Failed`] with EFAULT beyond the end of the file, and where it is mapped for reading.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), WindowError> {
        each_part(
            &self.shared.table(),
            offset,
            bytes.len(),
            |live, at, part| live.bytes.write_bytes(at, &bytes[part]),
        )
    }

    /// The window for many fast accesses. No mapping comes into force or ends while it lives, and its thread must
    /// not access the window otherwise.
    #[must_use]
    pub fn hold(&self) -> HeldWindow<'_> {
        HeldWindow(self.shared.table())
    }

    /// The mappings in force, by offset.
    #[must_use]
    pub fn mappings(&self) -> Vec<WindowMapping> {
        self.shared.table().list()
    }

    /// What the back end has done.
    #[must_use]
    pub fn counts(&self) -> WindowCounts {
        self.shared.counts()
    }

    /// Waits until the counts are as `holds` wants them; false after `limit`.
    #[must_use]
    pub fn wait_until(&self, limit: Duration, holds: impl FnMut(&WindowCounts) -> bool) -> bool {
        self.shared.wait_until(limit, holds)
    }

    /// Carries out messages without answering them, until [`answer_again`](Self::answer_again).
    pub fn withhold_answers(&self) {
        self.shared.withhold();
    }

    /// Sends the answers that were withheld, in their order, and those to come.
    ///
    /// # Errors
    ///
    /// When the back end has closed the channel.
    pub fn answer_again(&self) -> io::Result<()> {
        self.shared.answer_again()
    }
}

impl std::fmt::Debug for Window {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Window({} bytes)", self.size())
    }
}

/// A window whose mappings do not change: accesses are loads.
///
/// One beyond the end of the file ends the process by SIGBUS.
pub struct HeldWindow<'a>(RwLockReadGuard<'a, Table>);

impl HeldWindow<'_> {
    /// Copies bytes of the window.
    pub fn copy_out(&self, offset: u64, bytes: &mut [u8]) -> Result<(), WindowError> {
        each_part(&self.0, offset, bytes.len(), |live, at, part| {
            let copied = live.bytes.copy_out(at, &mut bytes[part]);
            copied.map_err(|_| Errno::FAULT)
        })
    }
}

/// Calls `copy` for the part of each mapping in `length` bytes at `offset`: with the mapping, the offset in it, and
/// the range of the bytes.
fn each_part(
    table: &Table,
    offset: u64,
    length: usize,
    mut copy: impl FnMut(&Live, usize, Range<usize>) -> Result<(), Errno>,
) -> Result<(), WindowError> {
    let end = offset.checked_add(length as u64);
    if end.is_none_or(|end| end > table.size()) {
        return Err(WindowError::Outside);
    }
    let mut done = 0;
    while done < length {
        let here = offset + done as u64;
        let (live, at) = table.find(here).ok_or(WindowError::Unmapped(here))?;
        let count = (live.bytes.len() - at).min(length - done);
        let copied = copy(live, at, done..done + count);
        copied.map_err(|errno| WindowError::Failed(here, errno))?;
        done += count;
    }
    Ok(())
}

/// A window with its thread. Dropping it ends both.
pub(super) struct OpenWindow {
    window: Window,
    thread: Option<JoinHandle<()>>,
}

impl OpenWindow {
    /// A window of `size` bytes, of which `stream` is this side's end of the channel.
    pub(super) fn new(
        size: u64,
        config: WindowConfig,
        stream: UnixStream,
        link: Frontend,
    ) -> OpenWindow {
        let shared = Arc::new(Shared::new(size, config, stream, link));
        OpenWindow {
            window: Window { shared },
            thread: None,
        }
    }

    /// Begins to take messages, if it has not.
    pub(super) fn start(&mut self) -> io::Result<()> {
        if self.thread.is_some() {
            return Ok(());
        }
        let shared = Arc::clone(&self.window.shared);
        let thread = std::thread::Builder::new().name("window".to_owned());
        self.thread = Some(thread.spawn(move || channel::run(&shared))?);
        Ok(())
    }

    pub(super) fn window(&self) -> &Window {
        &self.window
    }
}

impl Drop for OpenWindow {
    fn drop(&mut self) {
        let shared = &self.window.shared;
        let _ = shared.stream.shutdown(std::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // Its panic was reported where it happened.
            let _ = thread.join();
        }
        shared.change(Table::clear);
    }
}
