//! The privileges of a file (set-user-id, set-group-id, file capabilities), which a change drops unless the
//! caller has CAP_FSETID.
//!
//! Only the kernel above knows that, and reports it in three ways (KILLPRIV_V2):
//!
//! * **with the change itself**: WRITE, SETATTR of a size and OPEN with `O_TRUNC` carry a flag when the
//!   caller lacks it. Then the thread drops it too, and the lower file system clears the bits in the same
//!   call. See [`Files::change_content`].
//! * **before the change**: a SETATTR that sets nothing, where the change carries no such flag (FALLOCATE,
//!   COPY_FILE_RANGE, or a write under passthrough, which the kernel makes with credentials that keep the
//!   bits). It is sent when the attributes that the kernel has cached show something to drop. See
//!   [`Files::clear_privileges`].
//! * **not at all**, when the bits were set on the host and the kernel has not refreshed them. Where the
//!   change comes to us all the same, we do not rely on that SETATTR.
//!
//! File capabilities are dropped by every change, by the lower file system itself.

use super::Files;
use crate::stat::stat_open;
use crate::tree::{Inode, Noted, Use, set_group_id_stays};
use rustix::fs::Statx;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thrufs::{Context, Errno, Result, SetAttr};
use thrufs_sys::{attr, xattr};

pub(crate) const SET_IDS: u32 = libc::S_ISUID | libc::S_ISGID;

/// The mode without the set-id bits that a change drops.
fn without_set_ids(mode: u32) -> u32 {
    if set_group_id_stays(mode) {
        mode & !libc::S_ISUID
    } else {
        mode & !SET_IDS
    }
}

/// Whether set-id bits are dropped when this caller changes a file by a request without a flag. Callers
/// other than root with CAP_FSETID lose the bits too: otherwise callers without it would keep them when the
/// kernel did not know of the bits.
pub(crate) fn loses_set_ids(context: &Context<'_>) -> bool {
    context.uid().is_some_and(|uid| uid != 0)
}

impl Files {
    /// Changes the file's content; with `kills`, drops its set-id bits too.
    pub(crate) fn change_content<T>(
        &self,
        inode: &Inode,
        fd: BorrowedFd<'_>,
        kills: bool,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let stays = inode.noted.has(Noted::SetGroupIdStays);
        if kills && stays {
            // Before, so that new content is never executed with them.
            self.drop_privileges(fd, &stat_open(fd)?)?;
        }
        self.tree.credentials.keep_set_ids(!kills || stays)?;
        change()
    }

    /// Carries out a SETATTR that sets nothing: a change of the file follows.
    ///
    /// chown(2) with neither owner nor group sends the same, from any caller that can reach the file: the
    /// kernel then leaves it to us whether that caller may drop set-id bits. The two are distinguished if
    /// the file is not open for writing, and where the kernel keeps times itself, since a chown sends one.
    pub(crate) fn clear_privileges(
        &self,
        context: &Context<'_>,
        inode: &Arc<Inode>,
        fd: BorrowedFd<'_>,
        set: &SetAttr,
    ) -> Result<()> {
        if inode.is_directory() {
            // Its set-group-id bit is no privilege.
            return Ok(());
        }
        let stat = stat_open(fd)?;
        let is_chown = set.ctime.is_some() || !inode.uses.is_some_and(Use::has_writers);
        let owner = self.config.uid_map.to_client(stat.stx_uid);
        let may_set_mode = context.uid().is_none_or(|uid| uid == 0 || uid == owner);
        if is_chown && has_set_ids(&stat) && !may_set_mode {
            // Where nobody tells who has it open, the change that follows drops them: each comes to the server.
            let follows = self.kernel_opens_files.load(Ordering::Relaxed);
            return if follows { Ok(()) } else { Err(Errno::EPERM) };
        }
        self.drop_privileges(fd, &stat)
    }

    /// Refuses a change of a file that belongs to no id of clients.
    pub(crate) fn require_mapped(&self, inode: &Arc<Inode>) -> Result<()> {
        if !self.config.maps_ids() {
            return Ok(());
        }
        let stat = self.tree.stat(inode)?;
        self.config.require_mapped(stat.stx_uid, stat.stx_gid)
    }

    /// Drops the privileges of a file that is about to be written by a caller which can write it only by
    /// the mapping of ids: natively it could not have opened it, and a store through a shared mapping would
    /// drop nothing. Root of this machine, and the file's owner on the host, keep them.
    pub(crate) fn drop_privileges_of_others(
        &self,
        uid: Option<u32>,
        inode: &Arc<Inode>,
    ) -> Result<()> {
        if !self.config.maps_ids() || inode.is_directory() {
            return Ok(());
        }
        let descriptor = self.tree.descriptor(inode)?;
        let stat = stat_open(&descriptor)?;
        if !self.writes_by_map(uid, &stat) {
            return Ok(());
        }
        self.drop_privileges(descriptor.as_fd(), &stat)?;
        if has_set_ids(&stat) {
            self.tree.attributes_changed(inode);
        }
        Ok(())
    }

    /// Whether a change drops set-id bits: where the kernel above says so, or the caller writes by the map alone.
    pub(crate) fn kills_set_ids(
        &self,
        context: &Context<'_>,
        fd: BorrowedFd<'_>,
        kills: bool,
    ) -> Result<bool> {
        if kills || !self.config.maps_ids() {
            return Ok(kills);
        }
        Ok(self.writes_by_map(context.uid(), &stat_open(fd)?))
    }

    /// Whether this caller can write this file only by the mapping of ids.
    fn writes_by_map(&self, uid: Option<u32>, file: &Statx) -> bool {
        let (uids, gids) = (&self.config.uid_map, &self.config.gid_map);
        let is_hidden = uids.hides(file.stx_uid) || gids.hides(file.stx_gid);
        let is_lent =
            self.config.lends(uids, file.stx_uid) || self.config.lends(gids, file.stx_gid);
        let is_owner = |uid| self.config.callers_are_local && (uid == 0 || uid == file.stx_uid);
        (is_hidden || is_lent) && !uid.is_some_and(is_owner)
    }

    /// Drops set-id bits and file capabilities.
    pub(crate) fn drop_privileges(&self, fd: BorrowedFd<'_>, stat: &Statx) -> Result<()> {
        let mode = u32::from(stat.stx_mode);
        if has_set_ids(stat) {
            // Otherwise chmod(2) would drop the set-group-id bit of a group that this thread is not in.
            self.tree.credentials.keep_set_ids(true)?;
            attr::chmod(fd, without_set_ids(mode) & 0o7777)?;
        }
        let name = c"security.capability";
        // Asked first: without CAP_SETFCAP, removing a missing attribute is refused too.
        match xattr::get(fd, name, &mut []).and_then(|_| xattr::remove(fd, name)) {
            Ok(()) | Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn has_set_ids(stat: &Statx) -> bool {
    let mode = u32::from(stat.stx_mode);
    without_set_ids(mode) != mode
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_group_id_is_dropped_only_with_group_execution() {
        for (mode, left) in [
            (0o100_6777, 0o100_0777),
            (0o100_2710, 0o100_0710),
            (0o100_6706, 0o100_2706),
            (0o100_2644, 0o100_2644),
            (0o100_4644, 0o100_0644),
            (0o100_0755, 0o100_0755),
        ] {
            assert_eq!(without_set_ids(mode), left, "{mode:o}");
        }
    }
}
