//! The state of a device on its way: a thread that writes to the front end's pipe, or reads from it.
//!
//! The thread that reads the front end's messages goes on meanwhile. It waits for the transfer when the
//! front end asks how it went, or starts a queue: as long as there is work on it, and for
//! [`STALL_TIME`] when the other end of the pipe does nothing.

use crate::line::Line;
use crate::post::ring;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long the other end of a pipe may do nothing while everybody waits for it.
const STALL_TIME: Duration = Duration::from_secs(5);

/// How often one looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// What a transfer has come to.
#[derive(Debug)]
struct Progress {
    cancel: OwnedFd,
    cancelled: AtomicBool,
    /// It waits for the other end.
    waits: AtomicBool,
    /// Bytes that were moved.
    moved: AtomicU64,
}

/// A transfer that was begun. Dropping it cancels it.
#[derive(Debug)]
pub(crate) struct Transfer<T> {
    progress: Arc<Progress>,
    finished: Receiver<io::Result<T>>,
}

impl<T: Send + 'static> Transfer<T> {
    /// Begins one over `file`: `work` does it.
    ///
    /// # Errors
    ///
    /// Without descriptors or threads.
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
                // The other end hears that this is all before anybody hears how it went.
                drop(pipe);
                let _ = tell.send(done);
            })?;
        Ok(Transfer { progress, finished })
    }

    /// Waits for its end, and cancels it when the other end does nothing or the connection is cut.
    ///
    /// # Errors
    ///
    /// Why it failed.
    pub(crate) fn wait(self, line: &Line) -> io::Result<T> {
        let (mut moved, mut since) = (0, Instant::now());
        loop {
            match self.finished.recv_timeout(LOOK_INTERVAL) {
                Ok(done) => return done,
                Err(RecvTimeoutError::Disconnected) => return Err(failed()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = self.progress.moved.load(Ordering::Relaxed);
            if now != moved || !self.progress.waits.load(Ordering::Relaxed) {
                (moved, since) = (now, Instant::now());
            }
            if since.elapsed() > STALL_TIME || line.is_cut() {
                self.cancel();
            }
        }
    }

    /// Cancels it, and waits for its end until `deadline`. False when it does not end.
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
        ring(self.progress.cancel.as_fd());
    }
}

impl<T> Drop for Transfer<T> {
    fn drop(&mut self) {
        self.cancel();
    }
}

fn failed() -> io::Error {
    io::Error::other("the thread of the transfer failed")
}

/// The front end's pipe, which can be left while one waits for its other end.
#[derive(Debug)]
pub(crate) struct Pipe {
    file: OwnedFd,
    progress: Arc<Progress>,
}

impl Pipe {
    /// Does `step` when the pipe is ready for it.
    fn when_ready(
        &mut self,
        flags: PollFlags,
        mut step: impl FnMut(&OwnedFd) -> rustix::io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            let progress = &*self.progress;
            if progress.cancelled.load(Ordering::SeqCst) {
                let what = "the other end of the transfer does nothing, or was left";
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

    fn line() -> (Line, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Line::new(ours), theirs)
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
    fn more_goes_through_than_the_pipe_holds() {
        let (reader, writer) = pipe();
        let (line, _other) = line();
        let sent: Vec<u8> = (0..1 << 20).map(|at| (at % 253) as u8).collect();
        let expected = sent.clone();
        let write = Transfer::begin(writer, move |pipe| pipe.write_all(&sent)).unwrap();
        let read = Transfer::begin(reader, read_all).unwrap();
        assert_eq!(read.wait(&line).unwrap(), expected);
        write.wait(&line).unwrap();
    }

    #[test]
    fn who_does_nothing_at_the_other_end_is_not_waited_for_without_end() {
        let (reader, _writer) = pipe();
        let (line, _other) = line();
        let transfer = Transfer::begin(reader, read_all).unwrap();
        let error = transfer.wait(&line).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn the_end_of_the_connection_ends_it_at_once() {
        let (reader, _writer) = pipe();
        let (line, _other) = line();
        let transfer = Transfer::begin(reader, read_all).unwrap();
        line.cut();
        let started = Instant::now();
        assert!(transfer.wait(&line).is_err());
        assert!(started.elapsed() < STALL_TIME);
        let (reader, _writer) = pipe();
        let transfer = Transfer::begin(reader, read_all).unwrap();
        assert!(transfer.end(Instant::now() + Duration::from_secs(60)));
    }

    #[test]
    fn work_that_takes_long_is_waited_for() {
        let (reader, _writer) = pipe();
        let (line, _other) = line();
        let transfer = Transfer::begin(reader, |_| {
            std::thread::sleep(STALL_TIME + Duration::from_secs(1));
            Ok(5)
        });
        assert_eq!(transfer.unwrap().wait(&line).unwrap(), 5);
    }

    #[test]
    fn a_thread_that_fails_is_told() {
        let (reader, _writer) = pipe();
        let (line, _other) = line();
        let transfer = Transfer::<()>::begin(reader, |_| panic!("as the test wants it"));
        assert!(transfer.unwrap().wait(&line).is_err());
    }
}
