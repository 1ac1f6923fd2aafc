//! One line for each audited open.
//!
//! A line is one JSON object, written by one write(2) to a file opened for appending, so that lines of
//! several servers do not mix. An open that cannot be told of does not take place.

use crate::datapath::DataPath;
use crate::policy::RuleInfo;
use parking_lot::RwLock;
use serde::Serialize;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use thrufs::{Context, Errno};

/// Where audited opens are told. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct AuditLog {
    file: Arc<RwLock<Option<OwnedFd>>>,
}

impl AuditLog {
    /// Lines go to `file`, which should be open for appending; without one, to the server's log.
    pub fn new(file: Option<OwnedFd>) -> AuditLog {
        AuditLog {
            file: Arc::new(RwLock::new(file)),
        }
    }

    /// From now on lines go there: the file was rotated, or another one is wanted.
    pub fn replace(&self, file: Option<OwnedFd>) {
        // The old one is closed after the lock.
        let old = std::mem::replace(&mut *self.file.write(), file);
        drop(old);
    }

    fn append(&self, line: &str) -> io::Result<()> {
        let file = self.file.read();
        let Some(file) = &*file else {
            tracing::info!(target: "thrufs::audit", "{}", line.trim_end());
            return Ok(());
        };
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match rustix::io::write(file, rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// What there is to be told of an open.
#[derive(Clone, Copy)]
pub(crate) struct OpenRecord<'a> {
    pub(crate) path: &'a [u8],
    pub(crate) rule: RuleInfo<'a>,
    /// As in open(2).
    pub(crate) flags: i32,
    pub(crate) created: bool,
    /// By which way its data go, or why it was refused.
    pub(crate) outcome: Result<DataPath, Errno>,
    pub(crate) executable: Option<&'a [u8]>,
}

/// A line. Text is UTF-8; what is none has its bytes beside it, in hexadecimal.
#[derive(Serialize)]
struct Line<'a> {
    /// Seconds since 1970, with six digits behind the point.
    time: String,
    event: &'static str,
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    access: &'static str,
    created: bool,
    truncated: bool,
    uid: Option<u32>,
    gid: Option<u32>,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    executable: Option<&'a str>,
    rule: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule_name: Option<&'a str>,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl AuditLog {
    /// Tells of an open.
    ///
    /// # Errors
    ///
    /// `EIO` when the line could not be written; the reason is logged.
    pub(crate) fn tell(
        &self,
        record: &OpenRecord<'_>,
        context: &Context<'_>,
    ) -> thrufs::Result<()> {
        let path = String::from_utf8_lossy(record.path);
        let executable = record.executable.map(String::from_utf8_lossy);
        let line = Line {
            time: now(),
            event: "open",
            path: &path,
            path_hex: std::str::from_utf8(record.path)
                .is_err()
                .then(|| hexadecimal(record.path)),
            access: match record.flags & libc::O_ACCMODE {
                libc::O_WRONLY => "write",
                libc::O_RDWR => "read and write",
                _ => "read",
            },
            created: record.created,
            truncated: record.flags & libc::O_TRUNC != 0,
            uid: context.uid(),
            gid: context.gid(),
            pid: context.pid(),
            executable: executable.as_deref(),
            rule: record.rule.number,
            rule_name: record.rule.name,
            outcome: if record.outcome.is_ok() {
                "opened"
            } else {
                "refused"
            },
            data_path: record.outcome.ok().map(|path| path.to_string()),
            error: record.outcome.err().map(|error| error.to_string()),
        };
        let written = serde_json::to_string(&line)
            .map_err(io::Error::from)
            .and_then(|line| self.append(&(line + "\n")));
        written.map_err(|error| {
            tracing::error!("an audited open is refused, as its line cannot be written: {error}");
            Errno::EIO
        })
    }
}

fn now() -> String {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    format!("{}.{:06}", since.as_secs(), since.subsec_micros())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
