//! An operator's rules for files.
//!
//! A policy is an ordered list of rules in TOML; `docs/policies.md` is their reference. It is read once
//! ([`Policy::load`]), compiled, and then asked about one file by one name at a time, by any number of
//! threads. A decision does no input or output of its own. A reload replaces the policy.
//!
//! | module | what it does |
//! |---|---|
//! | `parse`, `draft`, `document` | parsing, each fault with its place |
//! | `globs`, `ids`, `mode`, `size`, `content` | what rules match on |
//! | `accounts` | the names of users and groups |
//! | `rule` | one rule, compiled |
//! | `subject` | the file and the caller of a decision |
//! | `evaluate` | evaluating the rules |
//! | `decision` | the result |
//! | `moves` | moving directories |
//!
//! # How rules are evaluated
//!
//! In their order. `hide`, `deny` and the data paths (`passthrough`, `cached`, `direct`, `redact`) **end**
//! the evaluation: of those that match, the first counts. `audit` and `read-only` **mark** and the
//! evaluation goes on, so that a file can be both, and get its data path from a later rule, or else from
//! the policy's default. So an exception stands before the rule that it excepts from, and an `audit` before
//! the `deny` that it is to record.
//!
//! # What is asked when
//!
//! * [`Policy::visibility`] at each lookup and for each entry of a listing. The kernel caches names for all
//!   callers, and listings do not read files; so a `hide` rule matches on neither, and rules that do are
//!   skipped here: they never keep a later `hide` from hiding. Needed only with [`Uses::hide`].
//! * [`Policy::decide`] at each open and creation (before the file is created, with its future attributes),
//!   and before every change by name; [`Decision::check`] turns the answer into an error number. Size,
//!   owner, mode and content are those of this moment. They may change while the file is open, and what was
//!   granted stays granted.
//! * [`Policy::file_path`] for the data path of an inode, which does not depend on the caller.
//!
//! # One path for all callers, for good
//!
//! All opens of an inode share one data path. So rules that match on callers can only deny, audit or make
//! read-only; and whether a file is redacted depends on its names and type alone, not on size, owner, mode
//! or content: a user who can change those could decide it. The `content` of a rule that redacts says what
//! its files have to be; others are refused.
//!
//! # What is unknown
//!
//! An attribute, the first bytes or the caller's program may not be available. Rules that restrict (`hide`,
//! `deny`, `read-only`, `audit`, `redact`) match then, others do not.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod accounts;
mod content;
mod decision;
mod document;
mod draft;
mod error;
mod evaluate;
mod globs;
mod ids;
mod mode;
mod moves;
mod nearest;
mod parse;
mod rule;
mod size;
mod subject;
#[cfg(test)]
mod tests;

pub use accounts::{ACCOUNTS_BYTES_MAX, Accounts};
pub use content::{ContentSet, ContentType, HEAD_BYTES};
pub use decision::{Access, DataPath, Decision, FilePath, Redaction, Refusal, RuleId, Visibility};
pub use error::{PolicyError, PolicyFileError};
pub use globs::{GLOB_BRACES_MAX, GLOB_BYTES_MAX, GLOBS_MAX};
pub use nearest::nearest;
pub use parse::RULES_MAX;
pub use rule::Action;
/// The type of a file, of `rustix`.
pub use rustix::fs::FileType;
pub use subject::{AttributeSource, Attributes, Caller, Subject, Unknown};

use error::Fault;
use globs::{GlobList, GlobTable, GlobTableBuilder};
use moves::Moves;
use rule::Rule;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The longest policy, in bytes.
pub const POLICY_BYTES_MAX: usize = 1 << 20;

/// A compiled policy.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Vec<Rule>,
    default: DataPath,
    audit_log: Option<PathBuf>,
    /// The line that says that refusals are audited.
    audit_refused: Option<usize>,
    uses: Uses,
    globs: GlobTable,
    executables: GlobTable,
    /// The rules that decide whether a name is visible, with their patterns among `name_globs`.
    names: Vec<(RuleId, Option<GlobList>)>,
    name_globs: GlobTable,
    last_redaction: Option<RuleId>,
    moves: Moves,
}

