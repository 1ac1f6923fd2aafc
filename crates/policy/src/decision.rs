//! What a policy decides for one file: visibility, data path, redaction, refusals; and which of two
//! decisions is the stricter.

use super::content::ContentSet;
use rustix::fs::FileType;
use std::cmp::Ordering;
use std::fmt;
use thrufs::Errno;

/// A rule of the policy that returned it; see [`Policy::rule`](super::Policy::rule).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub(super) u16);

impl RuleId {
    /// Its number, from 1.
    pub fn number(self) -> usize {
        usize::from(self.0) + 1
    }
}

/// Whether a name is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// It is.
    Visible,
    /// Hidden by this rule: neither looked up nor listed.
    Hidden(RuleId),
}

/// How the content of a file is redacted: readers do not see where a picture was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redaction {
    /// The error for reading a file that is not understood or not of the expected type, and for changing
    /// existing content.
    pub errno: Errno,
    /// The types that the file may have. Others are refused; it does not decide whether to redact.
    pub content: ContentSet,
}

impl Redaction {
    /// For a file that has several names.
    fn stricter(self, other: Redaction) -> Redaction {
        let errnos = [self.errno, other.errno];
        let [ours, theirs] = errnos.map(Errno::raw);
        Redaction {
            errno: errnos[usize::from(theirs < ours)],
            content: self.content.intersection(other.content),
        }
    }

    /// For one name that two rules match, this one first.
    pub(super) fn or(self, later: Redaction) -> Redaction {
        Redaction {
            errno: self.errno,
            content: self.content.union(later.content),
        }
    }
}

/// The data path of a file: what a policy gives it, and what it has while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DataPath {
    /// The kernel uses the lower file itself. A policy's: where it cannot, as `Cached`.
    Passthrough,
    /// Through the server and the kernel's page cache.
    Cached,
    /// Through the server, without the page cache.
    Direct,
    /// Through the server, which redacts what readers see.
    Filtered,
}

impl DataPath {
    /// The data path of this name.
    pub fn named(name: &str) -> Option<DataPath> {
        [
            DataPath::Passthrough,
            DataPath::Cached,
            DataPath::Direct,
            DataPath::Filtered,
        ]
        .into_iter()
        .find(|path| path.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            DataPath::Passthrough => "passthrough",
            DataPath::Cached => "cached",
            DataPath::Direct => "direct",
            DataPath::Filtered => "filtered",
        }
    }
}

impl fmt::Display for DataPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The data path of one file for all callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePath {
    /// The path. Whether it is `Filtered` depends on nothing that changes while the file keeps its name.
    /// Without meaning for other inodes than regular files.
    pub data: DataPath,
    /// How it is redacted, if it is `Filtered`.
    pub redaction: Option<Redaction>,
    /// The rule that decided it; `None` for the default.
    pub rule: Option<RuleId>,
}

impl FilePath {
    /// A path without redaction.
    pub const fn new(data: DataPath, rule: Option<RuleId>) -> FilePath {
        FilePath {
            data,
            redaction: None,
            rule,
        }
    }

    /// The path of a file that is redacted.
    pub const fn redacted(redaction: Redaction, rule: Option<RuleId>) -> FilePath {
        FilePath {
            data: DataPath::Filtered,
            redaction: Some(redaction),
            rule,
        }
    }

    pub(super) fn stricter(self, other: FilePath) -> FilePath {
        let redaction = match (self.redaction, other.redaction) {
            (Some(a), Some(b)) => Some(a.stricter(b)),
            (a, b) => a.or(b),
        };
        let rule = match self.data.cmp(&other.data) {
            Ordering::Equal => first(self.rule, other.rule),
            Ordering::Greater => self.rule,
            Ordering::Less => other.rule,
        };
        FilePath {
            data: self.data.max(other.data),
            redaction,
            rule,
        }
    }
}

/// The first of two rules, in the order of the policy.
fn first(a: Option<RuleId>, b: Option<RuleId>) -> Option<RuleId> {
    a.into_iter().chain(b).min()
}

/// A refusal by a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error.
    pub errno: Errno,
    /// The rule.
    pub rule: RuleId,
}

/// What a caller wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Open it to read, execute or list it.
    Read,
    /// Open it to write, or change it in any other way: its size, attributes or extended attributes;
    /// create, remove, rename or link it.
    Change,
}

/// What a policy decides about one file by one name, for one caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Decision {
    /// The name is hidden. Nothing else is decided then.
    pub hidden: Option<RuleId>,
    /// No access at all.
    pub deny: Option<Refusal>,
    /// No changes.
    pub read_only: Option<RuleId>,
    /// Each open is recorded, also refused ones.
    pub audit: Option<RuleId>,
    /// The data path, which is the same for every caller.
    pub file: FilePath,
}

impl Decision {
    /// Whether the access is permitted.
    ///
    /// # Errors
    ///
    /// ENOENT for a hidden name, the rule's own error for `deny`, EROFS for changes of what is read-only.
    pub fn check(&self, access: Access) -> Result<(), Refusal> {
        if let Some(rule) = self.hidden {
            let errno = Errno::ENOENT;
            return Err(Refusal { errno, rule });
        }
        if let Some(refusal) = self.deny {
            return Err(refusal);
        }
        match (access, self.read_only) {
            (Access::Change, Some(rule)) => Err(Refusal {
                errno: Errno::EROFS,
                rule,
            }),
            _ => Ok(()),
        }
    }

    /// As [`check`](Self::check), for creating: a name that would be hidden cannot be created.
    ///
    /// # Errors
    ///
    /// As those of [`check`](Self::check), but EACCES for a hidden name.
    pub fn check_new(&self) -> Result<(), Refusal> {
        self.check(Access::Change)
            .map_err(|refusal| match self.hidden {
                Some(rule) => Refusal {
                    errno: Errno::EACCES,
                    rule,
                },
                None => refusal,
            })
    }

    /// The decision for a file with both names: whatever either forbids or redacts. A hidden name adds
    /// nothing to a visible one. Independent of order and repetition.
    pub fn stricter(self, other: Decision) -> Decision {
        let deny = match (self.deny, other.deny) {
            (Some(a), Some(b)) if b.rule < a.rule => Some(b),
            (a, b) => a.or(b),
        };
        Decision {
            hidden: self.hidden.zip(other.hidden).map(|(a, b)| a.min(b)),
            deny,
            read_only: first(self.read_only, other.read_only),
            audit: first(self.audit, other.audit),
            file: self.file.stricter(other.file),
        }
    }
}

/// The names of file types in a policy.
pub(super) const FILE_TYPES: &[(&str, FileType)] = &[
    ("file", FileType::RegularFile),
    ("directory", FileType::Directory),
    ("symlink", FileType::Symlink),
    ("fifo", FileType::Fifo),
    ("socket", FileType::Socket),
    ("block", FileType::BlockDevice),
    ("character", FileType::CharacterDevice),
];
