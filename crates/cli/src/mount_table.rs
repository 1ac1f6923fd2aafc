//! The mount table (`/proc/thread-self/mountinfo`, proc_pid_mountinfo(5)).
//!
//! A mount is identified by the device number of its file system, which is unique while it exists, and by its
//! source: the number of one that has ended is the next one's. Its path can be covered, moved or bound.

use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use thrufs_sys::mount::unescape_field;

/// The device number of a mounted file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceNumber {
    pub(crate) major: u32,
    /// For FUSE, the connection's number.
    pub(crate) minor: u32,
}

/// A mounted FUSE file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FuseFileSystem {
    pub(crate) device: DeviceNumber,
    /// What is mounted, in words.
    source: OsString,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// `STATX_MNT_ID`
    pub(crate) id: u64,
    /// The id of the parent mount.
    pub(crate) parent: u64,
    pub(crate) device: DeviceNumber,
    pub(crate) path: PathBuf,
    /// The mounted directory within the file system: `/`, or a bound one.
    pub(crate) root: PathBuf,
    /// Whether mounts on it propagate.
    pub(crate) is_shared: bool,
    /// `fuse.thrufs`
    pub(crate) kind: String,
    pub(crate) source: OsString,
    /// The user of a FUSE mount.
    pub(crate) user: Option<u32>,
}

impl Mount {
    /// The FUSE file system that is mounted.
    pub(crate) fn fuse(&self) -> Option<FuseFileSystem> {
        self.kind.starts_with("fuse").then(|| FuseFileSystem {
            device: self.device,
            source: self.source.clone(),
        })
    }

    /// Whether it is a mount of this FUSE file system.
    pub(crate) fn is_of(&self, mounted: &FuseFileSystem) -> bool {
        self.fuse().as_ref() == Some(mounted)
    }
}

/// All mounts of the calling thread's namespace, in mount order.
pub(crate) fn all() -> io::Result<Vec<Mount>> {
    read(&open()?)
}

/// The table of this namespace, also for a process that has entered another. poll(2) reports changes, by POLLPRI.
pub(crate) fn open() -> io::Result<File> {
    File::open("/proc/thread-self/mountinfo")
}

pub(crate) fn read(mut table: &File) -> io::Result<Vec<Mount>> {
    let mut text = Vec::new();
    table.rewind()?;
    table.read_to_end(&mut text)?;
    Ok(parse(&text).collect())
}

fn parse(text: &[u8]) -> impl Iterator<Item = Mount> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line)
}

/// A process, and its name, in whose mount namespace the file system is mounted. Skips processes for
/// which `is_left_out` holds, and those this user may not inspect.
pub(crate) fn process_that_sees(
    device: DeviceNumber,
    is_left_out: impl Fn(i32) -> bool,
) -> Option<(i32, String)> {
    processes().find_map(|(pid, path)| {
        if is_left_out(pid) {
            return None;
        }
        let text = std::fs::read(path.join("mountinfo")).ok()?;
        if !parse(&text).any(|mount| mount.device == device) {
            return None;
        }
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        Some((pid, name.trim_end().to_owned()))
    })
}

/// Whether something is mounted on a directory of this file system, in any mount namespace that this user may look at.
pub(crate) fn is_mounted_on(device: DeviceNumber) -> bool {
    let mut known = Vec::new();
    processes().any(|(_, path)| {
        let (Ok(namespace), Ok(text)) = (
            std::fs::read_link(path.join("ns/mnt")),
            std::fs::read(path.join("mountinfo")),
        ) else {
            return false;
        };
        if known.contains(&namespace) {
            return false;
        }
        known.push(namespace);
        has_mounts_on(&parse(&text).collect::<Vec<_>>(), device)
    })
}

fn has_mounts_on(mounts: &[Mount], device: DeviceNumber) -> bool {
    let is_on = |mount: &Mount, upon: &Mount| mount.parent == upon.id && mount.path != upon.path;
    let mut of_device = mounts.iter().filter(|mount| mount.device == device);
    of_device.any(|upon| mounts.iter().any(|mount| is_on(mount, upon)))
}

/// The processes that this one sees, and their directories in `/proc`.
pub(crate) fn processes() -> impl Iterator<Item = (i32, PathBuf)> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|it| Some((it.file_name().to_str()?.parse().ok()?, it.path())))
}

/// Descriptors checked per process: the device is among the first.
const DESCRIPTORS_LOOKED_AT: usize = 64;

/// The FUSE connections that a process, by its directory in `/proc`, has `/dev/fuse` open for: none where this user may
/// not look, and none before Linux 6.11.
pub(crate) fn connections_of(process: &Path) -> impl Iterator<Item = u32> {
    let descriptors = std::fs::read_dir(process.join("fd")).into_iter().flatten();
    // Any user's process may have our name. What is said of other descriptors is as long as they like.
    let is_device = |path: PathBuf| {
        std::fs::read_link(path).is_ok_and(|to| to.file_name().is_some_and(|name| name == "fuse"))
    };
    let descriptors = descriptors
        .filter_map(Result::ok)
        .take(DESCRIPTORS_LOOKED_AT);
    let devices = descriptors.filter(move |descriptor| is_device(descriptor.path()));
    devices.filter_map(move |descriptor| {
        let about = process.join("fdinfo").join(descriptor.file_name());
        field(about, "fuse_connection:")
    })
}