/// What a policy uses. Nothing else needs to be collected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Paths. Without, [`Subject::path`] may be anything but empty.
    pub paths: bool,
    /// Names may be hidden: [`Policy::visibility`] may return other than `Visible`.
    pub hide: bool,
    /// Whether a name is hidden may depend on attributes.
    pub hide_by_attributes: bool,
    /// Owner, group, mode or size.
    pub attributes: bool,
    /// First bytes.
    pub content: bool,
    /// The caller's ids or program. Ids must not be mapped then.
    pub callers: bool,
    /// The caller's program.
    pub executables: bool,
    /// Something may be denied.
    pub deny: bool,
    /// Something may be read-only.
    pub read_only: bool,
    /// Opens may be audited.
    pub audit: bool,
    /// What a rule refuses is audited.
    pub audit_refused: bool,
    /// Something may be redacted.
    pub redact: bool,
}

/// A rule, for messages: ``rule 3 `photos` (line 12)``.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleInfo<'a> {
    /// Its number, from 1.
    pub number: usize,
    /// Its name, if it has one.
    pub name: Option<&'a str>,
    /// Its first line in the file.
    pub line: usize,
    /// What it does.
    pub action: Action,
}

impl fmt::Display for RuleInfo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}", self.number)?;
        if let Some(name) = self.name {
            write!(f, " `{name}`")?;
        }
        write!(f, " (line {})", self.line)
    }
}

impl Policy {
    /// Reads a policy's file, and the names of this machine's users and groups.
    ///
    /// # Errors
    ///
    /// Files that cannot be read, and faults of the policy, such as audits without `audit-log`.
    pub fn load(path: &Path) -> Result<Policy, PolicyFileError> {
        Policy::of_file(path, &Policy::text_of(path, File::open(path))?)
    }

    /// The text of a policy's file, opened at `path`, which may be a pipe. Of one that is too long, a byte more than
    /// the limit.
    ///
    /// # Errors
    ///
    /// Those of opening and reading.
    pub fn text_of(path: &Path, opened: io::Result<File>) -> Result<Vec<u8>, PolicyFileError> {
        let read = |file: File| {
            let mut text = Vec::new();
            file.take(POLICY_BYTES_MAX as u64 + 1)
                .read_to_end(&mut text)?;
            Ok(text)
        };
        opened
            .and_then(read)
            .map_err(|source| PolicyFileError::Unreadable {
                path: path.into(),
                source,
            })
    }

