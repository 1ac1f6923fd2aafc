//! Checks that a caller still owns what only an owner may change.
//!
//! The kernel above checks callers by the owner, group and mode that were last reported to it
//! (`setattr_prepare`, `vfs_set_acl`, `vfs_fileattr_set`), and does not refresh them before a change
//! through a descriptor. After a chown on the host it still permits the former owner. The server has
//! capabilities, so the lower file system would permit everything. So:
//!
//! * The server records what it has reported of each inode (`ReportedAttributes`).
//! * For a caller other than root, the serving thread acts as the owner that the kernel above knows,
//!   without the capabilities that replace ownership. The lower file system then checks the owner and makes
//!   the change in one step.
//! * With mapped ids there is no such owner on the host, and on network file systems only the server itself
//!   has credentials: there the owner is compared before the change, and again after one that sets set-id
//!   bits.
//! * A refusal expires the kernel's attributes.
//!
//! Where only an empty file or a time is at stake (times, hard links, new files with the set-group-ID bit),
//! owner, mode or the directory's group are compared before.
//!
//! A request may have been checked before the kernel above learned of a new owner, and arrive after. So
//! once an inode was reported with another owner than before, only its owner and root may change it,
//! whatever capabilities the kernel above has seen.
//!
//! Root (user 0 as the server sees it) is not restricted: it could chown the file first.

use crate::credentials::OF_OWNERS;
use crate::files::executes;
use crate::host::Host;
use crate::stat::{content_version, stat_open};
use crate::tree::{End, Inode, ModesBefore, Owner};
use rustix::fs::{AtFlags, OFlags, Statx, StatxFlags};
use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use thrufs::{Context, Errno, OpenArgs, Opened, Result};
use thrufs_abi::NodeId;
use thrufs_sys::cred::Capabilities;

/// A change that only an owner may make.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnerChange {
    /// Of the mode or an ACL.
    Permissions,
    /// Of an ACL, by a caller outside the file's group: also drops the set-group-ID bit.
    PermissionsOutsideGroup,
    /// Of user and group, in ids of the client. An owner may choose among its groups; a caller that gives a
    /// file to another user has a capability, as the kernel above has checked.
    Owner { uid: Option<u32>, gid: Option<u32> },
    /// Of the inode flags. Kernels before Linux 5.13 do not check.
    Flags,
}

