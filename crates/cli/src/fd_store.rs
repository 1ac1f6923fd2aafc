//! Descriptors that must stay open when a worker dies, held by the supervisor: unlinked open files, and
//! locks.
//!
//! Packets on a socket, of which the supervisor holds both ends, so that packets of a dead worker still
//! arrive:
//!
//! | from the worker | |
//! |---|---|
//! | `K`, key, a descriptor | keep it |
//! | `D`, key | close it |
//! | `T`, a number | send all of them: `B` and the number, `K` as above for each, `E` and the number |
//! | `S`, `U`, 0, a pipe | close the pipe; `U`, which is the supervisor's own: and receive no more |
//!
//! All workers use the same end, one after the other. If one dies while it receives, the rest stays in
//! the socket; the next distinguishes it by the number.
//!
//! The supervisor hands the store over to the next program of its process ([`upgrade`](crate::upgrade)): the
//! descriptors, and both ends of the socket with what is in it.

use crate::channel::packets;
use crate::task::{Joined, start_thread};
use crate::waiting;
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, shutdown};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, getrlimit};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use thrufs_hostdir::FdStore;
use thrufs_sys::fd_passing;

const KEEP: u8 = b'K';
const DISCARD: u8 = b'D';
const TAKE: u8 = b'T';
/// With a pipe, of which the other end ends when what was sent before is done.
const SETTLE: u8 = b'S';
/// The same; no more is received.
const SUSPEND: u8 = b'U';
const BEGIN: u8 = b'B';
const END: u8 = b'E';
const PACKET_BYTES: usize = 9;

/// Most descriptors of a machine, if RLIMIT_NOFILE allows.
const KEPT_MAX: usize = 32 << 10;

/// Each machine has an equal share of half of RLIMIT_NOFILE, which workers and supervisor have in common.
fn kept_max(machines_max: usize) -> usize {
    let limit = getrlimit(Resource::Nofile).maximum;
    let of_all = limit.map_or(usize::MAX, |limit| limit as usize / 2);
    KEPT_MAX.min(of_all / machines_max.max(1))
}

type Packet = (u8, u64, Option<OwnedFd>);

fn send(
    socket: BorrowedFd<'_>,
    word: u8,
    key: u64,
    file: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    fd_passing::send(socket, &packet(word, key), file.as_slice())?;
    Ok(())
}

fn packet(word: u8, key: u64) -> [u8; PACKET_BYTES] {
    let mut bytes = [0; PACKET_BYTES];
    bytes[0] = word;
    bytes[1..].copy_from_slice(&key.to_ne_bytes());
    bytes
}

/// `None` at the end.
fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<Packet>> {
    let mut bytes = [0; PACKET_BYTES];
    let received = fd_passing::receive(socket, &mut bytes, RecvFlags::empty())?;
    if received.bytes < PACKET_BYTES {
        return Ok(None);
    }
    let [word, key @ ..] = bytes;
    let file = received.descriptors.into_iter().next();
    Ok(Some((word, u64::from_ne_bytes(key), file)))
}

/// The supervisor's part.
#[derive(Debug)]
pub(crate) struct Store {
    /// The workers' end of the socket.
    socket: OwnedFd,
    ours: Arc<OwnedFd>,
    stored: Arc<Mutex<Stored>>,
    /// Whether it is to be suspended.
    suspends: Arc<AtomicBool>,
    /// What workers send stays in the socket, for the next program.
    is_suspended: bool,
    kept_max: usize,
    /// It ends when the socket is shut down, or when it is suspended.
    thread: Option<Joined>,
}

pub(crate) type Stored = HashMap<u64, OwnedFd>;

impl Store {
    pub(crate) fn start(machines_max: usize) -> io::Result<Store> {
        Store::resume(machines_max, packets()?.into(), Stored::new())
    }

    /// Goes on with the two ends of the socket, the workers' last, and with what was stored.
    pub(crate) fn resume(
        machines_max: usize,
        [ours, socket]: [OwnedFd; 2],
        stored: Stored,
    ) -> io::Result<Store> {
        let mut store = Store {
            socket,
            ours: Arc::new(ours),
            stored: Arc::new(Mutex::new(stored)),
            kept_max: kept_max(machines_max),
            suspends: Arc::default(),
            is_suspended: true,
            thread: None,
        };
        store.go_on()?;
        Ok(store)
    }

