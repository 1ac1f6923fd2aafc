//! Where a run does not take place: where it would fill a disk, or cannot tell anything.

use super::tree;
use crate::outcome::Outcome;
use crate::plan::Plan;
use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};
use std::path::Path;

/// File systems that keep no files of users.
const PSEUDO: &str = "autofs bdev binfmt_misc bpf cgroup cgroup2 configfs debugfs devpts efivarfs fusectl \
    hugetlbfs mqueue nsfs pipefs proc pstore resctrl rpc_pipefs securityfs selinuxfs smackfs sockfs sysfs tracefs";

/// What must stay free.
const MARGIN_BYTES: u64 = 256 << 20;

/// Checks every place where the plan would make files.
pub(super) fn check(plan: &Plan) -> Outcome<()> {
    let bytes = plan.bytes();
    directory(&plan.directory, bytes)?;
    for point in plan.mounts_of_others() {
        let shown = point.display();
        if !tree::is_mount_point(point) {
            return Err(format!("--against {shown}: nothing is mounted there"));
        }
        directory(point, bytes).map_err(|why| format!("--against: {why}"))?;
    }
    Ok(())
}

fn directory(path: &Path, bytes: u64) -> Outcome<()> {
    let shown = path.display();
    if !path.is_dir() {
        return Err(format!("{shown} is not a directory"));
    }
    let kind = tree::kind(path).unwrap_or_default();
    if PSEUDO.split(' ').any(|pseudo| pseudo == kind) {
        return Err(format!("{shown} is on {kind}, which keeps no files"));
    }
    let room = statvfs(path).map_err(|error| format!("{shown}: {error}"))?;
    if room.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Err(format!(
            "{shown} is read-only: choose a directory that can be written to"
        ));
    }
    access(path, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| format!("{shown}: {error}; choose a directory that you may write to"))?;
    // What lies on a tmpfs takes memory of the whole machine.
    let memory = match kind.as_str() {
        "tmpfs" => crate::machine::memory_kib("MemAvailable").unwrap_or(u64::MAX >> 11) * 1024,
        _ => u64::MAX,
    };
    let free = room.f_bavail.saturating_mul(room.f_frsize).min(memory / 2);
    if free < bytes + MARGIN_BYTES {
        return Err(format!(
            "{shown} has {} MiB free, and this run wants {} MiB for its files, and {} MiB to stay \
             free; choose another directory, fewer --modes or a smaller --percent",
            free >> 20,
            bytes.div_ceil(1 << 20),
            MARGIN_BYTES >> 20
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::directory;
    use std::path::Path;

    #[test]
    fn pseudo_file_systems_and_places_without_room_are_refused() {
        let refused = |path: &str, bytes, why: &str| {
            let said = directory(Path::new(path), bytes).unwrap_err();
            assert!(said.contains(why), "{said}");
        };
        refused("/proc", 1, "on proc");
        refused("/proc/self/status", 1, "not a directory");
        let place = tempfile::tempdir().unwrap();
        assert_eq!(directory(place.path(), 1), Ok(()));
        refused(place.path().to_str().unwrap(), 1 << 60, "MiB free");
    }
}
