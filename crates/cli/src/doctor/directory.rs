//! Checks a directory as a source: file system, file handles, mounts beneath, confinement.

use super::finding::{Finding, FindingState};
use crate::error::StartupError;
use crate::mount_table::{self, Mount};
use crate::{confinement, mounting, source};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use thrufs::NoWait;
use thrufs_hostdir::{Handles, MountProperties};
use thrufs_sys::fanotify::{Group, NAMES};

/// Most entries read to find a file, or small ones.
const ENTRIES_MAX: usize = 1000;
/// With fewer, opens are no work.
const FILES_MIN: usize = 100;

pub(super) fn look(path: &Path) -> Result<Vec<Finding>, StartupError> {
    let (directory, path) = source::open(path)?;
    let path = path.as_path();
    let properties = MountProperties::of(&directory).map_err(source::unusable(path))?;
    let mounts = mount_table::all().unwrap_or_default();
    let following = following(&directory, properties.is_remote).called("following");
    let is_followed = following.state == FindingState::Good;
    Ok(vec![
        file_system(path, &mounts, &properties).called("file system"),
        handles(properties.handles).called("file handles"),
        reads(path, &directory, properties.no_wait).called("RWF_NOWAIT"),
        following,
        opens(path, is_followed).called("opens"),
        mounts_beneath(path, &mounts).called("mounts beneath"),
        worker_confinement(directory).called("confinement"),
    ])
}

fn file_system(path: &Path, mounts: &[Mount], properties: &MountProperties) -> Finding {
    let kind = mount_table::holding(mounts, path).map_or("unknown", |mount| &mount.kind);
    let place = match (properties.no_wait, properties.is_remote) {
        (NoWait::Memory, _) => ", in memory",
        (_, true) => ", served by another machine or process: no passthrough",
        _ => "",
    };
    Finding::note(format!("{} is {kind}{place}", path.display()))
}

fn handles(handles: Handles) -> Finding {
    match handles {
        Handles::Usable => Finding::good("files are found again by handle"),
        Handles::Missing(errno) => Finding::note(format!(
            "this file system has none ({errno}): files are found again by name"
        )),
        Handles::Refused(errno) => Finding::bad(
            format!("this user may not open them ({errno}): files are found again by name"),
            "mount as root (they need CAP_DAC_READ_SEARCH)",
        ),
    }
}

/// Whether changes can be told to the kernel, so that it keeps what has not changed.
fn following(directory: &OwnedFd, is_remote: bool) -> Finding {
    if is_remote {
        return Finding::note(
            "other machines change it unseen: names and attributes are asked for again after a second",
        );
    }
    let marked = Group::new().and_then(|group| group.mark(directory.as_fd(), NAMES));
    match marked {
        Ok(()) => Finding::good("changes are told at once: follow=auto"),
        Err(Errno::INVAL | Errno::NOSYS) => Finding::note(
            "this kernel does not tell of changes (Linux 5.17 does): names and attributes are asked for again \
             after a second",
        ),
        Err(errno) => Finding::note(format!(
            "changes cannot be watched ({errno}): names and attributes are asked for again after a second"
        )),
    }
}

/// Whether there are many small files, which the kernel had better open by itself.
fn opens(path: &Path, is_followed: bool) -> Finding {
    let device = std::fs::metadata(path).map(|it| it.dev()).ok();
    let (mut directories, mut sizes, mut left) = (vec![path.to_owned()], vec![], ENTRIES_MAX);
    while let Some(directory) = directories.pop() {
        let entries = std::fs::read_dir(directory).into_iter().flatten();
        for entry in entries.flatten().take(left) {
            left -= 1;
            match entry.metadata() {
                Ok(it) if it.is_dir() && Some(it.dev()) == device => directories.push(entry.path()),
                Ok(it) if it.is_file() => sizes.push(it.len()),
                _ => {}
            }
        }
    }
    let small = sizes.iter().filter(|&&it| it <= 64 << 10).count();
    let counted = format!("{small} of {} files have at most 64 KiB", sizes.len());
    if !is_followed || small < FILES_MIN || small < sizes.len() / 10 * 9 {
        return Finding::note(format!("{counted}: the server opens files"));
    }
    let with = match mounting::is_privileged() {
        true => "opens=local, instead of passthrough",
        false => "ro,opens=local",
    };
    let why = "the kernel opens them without a request; thrufs bench compares";
    Finding::note(format!("{counted}: with {with}, {why}"))
}

/// Whether later mounts propagate to the clone that a worker of root has.
fn mounts_beneath(path: &Path, mounts: &[Mount]) -> Finding {
    let held = mount_table::holding(mounts, path).into_iter();
    let beneath = mounts.iter().filter(|mount| mount.path.starts_with(path));
    match held.chain(beneath).find(|mount| !mount.is_shared) {
        Some(mount) if mounting::is_privileged() => {
            let place = mount.path.display();
            Finding::bad(
                format!("later mounts on {place} are not seen: its mount does not propagate"),
                format!("before it is served: mount --make-rshared {place}"),
            )
        }
        _ => Finding::good("later mounts are seen"),
    }
}

/// What an attacker in control of the worker could reach.
fn worker_confinement(directory: OwnedFd) -> Finding {
    if !mounting::is_privileged() {
        return Finding::note("the worker of an ordinary user sees what the user sees");
    }
    match confinement::try_confinement(directory) {
        Ok(()) => Finding::good("a worker sees only this directory"),
        Err(problem) => Finding::bad(
            problem,
            "grant CAP_SYS_ADMIN to root here; for an unbindable mount: mount --make-private",
        ),
    }
}

fn reads(path: &Path, directory: &OwnedFd, no_wait: NoWait) -> Finding {
    if no_wait == NoWait::Memory {
        return Finding::good("not needed: reads do not wait for a device");
    }
    let Some(file) = some_file(path, directory) else {
        return Finding::note("not tried: there is no file in it that this user may read");
    };
    let mut byte = [0];
    let buffer = &mut [IoSliceMut::new(&mut byte)];
    match rustix::io::preadv2(&file, buffer, 0, ReadWriteFlags::NOWAIT) {
        Ok(_) | Err(Errno::AGAIN) => Finding::good("reads of cached data are answered at once"),
        Err(errno) => Finding::bad(
            format!("refused ({errno}): each read takes a blocking thread"),
            "serve from a file system that supports it, such as ext4, XFS or btrfs",
        ),
    }
}

/// A regular file in the directory, opened without changing its access time if possible.
fn some_file(path: &Path, directory: &OwnedFd) -> Option<OwnedFd> {
    let entries = std::fs::read_dir(path).ok()?.take(ENTRIES_MAX).flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .find_map(|entry| {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let open = |flags| {
                rustix::fs::openat(directory.as_fd(), entry.file_name(), flags, Mode::empty())
            };
            // O_NOATIME requires the owner.
            open(flags | OFlags::NOATIME).or_else(|_| open(flags)).ok()
        })
}
