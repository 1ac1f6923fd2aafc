//! `--report`: how many files the command read, wrote and created, and what the rules refused it.
//!
//! The audit log thread counts each record before it acknowledges it ([`crate::audit_log`]):
//! everything that the command got an answer to is counted when the worker has ended. The command chooses
//! paths and programs: what is kept of them is bounded, and they are escaped where they are printed.
//!
//! | module | content |
//! |---|---|
//! | `page` | the report as text, on a page of the terminal |
//! | `text` | names as text that controls no terminal |

mod page;
mod text;

use crate::audit_log;
use page::Size;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use thrufs_hostdir::policy::Policy;

/// Different files that are counted, about 32 MiB.
const FILES_MAX: usize = 1_000_000;

/// Different refusals that are listed.
const REFUSALS_MAX: usize = 10_000;

/// Their texts. A path can be as long as a line of the audit log.
const REFUSALS_BYTES_MAX: usize = 16 << 20;

/// The counts of a run, shared with the audit log thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Report(Arc<Mutex<Counts>>);

impl Report {
    /// Starts an audit log thread that counts.
    pub(super) fn begin(&self, log: OwnedFd) -> io::Result<OwnedFd> {
        let counts = Arc::clone(&self.0);
        audit_log::begin_counted(log, move |line, is_written| {
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts.add(line, is_written);
        })
    }

    /// Prints it to standard error: standard output is the command's.
    pub(super) fn print(&self, policy: &Policy, as_json: bool) {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = match as_json {
            true => counts.json(policy) + "\n",
            false => counts.page(policy, Size::of_standard_error()),
        };
        write_to_standard_error(text.as_bytes());
    }
}

/// What was done with a file.
const READ: u8 = 1;
const WRITTEN: u8 = 2;
const CREATED: u8 = 4;

#[derive(Debug, Default)]
struct Counts {
    opens: u64,
    /// By the hash of the path.
    files: HashMap<u64, u8>,
    hasher: RandomState,
    totals: Totals,
    /// Opens of files beyond [`FILES_MAX`].
    uncounted_opens: u64,
    refused: u64,
    refusals: HashMap<Refusal, u64>,
    refusals_bytes: usize,
    /// Refusals beyond the limits.
    unlisted: u64,
    /// Records that the audit log did not take.
    lost: u64,
}

/// Numbers of different files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Totals {
    read: u64,
    written: u64,
    created: u64,
}

/// What is counted as one: with the names of the audit log's fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
struct Refusal {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    event: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    executable: Option<String>,
    rule: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule_name: Option<String>,
    errno: i32,
}

/// A line of the audit log.
#[derive(Deserialize)]
struct Record<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow)]
    path: Cow<'a, str>,
    path_hex: Option<String>,
    /// Of an open.
    #[serde(borrow)]
    access: Option<Cow<'a, str>>,
    #[serde(default)]
    created: bool,
    executable: Option<String>,
    rule: usize,
    rule_name: Option<String>,
    refused_by: Option<usize>,
    refused_by_name: Option<String>,
    #[serde(borrow)]
    outcome: Cow<'a, str>,
    errno: Option<i32>,
}

