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
//! What front ends can do differs, and is probed with a file in memory before the first session ([`probe`]).
//! The mappings outlive this process, in the front end and in the journal: the next worker goes on with them.

mod abilities;
mod channel;
mod mapper;
mod probe;
pub(crate) mod state;
mod table;

use crate::carry_out::Sleeping;
use crate::journal::WindowRecord;
use mapper::Mapper;
use parking_lot::Mutex;
use rustix::net::RecvFlags;
use state::WindowState;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use thrufs::serving::ServingThreads;
use thrufs::{FileSystem, Metrics, NodeId};
use thrufs_sys::fd_passing;

/// How often a wait of a queue's thread looks whether the queue is to stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(5);

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

enum Job<F: FileSystem> {
    /// The front end's channel.
    Connect(UnixStream),
    /// A request.
    Change(Box<Sleeping<F>>),
    /// Unmap a file.
    Withdraw(NodeId),
    /// Empty the window; then say whether it can be used.
    Begin(Sender<bool>),
    /// Empty the window; then say so.
    End(Sender<()>),
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
        let state = Arc::new(WindowState::new(bytes, record.as_ref(), metrics)?);
        let (jobs, received) = channel();
        let withdrawals = jobs.clone();
        let _ = state.withdraw.set(Box::new(move |node| {
            // Fails after the end of the thread.
            let _ = withdrawals.send(Job::Withdraw(node));
        }));
        let (end, ended) = channel::<()>();
        let mapper = Mapper::new(Arc::clone(&state), record);
        std::thread::Builder::new()
            .name("thrufs-window".to_owned())
            .spawn(move || {
                let _end = end;
                let _serving = threads.begin();
                run(mapper, &received);
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
        // Where the thread has ended, the sender is gone as well.
        let _ = self.jobs.send(Job::Begin(answer));
        wait_for(&answered, stops, false)
    }

    /// Unmaps everything. Returns once that is done, so that nothing is asked of a front end whose device the guest
    /// stops after its unmount: QEMU 11.1 does not survive it. Or when `stops` says so.
    pub(crate) fn end_session(&self, stops: impl Fn() -> bool) {
        let (answer, answered) = channel();
        let _ = self.jobs.send(Job::End(answer));
        wait_for(&answered, stops, ());
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

/// What the thread answers; `without` when it has ended, `None` when `stops` said so.
fn wait_for<T>(answered: &Receiver<T>, stops: impl Fn() -> bool, without: T) -> Option<T> {
    loop {
        match answered.recv_timeout(STOP_POLL_INTERVAL) {
            Ok(answer) => return Some(answer),
            Err(RecvTimeoutError::Timeout) if stops() => return None,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Some(without),
        }
    }
}

/// The thread.
fn run<F: FileSystem>(mut mapper: Mapper, jobs: &Receiver<Job<F>>) {
    for job in jobs {
        match job {
            Job::Connect(stream) => mapper.connect(stream),
            Job::Change(sleeping) => mapper.carry_out(*sleeping),
            Job::Withdraw(node) => mapper.withdraw(node),
            Job::Begin(answer) => {
                let has_window = mapper.begin_session();
                // The queue may have been stopped meanwhile.
                let _ = answer.send(has_window);
            }
            Job::End(answer) => {
                mapper.end_session();
                let _ = answer.send(());
            }
            Job::Quit => return,
        }
    }
}