/// Whether a file may be linked, or its times set to those of now, with a mode of before and not with that of now
/// (`safe_hardlink_source`).
fn permits_more(before: ModesBefore, now: u32) -> bool {
    const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;
    before.any & !now & 0o666 != 0 || now & !before.all & SET_ID != 0
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checked {
    Owner,
    /// By the mode, unless it is the owner.
    Mode,
    /// By both, unless it is the owner (`fs.protected_hardlinks`).
    Both,
}

impl Host {
    /// Makes a change of the inode behind `fd` that only its owner may make. Fails with EPERM when the owner
    /// is not the one that the kernel above knows.
    pub(crate) fn as_owner<T>(
        &self,
        context: &Context<'_>,
        inode: &Inode,
        fd: BorrowedFd<'_>,
        asked: OwnerChange,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let Some(caller) = self.restricted_caller(context) else {
            return change();
        };
        let reported = &inode.reported;
        let owner = match reported.owner() {
            Some(owner) => owner,
            // A resumed session: what the process before has reported is not known.
            None => self.owner_of(&stat_open(fd)?),
        };
        let is_strict = asked == OwnerChange::Flags || reported.is_uncertain();
        if is_strict && caller != owner.uid {
            return Err(Errno::EPERM);
        }
        let gives_away =
            matches!(asked, OwnerChange::Owner { uid: Some(uid), .. } if uid != owner.uid);
        if gives_away || !self.acts_as_callers(inode) {
            return self.between_checks(inode, (fd, owner), asked, change);
        }
        let gid = match asked {
            OwnerChange::Owner { gid: Some(gid), .. } => gid,
            // The kernel above may have permitted a set-group-id bit by another group.
            _ if is_strict || asked == OwnerChange::PermissionsOutsideGroup => {
                context.gid().unwrap_or(owner.gid)
            }
            _ => owner.gid,
        };
        let lacks = match asked {
            OwnerChange::Owner { .. } => OF_OWNERS,
            // The lower file system keeps the set-group-id bit only for members of the group.
            _ => OF_OWNERS | Capabilities::FSETID,
        };
        let changed = self
            .tree
            .credentials
            .as_user((owner.uid, gid), lacks, change);
        if matches!(changed, Err(Errno::EPERM)) {
            self.check_owner(inode, owner, &stat_open(fd)?)?;
        }
        changed
    }

    /// Makes a change by the server's credentials: the owner is compared before, and again after one that may have
    /// set set-id bits.
    fn between_checks<T>(
        &self,
        inode: &Inode,
        (fd, owner): (BorrowedFd<'_>, Owner),
        asked: OwnerChange,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.check_owner(inode, owner, &stat_open(fd)?)?;
        let changed = change()?;
        let is_of_mode = matches!(
            asked,
            OwnerChange::Permissions | OwnerChange::PermissionsOutsideGroup
        );
        if is_of_mode {
            self.drop_if_taken_over(inode, fd, owner)?;
        }
        Ok(changed)
    }

    /// Drops the set-id bits of a file if its owner changed while they were set.
    fn drop_if_taken_over(&self, inode: &Inode, fd: BorrowedFd<'_>, owner: Owner) -> Result<()> {
        if inode.is_directory() {
            // Its set-group-ID bit is no privilege.
            return Ok(());
        }
        let stat = stat_open(fd)?;
        if self.owner_of(&stat) != owner {
            self.files.drop_privileges(fd, &stat)?;
        }
        Ok(())
    }

    /// OPEN. The kernel above finds files by names, and checks callers by attributes, that were reported to it before.
    /// Both may have changed since: a moment ago, or where nothing tells it (by a name in a directory that nobody has
    /// looked at, or by a descriptor that was opened by such a name). Then an open fails with ESTALE, after which the
    /// kernel above asks and checks again.
    pub(crate) fn open(
        &self,
        context: &Context<'_>,
        node: NodeId,
        args: &OpenArgs,
    ) -> Result<Opened> {
        // open(2) has it, but for a 32-bit program's without O_LARGEFILE. What the kernel opens for an ioctl(2) has not,
        // is checked with that, and is opened only once.
        let is_by_path = args.flags & OFlags::LARGEFILE.bits() != 0;
        let retries = &self.tree.retries;
        let is_retried = retries.expects(context);
        if is_by_path && self.follow.is_started() {
            let inode = self.tree.nodes.get(node)?;
            if !is_retried {
                self.require_current(context, &inode)?;
            }
            // Also for root, for whom nothing else is checked.
            if executes(args.flags as i32) && self.tree.stat(&inode)?.stx_mode & 0o111 == 0 {
                return Err(Errno::EACCES);
            }
        }
        let opened = self.files.open(context, node, args)?;
        match is_retried {
            true => retries.opened(context, node),
            false => retries.end(context),
        }
        Ok(opened)
    }

    /// Fails with ESTALE if the kernel above may have found another file than the one that has the name by now, or
    /// checked the caller by other attributes than those of now.
    fn require_current(&self, context: &Context<'_>, inode: &Arc<Inode>) -> Result<()> {
        // Not with `export`: an NFS server opens by file handles, and tells its client of ESTALE.
        let may_be_another = !self.config.export && self.follow.has_outdated_names();
        if self.restricted_caller(context).is_some() && !self.is_as_reported(inode)? {
            self.follow.catch_up(inode);
            self.tree.attributes_changed(inode);
        } else if !may_be_another || self.was_just_opened(context, inode) {
            return Ok(());
        }
        Err(Errno::ESTALE)
    }

    /// Whether the caller's second attempt has opened this file, which still has the name that was looked up then. Names
    /// are known under a policy only, where hiding has names looked up again that lead where they led.
    fn was_just_opened(&self, context: &Context<'_>, inode: &Arc<Inode>) -> bool {
        let has_name = |name| self.tree.leads_to(&name, inode).unwrap_or(false);
        self.tree.retries.has_opened(context, inode.node())
            && inode.names.latest().is_some_and(has_name)
    }

    fn is_as_reported(&self, inode: &Arc<Inode>) -> Result<bool> {
        let stat = self.tree.stat(inode)?;
        let reported = &inode.reported;
        let mode = self.reported_mode(inode, u32::from(stat.stx_mode));
        // Of a change of an ACL, the mode shows the mask alone, and the times that there was one.
        let is_current = reported.owner() == Some(self.owner_of(&stat))
            && reported.mode() == mode
            && reported.modes_before().is_none()
            && (reported.is_of(content_version(&stat)) || !self.has_acl(inode));
        Ok(is_current)
    }

    /// Refuses a change of a caller other than root that the kernel above has checked by an outdated owner
    /// or, where that decides, an outdated mode. Fails with EPERM; for the mode EACCES, or ESTALE, after
    /// which the kernel above refreshes and checks again.
    pub(crate) fn still_permitted(
        &self,
        context: &Context<'_>,
        inode: &Arc<Inode>,
        fd: BorrowedFd<'_>,
        by: Checked,
    ) -> Result<()> {
        let Some(caller) = self.restricted_caller(context) else {
            return Ok(());
        };
        let reported = &inode.reported;
        let stat = stat_open(fd)?;
        let owner = self.owner_of(&stat);
        let error = match reported.owner() {
            // A resumed session: what the process before has reported is not known.
            None if caller == owner.uid => None,
            None if by == Checked::Owner => Some(Errno::EPERM),
            None => Some(Errno::ESTALE),
            Some(known) => {
                let is_owner = caller == known.uid;
                let mode = || self.reported_mode(inode, u32::from(stat.stx_mode));
                let has_mode = || {
                    let (mode, before) = (mode(), reported.modes_before());
                    mode == reported.mode() && !before.is_some_and(|it| permits_more(it, mode))
                };
                let has_mode = is_owner || has_mode();
                match by {
                    Checked::Mode if !is_owner => (!has_mode).then_some(Errno::EACCES),
                    Checked::Mode => (owner != known).then_some(Errno::EACCES),
                    _ if owner != known => Some(Errno::EPERM),
                    Checked::Both if !has_mode => Some(Errno::ESTALE),
                    _ => None,
                }
            }
        };
        let Some(error) = error else {
            return Ok(());
        };
        self.tree.attributes_changed(inode);
        Err(error)
    }

    /// Whether the set-group-ID bit and the group of a directory are as reported. By these the kernel above
    /// has decided whether a new file may have the set-group-ID bit (`mode_strip_sgid`).
    pub(crate) fn gives_group_as_reported(
        &self,
        context: &Context<'_>,
        directory: &Arc<Inode>,
    ) -> Result<bool> {
        if self.restricted_caller(context).is_none() {
            return Ok(true);
        }
        let reported = &directory.reported;
        let Some(owner) = reported.owner().filter(|_| !reported.is_uncertain()) else {
            return Ok(false);
        };
        let stat = self.tree.stat(directory)?;
        let before = reported.modes_before().map_or(0, |before| before.any);
        let changed = (u32::from(stat.stx_mode) ^ (before | reported.mode())) & libc::S_ISGID;
        Ok(changed == 0 && self.owner_of(&stat).gid == owner.gid)
    }

    /// Removes or renames names of files, and in directories, that belong to ids of clients; in directories that may
    /// be sticky, only for the owner of the file or the directory. Fails with ESTALE for other callers: the kernel
    /// above looks the name up again and checks once more.
    pub(crate) fn as_owner_of_names<T>(
        &self,
        context: &Context<'_>,
        ends: &[End<'_>],
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if self.config.maps_ids() {
            ends.iter().try_for_each(|end| self.require_mapped(*end))?;
        }
        let sticky = || {
            ends.iter()
                .filter(|end| end.parent.reported.may_be_sticky())
        };
        let Some(caller) = self
            .restricted_caller(context)
            .filter(|_| sticky().next().is_some())
        else {
            return change();
        };
        let check = || sticky().try_for_each(|end| self.check_name(caller, *end));
        if !ends.iter().all(|end| self.acts_as_callers(end.parent)) {
            check()?;
            return change();
        }
        let gid = context.gid().unwrap_or(self.tree.credentials.server_gid);
        let changed = self
            .tree
            .credentials
            .as_user((caller, gid), OF_OWNERS, change);
        if matches!(changed, Err(Errno::EPERM)) {
            check()?;
        }
        changed
    }

    fn require_mapped(&self, end: End<'_>) -> Result<()> {
        self.files.require_mapped(end.parent)?;
        match rustix::fs::statat(end.fd, end.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(rustix::io::Errno::NOENT) => Ok(()),
            file => file
                .map_err(Errno::from)
                .and_then(|file| self.config.require_mapped(file.st_uid, file.st_gid)),
        }
    }

    /// Refuses a name in a sticky directory if the caller owns neither the file nor the directory.
    fn check_name(&self, caller: u32, end: End<'_>) -> Result<()> {
        let wanted = StatxFlags::UID | StatxFlags::MODE;
        let stat = |fd, name: &CStr, flags| rustix::fs::statx(fd, name, flags, wanted);
        let directory = stat(end.fd, c"", AtFlags::EMPTY_PATH)?;
        if u32::from(directory.stx_mode) & libc::S_ISVTX == 0 {
            return Ok(());
        }
        let file = match stat(end.fd, end.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            file => file?,
        };
        if [directory, file]
            .iter()
            .any(|stat| self.owner_of(stat).uid == caller)
        {
            Ok(())
        } else {
            Err(Errno::ESTALE)
        }
    }

    /// The caller's user, if the lower file system would restrict it but not the server.
    fn restricted_caller(&self, context: &Context<'_>) -> Option<u32> {
        let caller = context.uid().filter(|&uid| uid != 0);
        caller.filter(|_| self.tree.credentials.overrides_owners())
    }

    /// Whether the lower file system checks this caller as an owner, and drops set-id bits itself.
    pub(crate) fn acts_as_owner(&self, context: &Context<'_>, inode: &Inode) -> bool {
        self.restricted_caller(context).is_some() && self.acts_as_callers(inode)
    }

    fn acts_as_callers(&self, inode: &Inode) -> bool {
        self.tree.credentials.switches && !self.config.maps_ids() && !inode.mount().is_remote
    }

    fn owner_of(&self, stat: &Statx) -> Owner {
        Owner {
            uid: self.config.uid_map.to_client(stat.stx_uid),
            gid: self.config.gid_map.to_client(stat.stx_gid),
        }
    }

    fn check_owner(&self, inode: &Inode, owner: Owner, stat: &Statx) -> Result<()> {
        if self.owner_of(stat) == owner {
            return Ok(());
        }
        self.tree.attributes_changed(inode);
        Err(Errno::EPERM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, HostDir, Resources};
    use std::fs::{self, Permissions};
    use std::os::fd::AsFd;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

    #[test]
    fn set_id_bits_are_dropped_if_the_owner_changed() {
        if !rustix::process::geteuid().is_root() {
            return thrufs_test_report::skipped("needs root, to give files away");
        }
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("file"), "").unwrap();
        fs::create_dir(place.path().join("directory")).unwrap();
        let served = HostDir::open(place.path(), Config::default(), Resources::default()).unwrap();
        let host = &served.host;
        let owner = Owner { uid: 0, gid: 0 };
        for (name, taken_by, left) in [
            ("file", None, 0o6755),
            ("file", Some((1001, 0)), 0o755),
            ("file", Some((0, 1001)), 0o755),
            ("directory", Some((1001, 0)), 0o2755),
        ] {
            let path = place.path().join(name);
            chown(&path, Some(owner.uid), Some(owner.gid)).unwrap();
            let bits = if path.is_dir() { 0o2755 } else { 0o6755 };
            let entry = std::ffi::CString::new(name).unwrap();
            let inode = host.tree.lookup_name(&host.tree.root, &entry).unwrap().0;
            let descriptor = host.tree.descriptor(&inode).unwrap();
            let file = (descriptor.as_fd(), owner);
            let set = || {
                if let Some((uid, gid)) = taken_by {
                    chown(&path, Some(uid), Some(gid)).unwrap();
                }
                fs::set_permissions(&path, Permissions::from_mode(bits)).unwrap();
                Ok(())
            };
            host.between_checks(&inode, file, OwnerChange::Permissions, set)
                .unwrap();
            let mode = || path.metadata().unwrap().mode() & 0o7777;
            assert_eq!(mode(), left, "{name}");
            if taken_by.is_some() {
                let refused =
                    host.between_checks(&inode, file, OwnerChange::Permissions, || Ok(()));
                assert_eq!(refused, Err(Errno::EPERM), "{name}");
            }
        }
    }
}
