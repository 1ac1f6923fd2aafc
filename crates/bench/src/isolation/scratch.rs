//! The scratch folder: the only thing that a run makes where users have their files.
//!
//! It has a lock in it, which the clean-up process holds. It is made under another name, and gets its
//! own when the lock is held: a folder of that name without a holder is one of a run that is gone. The
//! lock also identifies the holder: where the same tree is seen through another mount, locks may be
//! that mount's own, and one that is held here seems free.

use super::remains::{remove, unmount_below};
use crate::Outcome;
use crate::plan::SCRATCH;
use rustix::fs::{FlockOperation, OFlags, flock};
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The file with the lock.
pub(crate) const LOCK: &str = "lock";
/// What comes before the random part while the folder is being made.
const NEW: &str = "new-";
/// Making one takes less.
const MAKING_MAX: Duration = Duration::from_secs(600);

/// Makes the folder for its owner alone; it is alive as long as the lock is held.
///
/// # Errors
///
/// As of the calls, in words.
pub(crate) fn make(directory: &Path, name: &str) -> Outcome<File> {
    let place = directory.join(name);
    let failed = |error: io::Error| {
        format!(
            "cannot make files in {}: {error}; choose a directory that you may write to",
            directory.display()
        )
    };
    let new = directory.join(name.replacen(SCRATCH, &format!("{SCRATCH}{NEW}"), 1));
    DirBuilder::new().mode(0o700).create(&new).map_err(failed)?;
    let made = || -> io::Result<File> {
        // Whatever the umask, and the directory's default ACL.
        fs::set_permissions(&new, Permissions::from_mode(0o700))?;
        let mut options = File::options();
        let mut lock = options.write(true).create_new(true).open(new.join(LOCK))?;
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
pub(crate) fn sweep(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().and_then(|name| name.strip_prefix(SCRATCH)) else {
            continue;
        };
        let path = entry.path();
        if is_ours(&path) && is_abandoned(&path, name.starts_with(NEW)) {
            unmount_below(&path);
            remove(&path);
        }
    }
}

/// Whether it is a folder that this user has made by itself: in a directory that others may write to, they
/// may put there what they like.
fn is_ours(path: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let is = |data: &Metadata| {
        data.is_dir() && data.uid() == own && data.permissions().mode() & 0o7777 == 0o700
    };
    fs::symlink_metadata(path).is_ok_and(|data| is(&data))
}

fn is_abandoned(path: &Path, in_the_making: bool) -> bool {
    let mut options = File::options();
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options
        .read(true)
        .write(true)
        .custom_flags(flags.bits().cast_signed());
    match options.open(path.join(LOCK)) {
        Ok(mut lock) => {
            let mut holder = String::new();
            let is_free = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
            is_free && lock.read_to_string(&mut holder).is_ok() && !is_alive(&holder)
        }
        Err(_) if in_the_making => age(path).is_some_and(|age| age > MAKING_MAX),
        // One that was being removed: the lock may be gone first.
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Identifies a process: its id, its start time and the boot id. A zombie counts as ended.
fn identity(process: &str) -> io::Result<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let number = stat.split(' ').next().unwrap_or_default();
    // After the name, which may have anything in it: the start is field 22 of proc_pid_stat(5).
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let start = fields.split_whitespace().nth(19).unwrap_or_default();
    if fields.trim_start().starts_with(['Z', 'X']) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(format!("{number} {start} {}", boot.trim()))
}

fn is_alive(holder: &str) -> bool {
    let number = holder.split(' ').next().unwrap_or_default();
    let is_number = number.parse::<u32>().is_ok();
    is_number && identity(number).is_ok_and(|identity| identity == holder)
}

fn age(path: &Path) -> Option<Duration> {
    let changed = fs::symlink_metadata(path).ok()?.modified().ok()?;
    SystemTime::now().duration_since(changed).ok()
}

#[cfg(test)]
mod tests {
    use super::{make, remove, sweep};
    use std::fs;

    #[test]
    fn sweep_removes_only_own_folders_without_a_living_holder() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let alive = make(directory.path(), ".thrufs-bench-alive").unwrap();
        let gone = make(directory.path(), ".thrufs-bench-gone").unwrap();
        drop(gone);
        // Its holder has ended.
        fs::write(path(".thrufs-bench-gone/lock"), "1 1 another").unwrap();
        fs::write(path(".thrufs-bench-gone/file"), "").unwrap();
        // One that another user has put there.
        fs::create_dir(path(".thrufs-bench-foreign")).unwrap();
        fs::write(path(".thrufs-bench-foreign/mine"), "").unwrap();
        fs::create_dir(path("other")).unwrap();
        std::os::unix::fs::symlink(path("other"), path(".thrufs-bench-link")).unwrap();
        sweep(directory.path());
        assert!(!path(".thrufs-bench-gone").exists());
        for stays in [
            ".thrufs-bench-alive",
            ".thrufs-bench-foreign/mine",
            ".thrufs-bench-link",
            "other",
        ] {
            assert!(path(stays).exists(), "{stays}");
        }
        // Through another mount its lock is not seen, but its holder is.
        drop(alive);
        sweep(directory.path());
        assert!(path(".thrufs-bench-alive").exists());
        remove(&path(".thrufs-bench-alive"));
        assert!(!path(".thrufs-bench-alive").exists());
    }
}
