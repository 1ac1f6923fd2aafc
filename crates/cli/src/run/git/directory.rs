//! The git directory of a linked working tree or a submodule, which is outside of the tree.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// It is served beside the tree, under rules of its own.
#[derive(Debug)]
pub(in crate::run) struct GitDirectory {
    /// Without symbolic links.
    pub(in crate::run) path: PathBuf,
    /// Of a linked working tree: what is its own, `worktrees/NAME`.
    pub(in crate::run) own: Option<PathBuf>,
    /// What git executes later, relative to it.
    pub(in crate::run) inside: BTreeSet<PathBuf>,
}

impl GitDirectory {
    /// Of the tree whose `.git` leads to `git`, which shares `path` with others. `None` if one contains the other.
    pub(super) fn outside(tree: &Path, git: &Path, path: PathBuf) -> Option<GitDirectory> {
        let own = git.strip_prefix(&path).ok()?;
        let is_apart = !path.starts_with(tree) && !tree.starts_with(&path);
        is_apart.then(|| GitDirectory {
            own: (git != path).then(|| own.to_owned()),
            path,
            inside: BTreeSet::new(),
        })
    }

    pub(super) fn add(&mut self, path: &Path) {
        if let Ok(inside) = path.strip_prefix(&self.path)
            && inside != Path::new("")
        {
            self.inside.insert(inside.to_owned());
        }
    }
}
