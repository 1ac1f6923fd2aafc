//! Files beneath a directory, of which no path is trusted: no link is followed.

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fgetxattr, flistxattr, openat,
    openat2, readlinkat, statat,
};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Of a path that one system call takes.
const STEP_BYTES_MAX: usize = 2048;

/// Of the names of a file's attributes, and of a value (xattr(7)).
const XATTR_BYTES_MAX: usize = 1 << 16;

/// How names begin that [`apply`](super::apply) gives to files of the tree for a moment.
pub(super) const TEMPORARY: &str = ".thrufs-apply-";

/// Seconds and nanoseconds since 1970.
pub(crate) type Time = (i64, i64);

/// Opens a directory (`O_PATH`) of any depth.
pub(super) fn open_directory(top: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let open = |at: &OwnedFd, path: &Path| openat2(at, path, flags, Mode::empty(), resolve);
    let mut at = open(top, Path::new("."))?;
    let mut step = PathBuf::new();
    for name in path {
        step.push(name);
        if step.as_os_str().len() > STEP_BYTES_MAX {
            at = open(&at, &step)?;
            step = PathBuf::new();
        }
    }
    match step.as_os_str().is_empty() {
        true => Ok(at),
        false => open(&at, &step),
    }
}

pub(super) fn open_in(
    directory: impl AsFd,
    name: impl AsRef<OsStr>,
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let mode = match flags.contains(OFlags::CREATE) {
        true => Mode::RUSR | Mode::WUSR,
        false => Mode::empty(),
    };
    let flags = flags | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    openat(directory, name.as_ref(), flags, mode)
}

pub(super) fn stat_at(directory: &OwnedFd, name: &OsStr) -> io::Result<Option<Stat>> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(None),
        found => Ok(Some(found?)),
    }
}

pub(super) fn names(directory: &OwnedFd) -> io::Result<BTreeSet<OsString>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let listed = open_in(directory, OsStr::new("."), flags)?;
    let mut names = BTreeSet::new();
    for entry in Dir::new(listed)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if ![&b"."[..], b".."].contains(&&name[..]) {
            names.insert(OsString::from_vec(name));
        }
    }
    Ok(names)
}

/// Where a symbolic link leads.
pub(super) fn target(directory: &OwnedFd, name: &OsStr) -> io::Result<OsString> {
    let target = readlinkat(directory, name, Vec::new())?;
    Ok(OsString::from_vec(target.into_bytes()))
}

/// The attributes that users give a file, and its access control lists. In a layer, overlayfs keeps attributes of its
/// own, and has a further prefix for those of users that look so.
pub(super) fn attributes(file: &OwnedFd, is_layer: bool) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    const OWN: &[u8] = b"user.overlay.";
    let mut list = vec![0; XATTR_BYTES_MAX];
    let length = match flistxattr(file, &mut list[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        length => length?,
    };
    let mut found = BTreeMap::new();
    for name in list[..length].split(|byte| *byte == 0) {
        if !name.starts_with(b"user.") && !name.starts_with(b"system.posix_acl_") {
            continue;
        }
        let shown = match name.strip_prefix(OWN).filter(|_| is_layer) {
            Some(own) => match own.strip_prefix(b"overlay.") {
                Some(escaped) => [OWN, escaped].concat(),
                None => continue,
            },
            None => name.to_vec(),
        };
        let mut value = vec![0; XATTR_BYTES_MAX];
        let length = fgetxattr(file, OsStr::from_bytes(name), &mut value[..])?;
        value.truncate(length);
        found.insert(shown, value);
    }
    Ok(found)
}

pub(super) fn type_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Whether files of this type have attributes of users: the kernel lets no others have them.
pub(super) fn has_attributes(file_type: FileType) -> bool {
    matches!(file_type, FileType::RegularFile | FileType::Directory)
}

/// What overlayfs puts in the place of a removed file. (It reads regular files as whiteouts too, but makes none.)
pub(super) fn is_whiteout(stat: &Stat) -> bool {
    type_of(stat) == FileType::CharacterDevice && stat.st_rdev == 0
}

pub(super) fn is_temporary(name: &OsStr) -> bool {
    name.as_bytes().starts_with(TEMPORARY.as_bytes())
}