    /// Goes on after it was [suspended](Self::suspend).
    pub(crate) fn go_on(&mut self) -> io::Result<()> {
        let (received, kept) = (Arc::clone(&self.ours), Arc::clone(&self.stored));
        let (kept_max, suspends) = (self.kept_max, Arc::clone(&self.suspends));
        let keep = move || keep(&received, kept_max, &kept, &suspends);
        self.thread = Some(start_thread("thrufs-fd-store", keep)?.into());
        self.is_suspended = false;
        Ok(())
    }

    /// The supervisor's end of the socket.
    pub(crate) fn end(&self) -> &OwnedFd {
        &self.ours
    }

    /// What is stored, once all is that workers have sent until now.
    pub(crate) fn stored(&self) -> MutexGuard<'_, Stored> {
        if !self.is_suspended {
            settle(self.socket.as_fd());
        }
        self.stored.lock()
    }

    /// Stores no more, once all is that workers have sent until now. Returns whether it was in time: a descriptor that
    /// is discarded may take long to close.
    pub(crate) fn suspend(&mut self, deadline: Instant) -> bool {
        let Ok((end, pipe)) = pipe_with(PipeFlags::CLOEXEC) else {
            return false;
        };
        self.suspends.store(true, Ordering::SeqCst);
        let files = [pipe.as_fd()];
        let asked = fd_passing::send_now(self.socket.as_fd(), &packet(SUSPEND, 0), &files);
        drop(pipe);
        let is_done = asked.is_ok() && waiting::readable([Some(end.as_fd())], Some(deadline))[0];
        // Whoever resets it decides.
        self.is_suspended = is_done || !self.suspends.swap(false, Ordering::SeqCst);
        self.is_suspended
    }
}

impl AsFd for Store {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // A worker that does not end has a copy.
        if !self.is_suspended {
            let _ = shutdown(&self.socket, Shutdown::Both);
        }
    }
}

fn keep(workers: &OwnedFd, kept_max: usize, kept: &Mutex<Stored>, suspends: &AtomicBool) {
    while let Ok(Some((word, key, file))) = receive(workers.as_fd()) {
        let mut kept = kept.lock();
        match (word, file) {
            (KEEP, Some(file)) if kept.len() < kept_max || kept.contains_key(&key) => {
                kept.insert(key, file);
            }
            (KEEP, _) => tracing::debug!("a worker stores more than its share, or nothing"),
            (DISCARD, _) => drop(kept.remove(&key)),
            (SETTLE, pipe) => drop(pipe),
            // A worker may send it too.
            (SUSPEND, pipe) if suspends.swap(false, Ordering::SeqCst) => {
                drop(kept);
                return drop(pipe);
            }
            (TAKE, _) => {
                let _ = send(workers.as_fd(), BEGIN, key, None);
                for (key, file) in &*kept {
                    if send(workers.as_fd(), KEEP, *key, Some(file.as_fd())).is_err() {
                        return;
                    }
                }
                let _ = send(workers.as_fd(), END, key, None);
            }
            _ => {}
        }
    }
    // Nobody waits for what is not received any more.
    let _ = shutdown(workers, Shutdown::Both);
    while let Ok(Some(_)) = receive(workers.as_fd()) {}
}

/// Waits until what was sent before is done.
fn settle(socket: BorrowedFd<'_>) {
    let Ok((end, pipe)) = pipe_with(PipeFlags::CLOEXEC) else {
        return;
    };
    let sent = send(socket, SETTLE, 0, Some(pipe.as_fd()));
    drop(pipe);
    if sent.is_ok() {
        let _ = rustix::io::read(&end, &mut [0]);
    }
}

#[derive(Debug)]
pub(crate) struct OfSupervisor {
    socket: OwnedFd,
    /// The stored keys, for the limit.
    keys: Mutex<HashSet<u64>>,
    kept_max: usize,
    /// What was stored, where it was asked for in advance.
    fetched: Mutex<Option<Vec<(u64, OwnedFd)>>>,
}

impl OfSupervisor {
    pub(crate) fn new(socket: OwnedFd, machines_max: usize) -> OfSupervisor {
        OfSupervisor {
            socket,
            keys: Mutex::default(),
            kept_max: kept_max(machines_max),
            fetched: Mutex::default(),
        }
    }

    /// Receives now what [`take`](FdStore::take) is to return: the worker of a mount may not receive descriptors
    /// later.
    pub(crate) fn fetch(&self) {
        let taken = self.take();
        *self.fetched.lock() = Some(taken);
    }
}

