//! The DAX window: a range of the guest's address space into which the front end maps files, at this side's
//! request (virtio 1.3, 5.11.5; vhost-user's `VHOST_USER_PROTOCOL_F_SHMEM`).
//!
//! ```text
//! SETUPMAPPING ─► queue ─► file system: which file ─► thread of the window ─► front end: map it
//! ```
//!
//! One thread changes the window, one change after the other, and waits for the front end. No other thread does,
//! but for INIT, which needs an empty window: QEMU answers on the thread that also stops queues and changes the
//! memory table, so whatever QEMU waits for must not wait for QEMU. A queue that is stopped leaves its requests
//! here, as it leaves waits for locks.
//!
//! What front ends can do differs, and is tried with a file in memory before the first session ([`abilities`]).
//! The mappings outlive this process, in the front end and in the journal: the next worker goes on with them.

mod abilities;
mod channel;
mod table;

use crate::carry_out::{Left, Sleeping};
use crate::journal::WindowRecord;
use crate::mailbox::signal;
use abilities::Abilities;
use channel::{Channel, ChannelError, Part, Patience};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::RecvFlags;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use table::{FileId, Invalid, Mapping, PAGE_BYTES, Table};
use thrufs::metrics::WindowEvent;
use thrufs::serving::ServingThreads;
use thrufs::{Errno, FileSystem, Metrics, NodeId, WindowChange, WindowCoverage};
use thrufs_sys::fd_passing;

/// How long a guest's request waits for the front end. A monitor may be stopped for a while (a debugger, a
/// snapshot), and the guest's virtual CPUs with it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The same for INIT, which holds up a queue.
const SESSION_TIMEOUT: Duration = Duration::from_secs(2);

/// How often a wait of a queue's thread looks whether the queue is to stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(5);

