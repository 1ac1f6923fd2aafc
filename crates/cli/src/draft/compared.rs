//! One name in the layer and in the tree.

use super::beneath::{Time, attributes, has_attributes, open_in, target, type_of};
use rustix::fs::{AtFlags, FileType, OFlags, Stat, StatxFlags, statx};
use rustix::io::Errno;
use std::cell::OnceCell;
use std::ffi::OsStr;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::fd::OwnedFd;

const READ_BYTES: usize = 1 << 17;

/// How old the tree may be that a command sees, in seconds: overlayfs keeps attributes for one.
const VIEW_AGE_MAX_S: i64 = 2;

/// A name in its directories, and what is there.
#[derive(Default)]
pub(super) struct Compared<'a> {
    pub(super) name: &'a OsStr,
    pub(super) layer: Option<Stat>,
    pub(super) tree: Option<Stat>,
    pub(super) layer_directory: Option<&'a OwnedFd>,
    pub(super) tree_directory: Option<&'a OwnedFd>,
    /// Whether overlayfs copied it from the tree, which it notes for files with one link.
    pub(super) is_copy: bool,
    pub(super) contents: [OnceCell<u64>; 2],
}

impl Compared<'_> {
    /// Reads what overlayfs noted of it; returns whether it is marked as an opaque directory.
    pub(super) fn look_at_layer(&mut self) -> io::Result<bool> {
        let file_type = self.layer.as_ref().map(type_of);
        if !file_type.is_some_and(has_attributes) {
            return Ok(false);
        }
        let file = open_in(present(self.layer_directory)?, self.name, OFlags::PATH)?;
        let has = |name| thrufs_sys::xattr::get(&file, name, &mut []).is_ok();
        self.is_copy = has(c"user.overlay.origin");
        Ok(file_type == Some(FileType::Directory) && has(c"user.overlay.opaque"))
    }

    /// Whether it is a directory in the layer, and in the tree.
    pub(super) fn are_directories(&self) -> [bool; 2] {
        let is_directory =
            |stat: &Option<Stat>| stat.is_some_and(|it| type_of(&it) == FileType::Directory);
        [is_directory(&self.layer), is_directory(&self.tree)]
    }

    pub(super) fn layer_content(&self) -> io::Result<u64> {
        self.content(0, self.layer_directory, self.layer.as_ref())
    }

    pub(super) fn tree_content(&self) -> io::Result<u64> {
        self.content(1, self.tree_directory, self.tree.as_ref())
    }

    /// A hash of its bytes or its target, and its attributes.
    fn content(
        &self,
        side: usize,
        directory: Option<&OwnedFd>,
        stat: Option<&Stat>,
    ) -> io::Result<u64> {
        if let Some(known) = self.contents[side].get() {
            return Ok(*known);
        }
        let (Some(directory), Some(stat)) = (directory, stat) else {
            return Err(Errno::NOENT.into());
        };
        let (mut hasher, kind) = (DefaultHasher::new(), type_of(stat));
        if kind == FileType::Symlink {
            target(directory, self.name)?.hash(&mut hasher);
        } else if has_attributes(kind) {
            let file = open_in(directory, self.name, OFlags::RDONLY | OFlags::NONBLOCK)?;
            attributes(&file, side == 0)?.hash(&mut hasher);
            let mut bytes = vec![0; READ_BYTES];
            let mut file = File::from(file);
            let mut length = if kind == FileType::RegularFile {
                bytes.len()
            } else {
                0
            };
            while length > 0 {
                length = file.read(&mut bytes)?;
                hasher.write(&bytes[..length]);
            }
        }
        Ok(*self.contents[side].get_or_init(|| hasher.finish()))
    }

    /// From when on the command may not have seen what changed in the tree, for a copy of overlayfs's: what was written in
    /// place shows within [`VIEW_AGE_MAX_S`], but another file of the same name may not show before the next run.
    pub(super) fn unseen_since(&self, since: Time) -> Time {
        let born = |directory: Option<&OwnedFd>| {
            let file = open_in(directory?, self.name, OFlags::PATH).ok()?;
            let times = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
            let is_known = StatxFlags::from_bits_retain(times.stx_mask).contains(StatxFlags::BTIME);
            is_known.then_some((times.stx_btime.tv_sec, times.stx_btime.tv_nsec.into()))
        };
        let is_written = |stat: &Stat| {
            (stat.st_mtime, stat.st_mtime_nsec) == (stat.st_ctime, stat.st_ctime_nsec)
        };
        let is_in_place = self.tree.as_ref().is_some_and(is_written)
            && born(self.tree_directory).is_some_and(|born| born <= since);
        match born(self.layer_directory).filter(|_| is_in_place) {
            Some((seconds, nanoseconds)) => since.max((seconds - VIEW_AGE_MAX_S, nanoseconds)),
            None => since,
        }
    }
}

fn present(directory: Option<&OwnedFd>) -> io::Result<&OwnedFd> {
    directory.ok_or_else(|| Errno::NOENT.into())
}