impl FdStore for OfSupervisor {
    fn keep(&self, key: u64, fd: BorrowedFd<'_>) -> io::Result<()> {
        // Under the lock, so that packets are in the order of the count.
        let mut keys = self.keys.lock();
        if keys.len() >= self.kept_max && !keys.contains(&key) {
            return Err(Errno::MFILE.into());
        }
        // A packet in the socket outlives this process.
        send(self.socket.as_fd(), KEEP, key, Some(fd))?;
        keys.insert(key);
        Ok(())
    }

    fn kept_max(&self) -> usize {
        self.kept_max
    }

    fn discard(&self, key: u64) {
        let mut keys = self.keys.lock();
        if keys.remove(&key) {
            let _ = send(self.socket.as_fd(), DISCARD, key, None);
        }
    }

    fn settle(&self) {
        settle(self.socket.as_fd());
    }

    fn take(&self) -> Vec<(u64, OwnedFd)> {
        if let Some(fetched) = self.fetched.lock().take() {
            return fetched;
        }
        let mut taken = Vec::new();
        // Unique: workers do not start in the same nanosecond.
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let number = now.unwrap_or_default().as_nanos() as u64;
        if send(self.socket.as_fd(), TAKE, number, None).is_err() {
            return taken;
        }
        while let Ok(Some((word, key, file))) = receive(self.socket.as_fd()) {
            match (word, file) {
                (BEGIN, _) if key == number => taken.clear(),
                (END, _) if key == number => break,
                (BEGIN | END, _) => {}
                (_, Some(file)) => taken.push((key, file)),
                (_, None) => tracing::error!("a stored descriptor is lost"),
            }
        }
        self.keys.lock().extend(taken.iter().map(|(key, _)| *key));
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn number(file: &OwnedFd) -> u64 {
        rustix::fs::fstat(file).unwrap().st_ino
    }

    #[test]
    fn next_worker_receives_the_stored_descriptors() {
        let store = Store::start(1).unwrap();
        let socket = store.socket.try_clone().unwrap();
        let first = OfSupervisor::new(socket.try_clone().unwrap(), 1);
        let paths = ["/", "/proc", "/dev"];
        let files = paths.map(|path| OwnedFd::from(File::open(path).unwrap()));
        for (key, file) in files.iter().enumerate() {
            first.keep(key as u64, file.as_fd()).unwrap();
        }
        first.keep(0, files[2].as_fd()).unwrap();
        first.discard(1);
        drop(first);
        let second = OfSupervisor::new(socket, 1);
        let mut taken = second.take();
        taken.sort_by_key(|(key, _)| *key);
        let seen: Vec<_> = taken
            .iter()
            .map(|(key, file)| (*key, number(file)))
            .collect();
        assert_eq!(seen, [(0, number(&files[2])), (2, number(&files[2]))]);
        second.discard(0);
        assert_eq!(
            second.take().len(),
            1,
            "what is taken stays, until it is discarded"
        );
    }

    #[test]
    fn worker_that_dies_while_it_receives_does_not_disturb_the_next() {
        let store = Store::start(1).unwrap();
        let socket = store.socket.try_clone().unwrap();
        let first = OfSupervisor::new(socket.try_clone().unwrap(), 1);
        let file = OwnedFd::from(File::open("/").unwrap());
        for key in 0..3 {
            first.keep(key, file.as_fd()).unwrap();
        }
        send(socket.as_fd(), TAKE, 7, None).unwrap();
        // It dies after the first descriptor.
        assert_eq!(receive(socket.as_fd()).unwrap().unwrap().0, BEGIN);
        assert_eq!(receive(socket.as_fd()).unwrap().unwrap().0, KEEP);
        drop(first);
        let second = OfSupervisor::new(socket, 1);
        for _ in 0..2 {
            let mut keys: Vec<u64> = second.take().iter().map(|(key, _)| *key).collect();
            keys.sort_unstable();
            assert_eq!(keys, [0, 1, 2]);
        }
    }

    #[test]
    fn stored_descriptors_are_limited() {
        let store = Store::start(1).unwrap();
        let mut fd_store = OfSupervisor::new(store.socket.try_clone().unwrap(), 1);
        fd_store.kept_max = 2;
        let file = File::open("/").unwrap();
        fd_store.keep(1, file.as_fd()).unwrap();
        fd_store.keep(2, file.as_fd()).unwrap();
        assert!(fd_store.keep(3, file.as_fd()).is_err());
        fd_store.keep(2, file.as_fd()).unwrap();
        fd_store.discard(1);
        fd_store.keep(3, file.as_fd()).unwrap();
    }
}