impl Counts {
    fn add(&mut self, line: &str, is_written: bool) {
        if !is_written {
            self.lost += 1;
        }
        match serde_json::from_str::<Record<'_>>(line) {
            // An open without its record fails.
            Ok(record) if record.outcome == "opened" && is_written => self.add_open(&record),
            Ok(record) if record.outcome == "refused" => self.add_refusal(record),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, line, "a record that is not counted"),
        }
    }

    fn add_open(&mut self, record: &Record<'_>) {
        self.opens += 1;
        let mut uses = match record.access.as_deref() {
            Some("read") => READ,
            Some("write") => WRITTEN,
            Some("read and write") => READ | WRITTEN,
            // A directory.
            _ => return,
        };
        if record.created {
            uses |= CREATED;
        }
        let path = record.path_hex.as_deref().unwrap_or(&record.path);
        let hash = self.hasher.hash_one(path);
        if self.files.len() >= FILES_MAX && !self.files.contains_key(&hash) {
            self.uncounted_opens += 1;
            return;
        }
        let known = self.files.entry(hash).or_default();
        let new = uses & !*known;
        *known |= uses;
        let totals = &mut self.totals;
        for (flag, total) in [
            (READ, &mut totals.read),
            (WRITTEN, &mut totals.written),
            (CREATED, &mut totals.created),
        ] {
            *total += u64::from(new & flag != 0);
        }
    }

    fn add_refusal(&mut self, record: Record<'_>) {
        let (rule, rule_name) = match (record.refused_by, &record.access) {
            (Some(rule), _) => (rule, record.refused_by_name),
            (None, None) => (record.rule, record.rule_name),
            // An open that no rule refused.
            (None, Some(_)) => return,
        };
        self.refused += 1;
        let refusal = Refusal {
            path: record.path.into_owned(),
            path_hex: record.path_hex,
            event: record.event.into_owned(),
            executable: record.executable,
            rule,
            rule_name,
            errno: record.errno.unwrap_or_default(),
        };
        if let Some(count) = self.refusals.get_mut(&refusal) {
            *count += 1;
            return;
        }
        let bytes = self.refusals_bytes + refusal.bytes();
        if self.refusals.len() >= REFUSALS_MAX || bytes > REFUSALS_BYTES_MAX {
            self.unlisted += 1;
            return;
        }
        self.refusals_bytes = bytes;
        self.refusals.insert(refusal, 1);
    }

    /// The most frequent first.
    fn sorted(&self) -> Vec<(&Refusal, u64)> {
        let refusals = self.refusals.iter();
        let mut all: Vec<(&Refusal, u64)> = refusals.map(|(it, count)| (it, *count)).collect();
        all.sort_unstable_by(|(a, more), (b, less)| less.cmp(more).then_with(|| a.cmp(b)));
        all
    }

    /// One object on one line.
    fn json(&self, policy: &Policy) -> String {
        #[derive(Serialize)]
        struct Listed<'a> {
            #[serde(flatten)]
            refusal: &'a Refusal,
            action: &'static str,
            count: u64,
        }
        #[derive(Serialize)]
        struct Whole<'a> {
            opens: u64,
            files: Totals,
            uncounted_opens: u64,
            refused: u64,
            refusals: Vec<Listed<'a>>,
            unlisted: u64,
            lost: u64,
        }
        let refusals = self.sorted().into_iter().map(|(refusal, count)| Listed {
            refusal,
            action: refusal.action(policy),
            count,
        });
        let whole = Whole {
            opens: self.opens,
            files: self.totals,
            uncounted_opens: self.uncounted_opens,
            refused: self.refused,
            refusals: refusals.collect(),
            unlisted: self.unlisted,
            lost: self.lost,
        };
        let json = serde_json::to_string(&whole).expect("texts and numbers are always JSON");
        text::ascii_json(&json)
    }
}

impl Refusal {
    fn bytes(&self) -> usize {
        let optional = [&self.path_hex, &self.executable, &self.rule_name];
        let optional = optional
            .iter()
            .filter_map(|it| it.as_ref().map(String::len));
        self.path.len() + self.event.len() + optional.sum::<usize>()
    }

    /// What the rule does, as in a policy.
    fn action(&self, policy: &Policy) -> &'static str {
        let rule = policy.rules().nth(self.rule.wrapping_sub(1));
        rule.map_or("", |rule| rule.action.name())
    }
}

/// The command may have left it without blocking.
fn write_to_standard_error(mut text: &[u8]) {
    let stderr = io::stderr();
    while !text.is_empty() {
        match rustix::io::write(stderr.as_fd(), text) {
            Ok(written) => text = text.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None);
            }
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests;
