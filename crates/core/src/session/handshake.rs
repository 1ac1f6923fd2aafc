//! Reads INIT from `/dev/fuse` and answers it, before any transport runs. Ends when the session is shut
//! down meanwhile.

use super::error::SessionError;
use crate::dispatch::Outcome;
use crate::file_system::FileSystem;
use crate::serving::journal::Journal;
use crate::transport::Connection;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thrufs_sys::signal::{ThreadId, current_thread_id, interrupt_thread};

/// The smallest buffer that the kernel reads into (`FUSE_MIN_READ_BUFFER`).
const REQUEST_BYTES: usize = 8192;
const REPLY_BYTES: usize = 4096;

/// Time between two reads of a device that is not mounted yet, on kernels where the read does not wait.
const MOUNT_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// How often the session is looked at, whether it was shut down meanwhile.
const WATCH_INTERVAL: Duration = Duration::from_millis(20);

/// Answers INIT, while another thread watches the session.
///
/// Notes the begin of the session in `journal`, if the kernel can let another process go on with it.
pub(super) fn answer_init<F: FileSystem>(
    connection: &Connection<F>,
    journal: Option<&Journal>,
) -> Result<(), SessionError> {
    let (done, thread) = (AtomicBool::new(false), current_thread_id());
    std::thread::scope(|scope| {
        let watcher = std::thread::Builder::new()
            .name("thrufs-init".to_owned())
            .spawn_scoped(scope, || watch(connection, thread, &done))
            .map_err(SessionError::Start)?;
        let answered = exchange(connection, journal);
        done.store(true, Ordering::Release);
        watcher.thread().unpark();
        answered
    })
}

/// Interrupts the thread that waits for INIT when the session is shut down: it sleeps in a read
/// that only a signal or a mount ends.
fn watch<F>(connection: &Connection<F>, thread: ThreadId, done: &AtomicBool) {
    while !done.load(Ordering::Acquire) {
        std::thread::park_timeout(WATCH_INTERVAL);
        if connection.control.is_stopping() && !done.load(Ordering::Acquire) {
            // If the thread has just left its read, the signal has no effect.
            let _ = interrupt_thread(thread);
        }
    }
}

/// Repeatedly only for a kernel of a newer major version, which asks again.
fn exchange<F: FileSystem>(
    connection: &Connection<F>,
    journal: Option<&Journal>,
) -> Result<(), SessionError> {
    let mut request = vec![0; REQUEST_BYTES];
    let mut reply = vec![0; REPLY_BYTES];
    let dispatcher = &connection.dispatcher;
    while dispatcher.features().is_none() {
        let length = read_request(connection, &mut request)?;
        let outcome = dispatcher.dispatch(&request[..length], &mut reply, true);
        if let (Some(journal), Some(init)) = (journal, dispatcher.init_request()) {
            let is_noted = dispatcher.has_resend() && journal.begin_session(&init);
            if !is_noted {
                tracing::warn!(
                    "no other process can go on with this session: that needs Linux 6.9"
                );
            }
        }
        if let Outcome::Reply(length) = outcome {
            rustix::io::write(&connection.device, &reply[..length])
                .map_err(|errno| SessionError::Device(errno.into()))?;
        }
        if let Some(failure) = dispatcher.init_failure() {
            return Err(failure.into());
        }
    }
    Ok(())
}

fn read_request<F>(connection: &Connection<F>, request: &mut [u8]) -> Result<usize, SessionError> {
    loop {
        if connection.control.is_stopping() {
            return Err(SessionError::Ended);
        }
        match rustix::io::read(&connection.device, &mut *request) {
            Ok(length) => return Ok(length),
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
            // Not mounted yet.
            Err(Errno::PERM) => std::thread::sleep(MOUNT_POLL_INTERVAL),
            Err(Errno::NODEV | Errno::CONNABORTED) => return Err(SessionError::Ended),
            Err(errno) => return Err(SessionError::Device(errno.into())),
        }
    }
}
