//! The connection to the front end, as those see it who may have to end it.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use thrufs::serving::OnPanic;

/// A connection that can be cut from any thread: whoever reads from it hears that it has ended.
#[derive(Debug)]
pub(crate) struct Line {
    stream: UnixStream,
    failed: AtomicBool,
    cut: AtomicBool,
}

impl Line {
    pub(crate) fn new(stream: UnixStream) -> Line {
        Line {
            stream,
            failed: AtomicBool::new(false),
            cut: AtomicBool::new(false),
        }
    }

    /// Cuts it.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Release);
        // It may have ended already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Whether it was cut from this side.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    /// Whether it was cut because a thread failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}

impl OnPanic for Line {
    fn panicked(&self) {
        self.failed.store(true, Ordering::Release);
        self.cut();
    }
}
