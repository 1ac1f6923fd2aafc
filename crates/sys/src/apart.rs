//! A thread with a descriptor table of its own.
//!
//! execve(2) closes the descriptors of the new process, and waits for those whose file system answers
//! (FLUSH of FUSE); whoever started the process waits for execve(2). What other threads receive from peers
//! never gets into the table of this thread, so processes that it starts have nothing to wait for.
//!
//! # Safety
//! A number means another file in the other table. So descriptors get to the thread over a socket alone,
//! and no call returns one. Its own two sockets have the same numbers in both tables, in which they are open
//! as long as the thread runs.

#![allow(unsafe_code)]

use crate::fd_passing;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};
use rustix::thread::UnshareFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

type Call = Box<dyn FnOnce(Vec<OwnedFd>) + Send>;

/// See the module. The thread ends when this is dropped.
#[derive(Debug)]
pub struct Apart {
    calls: Sender<Call>,
    sockets: Arc<(OwnedFd, OwnedFd)>,
}

impl Apart {
    /// Starts the thread, which has what is open now.
    ///
    /// # Errors
    /// Without descriptors or threads; ENOMEM.
    pub fn start(name: &str) -> io::Result<Apart> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let sockets = Arc::new(socketpair(family, kind, SocketFlags::CLOEXEC, None)?);
        let (calls, received) = channel();
        let (begun, begins) = channel();
        let theirs = Arc::clone(&sockets);
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread.spawn(move || {
            // SAFETY: see the module.
            let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES) };
            if begun.send(unshared).is_ok() && unshared.is_ok() {
                serve(&received, theirs.1.as_fd());
            }
        })?;
        begins.recv().map_err(io::Error::other)??;
        Ok(Apart { calls, sockets })
    }

    /// Calls `act` in that thread with duplicates of `descriptors`, and waits until it returns. Neither `act`
    /// nor its result may own a descriptor. Threads that it starts share that table.
    ///
    /// # Errors
    /// As sendmsg(2); when the thread has panicked.
    pub fn call<T: Send + 'static>(
        &mut self,
        descriptors: &[BorrowedFd<'_>],
        act: impl FnOnce(Vec<OwnedFd>) -> T + Send + 'static,
    ) -> io::Result<T> {
        let (done, result) = channel();
        let call: Call = Box::new(move |descriptors| drop(done.send(act(descriptors))));
        fd_passing::send_now(self.sockets.0.as_fd(), &[0], descriptors)?;
        self.calls.send(call).map_err(|_| gone())?;
        result.recv().map_err(|_| gone())
    }
}

fn serve(calls: &Receiver<Call>, socket: BorrowedFd<'_>) {
    while let Ok(call) = calls.recv() {
        match fd_passing::receive(socket, &mut [0], RecvFlags::empty()) {
            Ok(received) if received.is_whole => call(received.descriptors),
            _ => return,
        }
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread with descriptors of its own has ended")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_is_opened_elsewhere_is_not_open_there() {
        let mut apart = Apart::start("apart").unwrap();
        let file = File::open("/proc/self/status").unwrap();
        let inode = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
        let number = file.as_raw_fd();
        let link = format!("/proc/thread-self/fd/{number}");
        assert!(std::fs::read_link(&link).is_ok());
        let here = std::fs::read_link(&link).unwrap();
        let there = apart.call(&[], move |_| std::fs::read_link(link).ok());
        assert_ne!(there.unwrap(), Some(here));
        let passed = apart.call(&[file.as_fd()], move |all| {
            all.iter().map(|fd| inode(fd.as_fd())).collect::<Vec<_>>()
        });
        assert_eq!(passed.unwrap(), [inode(file.as_fd())]);
    }

    #[test]
    fn call_that_panics_is_an_error_of_this_and_the_next() {
        let mut apart = Apart::start("apart").unwrap();
        assert!(apart.call(&[], |_| panic!("on purpose")).is_err());
        assert!(apart.call(&[], |_| ()).is_err());
    }
}
