//! The audit log: one JSON object on one line for each audited open, for each new name of a file that is audited,
//! and, with `audit-refused`, for each request that a rule refuses.
//!
//! Each line is written by one write(2) to a file opened with O_APPEND, so that lines of several servers do
//! not mix. An open fails if its record cannot be written; a refused request fails as it does without.
//!
//! A process that may not hold the file sends each line as one packet through a socket and waits for the
//! answer: an error number, or 0 once the line is written.

use super::{ActivePolicy, Judge, PathDecision};
use crate::ledger::{AuditId, Before, OpenerIds};
use serde::Serialize;
use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};
use thrufs::{Context, Errno};
use thrufs_abi::Opcode;
use thrufs_policy::{Access, DataPath, FileType, Refusal, RuleId, RuleInfo};

#[derive(Clone, Copy, Serialize)]
pub(crate) struct AuditedOpen {
    pub(crate) access: &'static str,
    pub(crate) created: bool,
    pub(crate) truncated: bool,
    /// The data path of an open regular file, or why the open was refused.
    #[serde(skip)]
    pub(crate) outcome: Result<Option<DataPath>, Errno>,
}

/// A new name, which a rename or link is about to give to what is audited.
pub(crate) struct AuditedNames {
    rules: Arc<ActivePolicy>,
    /// `None` for a directory in which there may be such files.
    rule: Option<RuleId>,
    old: Vec<u8>,
    new: Vec<u8>,
}

impl AuditedNames {
    pub(super) fn of(
        file_type: FileType,
        old: PathDecision,
        new: PathDecision,
    ) -> Option<AuditedNames> {
        let rule = old.decision.audit.or(new.decision.audit);
        let has_audited = file_type == FileType::Directory && old.rules.policy.uses().audit;
        (rule.is_some() || has_audited).then_some(AuditedNames {
            rules: old.rules,
            rule,
            old: old.path,
            new: new.path,
        })
    }
}

/// One line of the log. Text that is not UTF-8 has its bytes in hexadecimal beside it.
#[derive(Default, Serialize)]
struct AuditRecord<'a> {
    /// Seconds since 1970, with six decimals.
    time: String,
    event: Cow<'static, str>,
    path: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new_path: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new_path_hex: Option<String>,
    #[serde(flatten)]
    open: Option<AuditedOpen>,
    uid: Option<u32>,
    gid: Option<u32>,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    executable: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule_name: Option<&'a str>,
    /// Of a refused open that another rule audits.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused_by: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused_by_name: Option<&'a str>,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    errno: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// A server died during this request, and may have written a record of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    again: bool,
}

