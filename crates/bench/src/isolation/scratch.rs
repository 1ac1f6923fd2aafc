//! The scratch folder: the only thing that a run makes where users have their files.
//!
//! It has a lock in it, which the clean-up process holds. It is made under another name, and gets its
//! own when the lock is held: a folder of that name without a holder is one of a run that is gone. The
//! lock also identifies the holder: where the same tree is seen through another mount, locks may be
//! that mount's own, and one that is held here seems free.

use super::remains::{remove, unmount_below};
use crate::outcome::Outcome;
use crate::plan::SCRATCH;
use rustix::fs::{FlockOperation, OFlags, flock};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

/// The file with the lock.
pub(super) const LOCK: &str = "lock";
/// What comes before the random part while the folder is being made.
const NEW: &str = "new-";
/// Making one takes less.
const MAKING_MAX: Duration = Duration::from_secs(600);

/// Makes the folder for its owner alone; it is alive as long as the lock is held.
pub(super) fn make(directory: &Path, name: &str) -> Outcome<File> {
    let (place, shown) = (directory.join(name), directory.display());
    let failed = |error: io::Error| {
        format!("cannot make files in {shown}: {error}; choose a directory that you may write to")
    };
    let new = directory.join(name.replacen(SCRATCH, &format!("{SCRATCH}{NEW}"), 1));
    DirBuilder::new().mode(0o700).create(&new).map_err(failed)?;
    let made = || -> io::Result<File> {
        // Whatever the umask, and the directory's default ACL.
        fs::set_permissions(&new, Permissions::from_mode(0o700))?;
        let mut lock = File::create_new(new.join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        lock.write_all(identity("self")?.as_bytes())?;
        fs::rename(&new, &place)?;
        Ok(lock)
    };
    made().map_err(|error| {
        remove(&new);
        failed(error)
    })
}

/// Removes the folders of runs that are gone from `directory`, as far as they are this user's.
pub(super) fn sweep(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let Some(name) = name.to_str().and_then(|name| name.strip_prefix(SCRATCH)) else {
            continue;
        };
        if is_abandoned(&path, name.starts_with(NEW)).unwrap_or(false) {
            unmount_below(&path);
            remove(&path);
        }
    }
}

/// Whether it is a folder that this user has made by itself, and its run is gone. In a directory that others may
/// write to, they may put there what they like.
fn is_abandoned(path: &Path, in_the_making: bool) -> io::Result<bool> {
    let data = fs::symlink_metadata(path)?;
    let own = data.uid() == rustix::process::geteuid().as_raw();
    if !own || !data.is_dir() || data.mode() & 0o7777 != 0o700 {
        return Ok(false);
    }
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = File::options();
    match options
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(path.join(LOCK))
    {
        Ok(mut lock) => {
            let mut holder = String::new();
            let is_free = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
            lock.read_to_string(&mut holder)?;
            let number = holder.split(' ').next().unwrap_or_default();
            let is_alive = number.parse::<u32>().is_ok()
                && identity(number).is_ok_and(|identity| identity == holder);
            Ok(is_free && !is_alive)
        }
        Err(_) if in_the_making => Ok(data.modified()?.elapsed().is_ok_and(|age| age > MAKING_MAX)),
        // One that was being removed: the lock may be gone first.
        Err(error) => Ok(error.kind() == io::ErrorKind::NotFound),
    }
}

/// Identifies a process: its id, its start time and the boot id. A zombie counts as ended.
fn identity(process: &str) -> io::Result<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let number = stat.split(' ').next().unwrap_or_default();
    // After the name, which may have anything in it: the start is field 22 of proc_pid_stat(5).
    let fields = stat.rsplit(')').next().unwrap_or_default().trim_start();
    let start = fields.split_whitespace().nth(19).unwrap_or_default();
    if fields.starts_with(['Z', 'X']) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(format!("{number} {start} {}", boot.trim()))
}

#[cfg(test)]
mod tests {
    use super::{make, sweep};
    use std::fs;

    #[test]
    fn sweep_removes_only_own_folders_without_a_living_holder() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(format!(".thrufs-bench-{name}"));
        // Through another mount its lock is not seen, but its holder is.
        drop(make(directory.path(), ".thrufs-bench-alive").unwrap());
        drop(make(directory.path(), ".thrufs-bench-gone").unwrap());
        // Its holder has ended.
        fs::write(path("gone").join("lock"), "1 1 another").unwrap();
        // One that another user has put there, and a link.
        fs::create_dir(path("foreign")).unwrap();
        std::os::unix::fs::symlink(path("gone"), path("link")).unwrap();
        sweep(directory.path());
        let stays = |name| fs::symlink_metadata(path(name)).is_ok();
        assert_eq!(
            ["gone", "alive", "foreign", "link"].map(stays),
            [false, true, true, true]
        );
    }
}
