//! Notifications: changes that the kernel cannot see, and data for its cache.
//!
//! A notification takes locks of inodes, which a client may hold while it waits for a reply. A thread that
//! answers requests and sends notifications could wait for its own reply, for ever. So notifications are
//! queued, and one thread that does nothing else writes them, in order. One kind takes no such lock
//! ([`Notifier::expire_attributes`]).
//!
//! The queue is bounded. When it is full, [`Notifier`]'s methods fail with `EAGAIN`, and the caller can use
//! a cheaper one, for instance one [`increment_epoch`](Notifier::increment_epoch) for a thousand changed
//! names.

use crate::errno::{Errno, Result};
use crate::metrics::{Metrics, bump};
use parking_lot::{Condvar, Mutex};
use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;
use thrufs_abi::{NodeId, Notification, NotifyCode, Unique};

/// A waiting `poll(2)`, for [`Notifier::poll_wakeup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PollHandle(pub(crate) u64);

/// The kernel's number, for interfaces that carry it as one.
impl From<PollHandle> for u64 {
    fn from(handle: PollHandle) -> u64 {
        handle.0
    }
}

/// A number that a handle was before; the kernel ignores one that it does not know.
impl From<u64> for PollHandle {
    fn from(number: u64) -> PollHandle {
        PollHandle(number)
    }
}

/// Most nodes in one message of PRUNE; longer lists become several.
const PRUNE_NODES_MAX: usize = 512;

/// Sends notifications to one connection. Clones share the queue.
///
/// All methods but [`flush`](Self::flush) return at once, with `EAGAIN` when the queue is full and with
/// `ENOTCONN` once the connection has ended. The kernel's result is only counted; that it had nothing cached
/// is success.
#[derive(Clone, Debug)]
pub struct Notifier {
    queue: Arc<Queue>,
}

#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    messages_max: usize,
    next_cookie: AtomicU64,
    /// The device, for messages that bypass the queue.
    device: OnceLock<Weak<OwnedFd>>,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct State {
    messages: VecDeque<Message>,
    /// Messages ever queued, and ever written.
    queued: u64,
    done: u64,
    closed: bool,
}

#[derive(Debug)]
struct Message {
    code: NotifyCode,
    bytes: Vec<u8>,
}