impl Judge {
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
        let identity = (&decided.path, open.access);
        let written = self.write_once(context, identity, |again| {
            let refusing = refusing_rule(decided, &open);
            let error = open.outcome.err();
            self.audit_log.write(&AuditRecord {
                event: "open".into(),
                open: Some(open),
                refused_by: refusing.map(|rule| rule.number),
                refused_by_name: refusing.and_then(|rule| rule.name),
                data_path: open.outcome.ok().flatten().map(|path| path.to_string()),
                again,
                ..self.new_record(context, &decided.path, Some(rule), error)
            })
        });
        written.map_err(|error| {
            tracing::error!("an audited open is refused: cannot write the audit log: {error}");
            Errno::EIO
        })
    }

    /// As [`record_open`](Self::record_open), for an open that another machine has granted.
    pub(crate) fn record_open_again(
        &self,
        decided: &PathDecision,
        opener: OpenerIds,
        access: &'static str,
    ) -> thrufs::Result<()> {
        let policy = &decided.rules.policy;
        let Some(rule) = decided.decision.audit.and_then(|id| policy.rule(id)) else {
            return Ok(());
        };
        let (path, path_hex) = text_and_hex(&decided.path);
        let written = self.audit_log.write(&AuditRecord {
            time: now(),
            event: "open".into(),
            path,
            path_hex,
            open: Some(AuditedOpen {
                access,
                created: false,
                truncated: false,
                outcome: Ok(None),
            }),
            uid: Some(opener.uid),
            gid: Some(opener.gid),
            rule: Some(rule.number),
            rule_name: rule.name,
            outcome: "migrated",
            ..AuditRecord::default()
        });
        written.map_err(|error| {
            tracing::error!("an audited open is lost: cannot write the audit log: {error}");
            Errno::EIO
        })
    }

    /// Writes the record of a new name, once it is there. Fails as [`record_open`](Self::record_open); the name stays.
    pub(crate) fn record_names(
        &self,
        context: &Context<'_>,
        names: &AuditedNames,
    ) -> thrufs::Result<()> {
        let rule = names.rule.and_then(|rule| names.rules.policy.rule(rule));
        let written = self.write_once(context, (&names.old, &names.new), |again| {
            let (new_path, new_path_hex) = text_and_hex(&names.new);
            let event = event(context.opcode());
            self.audit_log.write(&AuditRecord {
                outcome: if event == "link" { "linked" } else { "renamed" },
                event: event.into(),
                new_path: Some(new_path),
                new_path_hex,
                again,
                ..self.new_record(context, &names.old, rule, None)
            })
        });
        written.map_err(|error| {
            tracing::error!(
                "a rename or link fails, but was made: cannot write the audit log: {error}"
            );
            Errno::EIO
        })
    }

    /// Fails with the error of a refusal that `decided` holds, after [`refuse`](Self::refuse). The refusal of
    /// an open that [`record_open`](Self::record_open) records is recorded there.
    pub(crate) fn permit(
        &self,
        context: &Context<'_>,
        decided: &PathDecision,
        checked: Result<(), Refusal>,
    ) -> thrufs::Result<()> {
        checked.map_err(|Refusal { errno, rule }| {
            if decided.decision.audit.is_some() && opens(context) {
                return errno;
            }
            self.refuse(context, &decided.rules, &decided.path, (errno, Some(rule)))
        })
    }

    /// Records that a rule refuses a request, where the policy says so, and returns its error: the given
    /// one, or `DEFER` where writing the record may block. To be called before anything is changed.
    pub(crate) fn refuse(
        &self,
        context: &Context<'_>,
        rules: &ActivePolicy,
        path: &[u8],
        (errno, rule): (Errno, Option<RuleId>),
    ) -> Errno {
        let policy = &rules.policy;
        let rule = rule.filter(|_| policy.uses().audit_refused);
        let Some(rule) = rule.and_then(|id| policy.rule(id)) else {
            return errno;
        };
        if let Err(defer) = context.require_blocking() {
            return defer;
        }
        let event = event(context.opcode());
        let log = &self.audit_log;
        let written = self.write_once(context, (path, &event), |again| {
            log.write(&AuditRecord {
                event: event.clone().into(),
                again,
                ..self.new_record(context, path, Some(rule), Some(errno))
            })
        });
        if let Err(error) = written
            && !log.logged_lost_refusal.swap(true, Ordering::Relaxed)
        {
            tracing::error!(
                "a refusal is not recorded: cannot write the audit log: {error} (logged once)"
            );
        }
        errno
    }

    /// Runs `write` for the record that this identifies among those of one request, unless a worker that
    /// died has written it. `write` learns whether that is uncertain.
    fn write_once(
        &self,
        context: &Context<'_>,
        record: impl Hash,
        write: impl FnOnce(bool) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(tables) = &self.tree.tables else {
            return write(false);
        };
        let audit_id = audit_id(context, record);
        let before = tables.audit_records.before(audit_id);
        let place = tables.audit_records.begin(audit_id);
        if before != Some(Before::Written) {
            write(before.is_some())?;
        }
        tables.audit_records.finish(place);
        Ok(())
    }

    fn new_record<'a>(
        &self,
        context: &Context<'_>,
        path: &'a [u8],
        rule: Option<RuleInfo<'a>>,
        error: Option<Errno>,
    ) -> AuditRecord<'a> {
        let executable = self.executable(context.pid());
        let (path, path_hex) = text_and_hex(path);
        AuditRecord {
            time: now(),
            path,
            path_hex,
            uid: context.uid(),
            gid: context.gid(),
            pid: context.pid(),
            executable: executable.map(|path| String::from_utf8_lossy(&path).into_owned()),
            rule: rule.map(|rule| rule.number),
            rule_name: rule.and_then(|rule| rule.name),
            outcome: error.map_or("opened", |_| "refused"),
            errno: error.map(Errno::raw),
            error: error.map(|error| error.to_string()),
            ..AuditRecord::default()
        }
    }
}

/// The rule that refused an open, where refusals are recorded.
fn refusing_rule<'a>(decided: &'a PathDecision, open: &AuditedOpen) -> Option<RuleInfo<'a>> {
    let errno = open.outcome.err()?;
    let (policy, decision) = (&decided.rules.policy, &decided.decision);
    let access = match open.access {
        "read" | "list" if !open.truncated => Access::Read,
        _ => Access::Change,
    };
    let checked = match open.created {
        true => decision.check_new(),
        false => decision.check(access),
    };
    let redaction = decision.file.redaction;
    let rule = match checked {
        Err(refusal) => Some(refusal.rule),
        Ok(()) => redaction
            .filter(|redaction| redaction.errno == errno)
            .and(decision.file.rule),
    };
    rule.filter(|_| policy.uses().audit_refused)
        .and_then(|rule| policy.rule(rule))
}

/// Whether an `audit` rule records this request.
fn opens(context: &Context<'_>) -> bool {
    use Opcode::{Create, Open, Opendir, Tmpfile};
    matches!(context.opcode(), Open | Opendir | Create | Tmpfile)
}

fn event(opcode: Opcode) -> String {
    match opcode {
        Opcode::Rename2 => "rename".to_owned(),
        other => other.name().to_ascii_lowercase(),
    }
}

/// What identifies the record of one request. Not whether the file was created or truncated: a replay finds
/// it there.
fn audit_id(context: &Context<'_>, record: impl Hash) -> AuditId {
    let mut hasher = DefaultHasher::new();
    let caller = (context.uid(), context.gid(), context.pid());
    (record, caller).hash(&mut hasher);
    AuditId {
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

/// As text, and in hexadecimal where that is not the same.
fn text_and_hex(path: &[u8]) -> (Cow<'_, str>, Option<String>) {
    let is_text = std::str::from_utf8(path).is_ok();
    let hex = (!is_text).then(|| hexadecimal(path));
    (String::from_utf8_lossy(path), hex)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
