//! Puts one file of a layer into the tree, or takes one away, so that at each moment the tree has the old one or the
//! new one.
//!
//! A new file is made beside its place, under a temporary name, and exchanged with what is there. What comes out is
//! compared with what was seen before: if it changed in between, it is put back. An apply that was interrupted may
//! leave the temporary name, which depends on the draft and the path: the next one removes it.

use super::base::{CHANGED, CREATED, is_unchanged};
use super::beneath::{attributes, names, open_in, stat_at, target, type_of};
use super::change::Change;
use super::changes::{Sides, is_root};
use crate::lookup::is_same;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, SeekFrom, Stat, Timespec, Timestamps, XattrFlags,
    chownat, fchmod, fchown, fremovexattr, fsetxattr, fstat, ioctl_ficlone, linkat, mkdirat,
    mknodat, openat, renameat, renameat_with, seek, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

#[derive(Debug, thiserror::Error)]
pub(super) enum PutError {
    #[error("{0}")]
    Conflict(&'static str),
    #[error("it belongs to user {0}, which only root can keep so")]
    OfOther(u32),
    #[error(transparent)]
    System(#[from] io::Error),
}

impl PutError {
    pub(super) fn is_not_empty(&self) -> bool {
        matches!(self, PutError::System(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty)
    }
}

impl From<Errno> for PutError {
    fn from(errno: Errno) -> PutError {
        PutError::System(errno.into())
    }
}

/// The places of one change.
pub(super) struct Put<'a> {
    pub(super) sides: &'a Sides,
    /// The directory in the layer.
    pub(super) upper: &'a OwnedFd,
    /// The directory in the tree.
    pub(super) tree: &'a OwnedFd,
    pub(super) name: &'a OsStr,
    /// In the directory of the tree.
    pub(super) temporary: String,
}

impl Put<'_> {
    /// Puts what the layer has into the place of what was seen in the tree. `linked` is a name of the same file in the
    /// tree, by its directory, and that file.
    pub(super) fn put(
        &self,
        change: &Change,
        layer: &Stat,
        linked: Option<(&OwnedFd, &OsStr, u64)>,
    ) -> Result<(), PutError> {
        self.clean()?;
        let mut seen = change.tree.as_ref();
        if change.removes_directory() {
            self.remove_directory()?;
            seen = None;
        }
        let is_linked = match linked {
            Some(linked) => self.link(linked)?,
            None => false,
        };
        let made = if is_linked {
            Ok(())
        } else {
            self.make(layer, seen)
        };
        let published = made.and_then(|()| self.publish(seen));
        if published.is_err() {
            let _ = self.clean();
        }
        published
    }

    /// Removes what was seen in the tree.
    pub(super) fn remove(&self, seen: &Stat) -> Result<(), PutError> {
        self.clean()?;
        if type_of(seen) == FileType::Directory {
            return self.remove_directory();
        }
        match stat_at(self.tree, self.name)? {
            None => return Ok(()),
            Some(now) if !is_unchanged(seen, &now) => return Err(PutError::Conflict(CHANGED)),
            Some(_) => {}
        }
        let temporary = self.temporary.as_ref();
        self.rename(self.name, temporary, RenameFlags::NOREPLACE)?;
        let out = stat_at(self.tree, temporary)?;
        if !out.is_some_and(|out| is_unchanged(seen, &out)) {
            self.rename(temporary, self.name, RenameFlags::NOREPLACE)?;
            return Err(PutError::Conflict(CHANGED));
        }
        self.clean()
    }

    /// Removes what an apply left that was interrupted.
    pub(super) fn clean(&self) -> Result<(), PutError> {
        let remove = |flags| match unlinkat(self.tree, &self.temporary, flags) {
            Err(Errno::NOENT) => Ok(()),
            removed => removed,
        };
        Ok(match remove(AtFlags::empty()) {
            Err(Errno::ISDIR) => remove(AtFlags::REMOVEDIR),
            removed => removed,
        }?)
    }

    fn remove_directory(&self) -> Result<(), PutError> {
        match unlinkat(self.tree, self.name, AtFlags::REMOVEDIR) {
            Err(Errno::NOENT) => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// Some file systems of networks know neither flag.
    fn rename(&self, from: &OsStr, to: &OsStr, flags: RenameFlags) -> rustix::io::Result<()> {
        match renameat_with(self.tree, from, self.tree, to, flags) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                renameat(self.tree, from, self.tree, to)
            }
            renamed => renamed,
        }
    }

    fn publish(&self, seen: Option<&Stat>) -> Result<(), PutError> {
        let temporary = self.temporary.as_ref();
        let now = stat_at(self.tree, self.name)?;
        let (seen, now) = match (seen, now) {
            (None, Some(_)) => return Err(PutError::Conflict(CREATED)),
            (None, None) => {
                let put = self.rename(temporary, self.name, RenameFlags::NOREPLACE);
                return put.map_err(|errno| match errno {
                    Errno::EXIST => PutError::Conflict(CREATED),
                    errno => errno.into(),
                });
            }
            (Some(seen), Some(now)) => (seen, now),
            (Some(_), None) => return Err(PutError::Conflict(CHANGED)),
        };
        if !is_unchanged(seen, &now) {
            return Err(PutError::Conflict(CHANGED));
        }
        self.rename(temporary, self.name, RenameFlags::EXCHANGE)?;
        let out = stat_at(self.tree, temporary)?;
        if out.is_some_and(|out| !is_unchanged(seen, &out)) {
            self.rename(temporary, self.name, RenameFlags::EXCHANGE)?;
            return Err(PutError::Conflict(CHANGED));
        }
        self.clean()
    }

    /// Whether the temporary name is now one of this file.
    fn link(&self, (directory, name, inode): (&OwnedFd, &OsStr, u64)) -> Result<bool, PutError> {
        let flags = AtFlags::empty();
        if linkat(directory, name, self.tree, &self.temporary, flags).is_err() {
            return Ok(false);
        }
        let found = stat_at(self.tree, self.temporary.as_ref())?;
        let is_it = found.is_some_and(|found| found.st_ino == inode);
        if !is_it {
            self.clean()?;
        }
        Ok(is_it)
    }

    fn make(&self, layer: &Stat, seen: Option<&Stat>) -> Result<(), PutError> {
        let (tree, name) = (self.tree, self.temporary.as_str());
        let private = Mode::RUSR | Mode::WUSR;
        match type_of(layer) {
            FileType::Directory => {
                mkdirat(tree, name, Mode::RWXU)?;
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                let made = open_in(tree, name, flags)?;
                if !names(&made)?.is_empty() {
                    return Err(PutError::Conflict(CHANGED));
                }
                let from = open_in(self.upper, self.name, flags)?;
                self.give_attributes(&from, &made, layer, seen)?;
                // What is in it is yet to come.
                let mode = Mode::from_raw_mode(self.sides.mode_of(layer) | 0o700);
                Ok(fchmod(&made, mode)?)
            }
            FileType::RegularFile => {
                let from = self.open_layer(layer)?;
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                let made = openat(tree, name, flags | OFlags::CLOEXEC, private)?;
                copy(from.try_clone()?, &made)?;
                self.give_attributes(&from, &made, layer, seen)?;
                fchmod(&made, Mode::from_raw_mode(self.sides.mode_of(layer)))?;
                Ok(set_times(&made, layer)?)
            }
            FileType::Symlink => {
                symlinkat(target(self.upper, self.name)?, tree, name)?;
                self.give_name_attributes(layer, seen)
            }
            kind @ (FileType::Fifo | FileType::Socket) => {
                mknodat(tree, name, kind, private, 0)?;
                self.give_name_attributes(layer, seen)
            }
            _ => Err(Errno::PERM.into()),
        }
    }

    /// Opens a regular file. Its owner may have made it unreadable.
    fn open_layer(&self, layer: &Stat) -> io::Result<OwnedFd> {
        let open = || open_in(self.upper, self.name, OFlags::RDONLY | OFlags::NONBLOCK);
        let opened = match open() {
            Err(Errno::ACCESS) => {
                let file = open_in(self.upper, self.name, OFlags::PATH)?;
                thrufs_sys::attr::chmod(&file, layer.st_mode | 0o400)?;
                let opened = open();
                thrufs_sys::attr::chmod(&file, layer.st_mode)?;
                opened
            }
            opened => opened,
        }?;
        match is_same(fstat(&opened)?, *layer) {
            true => Ok(opened),
            false => Err(io::Error::other("the layer changed meanwhile")),
        }
    }

    /// Owner, access control lists and attributes. The directory may have given it others.
    pub(super) fn give_attributes(
        &self,
        from: &OwnedFd,
        to: &OwnedFd,
        layer: &Stat,
        seen: Option<&Stat>,
    ) -> Result<(), PutError> {
        let (uid, gid) = self.owner(layer, seen, &fstat(to)?)?;
        fchown(to, uid, gid)?;
        let wanted = attributes(from, true)?;
        let found = attributes(to, false)?;
        for name in found.keys().filter(|name| !wanted.contains_key(*name)) {
            fremovexattr(to, OsStr::from_bytes(name))?;
        }
        for (name, value) in wanted.iter().filter(|it| found.get(it.0) != Some(it.1)) {
            fsetxattr(to, OsStr::from_bytes(name), value, XattrFlags::empty())?;
        }
        Ok(())
    }

    /// Owner, mode and times of what cannot be opened. Whoever may write to the directory may have put another file in
    /// its place: none of another type gets them.
    fn give_name_attributes(&self, layer: &Stat, seen: Option<&Stat>) -> Result<(), PutError> {
        let made = open_in(self.tree, &self.temporary, OFlags::PATH)?;
        let stat = fstat(&made)?;
        if type_of(&stat) != type_of(layer) || stat.st_nlink != 1 {
            return Err(PutError::Conflict(CHANGED));
        }
        let (uid, gid) = self.owner(layer, seen, &stat)?;
        chownat(&made, "", uid, gid, AtFlags::EMPTY_PATH)?;
        if type_of(layer) != FileType::Symlink {
            thrufs_sys::attr::chmod(&made, self.sides.mode_of(layer))?;
        }
        Ok(set_times(&made, layer)?)
    }

    /// The owner and group to be given to a file that was made. An ordinary user keeps those of the one before.
    fn owner(
        &self,
        layer: &Stat,
        seen: Option<&Stat>,
        made: &Stat,
    ) -> Result<(Option<Uid>, Option<Gid>), PutError> {
        let (uid, gid) = match (is_root(), seen) {
            (true, _) => self.sides.owner_of(layer),
            (false, Some(seen)) if seen.st_uid != made.st_uid => {
                return Err(PutError::OfOther(seen.st_uid));
            }
            (false, Some(seen)) => (seen.st_uid, seen.st_gid),
            (false, None) => return Ok((None, None)),
        };
        let uid = (uid != made.st_uid).then(|| Uid::from_raw(uid));
        let gid = (gid != made.st_gid).then(|| Gid::from_raw(gid));
        Ok((uid, gid))
    }
}

/// Sets the times of a file, also by an `O_PATH` descriptor.
pub(super) fn set_times(file: &OwnedFd, stat: &Stat) -> rustix::io::Result<()> {
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let times = Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec as i64),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec as i64),
    };
    utimensat(file, "", &times, AtFlags::EMPTY_PATH)
}

/// Copies the bytes, and leaves holes where there are holes.
fn copy(from: OwnedFd, to: &OwnedFd) -> io::Result<()> {
    if ioctl_ficlone(to, &from).is_ok() {
        return Ok(());
    }
    let (mut from, mut to) = (File::from(from), File::from(to.try_clone()?));
    let length = from.metadata()?.len();
    to.set_len(length)?;
    let mut at = 0;
    while at < length {
        let begin = match seek(&from, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            begin => begin?,
        };
        let end = seek(&from, SeekFrom::Hole(begin)).unwrap_or(length);
        from.seek(io::SeekFrom::Start(begin))?;
        to.seek(io::SeekFrom::Start(begin))?;
        io::copy(&mut (&from).take(end - begin), &mut to)?;
        at = end.max(begin + 1);
    }
    Ok(())
}
