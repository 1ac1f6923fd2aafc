//! What a peer sends descriptors over, or was received from one.
//!
//! The last close(2) of a socket also closes the descriptors in its queue, and the peer decides how long that
//! takes: a TCP socket with SO_LINGER waits, and so does a file of FUSE. So these values are dropped on threads
//! of their own.

use crate::task::Task;
use std::ops::{Deref, DerefMut};

/// See the module. There is no way to drop the value elsewhere.
#[derive(Debug)]
pub(crate) struct Foreign<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> Foreign<T> {
    pub(crate) fn new(value: T) -> Foreign<T> {
        Foreign(Some(value))
    }

    /// The task is done when all is closed; `None` without threads or descriptors.
    pub(crate) fn close(mut self) -> Option<Task<()>> {
        self.begin_to_close()
    }

    fn begin_to_close(&mut self) -> Option<Task<()>> {
        let value = self.0.take()?;
        Task::start(move || drop(value)).ok()
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
