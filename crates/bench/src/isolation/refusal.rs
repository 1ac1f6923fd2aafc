//! Where a run does not take place: where it would fill a disk, or cannot tell anything.

use super::tree;
use crate::Outcome;
use crate::plan::Plan;
use crate::row::Needs;
use rustix::fs::{FallocateFlags, StatVfs, StatVfsMountFlags, fallocate, statvfs};
use rustix::io::Errno;
use std::fs::{self, File};
use std::path::Path;

/// File systems that keep no files of users.
const PSEUDO: &[&str] = &[
    "autofs",
    "bdev",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "pipefs",
    "proc",
    "pstore",
    "resctrl",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "sockfs",
    "sysfs",
    "tracefs",
];

/// What must stay free besides what the run needs.
const MARGIN_BYTES: u64 = 256 << 20;
const MARGIN_INODES: u64 = 10_000;

/// Checks every place where the plan would make files.
///
/// # Errors
///
/// Where it would not be good, in words that say what to do.
pub(super) fn check(plan: &Plan) -> Outcome<()> {
    let needs = plan.needs()?;
    directory(&plan.directory, needs)?;
    for point in plan.mounts_of_others() {
        let shown = point.display();
        if !tree::is_mount_point(point) {
            return Err(format!("--against {shown}: nothing is mounted there"));
        }
        directory(point, needs).map_err(|why| format!("--against: {why}"))?;
    }
    Ok(())
}

fn directory(path: &Path, needs: Needs) -> Outcome<()> {
    let shown = path.display();
    let data = fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?;
    if !data.is_dir() {
        return Err(format!("{shown} is not a directory"));
    }
    let kind = tree::kind(path).unwrap_or_default();
    if PSEUDO.contains(&kind.as_str()) {
        return Err(format!("{shown} is on {kind}, which keeps no files"));
    }
    let room = statvfs(path).map_err(|error| format!("{shown}: {error}"))?;
    if room.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Err(format!(
            "{shown} is read-only: choose a directory that can be written to"
        ));
    }
    rustix::fs::access(
        path,
        rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
    )
    .map_err(|error| format!("{shown}: {error}; choose a directory that you may write to"))?;
    enough(&shown.to_string(), &room, needs)?;
    if kind == "tmpfs" {
        memory(&shown.to_string(), needs)?;
    }
    Ok(())
}

fn enough(shown: &str, room: &StatVfs, needs: Needs) -> Outcome<()> {
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    let wanted = needs.bytes + MARGIN_BYTES;
    if free < wanted {
        return Err(format!(
            "{shown} has {} MiB free, and this run wants {} MiB: {} for its files, the rest to stay \
             free; choose another directory, fewer --rows or a smaller --percent",
            free >> 20,
            wanted.div_ceil(1 << 20),
            needs.bytes.div_ceil(1 << 20)
        ));
    }
    // File systems that make inodes as they are needed say that they have none.
    let inodes = needs.inodes + MARGIN_INODES;
    if room.f_files > 0 && room.f_favail < inodes {
        return Err(format!(
            "{shown} has room for {} more files, and this run wants {inodes}",
            room.f_favail
        ));
    }
    Ok(())
}

/// What lies on a tmpfs takes memory of the whole machine.
fn memory(shown: &str, needs: Needs) -> Outcome<()> {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = available.and_then(|rest| rest.trim().split(' ').next()?.parse::<u64>().ok());
    match kib {
        Some(kib) if kib * 1024 < 2 * needs.bytes + MARGIN_BYTES => Err(format!(
            "{shown} is in memory, of which {} MiB are available: too little for files of {} MiB",
            kib / 1024,
            needs.bytes.div_ceil(1 << 20)
        )),
        _ => Ok(()),
    }
}

/// Tries, in the scratch folder, whether a quota lets this much be written: by reserving it, which
/// writes nothing. File systems that cannot reserve are taken at their word.
///
/// # Errors
///
/// A quota, or the end of the disk.
pub(super) fn quota(plan: &Plan) -> Outcome<()> {
    let place = plan.place();
    if tree::kind(&place).is_some_and(|kind| kind == "tmpfs") {
        // It would be memory at once; and was looked at.
        return Ok(());
    }
    let bytes = plan.needs()?.bytes;
    let path = place.join("room");
    let reserved = File::create_new(&path)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        .and_then(|file| fallocate(&file, FallocateFlags::empty(), 0, bytes));
    let _ = fs::remove_file(&path);
    match reserved {
        Err(Errno::DQUOT) => Err(format!(
            "your quota does not let {} MiB be written in {}",
            bytes.div_ceil(1 << 20),
            plan.directory.display()
        )),
        Err(Errno::NOSPC) => Err(format!(
            "there is no room for {} MiB in {}",
            bytes.div_ceil(1 << 20),
            plan.directory.display()
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Needs, directory};
    use std::path::Path;

    const LITTLE: Needs = Needs {
        bytes: 1,
        inodes: 1,
    };

    #[test]
    fn pseudo_file_systems_and_files_are_refused() {
        let refused = |path: &str| directory(Path::new(path), LITTLE).unwrap_err();
        assert!(refused("/proc").contains("on proc"));
        assert!(refused("/proc/self/status").contains("not a directory"));
        assert!(refused("/not/there").contains("No such file"));
    }

    #[test]
    fn a_directory_without_room_is_refused() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(directory(place.path(), LITTLE), Ok(()));
        let much = Needs {
            bytes: 1 << 60,
            ..LITTLE
        };
        let why = directory(place.path(), much).unwrap_err();
        assert!(why.contains("MiB free"), "{why}");
    }
}
