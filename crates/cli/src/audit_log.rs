//! The audit log of a worker, which the supervisor writes.
//!
//! A worker that opens files by handle could open, from any descriptor, all other files of that file
//! system. It therefore holds a socket instead of the log, and each line is acknowledged once written
//! ([`AuditLog::new`]).

use crate::channel::packets_to_thread;
use rustix::io::retry_on_intr;
use rustix::net::{SendFlags, send};
use std::io;
use std::os::fd::OwnedFd;
use thrufs_hostdir::{AuditLog, printable_json};

/// A path, plain and in hexadecimal, fits.
const LINE_BYTES_MAX: usize = 128 << 10;

/// Starts the writer thread. Returns the worker's end of its socket; the thread ends when that is closed.
pub(crate) fn begin(file: OwnedFd) -> io::Result<OwnedFd> {
    begin_counted(file, |_, _| {})
}

/// As [`begin`]; each line is given to `count` before it is acknowledged, with whether it was written.
pub(crate) fn begin_counted(
    file: OwnedFd,
    mut count: impl FnMut(&str, bool) + Send + 'static,
) -> io::Result<OwnedFd> {
    let log = AuditLog::new(Some(file));
    packets_to_thread("thrufs-audit", move |ours| {
        let mut line = vec![0; LINE_BYTES_MAX];
        while write_one(&ours, &log, &mut line, &mut count).is_ok() {}
    })
}

fn write_one(
    worker: &OwnedFd,
    log: &AuditLog,
    line: &mut [u8],
    count: &mut impl FnMut(&str, bool),
) -> io::Result<()> {
    let length = retry_on_intr(|| rustix::io::read(worker, &mut *line))?;
    if length == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // One line as the log has it, whatever the worker sent.
    let line = printable_json(&String::from_utf8_lossy(&line[..length]));
    let written = log.append(&line);
    count(&line, written.is_ok());
    let errno = written.map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0);
    send(worker, &errno.to_ne_bytes(), SendFlags::NOSIGNAL)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn line_is_written_before_it_is_acknowledged_and_errors_are_returned() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let log = AuditLog::new(Some(begin(File::create(&path).unwrap().into()).unwrap()));
        let long = "x".repeat(64 << 10);
        for line in ["one", &long] {
            log.append(line).unwrap();
            assert!(
                fs::read_to_string(&path)
                    .unwrap()
                    .ends_with(&format!("{line}\n"))
            );
        }
        let full = File::options().write(true).open("/dev/full").unwrap();
        let log = AuditLog::new(Some(begin(full.into()).unwrap()));
        for _ in 0..2 {
            let error = log.append("lost").unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        }
        let (ours, theirs) = crate::channel::packets().unwrap();
        drop(ours);
        AuditLog::new(Some(theirs)).append("no reader").unwrap_err();
    }
}
