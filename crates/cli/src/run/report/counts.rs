//! What the records of a run count. What is kept of paths and programs, which the command chose, is bounded.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use thrufs_hostdir::printable_json;
use thrufs_policy::Policy;

/// Different files that are counted, about 32 MiB.
pub(super) const FILES_MAX: usize = 1_000_000;

/// Different refusals that are listed.
pub(super) const REFUSALS_MAX: usize = 10_000;

/// Their texts. A path can be as long as a line of the audit log.
pub(super) const REFUSALS_BYTES_MAX: usize = 16 << 20;

/// What was done with a file.
pub(super) const READ: u8 = 1;
const WRITTEN: u8 = 2;
const CREATED: u8 = 4;

#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Of the whole run.
    pub(super) no_network: bool,
    pub(super) opens: u64,
    /// By the hash of the path.
    pub(super) files: HashMap<u64, u8>,
    pub(super) hasher: RandomState,
    pub(super) totals: Totals,
    /// Opens of files beyond [`FILES_MAX`].
    pub(super) uncounted_opens: u64,
    pub(super) refused: u64,
    pub(super) refusals: HashMap<Refusal, u64>,
    pub(super) refusals_bytes: usize,
    /// Refusals beyond the limits.
    pub(super) unlisted: u64,
    /// Records that the audit log did not take.
    pub(super) lost: u64,
}

/// Numbers of different files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Totals {
    pub(super) read: u64,
    pub(super) written: u64,
    pub(super) created: u64,
}

/// What is counted as one: with the names of the audit log's fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(super) struct Refusal {
    pub(super) path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) path_hex: Option<String>,
    pub(super) event: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) executable: Option<String>,
    pub(super) rule: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rule_name: Option<String>,
    pub(super) errno: i32,
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
    #[serde(default)]
    rule: usize,
    rule_name: Option<String>,
    refused_by: Option<usize>,
    refused_by_name: Option<String>,
    #[serde(borrow)]
    outcome: Cow<'a, str>,
    errno: Option<i32>,
}

impl Counts {
    pub(super) fn add(&mut self, line: &str, is_written: bool) {
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
    pub(super) fn sorted(&self) -> Vec<(&Refusal, u64)> {
        let refusals = self.refusals.iter();
        let mut all: Vec<(&Refusal, u64)> = refusals.map(|(it, count)| (it, *count)).collect();
        all.sort_unstable_by(|(a, more), (b, less)| less.cmp(more).then_with(|| a.cmp(b)));
        all
    }

    /// One object on one line.
    pub(super) fn json(&self, policy: &Policy) -> String {
        let refusals = self.sorted().into_iter().map(|(refusal, count)| {
            let mut listed = json!(refusal);
            listed["action"] = refusal.action(policy).into();
            listed["count"] = count.into();
            listed
        });
        let whole = json!({
            "network": !self.no_network,
            "opens": self.opens,
            "files": self.totals,
            "uncounted_opens": self.uncounted_opens,
            "refused": self.refused,
            "refusals": Value::from_iter(refusals),
            "unlisted": self.unlisted,
            "lost": self.lost,
        });
        printable_json(&whole.to_string())
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
    pub(super) fn action(&self, policy: &Policy) -> &'static str {
        let rule = policy.rules().nth(self.rule.wrapping_sub(1));
        rule.map_or("", |rule| rule.action.name())
    }
}