    /// Compiles the policy in a file with this text.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub fn of_file(path: &Path, text: &[u8]) -> Result<Policy, PolicyFileError> {
        let policy = Policy::parse(text, &Accounts::read()?).and_then(Policy::with_audit_log);
        policy.map_err(|error| PolicyFileError::Bad {
            path: path.into(),
            error,
        })
    }

    /// Refuses a policy that audits without an `audit-log`.
    fn with_audit_log(self) -> Result<Policy, PolicyError> {
        let audits = |rule: &Rule| (rule.action == Action::Audit).then_some(rule.line);
        let refused = self.audit_refused.map(|line| (line, "audit-refused"));
        let rule = || Some((self.rules.iter().find_map(audits)?, "audit"));
        match (refused.or_else(rule), &self.audit_log) {
            (Some((line, what)), None) => Err(PolicyError {
                line,
                column: 1,
                message: format!("`{what}` needs a file: say audit-log = \"/…\" above the rules"),
            }),
            _ => Ok(self),
        }
    }

    /// Compiles a policy from its text.
    ///
    /// # Errors
    ///
    /// The first fault, and where it is; also longer texts than [`POLICY_BYTES_MAX`], more rules than
    /// [`RULES_MAX`] and more or larger patterns than [`GLOBS_MAX`], [`GLOB_BYTES_MAX`] and
    /// [`GLOB_BRACES_MAX`].
    pub fn parse(text: &[u8], accounts: &Accounts) -> Result<Policy, PolicyError> {
        if text.len() > POLICY_BYTES_MAX {
            let message = format!("a policy has at most {POLICY_BYTES_MAX} bytes");
            return Err(PolicyError::at("", 0, message));
        }
        let text = match std::str::from_utf8(text) {
            Ok(text) => text,
            Err(error) => {
                let valid = String::from_utf8_lossy(&text[..error.valid_up_to()]);
                let message = "this is no UTF-8: TOML is".to_owned();
                return Err(PolicyError::at(&valid, valid.len(), message));
            }
        };
        let compiled = parse::document(text, accounts).and_then(|document| {
            let newlines: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
            let line = |offset| newlines.partition_point(|&newline| newline < offset) + 1;
            Policy::compile(document, line)
        });
        compiled.map_err(|fault| PolicyError::at(text, fault.offset, fault.message))
    }

    fn compile(document: parse::Document, line: impl Fn(usize) -> usize) -> Result<Policy, Fault> {
        let hides = |draft: &draft::Draft| draft.action == Action::Hide;
        let decide_names = document
            .rules
            .iter()
            .rposition(hides)
            .map_or(0, |last| last + 1);
        let mut moves = Moves::default();
        let [mut globs, mut executables, mut name_globs] =
            [(); 3].map(|()| GlobTableBuilder::default());
        let (mut rules, mut names) = (Vec::new(), Vec::new());
        for draft in document.rules {
            let id = RuleId(u16::try_from(rules.len()).expect("there are at most RULES_MAX"));
            let mut matchers = draft.matchers;
            matchers.globs = draft.paths.as_ref().map(|paths| globs.add(paths));
            matchers.caller_exe = draft.executables.map(|paths| executables.add(&paths));
            let is_of_names = matchers.content.is_none() && !matchers.ask_callers();
            if !matchers.ask_callers() {
                moves.add(id, draft.action, draft.paths.as_ref());
            }
            if rules.len() < decide_names && draft.action.ends() && is_of_names {
                names.push((id, draft.paths.map(|paths| name_globs.add(&paths))));
            }
            rules.push(Rule {
                name: draft.name,
                line: line(draft.offset),
                action: draft.action,
                matchers,
            });
        }
        let redacts = |(index, rule): (usize, &Rule)| {
            let id = RuleId(index as u16);
            rule.action.redacts().then_some(id)
        };
        let audit_refused = document.audit_refused.map(line);
        Ok(Policy {
            default: document.default,
            audit_log: document.audit_log,
            audit_refused,
            uses: Uses {
                audit_refused: audit_refused.is_some(),
                ..Uses::of(&rules, &names)
            },
            last_redaction: rules.iter().enumerate().filter_map(redacts).next_back(),
            globs: globs.build()?,
            executables: executables.build()?,
            name_globs: name_globs.build()?,
            rules,
            names,
            moves,
        })
    }

    /// What this policy uses.
    pub fn uses(&self) -> Uses {
        self.uses
    }

    /// The data path of files that no rule gives one.
    pub fn default_path(&self) -> DataPath {
        self.default
    }

    /// The audit log; always there where something is audited.
    pub fn audit_log(&self) -> Option<&Path> {
        self.audit_log.as_deref()
    }

    /// A rule that this policy returned. For a rule of another policy, the one with the same number, if
    /// there is one.
    pub fn rule(&self, id: RuleId) -> Option<RuleInfo<'_>> {
        let rule = self.rules.get(usize::from(id.0))?;
        Some(rule.info(id))
    }

    /// All rules in their order.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = RuleInfo<'_>> {
        self.numbered().map(|(id, rule)| rule.info(id))
    }

    /// A rule that redacts, hides, denies or makes read-only and may cease to apply in a directory whose
    /// path changes from `old` to `new`. `None` if everything in it is sure to stay as protected.
    pub fn left_beneath(&self, old: &[u8], new: &[u8]) -> Option<RuleId> {
        self.moves.left_beneath(old, new)
    }

    fn numbered(&self) -> impl ExactSizeIterator<Item = (RuleId, &Rule)> {
        let numbered = self.rules.iter().enumerate();
        numbered.map(|(index, rule)| (RuleId(index as u16), rule))
    }
}

impl Rule {
    fn info(&self, id: RuleId) -> RuleInfo<'_> {
        RuleInfo {
            number: id.number(),
            name: self.name.as_deref(),
            line: self.line,
            action: self.action,
        }
    }
}

impl Uses {
    fn of(rules: &[Rule], names: &[(RuleId, Option<GlobList>)]) -> Uses {
        let mut uses = Uses::default();
        for rule in rules {
            let matchers = &rule.matchers;
            uses.paths |= matchers.globs.is_some();
            uses.attributes |= matchers.ask_attributes();
            uses.content |= matchers.content.is_some();
            uses.callers |= matchers.ask_callers();
            uses.executables |= matchers.caller_exe.is_some();
            match rule.action {
                Action::Hide => uses.hide = true,
                Action::Deny(_) => uses.deny = true,
                Action::ReadOnly => uses.read_only = true,
                Action::Audit => uses.audit = true,
                Action::Redact(_) => uses.redact = true,
                Action::Data(_) => {}
            }
        }
        let asks = |(id, _): &(RuleId, _)| rules[usize::from(id.0)].matchers.ask_attributes();
        uses.hide_by_attributes = names.iter().any(asks);
        uses
    }
}
