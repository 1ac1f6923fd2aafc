//! Which changes a command is about, and how they are written.

use super::DraftError;
use super::change::{Change, Kind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use thrufs_hostdir::printable;

/// Changes at and beneath some paths.
pub(super) struct Selection(Vec<PathBuf>);

impl Selection {
    /// `given` count from the working directory if that is in the tree, else from the tree. None: all.
    ///
    /// # Errors
    ///
    /// One is outside of the tree, or nothing is changed there.
    pub(super) fn of(
        given: &[PathBuf],
        tree: &Path,
        changes: &[Change],
    ) -> Result<Selection, DraftError> {
        let here = std::env::current_dir().unwrap_or_default();
        let here = if here.starts_with(tree) { &here } else { tree };
        let beneath = |given: &PathBuf| {
            let mut path = PathBuf::new();
            for component in here.join(given).components() {
                match component {
                    Component::ParentDir => drop(path.pop()),
                    component => path.push(component),
                }
            }
            let outside = |_| DraftError::OutsideTree(given.clone(), tree.into());
            let path = path.strip_prefix(tree).map_err(outside)?;
            match changes.iter().any(|change| change.path.starts_with(path)) {
                true => Ok(path.to_owned()),
                false => Err(DraftError::Unchanged(given.clone())),
            }
        };
        given
            .iter()
            .map(beneath)
            .collect::<Result<_, _>>()
            .map(Selection)
    }

    /// Whether this path, and no directory around it, was given.
    pub(super) fn names(&self, path: &Path) -> bool {
        self.0.iter().any(|it| it == path)
    }

    /// Whether something in a git directory was given.
    pub(super) fn names_git(&self) -> bool {
        self.0.iter().any(|it| is_of_git(it))
    }

    pub(super) fn has(&self, path: &Path) -> bool {
        self.0.is_empty() || self.0.iter().any(|it| path.starts_with(it))
    }
}

/// Whether it is a git directory, or in one.
pub(super) fn is_of_git(path: &Path) -> bool {
    path.iter().any(|name| name == ".git")
}

/// As git has it.
pub(super) fn letter(change: &Change) -> char {
    match change.kind {
        Kind::Same => ' ',
        Kind::Created => 'A',
        Kind::Removed => 'D',
        Kind::Changed if change.layer_type() == change.tree_type() => 'M',
        Kind::Changed => 'T',
    }
}

/// A path as git writes it: in quotes if it has characters that a terminal would not show.
pub(super) fn quoted(path: &Path) -> String {
    quoted_after("", path)
}

/// The same, after a prefix that is within the quotes.
pub(super) fn quoted_after(prefix: &str, path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    if let Some(text) = path.to_str().filter(|text| printable(text) == **text)
        && !text.contains(['"', '\\'])
    {
        return format!("{prefix}{text}");
    }
    let mut quoted = format!("\"{prefix}");
    for byte in bytes {
        match byte {
            b'\n' => quoted.push_str("\\n"),
            b'\t' => quoted.push_str("\\t"),
            b'"' | b'\\' => quoted.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => quoted.push(char::from(*byte)),
            byte => quoted.push_str(&format!("\\{byte:03o}")),
        }
    }
    quoted + "\""
}
