//! Directories that ignore case: under a policy, their names are refused.

use super::Tree;
use super::inode::Inode;
use super::magic::{EXT_MAGIC, F2FS_MAGIC, FOLDING_MAGICS, TMPFS_MAGIC};
use rustix::fs::{AtFlags, Statx, StatxFlags};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thrufs::{Errno, Result};
use thrufs_sys::dir::{DirEntries, getdents64};

/// How much of a directory is read, and in how many calls, to tell two hard links from one name in two
/// cases: some 30,000 entries. The caller waits for it.
const LISTED_BYTES_MAX: usize = 1 << 20;

const LISTED_TIMES_MAX: usize = 16;

/// `linux/fs.h`
const FS_CASEFOLD_FL: u32 = 0x4000_0000;

impl Tree {
    /// Refuses names in a directory that ignores case (vfat, `chattr +F`): patterns of paths could be evaded,
    /// and each file system has its own rules of what is the same. Fails with `EACCES`.
    pub(crate) fn require_case_sensitive(&self, parent: BorrowedFd<'_>, name: &CStr) -> Result<()> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let find = |name: &CStr| {
            let mask = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::NLINK;
            rustix::fs::statx(parent, name, flags, mask).ok()
        };
        let number = |stat: &Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        let is_same = |other: &CString| {
            let Some((found, others)) = find(other).and_then(|others| Some((find(name)?, others)))
            else {
                return false;
            };
            let is_directory = u32::from(found.stx_mode) & libc::S_IFMT == libc::S_IFDIR;
            let may_be_links = found.stx_nlink > 1 && !is_directory;
            number(&found) == number(&others)
                && !(may_be_links && self.lists_both(parent, name, other))
        };
        if in_other_case(name).iter().any(is_same) {
            if !self.logged_folded_case.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "a directory of the source ignores case: its names are refused under a policy \
                     (logged once)"
                );
            }
            return Err(Errno::EACCES);
        }
        Ok(())
    }

    /// Whether both names are entries of a directory: hard links of one file. A directory that ignores case
    /// lists one of them. False if they are not among the entries that are read.
    fn lists_both(&self, directory: BorrowedFd<'_>, one: &CStr, other: &CStr) -> bool {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let Ok(fd) = self.reopen(directory, flags) else {
            return false;
        };
        let mut buffer = vec![0; LISTED_BYTES_MAX / LISTED_TIMES_MAX];
        let mut found = [false; 2];
        for _ in 0..LISTED_TIMES_MAX {
            let length = match getdents64(fd.as_fd(), &mut buffer) {
                Ok(0) | Err(_) => return false,
                Ok(length) => length,
            };
            for entry in DirEntries::new(&buffer[..length]) {
                found[0] |= entry.name == one;
                found[1] |= entry.name == other;
            }
            if found == [true; 2] {
                return true;
            }
        }
        false
    }
}

/// Whether names in a directory are found in other spellings (`chattr +F`, FAT). It may be `open` for reading.
pub(crate) fn folds_case(
    tree: &Tree,
    directory: &Arc<Inode>,
    open: Option<BorrowedFd<'_>>,
) -> Result<bool> {
    let magic = directory.mount().magic;
    if !matches!(magic, EXT_MAGIC | F2FS_MAGIC | TMPFS_MAGIC) {
        return Ok(FOLDING_MAGICS.contains(&magic));
    }
    let mut flags = match open {
        Some(fd) => rustix::fs::ioctl_getflags(fd),
        None => rustix::fs::ioctl_getflags(tree.readable_descriptor(directory)?),
    };
    if let Err(rustix::io::Errno::BADF) = flags {
        let open = tree.open_inode(directory, libc::O_RDONLY | libc::O_DIRECTORY)?;
        flags = rustix::fs::ioctl_getflags(open);
    }
    Ok(flags.is_ok_and(|flags| flags.bits() & FS_CASEFOLD_FL != 0))
}

/// Other names that a directory which ignores case takes for this one: with one character in the other
/// case. Not every such file system folds characters beyond ASCII, and some have no other case: so the
/// whole in upper case too ("ß" is "SS"), and with a soft hyphen at the end, which Linux ignores in
/// size_comparisons.
fn in_other_case(name: &CStr) -> Vec<CString> {
    fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
        let first = items.next();
        first.filter(|_| items.next().is_none())
    }
    let mut bytes = name.to_bytes().to_vec();
    if let Some(at) = bytes.iter().position(u8::is_ascii_alphabetic) {
        bytes[at] ^= 0x20;
        return CString::new(bytes).into_iter().collect();
    }
    let Ok(text) = std::str::from_utf8(&bytes) else {
        return Vec::new();
    };
    let one = text.char_indices().find_map(|(at, from)| {
        let cases = [only(from.to_lowercase()), only(from.to_uppercase())];
        let to = cases.into_iter().flatten().find(|to| *to != from)?;
        let (before, behind) = (&text[..at], &text[at + from.len_utf8()..]);
        Some(format!("{before}{to}{behind}"))
    });
    let upper = Some(text.to_uppercase()).filter(|upper| upper != text);
    let others = [one, upper, Some(format!("{text}\u{ad}"))];
    let others = others.into_iter().flatten().map(CString::new);
    others.filter_map(std::result::Result::ok).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_case_names_cover_case_folding() {
        let cases: &[(&CStr, &[&CStr])] = &[
            (c"img.jpg", &[c"Img.jpg"]),
            (c"1.JPG", &[c"1.jPG"]),
            (c"straße", &[c"Straße"]),
            (c"фото", &[c"Фото", c"ФОТО", c"фото\u{ad}"]),
            (c"ß", &[c"SS", c"ß\u{ad}"]),
            (c"ﬁ", &[c"FI", c"ﬁ\u{ad}"]),
            // Linux folds neither to the other.
            (c"ı", &[c"I", c"I", c"ı\u{ad}"]),
            (c"1234", &[c"1234\u{ad}"]),
            (c"사진", &[c"사진\u{ad}"]),
            (c"\xff", &[]),
        ];
        for (name, others) in cases {
            let found = in_other_case(name);
            assert!(
                found.iter().map(|it| &**it).eq(others.iter().copied()),
                "{name:?}: {found:?}"
            );
        }
    }
}
