//! The mounts that a process sees (proc_pid_mountinfo(5)): those in the source, and when they change.

use rustix::fs::SeekFrom;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use thrufs_sys::mount::unescape_field;

/// Types of file systems that another machine or process serves, besides those of FUSE.
const REMOTE_TYPES: [&[u8]; 9] = [
    b"nfs", b"nfs4", b"smb3", b"cifs", b"ceph", b"afs", b"9p", b"autofs", b"lustre",
];

/// The mounts of a mount namespace, among them those in a directory that is served. No event of fanotify(7)
/// tells that one was made or has ended.
#[derive(Debug)]
pub struct MountTable {
    file: File,
    /// Of the source in that namespace, without a slash at its end.
    source: Box<[u8]>,
    pub(super) is_private: bool,
}

/// What is mounted on one path; if several, the last one in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mounted {
    /// The kernel's number, which is used again once the mount has ended.
    pub(super) number: u64,
    /// One of those on the path is served by another machine or process.
    pub(super) is_remote: bool,
}

/// By paths beneath the source, without a slash at the beginning.
pub(super) type MountPoints = BTreeMap<Box<[u8]>, Mounted>;

impl MountTable {
    /// `file` is `/proc/PID/mountinfo`, and `source` the path by which the process that opened it finds the
    /// served directory, without symbolic links.
    #[must_use]
    pub fn new(file: OwnedFd, source: &Path) -> MountTable {
        let source = source.as_os_str().as_bytes();
        MountTable {
            file: file.into(),
            source: source.strip_suffix(b"/").unwrap_or(source).into(),
            is_private: false,
        }
    }

    /// Nobody but this process and the kernel for it changes anything by these mounts, as they are clones in
    /// a namespace of its own: the data that are written by them are not taken for changes beneath. Otherwise
    /// those are that the kernel writes itself (passthrough), with the process ids of its callers.
    #[must_use]
    pub fn private(self) -> MountTable {
        MountTable {
            is_private: true,
            ..self
        }
    }

    /// The mounts that the calling process sees in `source`, the path of the served directory.
    ///
    /// # Errors
    /// Those of `realpath(3)` for the source, and of `open(2)` for `/proc/self/mountinfo`.
    pub fn of_this_process(source: &Path) -> io::Result<MountTable> {
        let source = source.canonicalize()?;
        let file = File::open("/proc/self/mountinfo")?;
        Ok(MountTable::new(file.into(), &source))
    }

    /// Reads the mount points in the source. Those elsewhere cost the reading of their lines.
    pub(super) fn read(&self) -> io::Result<MountPoints> {
        rustix::fs::seek(&self.file, SeekFrom::Start(0))?;
        let mut lines = BufReader::new(&self.file);
        let mut points = MountPoints::new();
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line)? > 0 {
            if let Some((path, mounted)) = parse(line.trim_ascii_end(), &self.source) {
                let point = points.entry(path).or_insert(mounted);
                point.number = mounted.number;
                point.is_remote |= mounted.is_remote;
            }
            line.clear();
        }
        Ok(points)
    }
}

/// `poll(2)` tells POLLPRI once after each change.
impl AsFd for MountTable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// `36 35 98:0 /mnt1 /source/mnt2 rw,noatime master:1 - ext3 /dev/root rw`
fn parse(line: &[u8], source: &[u8]) -> Option<(Box<[u8]>, Mounted)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let number = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let path = fields.nth(3)?;
    let path: Box<[u8]> = if path.contains(&b'\\') {
        beneath(&unescape_field(path), source)?.into()
    } else {
        beneath(path, source)?.into()
    };
    fields.find(|field| *field == b"-")?;
    let kind = fields.next()?;
    let is_remote = REMOTE_TYPES.contains(&kind) || kind.starts_with(b"fuse");
    Some((path, Mounted { number, is_remote }))
}

fn beneath<'a>(path: &'a [u8], source: &[u8]) -> Option<&'a [u8]> {
    let path = path.strip_prefix(source)?.strip_prefix(b"/")?;
    (!path.is_empty()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn table(text: &str, source: &str) -> MountTable {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        MountTable::new(file.into(), Path::new(source))
    }

    fn points(text: &str, source: &str) -> Vec<(String, u64, bool)> {
        let read = table(text, source).read().unwrap();
        let each = read.into_iter();
        each.map(|(path, it)| {
            (
                String::from_utf8(path.into()).unwrap(),
                it.number,
                it.is_remote,
            )
        })
        .collect()
    }

    #[test]
    fn mounts_in_the_source_are_found() {
        let text = "36 35 0:53 / /source rw - tmpfs none rw\n\
                    37 36 0:54 / /source/a\\040b\\134 rw shared:1 master:2 - tmpfs none rw\n\
                    38 36 0:55 /in /source/dir/net rw - nfs4 host:/ rw\n\
                    39 38 0:56 / /source/dir/net rw - tmpfs none rw\n\
                    40 36 0:57 / /source/f rw - fuse.thrufs /s rw\n\
                    41 35 0:58 / /sources/x rw - tmpfs none rw\n\
                    42 35 0:58 / /else/source/x rw - tmpfs none rw\n\
                    of no use\n";
        let found = [
            ("a b\\".to_owned(), 37, false),
            ("dir/net".to_owned(), 39, true),
            ("f".to_owned(), 40, true),
        ];
        assert_eq!(points(text, "/source"), found);
        assert_eq!(points(text, "/source/"), found);
        assert_eq!(points(text, "/").len(), 6);
        assert_eq!(points(text, "/source/dir").len(), 1);
        assert_eq!(points(text, "/source/f"), []);
    }

    #[test]
    fn a_table_is_read_again_from_its_beginning() {
        let table = table("1 2 0:5 / /s/x rw - tmpfs none rw\n", "/s");
        let first = table.read().unwrap();
        assert_eq!(first.len(), 1);
        assert_eq!(table.read().unwrap(), first);
    }

    #[test]
    fn this_process_has_a_table() {
        let table = MountTable::of_this_process(Path::new("/")).unwrap();
        assert!(table.read().unwrap().contains_key(&b"proc"[..]));
    }
}