fn file_id(file: impl AsFd) -> io::Result<FileId> {
    let stat = rustix::fs::fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// The descriptor of the next message, if that is SET_BACKEND_REQ_FD (21). It stays in the socket: `vhost` keeps
/// the descriptor to itself.
pub(crate) fn back_end_channel(stream: &UnixStream) -> Option<UnixStream> {
    const SET_BACKEND_REQ_FD: u32 = 21;
    let mut header = [0; 12];
    let peeked = fd_passing::receive(stream.as_fd(), &mut header, RecvFlags::PEEK).ok()?;
    let code = u32::from_ne_bytes(*header.first_chunk()?);
    if peeked.bytes < size_of_val(&code) || code != SET_BACKEND_REQ_FD {
        return None;
    }
    peeked.descriptors.into_iter().next().map(UnixStream::from)
}

/// What other threads see of the window.
#[derive(Debug)]
pub(crate) struct WindowState {
    table: Mutex<Table>,
    /// The file with which the front end is tried out.
    tried: Mutex<Option<FileId>>,
    /// How many regions of memory were added that are parts of the window.
    announced: AtomicU64,
    abilities: OnceLock<Abilities>,
    /// Signalled when a session has ended.
    eventfd: OwnedFd,
    metrics: Arc<Metrics>,
}

impl WindowState {
    /// Whether a region of memory is a part of the window, because the front end maps this file there.
    pub(crate) fn note_region(&self, file: impl AsFd) -> bool {
        let has_mapped = |id| *self.tried.lock() == Some(id) || self.table.lock().has_mapped(id);
        let is_of_window = file_id(file).is_ok_and(has_mapped);
        if is_of_window {
            self.announced.fetch_add(1, Ordering::SeqCst);
        }
        is_of_window
    }

    /// Wakes the thread of the window, which gives up what a session that has ended waits for.
    pub(crate) fn interrupt(&self) {
        signal(self.eventfd.as_fd());
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

    fn covered(&self, node: NodeId) -> Option<u64> {
        if self.maps_beyond_end() {
            return None;
        }
        self.table.lock().covered(node.0)
    }
}

enum Job<F: FileSystem> {
    /// The front end's channel.
    Connect(UnixStream),
    /// A request.
    Change(Box<Sleeping<F>>),
    /// Empty the window; then say whether it can be used.
    Begin(Sender<bool>),
    /// Empty the window.
    End,
    /// The connection has ended.
    Quit,
}

/// The window of a connection.
pub(crate) struct Window<F: FileSystem> {
    pub(crate) state: Arc<WindowState>,
    jobs: Sender<Job<F>>,
    /// Disconnected at the thread's end.
    ended: Mutex<Receiver<()>>,
}

impl<F: FileSystem> Window<F> {
    /// Starts the thread of a window of `bytes`, with the mappings in `record`.
    pub(crate) fn start(
        bytes: u64,
        record: Option<WindowRecord>,
        metrics: &Arc<Metrics>,
        threads: ServingThreads,
    ) -> io::Result<Window<F>> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let table = Table::new(bytes, record.clone());
        metrics.count_window(WindowEvent::Mappings(table.len() as u64));
        let state = Arc::new(WindowState {
            table: Mutex::new(table),
            tried: Mutex::default(),
            announced: AtomicU64::new(0),
            abilities: OnceLock::new(),
            eventfd: eventfd(0, flags)?,
            metrics: Arc::clone(metrics),
        });
        if let Some(known) = record
            .as_ref()
            .and_then(|record| Abilities::decode(record.abilities()))
        {
            let _ = state.abilities.set(known);
        }
        let (jobs, received) = channel();
        let (end, ended) = channel::<()>();
        let mapper = Mapper {
            state: Arc::clone(&state),
            record,
            channel: None,
        };
        std::thread::Builder::new()
            .name("thrufs-window".to_owned())
            .spawn(move || {
                let _end = end;
                let _serving = threads.begin();
                mapper.run(&received);
            })?;
        Ok(Window {
            state,
            jobs,
            ended: Mutex::new(ended),
        })
    }

    pub(crate) fn connect(&self, channel: UnixStream) {
        // Fails after a panic of the thread: then the window is not available.
        let _ = self.jobs.send(Job::Connect(channel));
    }

    /// Carries out a request for the window.
    pub(crate) fn take(&self, sleeping: Sleeping<F>) {
        // After a panic of the thread, which ends the connection, it is not answered.
        let _ = self.jobs.send(Job::Change(Box::new(sleeping)));
    }

    /// Prepares for a session: nothing is mapped. Returns whether the session has a window; `None` when
    /// `stops` said so.
    pub(crate) fn begin_session(&self, stops: impl Fn() -> bool) -> Option<bool> {
        let (answer, answered) = channel();
        if self.jobs.send(Job::Begin(answer)).is_err() {
            return Some(false);
        }
        loop {
            match answered.recv_timeout(STOP_POLL_INTERVAL) {
                Ok(has_window) => return Some(has_window),
                Err(RecvTimeoutError::Timeout) if stops() => return None,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Some(false),
            }
        }
    }

    /// Unmaps everything, in a while.
    pub(crate) fn end_session(&self) {
        let _ = self.jobs.send(Job::End);
    }

    /// Ends the thread. False when it has not ended by `deadline`.
    pub(crate) fn end(&self, deadline: Instant) -> bool {
        let _ = self.jobs.send(Job::Quit);
        self.state.interrupt();
        let left = deadline.saturating_duration_since(Instant::now());
        let ended = self.ended.lock().recv_timeout(left);
        ended == Err(RecvTimeoutError::Disconnected)
    }
}

/// What the thread owns.
struct Mapper {
    state: Arc<WindowState>,
    record: Option<WindowRecord>,
    channel: Option<Channel>,
}

impl Mapper {
    fn run<F: FileSystem>(mut self, jobs: &Receiver<Job<F>>) {
        for job in jobs {
            match job {
                Job::Connect(stream) => self.channel = Some(Channel::new(stream)),
                Job::Change(sleeping) => self.carry_out(*sleeping),
                Job::Begin(answer) => {
                    let has_window = self.begin_session();
                    // The queue may have been stopped meanwhile.
                    let _ = answer.send(has_window);
                }
                Job::End => {
                    self.unmap_all(&|| false, SESSION_TIMEOUT);
                }
                Job::Quit => return,
            }
        }
    }

    fn carry_out<F: FileSystem>(&mut self, mut sleeping: Sleeping<F>) {
        let Some(Left::Window(reply)) = sleeping.left.take() else {
            return;
        };
        let session = Arc::clone(&sleeping.session);
        let is_over = || session.is_over();
        let result = match reply.change() {
            _ if is_over() => Err(Errno::EIO),
            WindowChange::Map {
                node,
                file,
                args,
                at,
            } => {
                let wanted = Mapping {
                    node: node.0,
                    at: *at,
                    offset: args.offset,
                    length: args.length,
                    mapped: args.length,
                    writable: file.writable,
                    is_doubtful: true,
                    file: file_id(&file.file).unwrap_or_default(),
                };
                self.map(wanted, args.write, &file.file, &is_over)
            }
            WindowChange::Unmap(ranges) => self.unmap(ranges, &is_over),
        };
        drop(session);
        self.count_mappings();
        sleeping.finish_window(&reply, result);
    }

    fn map(
        &mut self,
        wanted: Mapping,
        will_write: bool,
        file: &OwnedFd,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), Errno> {
        if !wanted.offset.is_multiple_of(PAGE_BYTES) {
            return Err(self.invalid(Invalid::Range));
        }
        let existing = self.state.table.lock().get(wanted.at, wanted.length);
        if let Some(existing) = existing {
            let is_same = (existing.node, existing.offset) == (wanted.node, wanted.offset);
            if !is_same && !existing.is_doubtful {
                return Err(self.invalid(Invalid::Overlap));
            }
            if !existing.is_doubtful {
                // The kernel asks again when it begins to write.
                return match will_write && !existing.writable {
                    true => Err(self.invalid(Invalid::ReadOnly)),
                    false => Ok(()),
                };
            }
            self.remove(&existing, is_over, ANSWER_TIMEOUT)?;
        }
        let free = self
            .state
            .table
            .lock()
            .require_free(wanted.at, wanted.length);
        free.map_err(|invalid| self.invalid(invalid))?;
        if will_write && !wanted.writable {
            return Err(self.invalid(Invalid::ReadOnly));
        }
        self.map_new(wanted, file, is_over)
    }

    fn map_new(
        &mut self,
        mut wanted: Mapping,
        file: &OwnedFd,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), Errno> {
        let can = self.state.abilities().ok_or(Errno::EIO)?;
        if !can.map_beyond_end {
            let size = rustix::fs::fstat(file)?.st_size.cast_unsigned();
            let there = size.saturating_sub(wanted.offset) / PAGE_BYTES * PAGE_BYTES;
            wanted.mapped = wanted.length.min(there);
        }
        // First the record: whoever comes after a death in between unmaps what may be there.
        let put = self.state.table.lock().put(wanted);
        put.map_err(|invalid| self.invalid(invalid))?;
        let mapped = if wanted.mapped == 0 {
            Ok(())
        } else {
            self.ask(is_over, ANSWER_TIMEOUT, |channel, patience| {
                channel.map(part(&wanted), file.as_fd(), wanted.writable, patience)?;
                match can.announces {
                    true => channel.wait_for_front_end(patience),
                    false => Ok(()),
                }
            })
        };
        match mapped {
            Ok(()) => {
                let certain = Mapping {
                    is_doubtful: false,
                    ..wanted
                };
                // It has its place already.
                let _ = self.state.table.lock().put(certain);
                self.count(WindowEvent::Mapped);
                Ok(())
            }
            Err(error) => {
                if error == ChannelError::Refused {
                    self.forget(wanted.at);
                }
                Err(self.failed(error))
            }
        }
    }

    fn unmap(&mut self, ranges: &[(u64, u64)], is_over: &dyn Fn() -> bool) -> Result<(), Errno> {
        for &(at, length) in ranges {
            let within = self.state.table.lock().within(at, length);
            let mappings = within.map_err(|invalid| self.invalid(invalid))?;
            for mapping in mappings {
                self.remove(&mapping, is_over, ANSWER_TIMEOUT)?;
                self.count(WindowEvent::Unmapped);
            }
        }
        Ok(())
    }

    /// Unmaps, whether the front end has it or not.
    fn remove(
        &mut self,
        mapping: &Mapping,
        is_over: &dyn Fn() -> bool,
        timeout: Duration,
    ) -> Result<(), Errno> {
        if mapping.mapped > 0 {
            let doubtful = Mapping {
                is_doubtful: true,
                ..*mapping
            };
            let _ = self.state.table.lock().put(doubtful);
            let unmapped = self.ask(is_over, timeout, |channel, patience| {
                channel.unmap(part(mapping), patience)
            });
            match unmapped {
                // Refused: it has not mapped this, or has dropped it at a reset.
                Ok(()) | Err(ChannelError::Refused) => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        self.forget(mapping.at);
        Ok(())
    }

    fn forget(&self, at: u64) {
        self.state.table.lock().remove(at);
    }

    /// Unmaps what is left of the last session. False when the front end does not take part.
    fn unmap_all(&mut self, is_over: &dyn Fn() -> bool, timeout: Duration) -> bool {
        let all = self.state.table.lock().all();
        let removed = all
            .iter()
            .all(|mapping| self.remove(mapping, is_over, timeout).is_ok());
        self.count_mappings();
        removed
    }

    /// Empties the window and, the first time, finds out what the front end can do.
    fn begin_session(&mut self) -> bool {
        if self.channel.is_none() {
            tracing::info!("no DAX window: the front end has no back-end channel");
            return false;
        }
        if !self.unmap_all(&|| false, SESSION_TIMEOUT) {
            tracing::warn!(
                "no DAX window in this session: the front end does not unmap the last one's files"
            );
            return false;
        }
        if self.state.abilities().is_none() {
            match self.try_out() {
                Ok(can) => {
                    tracing::info!(
                        map_beyond_end = can.map_beyond_end,
                        map_read_only = can.map_read_only,
                        announces = can.announces,
                        "the front end maps files into the DAX window"
                    );
                    if let Some(record) = &self.record {
                        record.set_abilities(can.encode());
                    }
                    let _ = self.state.abilities.set(can);
                }
                Err(error) => {
                    tracing::warn!(%error, "no DAX window in this session: the front end maps no file");
                    return false;
                }
            }
        }
        true
    }

    fn ask(
        &mut self,
        is_over: &dyn Fn() -> bool,
        timeout: Duration,
        ask: impl FnOnce(&mut Channel, &Patience<'_>) -> Result<(), ChannelError>,
    ) -> Result<(), ChannelError> {
        let channel = self.channel.as_mut().ok_or(ChannelError::Closed)?;
        let patience = Patience {
            deadline: Instant::now() + timeout,
            eventfd: &self.state.eventfd,
            is_over,
        };
        let asked = ask(channel, &patience);
        if asked == Err(ChannelError::Closed) {
            self.channel = None;
        }
        asked
    }

    fn invalid(&self, invalid: Invalid) -> Errno {
        tracing::debug!(%invalid, "a guest's request for the DAX window is refused");
        self.count(WindowEvent::Invalid);
        match invalid {
            Invalid::ReadOnly => Errno::EACCES,
            Invalid::Range | Invalid::Overlap | Invalid::TooMany | Invalid::NotMapped => {
                Errno::EINVAL
            }
        }
    }

    fn failed(&self, error: ChannelError) -> Errno {
        tracing::debug!(%error, "a change of the DAX window failed");
        self.count(WindowEvent::Failed);
        Errno::EIO
    }

    fn count_mappings(&self) {
        let mappings = self.state.table.lock().len();
        self.count(WindowEvent::Mappings(mappings as u64));
    }

    fn count(&self, event: WindowEvent) {
        self.state.metrics.count_window(event);
    }
}

fn part(mapping: &Mapping) -> Part {
    Part {
        at: mapping.at,
        offset: mapping.offset,
        length: mapping.mapped,
    }
}
