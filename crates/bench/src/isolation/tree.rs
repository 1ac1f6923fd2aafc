//! Looks at the mount table: mount points, types of file systems, whether two directories show one tree.
//! Changes nothing.

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

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
    let line = table
        .lines()
        .find(|line| line.split(' ').next() == Some(&number))?;
    let (_, about_file_system) = line.split_once(" - ")?;
    Some(about_file_system.split(' ').next()?.to_owned())
}

/// Where something is mounted at or below a directory, the last first.
pub(super) fn mount_points_below(directory: &Path) -> Vec<PathBuf> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let points = table
        .split(|&byte| byte == b'\n')
        .filter_map(|line| line.split(|&byte| byte == b' ').nth(4))
        .map(unescaped)
        .filter(|point| point.starts_with(directory));
    let mut points: Vec<PathBuf> = points.collect();
    points.reverse();
    points
}

/// Where FUSE file systems are mounted.
pub(super) fn fuse_mount_points() -> Vec<PathBuf> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let lines = table.split(|&byte| byte == b'\n');
    lines.filter_map(fuse_mount_point).collect()
}

/// Where a line of the table says that one is mounted.
fn fuse_mount_point(line: &[u8]) -> Option<PathBuf> {
    let mut fields = line.split(|&byte| byte == b' ');
    let point = unescaped(fields.nth(4)?);
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    let is_fuse = kind == b"fuse" || kind.starts_with(b"fuse.");
    is_fuse.then_some(point)
}

/// Spaces and the like stand there as a backslash and three octal digits (proc_pid_mountinfo(5)).
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = field;
    while let Some((&first, others)) = rest.split_first() {
        let code = others.get(..3).and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        match (first, code) {
            (b'\\', Some(code)) => {
                bytes.push(code);
                rest = &others[3..];
            }
            _ => {
                bytes.push(first);
                rest = others;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Where a mount shows `directory`, if it does: at its top, or below it, when it shows a tree in which the
/// directory lies. The directory must have a file `probe` in it, with unique content.
pub(crate) fn same_tree(point: &Path, directory: &Path, probe: &str) -> Option<PathBuf> {
    let content = fs::read(directory.join(probe)).ok()?;
    let names: Vec<Component<'_>> = directory.components().skip(1).collect();
    // The longest first: a mount of everything.
    let candidates = (0..=names.len()).map(|from| {
        let below: PathBuf = names[from..].iter().collect();
        point.join(below)
    });
    candidates
        .filter(|candidate| candidate != directory)
        .find(|candidate| fs::read(candidate.join(probe)).is_ok_and(|read| read == content))
}

#[cfg(test)]
mod tests {
    use super::{fuse_mount_point, kind, same_tree, unescaped};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    #[test]
    fn escapes_in_mountinfo_are_decoded() {
        assert_eq!(unescaped(br"/a\040b\134"), Path::new("/a b\\"));
        assert_eq!(unescaped(b"/plain\\"), Path::new("/plain\\"));
        assert_eq!(kind(Path::new("/proc")).as_deref(), Some("proc"));
    }

    #[test]
    fn mounts_of_fuse_are_told_from_others() {
        let point = |kind: &str| {
            let line =
                format!("104 76 0:40 / /a\\040b rw,nosuid shared:1 - {kind} /source rw,user_id=0");
            fuse_mount_point(line.as_bytes())
        };
        for kind in ["fuse", "fuse.thrufs", "fuse.bindfs"] {
            assert_eq!(point(kind).as_deref(), Some(Path::new("/a b")), "{kind}");
        }
        // A disk of NTFS, and the directory of connections.
        for kind in ["fuseblk", "fusectl", "ext4"] {
            assert_eq!(point(kind), None, "{kind}");
        }
        assert_eq!(fuse_mount_point(b""), None);
    }

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