thread_local! {
    static SERVES: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as one that answers requests.
pub(crate) fn mark_serving_thread() {
    SERVES.set(true);
}

impl Notifier {
    pub(crate) fn new(queue: Arc<Queue>) -> Notifier {
        Notifier { queue }
    }

    /// A notifier of a connection without notifications: all methods fail with `ENOTCONN`.
    pub(crate) fn unavailable() -> Notifier {
        let queue = Arc::new(Queue::new(0, Arc::default()));
        queue.close();
        Notifier { queue }
    }

    /// A notifier whose messages are not read; [`pending`](Self::pending) counts them. For tests of file
    /// systems.
    pub fn disconnected() -> Notifier {
        Notifier {
            queue: Arc::new(Queue::new(1 << 16, Arc::default())),
        }
    }

    /// Whether there is a connection that takes notifications.
    pub fn is_connected(&self) -> bool {
        self.queue.device.get().and_then(Weak::upgrade).is_some()
    }

    /// The attributes of `node` have changed, and `length` bytes of its data from `offset` on, 0 for all.
    /// With a negative `offset` the data are unchanged.
    pub fn inval_inode(&self, node: NodeId, offset: i64, length: i64) -> Result<()> {
        let (off, len) = (offset, length);
        self.queue
            .push(&Notification::InvalInode { node, off, len })
    }

    /// The attributes of `node` have changed; the kernel knows when this returns, and asks for them at their
    /// next use. Unlike the other methods it may be called by a thread that answers a request: the kernel takes
    /// no lock for it that a request holds. But only for a node of that request, unless the thread may wait: the call waits
    /// for a node that the kernel is forgetting.
    ///
    /// # Errors
    /// `ENOTCONN` without a connection that takes notifications, or once it has ended; the kernel's, `ENOENT` for
    /// a node that it does not know.
    pub fn expire_attributes(&self, node: NodeId) -> Result<()> {
        let (off, len) = (-1, 0);
        self.send(&Notification::InvalInode { node, off, len })
    }

    /// As [`inval_inode`](Self::inval_inode), and the kernel has done it when this returns: a `read(2)` of these
    /// data that is under way is waited for.
    ///
    /// # Errors
    /// `EDEADLK` on a thread that answers requests, else as [`expire_attributes`](Self::expire_attributes).
    pub fn inval_inode_now(&self, node: NodeId, offset: i64, length: i64) -> Result<()> {
        let (off, len) = (offset, length);
        self.send_waiting(&Notification::InvalInode { node, off, len })
    }

    /// As [`inval_entry`](Self::inval_entry), and the kernel has done it when this returns: requests on names in
    /// `parent` that are under way are waited for.
    ///
    /// # Errors
    /// `EDEADLK` on a thread that answers requests; `ENAMETOOLONG`; `ENOTCONN` without a connection that takes
    /// notifications, or once it has ended; the kernel's, `ENOENT` for a name that it has not cached.
    pub fn inval_entry_now(&self, parent: NodeId, name: &[u8], expire_only: bool) -> Result<()> {
        check_name(name)?;
        self.send_waiting(&Notification::InvalEntry {
            parent,
            name,
            expire_only,
        })
    }

    /// The kernel sends what another process has read, and not answered, again.
    pub(crate) fn resend_now(&self) -> Result<()> {
        self.send(&Notification::Resend)
    }

    fn send_waiting(&self, notification: &Notification<'_>) -> Result<()> {
        if SERVES.get() {
            return Err(Errno::EDEADLK);
        }
        self.send(notification)
    }

    fn send(&self, notification: &Notification<'_>) -> Result<()> {
        let device = self.queue.device.get().and_then(Weak::upgrade);
        let device = device.ok_or(Errno::ENOTCONN)?;
        let bytes = notification.encode().ok_or(Errno::EINVAL)?;
        match rustix::io::retry_on_intr(|| rustix::io::write(device.as_fd(), &bytes)) {
            Err(rustix::io::Errno::NODEV) => return Err(Errno::ENOTCONN),
            sent => sent?,
        };
        bump(&self.queue.metrics.figures.notifications_sent);
        Ok(())
    }

    /// `name` in `parent` has another node now, or none. With `expire_only`, the kernel looks it up again at
    /// its next use, and leaves mounts on it alone (7.38).
    ///
    /// # Errors
    /// As all methods; `ENAMETOOLONG`.
    pub fn inval_entry(&self, parent: NodeId, name: &[u8], expire_only: bool) -> Result<()> {
        check_name(name)?;
        self.queue.push(&Notification::InvalEntry {
            parent,
            name,
            expire_only,
        })
    }

    /// `name` in `parent`, which was `child`, was removed. Beyond [`inval_entry`](Self::inval_entry), an
    /// inotify(7) watch of `child` gets `IN_DELETE_SELF`; a watch of `parent` gets nothing (Linux 6.18).
    ///
    /// # Errors
    /// As all methods; `ENAMETOOLONG`.
    pub fn delete(&self, parent: NodeId, child: NodeId, name: &[u8]) -> Result<()> {
        check_name(name)?;
        self.queue.push(&Notification::Delete {
            parent,
            child,
            name,
        })
    }

    /// Puts data into the page cache of `node`, from `offset` on.
    pub fn store(&self, node: NodeId, offset: u64, data: &[u8]) -> Result<()> {
        self.queue.push(&Notification::Store { node, offset, data })
    }

    /// Asks for what the page cache has of `node` from `offset` on, at most `size` bytes. The reply goes to
    /// [`FileSystem::retrieved`](crate::FileSystem::retrieved) with the returned cookie; there is none when
    /// the kernel does not know the node.
    pub fn retrieve(&self, node: NodeId, offset: u64, size: u32) -> Result<Unique> {
        let unique = Unique(self.queue.next_cookie.fetch_add(2, Ordering::Relaxed));
        self.queue.push(&Notification::Retrieve {
            unique,
            node,
            offset,
            size,
        })?;
        Ok(unique)
    }

    /// Makes the kernel send all unanswered requests again (7.39): for a server that resumes the session of
    /// one that died. Requests over io_uring are not among them (observed with Linux 6.18).
    pub fn resend(&self) -> Result<()> {
        self.queue.push(&Notification::Resend)
    }

    /// Makes every name and every cached listing stale, at little cost (7.44): each is looked up again at its
    /// next use.
    pub fn increment_epoch(&self) -> Result<()> {
        self.queue.push(&Notification::IncEpoch)
    }

    /// As [`increment_epoch`](Self::increment_epoch), and the kernel has done it when this returns. It takes no
    /// lock for it.
    ///
    /// # Errors
    /// `ENOTCONN` without a connection that takes notifications, or once it has ended; the kernel's, `EINVAL`
    /// before 7.44.
    pub fn increment_epoch_now(&self) -> Result<()> {
        self.send(&Notification::IncEpoch)
    }

    /// Asks the kernel to forget those of these nodes that are not in use (7.45).
    ///
    /// # Errors
    /// As all methods; some nodes of a long list may be queued then.
    pub fn prune(&self, nodes: &[NodeId]) -> Result<()> {
        nodes
            .chunks(PRUNE_NODES_MAX)
            .try_for_each(|nodes| self.queue.push(&Notification::Prune { nodes }))
    }

    /// Wakes the processes that poll with this handle, which [`Context::poll_handle`] returned.
    ///
    /// # Errors
    /// As all methods.
    ///
    /// [`Context::poll_handle`]: crate::Context::poll_handle
    pub fn poll_wakeup(&self, handle: PollHandle) -> Result<()> {
        self.queue.push(&Notification::Poll { kh: handle.0 })
    }

    /// Waits until all messages that were queued so far are written.
    ///
    /// # Errors
    /// `EDEADLK` on a thread that answers requests: the kernel may be waiting for that answer.
    /// `ENOTCONN` when the connection ends first.
    pub fn flush(&self) -> Result<()> {
        self.flush_until(None).map(drop)
    }

    /// As [`flush`](Self::flush), but not after `deadline`. Returns whether they are written.
    ///
    /// # Errors
    /// Those of [`flush`](Self::flush).
    pub fn flush_by(&self, deadline: Instant) -> Result<bool> {
        self.flush_until(Some(deadline))
    }

    fn flush_until(&self, deadline: Option<Instant>) -> Result<bool> {
        if SERVES.get() {
            return Err(Errno::EDEADLK);
        }
        let mut state = self.queue.state.lock();
        let target = state.queued;
        while state.done < target {
            if state.closed {
                return Err(Errno::ENOTCONN);
            }
            match deadline {
                None => self.queue.changed.wait(&mut state),
                Some(deadline) => {
                    let changed = &self.queue.changed;
                    if changed.wait_until(&mut state, deadline).timed_out() {
                        return Ok(state.done >= target);
                    }
                }
            }
        }
        Ok(true)
    }

    /// How many messages are queued.
    pub fn pending(&self) -> usize {
        self.queue.state.lock().messages.len()
    }
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > thrufs_abi::NAME_BYTES_MAX {
        Err(Errno::ENAMETOOLONG)
    } else {
        Ok(())
    }
}

impl Queue {
    pub(crate) fn new(messages_max: usize, metrics: Arc<Metrics>) -> Queue {
        Queue {
            state: Mutex::default(),
            changed: Condvar::new(),
            messages_max,
            // Far from the numbers of requests, among which the kernel looks it up.
            next_cookie: AtomicU64::new(1 << 62),
            device: OnceLock::new(),
            metrics,
        }
    }

    /// Sets the device for messages that bypass the queue, as long as it is open.
    pub(crate) fn reach(&self, device: &Arc<OwnedFd>) {
        let _ = self.device.set(Arc::downgrade(device));
    }

    fn push(&self, notification: &Notification<'_>) -> Result<()> {
        let bytes = notification.encode().ok_or(Errno::EINVAL)?;
        let mut state = self.state.lock();
        if state.closed {
            return Err(Errno::ENOTCONN);
        }
        if state.messages.len() >= self.messages_max {
            bump(&self.metrics.figures.notifications_refused);
            return Err(Errno::EAGAIN);
        }
        state.messages.push_back(Message {
            code: notification.code(),
            bytes,
        });
        state.queued += 1;
        self.note_length(&state);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    fn note_length(&self, state: &State) {
        let queued = &self.metrics.figures.notifications_queued;
        queued.store(state.messages.len() as u64, Ordering::Relaxed);
    }

    /// Ends the queue: [`write_all`](Self::write_all) and all waits return.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.messages.clear();
        self.note_length(&state);
        drop(state);
        self.changed.notify_all();
    }

    /// The notifying thread: writes messages to `device` until the queue is closed.
    pub(crate) fn write_all(&self, device: BorrowedFd<'_>) {
        while let Some(message) = self.next() {
            self.write(device, &message);
            self.state.lock().done += 1;
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Option<Message> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(message) = state.messages.pop_front() {
                self.note_length(&state);
                return Some(message);
            }
            self.changed.wait(&mut state);
        }
    }

    fn write(&self, device: BorrowedFd<'_>, message: &Message) {
        loop {
            match rustix::io::write(device, &message.bytes) {
                Err(rustix::io::Errno::INTR) => {}
                // The kernel caches nothing of the kind, or the connection has just ended.
                Ok(_) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::NODEV) => {
                    return bump(&self.metrics.figures.notifications_sent);
                }
                Err(error) => {
                    bump(&self.metrics.figures.notifications_failed);
                    let code = message.code;
                    return tracing::debug!(?code, %error, "the kernel refused a notification");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_full_queue_refuses_and_counts() {
        let metrics = Arc::<Metrics>::default();
        let notifier = Notifier::new(Arc::new(Queue::new(2, Arc::clone(&metrics))));
        notifier.increment_epoch().unwrap();
        notifier.inval_inode(NodeId(1), -1, 0).unwrap();
        assert_eq!(notifier.resend(), Err(Errno::EAGAIN));
        let snapshot = metrics.snapshot();
        assert_eq!(snapshot.notifications_refused, 1);
        assert_eq!(snapshot.notifications_queued, 2);
        assert_eq!(notifier.pending(), 2);
    }

    #[test]
    fn flush_waits_for_the_writer_and_not_on_a_serving_thread() {
        let queue = Arc::new(Queue::new(100, Arc::default()));
        let notifier = Notifier::new(Arc::clone(&queue));
        let null = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/null")
            .unwrap();
        for number in 0..50 {
            notifier
                .inval_entry(NodeId(number), b"name", false)
                .unwrap();
        }
        std::thread::scope(|scope| {
            scope.spawn(|| queue.write_all(null.as_fd()));
            notifier.flush().unwrap();
            assert_eq!(notifier.pending(), 0);
            assert_eq!(notifier.flush_by(Instant::now()), Ok(true));
            let serving = scope.spawn(|| {
                mark_serving_thread();
                notifier.flush()
            });
            assert_eq!(serving.join().unwrap(), Err(Errno::EDEADLK));
            queue.close();
        });
        assert_eq!(notifier.increment_epoch(), Err(Errno::ENOTCONN));
        assert_eq!(queue.metrics.snapshot().notifications_sent, 50);
    }

    #[test]
    fn expire_attributes_bypasses_the_queue() {
        let queue = Arc::new(Queue::new(1, Arc::default()));
        let notifier = Notifier::new(Arc::clone(&queue));
        let early = notifier.expire_attributes(NodeId(5));
        assert_eq!(early, Err(Errno::ENOTCONN), "without a device");
        let (reader, device) = rustix::pipe::pipe().unwrap();
        let device = Arc::new(device);
        queue.reach(&device);
        notifier.increment_epoch().unwrap();
        notifier.expire_attributes(NodeId(5)).unwrap();
        assert_eq!(notifier.pending(), 1, "the queue is as it was");
        let mut written = [0; 100];
        let count = rustix::io::read(&reader, &mut written).unwrap();
        let (node, off, len) = (NodeId(5), -1, 0);
        let expected = Notification::InvalInode { node, off, len }.encode();
        assert_eq!(Some(&written[..count]), expected.as_deref());
        drop(device);
        let ended = notifier.expire_attributes(NodeId(5));
        assert_eq!(ended, Err(Errno::ENOTCONN), "it is closed");
    }

    #[test]
    fn closing_ends_a_flush() {
        let queue = Arc::new(Queue::new(100, Arc::default()));
        let notifier = Notifier::new(Arc::clone(&queue));
        notifier.increment_epoch().unwrap();
        assert_eq!(notifier.flush_by(Instant::now()), Ok(false));
        std::thread::scope(|scope| {
            let flushing = scope.spawn(|| notifier.flush());
            std::thread::sleep(std::time::Duration::from_millis(20));
            queue.close();
            assert_eq!(flushing.join().unwrap(), Err(Errno::ENOTCONN));
        });
    }

    #[test]
    fn long_lists_are_pruned_in_parts() {
        let notifier = Notifier::disconnected();
        notifier
            .prune(&vec![NodeId(5); PRUNE_NODES_MAX + 1])
            .unwrap();
        assert_eq!(notifier.pending(), 2);
        notifier.prune(&[]).unwrap();
        assert_eq!(notifier.pending(), 2);
        let (parent, long) = (NodeId(1), &[b'x'; 5000]);
        for refused in [
            notifier.inval_entry(parent, long, true),
            notifier.inval_entry_now(parent, long, true),
            notifier.delete(parent, NodeId(2), long),
        ] {
            assert_eq!(refused, Err(Errno::ENAMETOOLONG));
        }
    }
}
