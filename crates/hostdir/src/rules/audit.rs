//! One line for each audited open.
//!
//! A line is one JSON object, written by one write(2) to a file opened for appending, so that lines of
//! several servers do not mix. An open that cannot be told of does not take place.
//!
//! Whoever is not to hold the file gives each line to another process by a socket, as one packet, and waits
//! for its answer: an error number, or 0 when the line is written.

use super::Judged;
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

/// Where audited opens are told. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct AuditLog {
    file: Arc<RwLock<Option<OwnedFd>>>,
    /// Held from a packet to its answer.
    asking: Arc<Mutex<()>>,
    /// The last line was written in part: the disk was full.
    torn: Arc<AtomicBool>,
}

impl AuditLog {
    /// Lines go to `file`, which should be open for appending, or be a socket of packets whose other end
    /// answers each with an error number (four bytes, native order; 0 for none); without one, to the
    /// server's log.
    pub fn new(file: Option<OwnedFd>) -> AuditLog {
        AuditLog {
            file: Arc::new(RwLock::new(file)),
            ..AuditLog::default()
        }
    }

    /// From now on lines go there: the file was rotated, or another one is wanted.
    pub fn replace(&self, file: Option<OwnedFd>) {
        // The old one is closed after the lock.
        let old = std::mem::replace(&mut *self.file.write(), file);
        drop(old);
    }

    fn write(&self, line: &Line<'_>) -> thrufs::Result<()> {
        let written = serde_json::to_string(line)
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
        // What was cut off there stands on a line of its own.
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

/// Has another process write a line.
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

/// Writes all, and tells how much of it was written if not all.
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

/// What there is to be told of an open.
#[derive(Clone, Copy)]
pub(crate) struct Told {
    /// What it is to be open for.
    pub(crate) access: &'static str,
    pub(crate) created: bool,
    pub(crate) truncated: bool,
    /// By which way its data go, if it has any; or why it was refused.
    pub(crate) outcome: Result<Option<DataPath>, Errno>,
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
    errno: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The server died on this open, and a line of it may be there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    again: bool,
}

impl Host {
    /// Tells of an open, if a rule wants that.
    ///
    /// # Errors
    ///
    /// `EIO` when the line could not be written; the reason is logged.
    pub(crate) fn tell(
        &self,
        context: &Context<'_>,
        judged: &Judged,
        told: Told,
    ) -> thrufs::Result<()> {
        let policy = &judged.rules.policy;
        let Some(rule) = judged.decision.audit.and_then(|id| policy.rule(id)) else {
            return Ok(());
        };
        // An open that is carried out again, as its first answer never came, was perhaps told of.
        let telling = self.notes.as_ref().map(|notes| {
            let telling = telling(context, judged, told);
            (notes, telling, notes.told_before(telling))
        });
        let before = telling.as_ref().and_then(|(_, _, before)| *before);
        let place = telling
            .as_ref()
            .and_then(|(notes, telling, _)| notes.begin_telling(*telling));
        if before != Some(Before::Told) {
            self.write_line(context, judged, told, rule, before.is_some())?;
        }
        if let Some((notes, ..)) = telling {
            notes.told(place);
        }
        Ok(())
    }

    fn write_line(
        &self,
        context: &Context<'_>,
        judged: &Judged,
        told: Told,
        rule: RuleInfo<'_>,
        again: bool,
    ) -> thrufs::Result<()> {
        let executable = self.rules.executable(context.pid());
        let executable = executable.as_deref().map(String::from_utf8_lossy);
        let path = String::from_utf8_lossy(&judged.path);
        let is_text = std::str::from_utf8(&judged.path).is_ok();
        let line = Line {
            time: now(),
            event: "open",
            path: &path,
            path_hex: (!is_text).then(|| hexadecimal(&judged.path)),
            access: told.access,
            created: told.created,
            truncated: told.truncated,
            uid: context.uid(),
            gid: context.gid(),
            pid: context.pid(),
            executable: executable.as_deref(),
            rule: rule.number,
            rule_name: rule.name,
            outcome: match told.outcome {
                Ok(_) => "opened",
                Err(_) => "refused",
            },
            data_path: told.outcome.ok().flatten().map(|path| path.to_string()),
            errno: told.outcome.err().map(Errno::raw),
            error: told.outcome.err().map(|error| error.to_string()),
            again,
        };
        self.config.audit_log.write(&line)
    }
}

/// What makes a line that of one request. Not whether the file was created or cut short: the second
/// time, it is there.
fn telling(context: &Context<'_>, judged: &Judged, told: Told) -> Telling {
    let mut hasher = DefaultHasher::new();
    let caller = (context.uid(), context.gid(), context.pid());
    (&judged.path, told.access, caller).hash(&mut hasher);
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
