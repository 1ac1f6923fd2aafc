//! A file of the host, as the subject of a policy.

use rustix::fs::FileType;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use thrufs_policy::{AttributeSource, Attributes, HEAD_BYTES, Subject};

/// Why a policy decides nothing for a path.
#[derive(Debug, thiserror::Error)]
pub(super) enum SubjectError {
    #[error("cannot stat {path}: {source}")]
    Unlooked { path: PathBuf, source: io::Error },
    #[error("{path} is not beneath {root}, the root of the policy's paths: set it with --root")]
    OutsideRoot { path: PathBuf, root: PathBuf },
}

fn unlooked(path: &Path) -> impl Fn(io::Error) -> SubjectError {
    move |source| SubjectError::Unlooked {
        path: path.into(),
        source,
    }
}

/// A file beneath the root. Symbolic links are followed before its last component only.
#[derive(Debug)]
pub(super) struct HostFile {
    root: PathBuf,
    below: PathBuf,
    found: Found,
}

#[derive(Debug)]
pub(super) struct Found {
    path: PathBuf,
    metadata: Metadata,
}

impl HostFile {
    /// `path` must be beneath `root`.
    pub(super) fn find(root: &Path, path: &Path) -> Result<HostFile, SubjectError> {
        let real = real(path).map_err(unlooked(path))?;
        let below = real
            .strip_prefix(root)
            .map_err(|_| SubjectError::OutsideRoot {
                path: path.into(),
                root: root.into(),
            })?;
        Ok(HostFile {
            root: root.into(),
            below: below.into(),
            found: Found::at(&real)?,
        })
    }

    pub(super) fn subject(&self) -> Subject<'_> {
        self.found.subject(&self.below)
    }

    /// The directories above it, relative to the root, which is left out.
    pub(super) fn directories(&self) -> Result<Vec<(&Path, Found)>, SubjectError> {
        let mut above: Vec<&Path> = self.below.ancestors().skip(1).collect();
        above.retain(|directory| !directory.as_os_str().is_empty());
        above.reverse();
        let look = |directory| Ok((directory, Found::at(&self.root.join(directory))?));
        above.into_iter().map(look).collect()
    }
}

fn real(path: &Path) -> io::Result<PathBuf> {
    if path.symlink_metadata()?.is_symlink()
        && let (Some(parent), Some(name)) = (path.parent(), path.file_name())
    {
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        return Ok(parent.canonicalize()?.join(name));
    }
    path.canonicalize()
}

impl Found {
    fn at(path: &Path) -> Result<Found, SubjectError> {
        Ok(Found {
            metadata: path.symlink_metadata().map_err(unlooked(path))?,
            path: path.into(),
        })
    }

    pub(super) fn subject<'a>(&'a self, below: &'a Path) -> Subject<'a> {
        Subject {
            path: below.as_os_str().as_bytes(),
            file_type: FileType::from_raw_mode(self.metadata.mode()),
            source: self,
        }
    }

    fn open(&self) -> io::Result<File> {
        // If it was replaced meanwhile, open(2) must not block.
        let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
        OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&self.path)
    }
}

impl AttributeSource for Found {
    fn attributes(&self) -> Option<Attributes> {
        Some(Attributes {
            uid: self.metadata.uid(),
            gid: self.metadata.gid(),
            mode: self.metadata.mode(),
            size: self.metadata.size(),
        })
    }

    fn head(&self, buffer: &mut [u8; HEAD_BYTES]) -> Option<usize> {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        let file = self.open().ok()?;
        file.take(HEAD_BYTES as u64).read_to_end(&mut head).ok()?;
        buffer[..head.len()].copy_from_slice(&head);
        Some(head.len())
    }
}
