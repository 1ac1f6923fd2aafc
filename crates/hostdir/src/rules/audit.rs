//! The audit log: one JSON object on one line for each audited open.
//!
//! Each line is written by one write(2) to a file opened with O_APPEND, so that lines of several servers do
//! not mix. An open fails if its record cannot be written.
//!
//! A process that may not hold the file sends each line as one packet through a socket and waits for the
//! answer: an error number, or 0 once the line is written.

use super::PathDecision;
use crate::datapath::DataPath;
use crate::host::Host;
use crate::ledger::{Before, Telling};
use crate::policy::RuleInfo;
use parking_lot::{Mutex, RwLock};
use rustix::fs::FileType;
use serde::Serialize;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use thrufs::{Context, Errno};

/// Where audit records go. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct AuditLog {
    file: Arc<RwLock<Option<OwnedFd>>>,
    /// Held from a packet to its answer.
    asking: Arc<Mutex<()>>,
    /// The last line was written in part (disk full).
    torn: Arc<AtomicBool>,
}

impl AuditLog {
    /// `file` is opened for appending, or is a packet socket; its peer answers each line with an error
    /// number (four bytes, native order; 0 for none). `None`: lines go to the server's log.
    pub fn new(file: Option<OwnedFd>) -> AuditLog {
        AuditLog {
            file: Arc::new(RwLock::new(file)),
            ..AuditLog::default()
        }
    }

    /// Sends further lines to `file`, for log rotation.
    pub fn replace(&self, file: Option<OwnedFd>) {
        // Closed outside the lock.
        let old = std::mem::replace(&mut *self.file.write(), file);
        drop(old);
    }

    fn write(&self, record: &AuditRecord<'_>) -> thrufs::Result<()> {
        let written = serde_json::to_string(record)
            .map_err(io::Error::from)
            .and_then(|line| self.append(&line));
        written.map_err(|error| {
            tracing::error!("an audited open is refused: cannot write the audit log: {error}");
            Errno::EIO
        })
    }

    /// Writes a line.
    ///
    /// # Errors
    ///
    /// When it was not written as a whole.
    pub fn append(&self, line: &str) -> io::Result<()> {
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
fn ask(writer: &OwnedFd, line: &str) -> io::Result<()> {
    write_all(writer, line.as_bytes()).1?;
    let mut answer = [0; 4];
    let length = loop {
        match rustix::io::read(writer, &mut answer) {
            Err(rustix::io::Errno::INTR) => {}
            length => break length?,
        }
    };
    match i32::from_ne_bytes(answer) {
        0 if length == answer.len() => Ok(()),
        errno if length == answer.len() => Err(io::Error::from_raw_os_error(errno)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Writes all of `text`, and returns how much was written.
fn write_all(file: &OwnedFd, text: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < text.len() {
        match rustix::io::write(file, &text[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return (written, Err(error.into())),
        }
    }
    (written, Ok(()))
}

#[derive(Clone, Copy)]
pub(crate) struct AuditedOpen {
    pub(crate) access: &'static str,
    pub(crate) created: bool,
    pub(crate) truncated: bool,
    /// The data path of an open regular file, or why the open was refused.
    pub(crate) outcome: Result<Option<DataPath>, Errno>,
}

/// One line of the log. Text that is not UTF-8 has its bytes in hexadecimal beside it.
#[derive(Serialize)]
struct AuditRecord<'a> {
    /// Seconds since 1970, with six decimals.
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
    errno: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// A server died during this open, and may have written a record of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    again: bool,
}

impl Host {
    /// Writes the record of an open if a rule audits it. Fails with `EIO` when the record could not be
    /// written; the reason is logged.
    pub(crate) fn record_open(
        &self,
        context: &Context<'_>,
        decided: &PathDecision,
        open: AuditedOpen,
    ) -> thrufs::Result<()> {
        let policy = &decided.rules.policy;
        let Some(rule) = decided.decision.audit.and_then(|id| policy.rule(id)) else {
            return Ok(());
        };
        // A replayed open may have its record already.
        let telling = self.notes.as_ref().map(|notes| {
            let telling = telling(context, decided, open);
            (notes, telling, notes.told_before(telling))
        });
        let before = telling.as_ref().and_then(|(_, _, before)| *before);
        let place = telling
            .as_ref()
            .and_then(|(notes, telling, _)| notes.begin_telling(*telling));
        if before != Some(Before::Told) {
            self.write_record(context, decided, open, rule, before.is_some())?;
        }
        if let Some((notes, ..)) = telling {
            notes.told(place);
        }
        Ok(())
    }

    fn write_record(
        &self,
        context: &Context<'_>,
        decided: &PathDecision,
        open: AuditedOpen,
        rule: RuleInfo<'_>,
        again: bool,
    ) -> thrufs::Result<()> {
        let executable = self.rules.executable(context.pid());
        let executable = executable.as_deref().map(String::from_utf8_lossy);
        let path = String::from_utf8_lossy(&decided.path);
        let is_text = std::str::from_utf8(&decided.path).is_ok();
        let record = AuditRecord {
            time: now(),
            event: "open",
            path: &path,
            path_hex: (!is_text).then(|| hexadecimal(&decided.path)),
            access: open.access,
            created: open.created,
            truncated: open.truncated,
            uid: context.uid(),
            gid: context.gid(),
            pid: context.pid(),
            executable: executable.as_deref(),
            rule: rule.number,
            rule_name: rule.name,
            outcome: match open.outcome {
                Ok(_) => "opened",
                Err(_) => "refused",
            },
            data_path: open.outcome.ok().flatten().map(|path| path.to_string()),
            errno: open.outcome.err().map(Errno::raw),
            error: open.outcome.err().map(|error| error.to_string()),
            again,
        };
        self.config.audit_log.write(&record)
    }
}

/// What identifies the record of one request. Not whether the file was created or truncated: a replay finds
/// it there.
fn telling(context: &Context<'_>, decided: &PathDecision, open: AuditedOpen) -> Telling {
    let mut hasher = DefaultHasher::new();
    let caller = (context.uid(), context.gid(), context.pid());
    (&decided.path, open.access, caller).hash(&mut hasher);
    Telling {
        request: context.unique().0,
        digest: hasher.finish(),
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
