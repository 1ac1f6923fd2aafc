//! The connection to the front end, for the threads that may have to shut it down.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use thrufs::serving::OnPanic;

/// Can be shut down from any thread: a reader gets end-of-file.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    failed: AtomicBool,
    cut: AtomicBool,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream) -> Connection {
        Connection {
            stream,
            failed: AtomicBool::new(false),
            cut: AtomicBool::new(false),
        }
    }

    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Release);
        // Fails when the front end has disconnected.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Whether this side has shut it down.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    /// Whether a panic has shut it down.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}

impl OnPanic for Connection {
    fn panicked(&self) {
        self.failed.store(true, Ordering::Release);
        self.cut();
    }
}
