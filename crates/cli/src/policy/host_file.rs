//! A file of the host, as the subject of a policy.

use crate::error::{StartupError, system_at};
use crate::lookup::{self, descriptor_path, is_same};
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use thrufs_policy::{AttributeSource, Attributes, HEAD_BYTES, Subject};

/// Why a policy decides nothing for a path.
#[derive(Debug, thiserror::Error)]
pub(super) enum SubjectError {
    #[error(transparent)]
    Unlooked(#[from] StartupError),
    #[error("{path} is not beneath {root}, the root of the policy's paths: set it with --root")]
    OutsideRoot { path: PathBuf, root: PathBuf },
}

/// The directory from which the policy's paths are counted.
#[derive(Debug)]
pub(super) struct Root {
    directory: OwnedFd,
    path: PathBuf,
}

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Root> {
        let directory = lookup::open(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        let path = lookup::path_of(&directory)?;
        Ok(Root { directory, path })
    }
}

/// A file beneath the root, with the directories above it. Each is looked up once: root may be asked about a tree that
/// its user changes meanwhile. Symbolic links are followed before its last component only.
#[derive(Debug)]
pub(super) struct HostFile {
    below: PathBuf,
    /// From the root, which is left out, to the file; the root for itself.
    found: Vec<Found>,
}

#[derive(Debug)]
pub(super) struct Found {
    file: OwnedFd,
    stat: Stat,
}

impl HostFile {
    /// `path` must be beneath `root`.
    pub(super) fn find(root: &Root, path: &Path) -> Result<HostFile, SubjectError> {
        let unlooked = system_at("stat", path);
        let (real, file) = real(path).map_err(&unlooked)?;
        let below = real
            .strip_prefix(&root.path)
            .map_err(|_| SubjectError::OutsideRoot {
                path: path.into(),
                root: root.path.clone(),
            })?;
        let found = walk(root, below, &file).map_err(unlooked)?;
        Ok(HostFile {
            below: below.into(),
            found,
        })
    }

    pub(super) fn subject(&self) -> Subject<'_> {
        let file = self.found.last().expect("the root at least");
        file.subject(&self.below)
    }

    /// The directories above it, relative to the root, which is left out.
    pub(super) fn directories(&self) -> impl Iterator<Item = (&Path, &Found)> {
        let mut paths: Vec<&Path> = self.below.ancestors().skip(1).collect();
        paths.pop();
        paths.into_iter().rev().zip(&self.found)
    }
}

/// The path of a file without symbolic links, but for the file itself, and the file.
fn real(path: &Path) -> io::Result<(PathBuf, OwnedFd)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    if let Some(Component::Normal(name)) = path.components().next_back() {
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let parent = lookup::open(parent, flags, Mode::empty())?;
        let file = open_in(&parent, name.as_ref())?;
        return Ok((lookup::path_of(&parent)?.join(name), file));
    }
    let directory = lookup::open(path, flags, Mode::empty())?;
    Ok((lookup::path_of(&directory)?, directory))
}

/// Opens the directories down to `file`, and compares.
fn walk(root: &Root, below: &Path, file: &OwnedFd) -> io::Result<Vec<Found>> {
    let mut found: Vec<Found> = Vec::new();
    for name in below {
        let above = found.last().map_or(&root.directory, |above| &above.file);
        found.push(Found::of(open_in(above, name.as_ref())?)?);
    }
    if found.is_empty() {
        found.push(Found::of(root.directory.try_clone()?)?);
    }
    match found.last() {
        Some(last) if is_same(last.stat, fstat(file)?) => Ok(found),
        _ => Err(Errno::NOENT.into()),
    }
}

fn open_in(directory: impl AsFd, name: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::empty())
}

impl Found {
    fn of(file: OwnedFd) -> io::Result<Found> {
        let stat = fstat(&file)?;
        Ok(Found { file, stat })
    }

    pub(super) fn subject<'a>(&'a self, below: &'a Path) -> Subject<'a> {
        Subject {
            path: below.as_os_str().as_bytes(),
            file_type: FileType::from_raw_mode(self.stat.st_mode),
            source: self,
        }
    }

    fn open(&self) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(descriptor_path(&self.file))
    }
}

impl AttributeSource for Found {
    fn attributes(&self) -> Option<Attributes> {
        Some(attributes_in(&self.stat))
    }

    fn head(&self, buffer: &mut [u8; HEAD_BYTES]) -> Option<usize> {
        head_of(self.open().ok()?, buffer)
    }
}

pub(crate) fn attributes_in(stat: &Stat) -> Attributes {
    Attributes {
        uid: stat.st_uid,
        gid: stat.st_gid,
        mode: stat.st_mode,
        size: stat.st_size as u64,
    }
}

pub(crate) fn head_of(file: File, buffer: &mut [u8; HEAD_BYTES]) -> Option<usize> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    file.take(HEAD_BYTES as u64).read_to_end(&mut head).ok()?;
    buffer[..head.len()].copy_from_slice(&head);
    Some(head.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The tree, a directory in it and the file are exchanged when they were looked up.
    #[test]
    fn file_that_is_exchanged_is_the_one_that_was_found() {
        let place = tempfile::tempdir().unwrap();
        let [tree, other] = ["tree", "other"].map(|name| place.path().join(name));
        for (at, content) in [(&tree, "first"), (&other, "another")] {
            fs::create_dir_all(at.join("in")).unwrap();
            fs::write(at.join("in/file"), content).unwrap();
        }
        let root = Root::open(&tree).unwrap();
        let exchange = |one: &Path, another: &Path| {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(rustix::fs::CWD, one, rustix::fs::CWD, another, flags)
        };
        let file = tree.join("in/file");
        let found = HostFile::find(&root, &file).unwrap();
        let inode = |path: &Path| rustix::fs::lstat(path).unwrap().st_ino;
        let directory = inode(&tree.join("in"));
        exchange(&tree.join("in"), &other.join("in")).unwrap();
        let mut head = [0; HEAD_BYTES];
        let source = found.subject().source;
        assert_eq!(source.head(&mut head), Some(5));
        assert_eq!(source.attributes().unwrap().size, 5);
        let above: Vec<_> = found.directories().collect();
        assert_eq!(above.len(), 1);
        assert_eq!(
            (above[0].0, above[0].1.stat.st_ino),
            (Path::new("in"), directory)
        );
        // By names, the tree is another one now.
        exchange(&tree, &other).unwrap();
        assert!(HostFile::find(&root, &file).is_err());
        assert!(HostFile::find(&Root::open(&tree).unwrap(), &file).is_ok());
    }
}
