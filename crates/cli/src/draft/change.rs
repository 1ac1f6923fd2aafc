//! A change of a draft.

use super::base::Base;
use super::beneath::type_of;
use rustix::fs::{FileType, Stat};
use std::path::PathBuf;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// None: the layer has what the tree has. Also for what an apply left in the tree that was interrupted.
    Same,
    Created,
    Changed,
    Removed,
}

/// What a draft does to one path.
pub(crate) struct Change {
    /// From the top of the tree.
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
    /// In the draft: `None` for what is removed.
    pub(crate) layer: Option<Stat>,
    /// In the tree: `None` for what is not there, or hidden.
    pub(crate) tree: Option<Stat>,
    /// Whether the layer has a file of this name, a whiteout too. Else it is beneath a directory that was removed.
    pub(super) in_layer: bool,
    /// A directory of the layer alone: of what the tree has beneath, nothing shows.
    pub(super) is_opaque: bool,
    /// Whether the policy, or what it is, forbids to change it: for what is the same on both sides, too.
    pub(super) is_protected: bool,
    /// Whether the policy hides it, in the tree or in the layer.
    pub(super) is_hidden: bool,
    /// Whether the policy withholds what the layer has, or a part of it.
    pub(super) is_withheld: bool,
    /// Why it cannot be applied.
    pub(crate) refused: Option<String>,
    /// What happened in the tree meanwhile.
    pub(crate) conflict: Option<&'static str>,
    /// What the tree had in its place.
    pub(super) base: Base,
}

impl Change {
    pub(super) fn layer_type(&self) -> Option<FileType> {
        self.layer.as_ref().map(type_of)
    }

    pub(super) fn tree_type(&self) -> Option<FileType> {
        self.tree.as_ref().map(type_of)
    }

    /// Whether a directory of the tree goes, with all beneath.
    pub(super) fn removes_directory(&self) -> bool {
        let directory = Some(FileType::Directory);
        self.tree_type() == directory && self.layer_type() != directory
    }
}
