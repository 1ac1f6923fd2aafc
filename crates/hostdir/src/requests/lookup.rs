//! LOOKUP: one component beneath a directory, never a path. `.` and `..` are answered only with `export`,
//! for file handles of clients. Under a policy, names that fold case are refused here.

use crate::host::Host;
use crate::tree::Inode;
use crate::tree::{LowerMount, mount_id};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thrufs::{Context, Entry, Errno, Result};
use thrufs_abi::{Name, NodeId};
use thrufs_sys::dir::{DirEntries, getdents64};

/// Most levels to climb to make sure that a directory is still in the served tree.
const DEPTH_MAX: usize = 4096;

/// How much of a directory is read, and in how many calls, to tell two hard links from one name in two
/// cases: some 30,000 entries. The caller waits for it.
const LISTED_BYTES_MAX: usize = 1 << 20;
const LISTED_TIMES_MAX: usize = 16;

impl Host {
    pub(crate) fn lookup(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
    ) -> Result<Entry> {
        if name.is_dot() {
            return self.lookup_again(parent);
        }
        if name.is_dot_dot() {
            return self.lookup_parent(parent);
        }
        let parent = self.nodes.get(parent)?;
        let found = if self.retries.begins(context) {
            self.lookup_and_keep(context, &parent, name.as_cstr())
        } else {
            self.lookup_name(&parent, name.as_cstr())
        };
        match found {
            Ok((inode, stat)) => match self.is_absent(context, &parent, name.as_cstr(), &stat) {
                Ok(false) => Ok(self.entry(&inode, &stat)),
                hidden => {
                    self.forget(inode.node(), 1);
                    hidden.and_then(|_| self.absent())
                }
            },
            Err(Errno::ENOENT) => self.absent(),
            Err(error) => Err(error),
        }
    }

    /// Whether a name that was found is hidden. Errors: see
    /// [`require_case_sensitive`](Self::require_case_sensitive); `DEFER`.
    fn is_absent(
        &self,
        context: &Context<'_>,
        parent: &Arc<Inode>,
        name: &CStr,
        stat: &Statx,
    ) -> Result<bool> {
        if self.rules.has_policy() {
            self.require_case_sensitive(self.descriptor(parent)?.as_fd(), name)?;
        }
        let Some(hidden) = self.hidden_from_lookup(parent, name, stat)? else {
            return Ok(false);
        };
        match self.refuse_entry(context, &hidden, Errno::ENOENT) {
            Errno::ENOENT => Ok(true),
            defer => Err(defer),
        }
    }

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

    /// The answer for a name that does not exist.
    fn absent(&self) -> Result<Entry> {
        let timeout = self.config.negative_timeout();
        if timeout.is_zero() {
            Err(Errno::ENOENT)
        } else {
            Ok(Entry::negative(timeout))
        }
    }

    /// `.`: the node itself, which the kernel may have forgotten (`export`).
    fn lookup_again(&self, node: NodeId) -> Result<Entry> {
        if !self.config.export {
            return Err(Errno::ESTALE);
        }
        let inode = self.nodes.add_lookup(node)?;
        let stat = self.descriptor(&inode).and_then(|descriptor| {
            let flags = AtFlags::EMPTY_PATH;
            Ok(rustix::fs::statx(
                descriptor.as_fd(),
                c"",
                flags,
                crate::host::BASIC,
            )?)
        });
        match stat {
            Ok(stat) => Ok(self.entry(&inode, &stat)),
            Err(error) => {
                self.forget(node, 1);
                Err(error)
            }
        }
    }

    /// `..`: the parent of a directory, never above the root.
    fn lookup_parent(&self, node: NodeId) -> Result<Entry> {
        if !self.config.export {
            return Err(Errno::ESTALE);
        }
        let inode = self.nodes.get(node)?;
        if inode.node() == NodeId::ROOT {
            return self.lookup_again(NodeId::ROOT);
        }
        let parent = self.parent_of(&inode)?;
        self.must_be_inside(&parent)?;
        if self.is_root(&parent)? {
            return self.lookup_again(NodeId::ROOT);
        }
        // Above the root of a submount is another mount, with its own handles.
        let mount = self.mount_of(&parent, inode.mount())?;
        let (found, stat) = self.lookup_opened_on(&mount, None, parent.as_fd())?;
        Ok(self.entry(&found, &stat))
    }

    /// The mount of a directory, most likely `near`.
    fn mount_of(&self, fd: impl AsFd, near: &Arc<LowerMount>) -> Result<Arc<LowerMount>> {
        let id = mount_id(fd, c"")?;
        if id == near.id() {
            return Ok(Arc::clone(near));
        }
        // A mount is not released while a submount of it is in use.
        self.mounts.known(id).ok_or(Errno::ESTALE)
    }

    fn parent_of(&self, inode: &Arc<Inode>) -> Result<OwnedFd> {
        if !inode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        let descriptor = self.descriptor(inode)?;
        up(descriptor.as_fd())
    }

    fn is_root(&self, fd: impl AsFd) -> Result<bool> {
        let root = self.descriptor(&self.root)?;
        same(fd, root.as_fd())
    }

    /// Refuses a directory that was moved out of the source on the host: its parents are not served.
    fn must_be_inside(&self, fd: impl AsFd) -> Result<()> {
        let mut at = up(fd.as_fd())?;
        if self.is_root(fd)? || self.is_root(&at)? {
            return Ok(());
        }
        for _ in 0..DEPTH_MAX {
            let above = up(&at)?;
            if self.is_root(&above)? {
                return Ok(());
            }
            if same(&at, &above)? {
                // The root of the host.
                return Err(Errno::ESTALE);
            }
            at = above;
        }
        Err(Errno::ESTALE)
    }
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

fn up(fd: impl AsFd) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(fd, c"..", flags, Mode::empty())?)
}

fn same(one: impl AsFd, other: impl AsFd) -> Result<bool> {
    let (one, other) = (rustix::fs::fstat(one)?, rustix::fs::fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
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
