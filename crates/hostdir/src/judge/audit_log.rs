//! Where audit records go: a file, a process that writes it, or the log of the server.

use crate::printable::printable_json;
use parking_lot::{Mutex, RwLock};
use rustix::fs::FileType;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where audit records go. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct AuditLog {
    file: Arc<RwLock<Option<File>>>,
    /// Held from a packet to its answer.
    asking: Arc<Mutex<()>>,
    /// The last line was written in part (disk full).
    torn: Arc<AtomicBool>,
    /// A refusal could not be written, and that was logged.
    pub(super) logged_lost_refusal: Arc<AtomicBool>,
}

impl AuditLog {
    /// `file` is opened for appending, or is a packet socket; its peer answers each line with an error
    /// number (four bytes, native order; 0 for none). `None`: lines go to the server's log.
    pub fn new(file: Option<OwnedFd>) -> AuditLog {
        AuditLog {
            file: Arc::new(RwLock::new(file.map(File::from))),
            ..AuditLog::default()
        }
    }

    /// Sends further lines to `file`, for log rotation.
    pub fn replace(&self, file: Option<OwnedFd>) {
        // Closed outside the lock.
        let old = std::mem::replace(&mut *self.file.write(), file.map(File::from));
        self.logged_lost_refusal.store(false, Ordering::Relaxed);
        drop(old);
    }

    pub(super) fn write(&self, record: &impl Serialize) -> io::Result<()> {
        self.append(&serde_json::to_string(record)?)
    }

    /// Writes a line of JSON, which controls no terminal that shows the log.
    ///
    /// # Errors
    ///
    /// When it was not written as a whole.
    pub fn append(&self, line: &str) -> io::Result<()> {
        let line = &printable_json(line);
        let file = self.file.read();
        let Some(file) = &*file else {
            tracing::info!(target: "thrufs::audit", "{line}");
            return Ok(());
        };
        if FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode) == FileType::Socket {
            let _answered = self.asking.lock();
            return ask(file, line);
        }
        // A line that was cut off is ended, so that it does not run into this one.
        let was_torn = self.torn.swap(false, Ordering::Relaxed);
        let text = format!("{}{line}\n", if was_torn { "\n" } else { "" });
        let (written, result) = write_all(file, text.as_bytes());
        let is_torn = written > 0 || was_torn;
        if result.is_err() && is_torn {
            self.torn.store(true, Ordering::Relaxed);
        }
        result
    }
}

/// Sends a line to the process that writes it, and waits for the answer.
fn ask(mut writer: &File, line: &str) -> io::Result<()> {
    writer.write_all(line.as_bytes())?;
    let mut answer = [0; 4];
    writer.read_exact(&mut answer)?;
    match i32::from_ne_bytes(answer) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Writes all of `text`, and returns how much was written.
fn write_all(mut file: &File, text: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < text.len() {
        match file.write(&text[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}