/// The id of the mount of an open file, without a request to its server, which may be dead.
pub(crate) fn id_of(file: OwnedFd) -> io::Result<u64> {
    let id = field(own_descriptor(&file), "mnt_id:");
    id.ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// What the kernel says of an open file (proc_pid_fdinfo(5)).
pub(crate) fn own_descriptor(file: &OwnedFd) -> PathBuf {
    format!("/proc/self/fdinfo/{}", file.as_raw_fd()).into()
}

/// The value in the line of such a file that begins with `name`.
pub(crate) fn field<T: FromStr>(about: PathBuf, name: &str) -> Option<T> {
    let text = std::fs::read_to_string(about).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().parse().ok()
}

/// The topmost mount at `path`.
pub(crate) fn on_top_at<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts.iter().rev().find(|mount| mount.path == path)
}

/// The mount that `path` is on; absolute, without symbolic links.
pub(crate) fn holding<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let above = path.ancestors();
    above.into_iter().find_map(|path| on_top_at(mounts, path))
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let (id, parent) = (text()?.parse().ok()?, text()?.parse().ok()?);
    let (major, minor) = text()?.split_once(':')?;
    let device = DeviceNumber {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    };
    let path = |field| PathBuf::from(OsString::from_vec(unescape_field(field)));
    // So the kernel shows a name that it has dropped, because it was told that the name has changed. It may still
    // be there.
    let root = fields.next()?;
    let root = path(root.strip_suffix(b"//deleted").unwrap_or(root));
    let mountpoint = path(fields.next()?);
    let is_shared = fields
        .by_ref()
        .take_while(|field| *field != b"-")
        .filter(|field| field.starts_with(b"shared:"))
        .count()
        > 0;
    let kind = String::from_utf8_lossy(&unescape_field(fields.next()?)).into_owned();
    let source = OsString::from_vec(unescape_field(fields.next()?));
    let options = fields.next().unwrap_or_default();
    let user = options
        .split(|byte| *byte == b',')
        .find_map(|option| option.strip_prefix(b"user_id="))
        .and_then(|number| std::str::from_utf8(number).ok()?.parse().ok());
    Some(Mount {
        id,
        parent,
        device,
        path: mountpoint,
        root,
        is_shared,
        kind,
        source,
        user,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let line = b"36 35 0:53 / /m\\040n\\134t rw,nosuid shared:1 master:2 - fuse.thrufs /s rw,user_id=7,a=b";
        let mount = parse_line(line).unwrap();
        assert_eq!(
            mount.device,
            DeviceNumber {
                major: 0,
                minor: 53
            }
        );
        assert_eq!(mount.path, Path::new("/m n\\t"));
        assert_eq!(mount.kind, "fuse.thrufs");
        assert_eq!((mount.id, mount.parent, mount.user), (36, 35, Some(7)));
        assert_eq!(mount.root, Path::new("/"));
        assert!(mount.is_shared);
        let bound = parse_line(b"40 1 0:53 /a\\040b /m rw - fuse.thrufs /s rw").unwrap();
        assert_eq!((bound.root, bound.user), ("/a b".into(), None));
        let dropped = parse_line(b"40 1 0:53 /a//deleted /m rw - fuse.thrufs /s rw").unwrap();
        assert_eq!(dropped.root, Path::new("/a"));
        assert!(!bound.is_shared);
        assert_eq!(parse_line(b""), None);
        assert_eq!(parse_line(b"1 2 3 4 5"), None);
    }

    #[test]
    fn another_file_system_with_the_same_number_is_another() {
        let mounted = parse_line(b"7 1 0:53 / /n rw - fuse.thrufs /s rw").unwrap();
        let mounted = mounted.fuse().unwrap();
        for (line, is_it) in [
            (&b"36 35 0:53 / /m rw - fuse.thrufs /s rw"[..], true),
            (b"36 35 0:53 / /m rw - tmpfs other rw", false),
            (b"36 35 0:54 / /m rw - fuse.thrufs /s rw", false),
            (b"36 35 0:53 / /m rw - fuse.thrufs /other rw", false),
        ] {
            assert_eq!(parse_line(line).unwrap().is_of(&mounted), is_it);
        }
    }

    #[test]
    fn root_is_in_the_mount_table() {
        let mounts = all().unwrap();
        assert!(on_top_at(&mounts, Path::new("/")).is_some());
        assert!(on_top_at(&mounts, Path::new("/no/such/place")).is_none());
        let holding = |path| holding(&mounts, Path::new(path)).map(|mount| &mount.kind);
        assert_eq!(holding("/proc/self").map(String::as_str), Some("proc"));
        assert_eq!(holding("/no/such/place"), holding("/"));
    }
}
