//! Transfer of a device state: a thread that writes to the front end's pipe, or reads from it.
//!
//! The control thread handles messages meanwhile. It waits for the transfer at CHECK_DEVICE_STATE and before
//! a queue starts: without limit while bytes move, for [`STALL_TIME`] while the pipe's other end is idle.

use crate::connection::Connection;
use crate::device_state::Again;
use crate::mailbox::signal;
use crate::session::SessionOf;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// What a transfer has loaded: the heads of requests to be replayed, and the session. `None` after a save.
pub(crate) type Moved<M> = Option<(Again, Option<SessionOf<M>>)>;

/// How long the other end of the pipe may be idle while the control thread waits.
const STALL_TIME: Duration = Duration::from_secs(5);

const LOOK_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct Progress {
    cancel: OwnedFd,
    cancelled: AtomicBool,
    /// The transfer waits for the other end.
    waits: AtomicBool,
    moved: AtomicU64,
}

/// A transfer in progress. Dropping it cancels it.
#[derive(Debug)]
pub(crate) struct Transfer<T> {
    progress: Arc<Progress>,
    finished: Receiver<io::Result<T>>,
}

impl<T: Send + 'static> Transfer<T> {
    /// Runs `work` over `file` on a thread.
    pub(crate) fn begin(
        file: OwnedFd,
        work: impl FnOnce(&mut Pipe) -> io::Result<T> + Send + 'static,
    ) -> io::Result<Transfer<T>> {
        let progress = Arc::new(Progress {
            cancel: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            cancelled: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            moved: AtomicU64::new(0),
        });
        let flags = rustix::fs::fcntl_getfl(&file)?;
        rustix::fs::fcntl_setfl(&file, flags | OFlags::NONBLOCK)?;
        let mut pipe = Pipe {
            file,
            progress: Arc::clone(&progress),
        };
        let (tell, finished) = channel();
        std::thread::Builder::new()
            .name("thrufs-state".to_owned())
            .spawn(move || {
                let done = work(&mut pipe);
                // End-of-file for the other end before the result for this one.
                drop(pipe);
                let _ = tell.send(done);
            })?;
        Ok(Transfer { progress, finished })
    }

    /// Waits for its end. Cancels it when the other end is idle or the connection is cut.
    pub(crate) fn wait(self, connection: &Connection) -> io::Result<T> {
        let (mut moved, mut since) = (0, Instant::now());
        loop {
            match self.finished.recv_timeout(LOOK_INTERVAL) {
                Ok(done) => return done,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the thread of the transfer failed"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = self.progress.moved.load(Ordering::Relaxed);
            if now != moved || !self.progress.waits.load(Ordering::Relaxed) {
                (moved, since) = (now, Instant::now());
            }
            if since.elapsed() > STALL_TIME || connection.is_cut() {
                self.cancel();
            }
        }
    }

    /// Cancels it. False when it has not ended by `deadline`.
    pub(crate) fn end(self, deadline: Instant) -> bool {
        self.cancel();
        let left = deadline.saturating_duration_since(Instant::now());
        !matches!(
            self.finished.recv_timeout(left),
            Err(RecvTimeoutError::Timeout)
        )
    }
}

impl<T> Transfer<T> {
    fn cancel(&self) {
        self.progress.cancelled.store(true, Ordering::SeqCst);
        signal(self.progress.cancel.as_fd());
    }
}

impl<T> Drop for Transfer<T> {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// The front end's pipe, with waits that can be cancelled.
#[derive(Debug)]
pub(crate) struct Pipe {
    file: OwnedFd,
    progress: Arc<Progress>,
}

impl Pipe {
    fn when_ready(
        &mut self,
        flags: PollFlags,
        mut step: impl FnMut(&OwnedFd) -> rustix::io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            let progress = &*self.progress;
            if progress.cancelled.load(Ordering::SeqCst) {
                let what = "the other end of the transfer is idle, or the transfer was cancelled";
                return Err(io::Error::new(ErrorKind::TimedOut, what));
            }
            match step(&self.file) {
                Ok(bytes) => {
                    progress.moved.fetch_add(bytes as u64, Ordering::Relaxed);
                    return Ok(bytes);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    progress.waits.store(true, Ordering::Relaxed);
                    let mut both = [
                        PollFd::new(&self.file, flags),
                        PollFd::new(&progress.cancel, PollFlags::IN),
                    ];
                    let polled = poll(&mut both, None);
                    progress.waits.store(false, Ordering::Relaxed);
                    match polled {
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        self.when_ready(PollFlags::IN, |file| rustix::io::read(file, &mut *target))
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.when_ready(PollFlags::OUT, |file| rustix::io::write(file, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn connection() -> (Connection, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Connection::new(ours), theirs)
    }

    fn pipe() -> (OwnedFd, OwnedFd) {
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap()
    }

    fn read_all(pipe: &mut Pipe) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    #[test]
    fn a_transfer_may_exceed_the_pipe_s_capacity() {
        let (reader, writer) = pipe();
        let (connection, _other) = connection();
        let sent: Vec<u8> = (0..1 << 20).map(|at| (at % 253) as u8).collect();
        let expected = sent.clone();
        let write = Transfer::begin(writer, move |pipe| pipe.write_all(&sent)).unwrap();
        let read = Transfer::begin(reader, read_all).unwrap();
        assert_eq!(read.wait(&connection).unwrap(), expected);
        write.wait(&connection).unwrap();
    }

    #[test]
    fn a_transfer_with_an_idle_other_end_times_out() {
        let (reader, _writer) = pipe();
        let (connection, _other) = connection();
        let transfer = Transfer::begin(reader, read_all).unwrap();
        let error = transfer.wait(&connection).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn a_transfer_that_computes_beyond_the_stall_time_is_not_cancelled() {
        let (reader, _writer) = pipe();
        let (connection, _other) = connection();
        let transfer = Transfer::begin(reader, |_| {
            std::thread::sleep(STALL_TIME + Duration::from_secs(1));
            Ok(5)
        });
        assert_eq!(transfer.unwrap().wait(&connection).unwrap(), 5);
    }

    #[test]
    fn a_panic_of_the_transfer_thread_is_an_error() {
        let (reader, _writer) = pipe();
        let (connection, _other) = connection();
        let transfer = Transfer::<()>::begin(reader, |_| panic!("as the test wants it"));
        assert!(transfer.unwrap().wait(&connection).is_err());
    }

    #[test]
    fn cutting_the_connection_ends_a_transfer_at_once() {
        let (reader, _writer) = pipe();
        let (connection, _other) = connection();
        let transfer = Transfer::begin(reader, read_all).unwrap();
        connection.cut();
        let started = Instant::now();
        assert!(transfer.wait(&connection).is_err());
        assert!(started.elapsed() < STALL_TIME);
        let (reader, _writer) = pipe();
        let transfer = Transfer::begin(reader, read_all).unwrap();
        assert!(transfer.end(Instant::now() + Duration::from_secs(60)));
    }
}
