//! One rule, compiled.

use super::content::ContentSet;
use super::decision::FILE_TYPES;
use super::decision::{DataPath, Redaction};
use super::globs::GlobList;
use super::ids::IdSet;
use super::mode::ModeBits;
use super::subject::Attributes;
use rustix::fs::FileType;
use std::ops::RangeInclusive;
use thrufs::Errno;

/// What a rule does to the files that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sets the data path. Ends the evaluation.
    Data(DataPath),
    /// Redacts. Ends the evaluation, but for rules that redact too.
    Redact(Redaction),
    /// Forbids changes. The evaluation goes on.
    ReadOnly,
    /// Hides the name. Ends the evaluation.
    Hide,
    /// Refuses opens. Ends the evaluation.
    Deny(Errno),
    /// Records opens. The evaluation goes on.
    Audit,
}

impl Action {
    /// Its name in a policy.
    pub fn name(self) -> &'static str {
        match self {
            Action::Data(path) => path.name(),
            Action::Redact(_) => "redact",
            Action::ReadOnly => "read-only",
            Action::Hide => "hide",
            Action::Deny(_) => "deny",
            Action::Audit => "audit",
        }
    }

    pub(super) fn ends(self) -> bool {
        !matches!(self, Action::ReadOnly | Action::Audit)
    }

    pub(super) fn redacts(self) -> bool {
        matches!(self, Action::Redact(_))
    }

    pub(super) const NAMES: [&str; 8] = [
        "passthrough",
        "cached",
        "direct",
        "read-only",
        "hide",
        "deny",
        "audit",
        "redact",
    ];
}

/// The data path that a policy calls by this name; redaction is an action of its own.
pub(super) fn data_path_named(name: &str) -> Option<DataPath> {
    DataPath::named(name).filter(|path| *path != DataPath::Filtered)
}

/// The bit of a file type in a set of them.
pub(super) fn type_bit(file_type: FileType) -> u64 {
    let index = FILE_TYPES.iter().position(|(_, known)| *known == file_type);
    1 << index.unwrap_or(FILE_TYPES.len())
}

/// What a rule matches on; `None` matches everything.
#[derive(Clone, Debug, Default)]
pub(super) struct Matchers {
    pub(super) globs: Option<GlobList>,
    pub(super) types: Option<u64>,
    pub(super) owner: Option<IdSet>,
    pub(super) group: Option<IdSet>,
    pub(super) mode: Option<Vec<ModeBits>>,
    pub(super) size: Option<RangeInclusive<u64>>,
    pub(super) content: Option<ContentSet>,
    pub(super) caller_uid: Option<IdSet>,
    pub(super) caller_gid: Option<IdSet>,
    pub(super) caller_exe: Option<GlobList>,
}

impl Matchers {
    pub(super) fn ask_callers(&self) -> bool {
        self.caller_uid.is_some() || self.caller_gid.is_some() || self.caller_exe.is_some()
    }

    pub(super) fn ask_attributes(&self) -> bool {
        self.owner.is_some() || self.group.is_some() || self.mode.is_some() || self.size.is_some()
    }

    /// Whether the result is fixed as long as a file has its name.
    pub(super) fn are_lasting(&self) -> bool {
        !self.ask_callers() && !self.ask_attributes() && self.content.is_none()
    }

    /// The fixed part, except for the path.
    pub(super) fn match_type(&self, file_type: FileType) -> bool {
        let of_regular_files = self.size.is_some() || self.content.is_some();
        self.types
            .is_none_or(|types| types & type_bit(file_type) != 0)
            && (!of_regular_files || file_type == FileType::RegularFile)
    }

    pub(super) fn match_attributes(&self, attributes: Attributes) -> bool {
        let has_mode = |mode: &ModeBits| mode.matches(attributes.mode);
        let has_size = |range: &RangeInclusive<u64>| range.contains(&attributes.size);
        admits(&self.owner, attributes.uid)
            && admits(&self.group, attributes.gid)
            && (self.mode.as_ref()).is_none_or(|modes| modes.iter().any(has_mode))
            && self.size.as_ref().is_none_or(has_size)
    }

    pub(super) fn match_ids(&self, uid: u32, gid: u32) -> bool {
        admits(&self.caller_uid, uid) && admits(&self.caller_gid, gid)
    }
}

fn admits(set: &Option<IdSet>, id: u32) -> bool {
    set.as_ref().is_none_or(|set| set.contains(id))
}

#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) name: Option<Box<str>>,
    pub(super) line: usize,
    pub(super) action: Action,
    pub(super) matchers: Matchers,
}

impl Rule {
    /// Whether it matches when an attribute is unknown: if it restricts.
    pub(super) fn when_unknown(&self) -> bool {
        !matches!(self.action, Action::Data(_))
    }
}
