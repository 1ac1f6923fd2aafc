//! Finds the mount that a path is on, and the path within it.
//!
//! The parent directory is opened, and the kernel reports its mount: names are not enough, because mounts
//! are moved, bound and covered. The last component is not looked up, so that the query does not add it
//! to the caches, and a symbolic link there is not followed. If something is mounted there, its root is
//! meant.

use super::query_error::QueryError;
use crate::error::{system, system_at};
use crate::lookup::descriptor_path;
use crate::mount_table::{self, Mount};
use crate::mounting::DeadMount;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(crate) struct Located {
    pub(crate) mount: Mount,
    pub(crate) components: Vec<CString>,
}

pub(crate) fn locate(path: &Path) -> Result<Located, QueryError> {
    let (part, name) = split(path.as_os_str().as_bytes());
    let part = OsStr::from_bytes(part).as_ref();
    let directory = open(CWD, part, OFlags::DIRECTORY).map_err(failed(path, part))?;
    locate_in(path, directory, name)
}

fn failed(path: &Path, part: &Path) -> impl Fn(Errno) -> QueryError {
    move |errno| match errno {
        Errno::NOTCONN => DeadMount(part.into()).into(),
        other => system_at("explain", path)(other).into(),
    }
}

/// What has this name in an open directory, or the directory itself; `path` is for messages.
fn locate_in(path: &Path, directory: OwnedFd, name: Option<&[u8]>) -> Result<Located, QueryError> {
    let mounts = mount_table::all().map_err(system("read the table of mounts"))?;
    let Some(name) = name else {
        return of_descriptor(path, &mounts, directory, None);
    };
    let (holding, at) = on_mount(path, &mounts, &directory)?;
    let whole = at.join(OsStr::from_bytes(name));
    let is_covered = |mount: &Mount| mount.parent == holding.id && mount.path == whole;
    if mounts.iter().any(is_covered) {
        let name = OsStr::from_bytes(name).as_ref();
        let mounted = open(directory.as_fd(), name, OFlags::NOFOLLOW);
        let mounted = mounted.map_err(failed(path, path))?;
        return of_descriptor(path, &mounts, mounted, None);
    }
    of_descriptor(path, &mounts, directory, Some(name))
}

/// Parent directory and name; no name where the path ends in `/`, `.` or `..`.
fn split(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    let (directory, name) = match path.iter().rposition(|byte| *byte == b'/') {
        None => (&b"."[..], path),
        Some(0) => (&b"/"[..], &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
    };
    match name {
        b"" | b"." | b".." => (path, None),
        name => (directory, Some(name)),
    }
}

fn open(at: BorrowedFd<'_>, part: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::openat(at, part, flags, Mode::empty())
}

/// The mount of an open file, and its path there.
fn on_mount<'a>(
    path: &Path,
    mounts: &'a [Mount],
    descriptor: &OwnedFd,
) -> Result<(&'a Mount, PathBuf), QueryError> {
    let wrong = system_at("explain", path);
    // STATX_DONT_SYNC and an empty mask: the server may be dead, and a FUSE mount refuses requests of
    // users that it does not allow. The kernel itself fills the mount id.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(descriptor.as_fd(), c"", flags, StatxFlags::empty())
        .map_err(|errno| wrong(io::Error::from(errno)))?;
    if stat.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return Err(wrong(io::ErrorKind::Unsupported.into()).into());
    }
    let mount = mounts.iter().find(|mount| mount.id == stat.stx_mnt_id);
    let mount = mount.ok_or_else(|| QueryError::Detached(path.into()))?;
    // The kernel adds " (deleted)" to the path of a directory whose name it has dropped, also where that is bound.
    if stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok((mount, mount.path.clone()));
    }
    let path = std::fs::read_link(descriptor_path(descriptor)).map_err(wrong)?;
    Ok((mount, path))
}

fn of_descriptor(
    path: &Path,
    mounts: &[Mount],
    descriptor: OwnedFd,
    name: Option<&[u8]>,
) -> Result<Located, QueryError> {
    let (mount, at) = on_mount(path, mounts, &descriptor)?;
    let outside = || QueryError::Detached(path.into());
    let below = at.strip_prefix(&mount.path).map_err(|_| outside())?;
    let bound = mount.root.strip_prefix("/").map_err(|_| outside())?;
    let names = bound.iter().chain(below.iter()).map(OsStr::as_bytes);
    let components: Result<Vec<CString>, _> = names.chain(name).map(CString::new).collect();
    Ok(Located {
        mount: mount.clone(),
        components: components.map_err(|_| outside())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_at_the_last_name() {
        let split = |path: &'static str| {
            let (directory, name) = split(path.as_bytes());
            let text = |bytes| std::str::from_utf8(bytes).unwrap();
            (text(directory), name.map(text))
        };
        assert_eq!(split("file"), (".", Some("file")));
        assert_eq!(split("/file"), ("/", Some("file")));
        assert_eq!(split("a/b"), ("a", Some("b")));
        assert_eq!(split("a/b/"), ("a/b/", None));
        for whole in ["/", ".", "..", "a/..", "a/.", "./"] {
            assert_eq!(split(whole), (whole, None));
        }
    }

    #[test]
    fn mount_point_is_located_as_the_root_of_its_mount() {
        let located = locate(Path::new("/proc")).unwrap();
        assert_eq!(located.mount.kind, "proc");
        assert!(located.components.is_empty());
        let located = locate(Path::new("/proc/no such thing")).unwrap();
        assert_eq!(
            located.components,
            [c"no such thing".into()] as [CString; 1]
        );
        assert!(locate(Path::new("/no/such/thing")).is_err());
    }

    #[test]
    fn directory_that_is_exchanged_is_the_one_that_was_opened() {
        let place = tempfile::TempDir::new().unwrap();
        let [named, moved] = ["named", "moved"].map(|name| place.path().join(name));
        std::fs::create_dir(&named).unwrap();
        let directory = open(CWD, &named, OFlags::DIRECTORY).unwrap();
        std::fs::rename(&named, &moved).unwrap();
        std::os::unix::fs::symlink("/proc", &named).unwrap();
        let path = named.join("file");
        let located = locate_in(&path, directory, Some(b"file")).unwrap();
        assert_eq!(
            located.components,
            locate(&moved.join("file")).unwrap().components
        );
    }

    #[test]
    fn a_link_at_the_end_is_not_followed() {
        let place = tempfile::TempDir::new().unwrap();
        let link = place.path().join("link");
        std::os::unix::fs::symlink("/proc/version", &link).unwrap();
        let located = locate(&link).unwrap();
        assert_ne!(located.mount.kind, "proc");
        assert_eq!(located.components.last().unwrap().as_c_str(), c"link");
        // It is followed before the end.
        let through = place.path().join("way");
        std::os::unix::fs::symlink("/proc", &through).unwrap();
        let located = locate(&through.join("version")).unwrap();
        assert_eq!(located.mount.kind, "proc");
    }
}
