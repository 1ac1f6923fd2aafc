//! What rules say.

use super::content::{ContentSet, ContentType};
use rustix::fs::FileType;
use std::fmt;
use thrufs::Errno;

/// A rule of the policy that gave it; [`Policy::rule`](super::Policy::rule) tells more of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub(super) u16);

impl RuleId {
    /// Its place among the rules, from 1.
    pub fn number(self) -> usize {
        usize::from(self.0) + 1
    }
}

/// Whether a name is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// It is.
    Visible,
    /// It is absent, by this rule: not looked up, not listed.
    Hidden(RuleId),
}

/// Kinds of data that are taken out of what is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RedactionKinds(pub(super) u8);

impl RedactionKinds {
    /// Where it was taken: GPS data of photographs.
    pub const GPS: RedactionKinds = RedactionKinds(1);

    /// Each kind and what a policy calls it.
    pub(super) const NAMES: &[(&str, RedactionKinds)] = &[("gps", RedactionKinds::GPS)];

    /// As a number, for another process.
    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    /// The kinds that [`bits`](Self::bits) has told, if all are known.
    pub(crate) fn from_bits(bits: u8) -> Option<RedactionKinds> {
        let known = RedactionKinds::NAMES.iter();
        let known = known.fold(0, |known, (_, kind)| known | kind.0);
        (bits & !known == 0).then_some(RedactionKinds(bits))
    }

    /// Whether all of these are among them.
    pub fn contains(self, kinds: RedactionKinds) -> bool {
        self.0 & kinds.0 == kinds.0
    }

    /// These and those.
    #[must_use]
    pub fn union(self, other: RedactionKinds) -> RedactionKinds {
        RedactionKinds(self.0 | other.0)
    }
}

impl fmt::Display for RedactionKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = RedactionKinds::NAMES.iter();
        let names: Vec<&str> = names
            .filter(|(_, kind)| self.contains(*kind))
            .map(|(name, _)| *name)
            .collect();
        f.write_str(&names.join(", "))
    }
}

impl fmt::Debug for RedactionKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// How content is altered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redaction {
    /// What is taken out.
    pub kinds: RedactionKinds,
    /// The error for what is refused: reading what is not understood, or is not what it is to be,
    /// and changing in place what is there.
    pub errno: Errno,
    /// What the file is to be. It does not say whether it is redacted: what it is not is refused.
    pub(crate) content: ContentSet,
}

impl Redaction {
    /// Whether a file of this type is what the rule says that its files are.
    pub fn expects(self, content: ContentType) -> bool {
        self.content.contains(content)
    }

    /// For a file that has several names.
    fn stricter(self, other: Redaction) -> Redaction {
        let errnos = [self.errno, other.errno];
        let [ours, theirs] = errnos.map(Errno::raw);
        Redaction {
            kinds: self.kinds.union(other.kinds),
            errno: errnos[usize::from(theirs < ours)],
            content: self.content.intersection(other.content),
        }
    }

    /// For a file that two rules mean by one name, this one first.
    pub(super) fn or(self, later: Redaction) -> Redaction {
        Redaction {
            kinds: self.kinds.union(later.kinds),
            errno: self.errno,
            content: self.content.union(later.content),
        }
    }
}

/// How a file's data comes to its readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyDataPath {
    /// Straight from the file beneath, by the kernel; where that cannot be had, as `Cached`.
    Passthrough,
    /// By the server, into the page cache.
    Cached,
    /// By the server, past the page cache.
    Direct,
    /// By the server, which alters it.
    Redact(Redaction),
}

impl PolicyDataPath {
    fn rank(self) -> u8 {
        match self {
            PolicyDataPath::Passthrough => 0,
            PolicyDataPath::Cached => 1,
            PolicyDataPath::Direct => 2,
            PolicyDataPath::Redact(_) => 3,
        }
    }
}

/// How the data of one file comes to everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePath {
    /// How. Whether it is `Redact` depends on nothing that changes while the file keeps its name.
    /// For what is no regular file it means nothing.
    pub data: PolicyDataPath,
    /// The rule that says so; `None` when it is the default.
    pub rule: Option<RuleId>,
}

impl FilePath {
    /// The path of what is served as nothing else is said, or as its rule says.
    pub(super) fn new(data: PolicyDataPath, rule: Option<RuleId>) -> FilePath {
        FilePath { data, rule }
    }

    /// What is taken out of it, if anything is.
    #[must_use]
    pub fn redaction(&self) -> Option<Redaction> {
        match self.data {
            PolicyDataPath::Redact(redaction) => Some(redaction),
            _ => None,
        }
    }

    pub(super) fn stricter(self, other: FilePath) -> FilePath {
        let (ours, theirs) = (self.data.rank(), other.data.rank());
        let data = match (self.data, other.data) {
            (PolicyDataPath::Redact(a), PolicyDataPath::Redact(b)) => {
                PolicyDataPath::Redact(a.stricter(b))
            }
            (data, _) if ours >= theirs => data,
            (_, data) => data,
        };
        let rule = match ours.cmp(&theirs) {
            std::cmp::Ordering::Equal => first(self.rule, other.rule),
            std::cmp::Ordering::Greater => self.rule,
            std::cmp::Ordering::Less => other.rule,
        };
        FilePath { data, rule }
    }
}

/// The first of two rules, in the order of the policy.
fn first(a: Option<RuleId>, b: Option<RuleId>) -> Option<RuleId> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// An error that a rule answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error.
    pub errno: Errno,
    /// The rule.
    pub rule: RuleId,
}

/// What someone wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Open it to read, execute or list it.
    Read,
    /// Open it to write, or change it in any other way: its size, attributes or extended
    /// attributes; make, remove, rename or link it.
    Change,
}

/// What the rules say of one file by one name, for one caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Decision {
    /// The name is absent. Nothing else is said of it then.
    pub hidden: Option<RuleId>,
    /// Nothing may be done with it.
    pub deny: Option<Refusal>,
    /// It may not be changed.
    pub read_only: Option<RuleId>,
    /// Each open is told, denied ones too.
    pub audit: Option<RuleId>,
    /// How its data comes, which is the same for every caller.
    pub file: FilePath,
}

impl Decision {
    /// Whether this may be done.
    ///
    /// # Errors
    ///
    /// The error to answer with: ENOENT for what is hidden, the rule's own for what is denied, and
    /// EROFS for changes of what is read-only.
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

    /// What holds for a file that has both names: whatever is forbidden or altered under one of
    /// them is so. A hidden name adds nothing to a visible one.
    ///
    /// It does not matter in which order, or how often, names are joined.
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

/// What a policy calls the kinds of files.
pub(super) const FILE_TYPES: &[(&str, FileType)] = &[
    ("file", FileType::RegularFile),
    ("directory", FileType::Directory),
    ("symlink", FileType::Symlink),
    ("fifo", FileType::Fifo),
    ("socket", FileType::Socket),
    ("block", FileType::BlockDevice),
    ("character", FileType::CharacterDevice),
];
