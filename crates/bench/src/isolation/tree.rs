//! Looks at the mount table: mount points, types of file systems, whether two directories show one tree.
//! Changes nothing.

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use thrufs_sys::mount::unescape_field;

/// Whether something is mounted right here.
pub(super) fn is_mount_point(path: &Path) -> bool {
    let data = statx(CWD, path, AtFlags::NO_AUTOMOUNT, StatxFlags::empty());
    data.is_ok_and(|data| data.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// The type of the file system that a directory lies on, as mount(8) shows it.
pub(crate) fn kind(directory: &Path) -> Option<String> {
    let data = statx(CWD, directory, AtFlags::NO_AUTOMOUNT, StatxFlags::MNT_ID).ok()?;
    let number = data.stx_mnt_id.to_string();
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mut lines = table.lines();
    kind_in(lines.find(|line| line.split(' ').next() == Some(&number))?)
}

fn kind_in(line: &str) -> Option<String> {
    let (_, about_file_system) = line.split_once(" - ")?;
    about_file_system.split(' ').next().map(str::to_owned)
}

/// Where something is mounted, and of which type, the last first.
pub(super) fn mounts() -> Vec<(PathBuf, String)> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts = table.lines().rev().filter_map(mount);
    mounts.collect()
}

fn mount(line: &str) -> Option<(PathBuf, String)> {
    let point = unescape_field(line.split(' ').nth(4)?.as_bytes());
    Some((PathBuf::from(OsString::from_vec(point)), kind_in(line)?))
}

/// Where a mount shows `directory`, if it does: at its top, or below it, when it shows a tree in which the
/// directory lies. The directory must have a file `probe` in it, with unique content.
pub(crate) fn same_tree(point: &Path, directory: &Path, probe: &str) -> Option<PathBuf> {
    let content = fs::read(directory.join(probe)).ok()?;
    let names: Vec<Component<'_>> = directory.components().skip(1).collect();
    // The longest first: a mount of everything.
    let mut candidates =
        (0..=names.len()).map(|from| point.join(names[from..].iter().collect::<PathBuf>()));
    candidates.find(|candidate| {
        let is_it = |read: Vec<u8>| read == content;
        candidate != directory && fs::read(candidate.join(probe)).is_ok_and(is_it)
    })
}

#[cfg(test)]
mod tests {
    use super::same_tree;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    #[test]
    fn a_tree_is_found_at_the_top_of_a_mount_and_below_it() {
        let top = tempfile::tempdir().unwrap();
        let directory = top.path().join("one/two");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("probe"), "only here").unwrap();
        // In place of mounts.
        let [whole, part, other] = ["whole", "part", "other"].map(|name| top.path().join(name));
        symlink("/", &whole).unwrap();
        symlink(top.path().join("one"), &part).unwrap();
        fs::create_dir_all(other.join("two")).unwrap();
        fs::write(other.join("two/probe"), "something else").unwrap();
        let found = |point: &Path| same_tree(point, &directory, "probe");
        let below = directory.strip_prefix("/").unwrap();
        assert_eq!(found(&whole), Some(whole.join(below)));
        assert_eq!(found(&part), Some(part.join("two")));
        assert_eq!(found(&other), None);
    }
}
