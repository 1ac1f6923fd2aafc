//! What a peer sends descriptors over, or was received from one.
//!
//! The last close(2) of a socket also closes the descriptors in its queue, and the peer decides how long that
//! takes: a TCP socket with SO_LINGER waits, and so does a file of FUSE. So these values are dropped on threads
//! of their own.

use crate::task::Task;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Values that are being dropped.
static CLOSING: AtomicUsize = AtomicUsize::new(0);

/// Waits until all values are dropped that are being dropped; returns whether they are.
pub(crate) fn wait_until_closed(deadline: Instant) -> bool {
    loop {
        match CLOSING.load(Ordering::SeqCst) {
            0 => return true,
            _ if Instant::now() >= deadline => return false,
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Counts one, until its drop.
struct Closing;

impl Closing {
    fn begin() -> Closing {
        CLOSING.fetch_add(1, Ordering::SeqCst);
        Closing
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        CLOSING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// See the module. There is no way to drop the value elsewhere.
#[derive(Debug)]
pub(crate) struct Foreign<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> Foreign<T> {
    pub(crate) fn new(value: T) -> Foreign<T> {
        Foreign(Some(value))
    }

    /// The value, for another place that does not drop it.
    pub(crate) fn into_inner(mut self) -> T {
        self.0.take().expect("only `close` takes it")
    }

    /// The task is done when all is closed; `None` without threads or descriptors.
    pub(crate) fn close(mut self) -> Option<Task<()>> {
        self.begin_to_close()
    }

    fn begin_to_close(&mut self) -> Option<Task<()>> {
        let value = self.0.take()?;
        let closing = Closing::begin();
        let close = move || {
            drop(value);
            drop(closing);
        };
        Task::start(close).ok()
    }
}

impl<T: Send + 'static> Deref for Foreign<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("only `close` takes it")
    }
}

impl<T: Send + 'static> DerefMut for Foreign<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("only `close` takes it")
    }
}

impl<T: Send + 'static> Drop for Foreign<T> {
    fn drop(&mut self) {
        drop(self.begin_to_close());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Barrier};

    struct Slow(Arc<Barrier>);

    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.wait();
        }
    }

    #[test]
    fn value_whose_drop_waits_is_dropped_elsewhere() {
        let barrier = Arc::new(Barrier::new(2));
        drop(Foreign::new(Slow(Arc::clone(&barrier))));
        barrier.wait();
        let closing = Foreign::new(Slow(Arc::clone(&barrier))).close().unwrap();
        barrier.wait();
        closing.finish();
    }
}
