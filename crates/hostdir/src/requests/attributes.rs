//! Attributes: GETATTR, STATX, SETATTR, READLINK and STATFS, and the attributes in every entry. That a caller
//! still owns what it changes is checked in [`ownership`](crate::requests::ownership), what falls with a
//! change in `files::privileges`.

use super::ownership::{Checked, OwnerChange};
use crate::config::IdMap;
use crate::files::OpenFile;
use crate::follow::PendingLookup;
use crate::host::Host;
use crate::stat::{content_version, stat_open};
use crate::tree::{Inode, MapConditions, Noted};
use rustix::fs::{
    AtFlags, Gid, StatFs, Statx, StatxAttributes, StatxFlags, StatxTimestamp, Timespec, Timestamps,
    Uid,
};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thrufs::{
    Attributes, Context, DirectorySink, Entry, Errno, ExtendedAttributes, FileSystemStatistics,
    Result, SetAttr, SetTime, Timestamp,
};
use thrufs_abi::layout::{Attr, Statx as WireStatx, SxTime};
use thrufs_abi::{AttrFlags, FileHandle, Generation, NodeId};
use thrufs_sys::attr;

/// Bits of statx(2) that exist on the wire (up to `STATX_BTIME`).
const WIRE_STATX_MASK: u32 = 0xfff;

/// A device number as on the wire (`new_encode_dev` of the kernel).
pub(crate) fn encode_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

pub(crate) fn decode_device(device: u32) -> (u32, u32) {
    (
        (device & 0xf_ff00) >> 8,
        (device & 0xff) | ((device >> 12) & 0xf_ff00),
    )
}

impl Host {
    pub(crate) fn attr(&self, inode: &Arc<Inode>, stat: &Statx) -> Attr {
        inode.noted.record_mode(u32::from(stat.stx_mode));
        let attr = Attr {
            ino: inode.mount().client_ino(stat.stx_ino),
            size: self.tree.dax.size(inode, stat.stx_size),
            blocks: stat.stx_blocks,
            atime: stat.stx_atime.tv_sec as u64,
            mtime: stat.stx_mtime.tv_sec as u64,
            ctime: stat.stx_ctime.tv_sec as u64,
            atimensec: stat.stx_atime.tv_nsec,
            mtimensec: stat.stx_mtime.tv_nsec,
            ctimensec: stat.stx_ctime.tv_nsec,
            mode: self.reported_mode(inode, u32::from(stat.stx_mode)),
            nlink: stat.stx_nlink,
            uid: self.config.uid_map.to_client(stat.stx_uid),
            gid: self.config.gid_map.to_client(stat.stx_gid),
            rdev: encode_device(stat.stx_rdev_major, stat.stx_rdev_minor),
            blksize: stat.stx_blksize,
            flags: self.attribute_flags(inode, stat),
        };
        self.report(inode, (attr.uid, attr.gid, attr.mode), stat);
        attr
    }

    fn report(&self, inode: &Inode, owner_and_mode: (u32, u32, u32), stat: &Statx) {
        let reported = &inode.reported;
        // Others the kernel above has to take: it checks callers by them, and reads to that size.
        if inode.noted.has(Noted::TakesTurns) && reported.are_known(owner_and_mode, stat.stx_size) {
            self.files.mount_locks.keep_pages(inode);
        }
        reported.report(owner_and_mode, stat.stx_size, content_version(stat));
    }

    /// Marks submounts, for which a guest shows a device of their own. Not for the root, which has one
    /// already.
    fn attribute_flags(&self, inode: &Arc<Inode>, stat: &Statx) -> u32 {
        let is_mounted_on = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
            && inode.is_directory()
            && inode.node() != NodeId::ROOT;
        if is_mounted_on && self.announces_submounts.load(Ordering::Relaxed) {
            AttrFlags::SUBMOUNT.bits()
        } else {
            let conditions = MapConditions {
                lasting_access: &|| self.judge.lasting_access(inode),
                is_mount_read_only: &|| self.tree.mount_is_read_only(inode).unwrap_or(true),
            };
            self.tree.dax.flags(inode, stat, &conditions)
        }
    }

    /// The entry of an inode that was found by a lookup.
    pub(crate) fn entry(
        &self,
        pending: &PendingLookup<'_>,
        inode: &Arc<Inode>,
        stat: &Statx,
    ) -> Entry {
        let timeouts = pending.found(inode, stat.stx_nlink);
        Entry {
            node: inode.node(),
            // Node ids are never reused: the generation adds nothing.
            generation: Generation(0),
            attr: self.attr(inode, stat),
            entry_timeout: timeouts.entry,
            attr_timeout: timeouts.attr,
        }
    }

    /// The same, of one that has this name.
    pub(crate) fn entry_of_name(
        &self,
        pending: &PendingLookup<'_>,
        name: &CStr,
        (inode, stat): &(Arc<Inode>, Statx),
    ) -> Entry {
        self.tree.dax.note_name(inode, name);
        self.entry(pending, inode, stat)
    }

    pub(crate) fn readdir(
        &self,
        context: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        let entry_of = |pending: &PendingLookup<'_>, name: &CStr, found: (Arc<Inode>, Statx)| {
            self.entry_of_name(pending, name, &found)
        };
        self.files
            .readdir(context, node, handle, offset, sink, entry_of)
    }

    fn attributes(&self, inode: &Arc<Inode>, stat: &Statx) -> Attributes {
        Attributes {
            attr: self.attr(inode, stat),
            timeout: self.follow.attr_timeout(inode),
        }
    }

    pub(crate) fn getattr(
        &self,
        context: &Context<'_>,
        node: NodeId,
        _: Option<FileHandle>,
    ) -> Result<Attributes> {
        let inode = self.tree.nodes.get(node)?;
        self.judge.may_reveal(&inode)?;
        let question = self.follow.mark(context.uid(), &inode);
        let stat = self.tree.stat(&inode)?;
        Ok(Attributes {
            attr: self.attr(&inode, &stat),
            timeout: self.follow.answer_timeout(question, &inode),
        })
    }

    pub(crate) fn statx(
        &self,
        context: &Context<'_>,
        node: NodeId,
        _: Option<FileHandle>,
        flags: u32,
        mask: u32,
    ) -> Result<ExtendedAttributes> {
        let inode = self.tree.nodes.get(node)?;
        self.judge.may_reveal(&inode)?;
        let question = self.follow.mark(context.uid(), &inode);
        let descriptor = self.tree.descriptor(&inode)?;
        let sync = AtFlags::from_bits_retain(flags & libc::AT_STATX_SYNC_TYPE as u32);
        let mask = StatxFlags::from_bits_retain(mask & WIRE_STATX_MASK) | StatxFlags::BASIC_STATS;
        let stat = rustix::fs::statx(descriptor.as_fd(), c"", AtFlags::EMPTY_PATH | sync, mask)?;
        let statx = self.wire_statx(&inode, &stat);
        Ok(ExtendedAttributes {
            statx,
            timeout: self.follow.answer_timeout(question, &inode),
        })
    }

    fn wire_statx(&self, inode: &Arc<Inode>, stat: &Statx) -> WireStatx {
        inode.noted.record_mode(u32::from(stat.stx_mode));
        let mode = self.reported_mode(inode, u32::from(stat.stx_mode));
        let time = |time: &StatxTimestamp| SxTime {
            tv_sec: time.tv_sec,
            tv_nsec: time.tv_nsec,
            ..SxTime::default()
        };
        let statx = WireStatx {
            mask: stat.stx_mask & WIRE_STATX_MASK,
            blksize: stat.stx_blksize,
            attributes: stat.stx_attributes.bits(),
            attributes_mask: stat.stx_attributes_mask.bits(),
            nlink: stat.stx_nlink,
            uid: self.config.uid_map.to_client(stat.stx_uid),
            gid: self.config.gid_map.to_client(stat.stx_gid),
            mode: mode as u16,
            ino: inode.mount().client_ino(stat.stx_ino),
            size: self.tree.dax.size(inode, stat.stx_size),
            blocks: stat.stx_blocks,
            atime: time(&stat.stx_atime),
            btime: time(&stat.stx_btime),
            ctime: time(&stat.stx_ctime),
            mtime: time(&stat.stx_mtime),
            rdev_major: stat.stx_rdev_major,
            rdev_minor: stat.stx_rdev_minor,
            dev_major: stat.stx_dev_major,
            dev_minor: stat.stx_dev_minor,
            ..WireStatx::default()
        };
        self.report(inode, (statx.uid, statx.gid, mode), stat);
        statx
    }

    pub(crate) fn setattr(
        &self,
        context: &Context<'_>,
        node: NodeId,
        set: &SetAttr,
    ) -> Result<Attributes> {
        self.config.writable()?;
        let inode = self.tree.nodes.get(node)?;
        let is_settled = self.settled_at_open(node, set);
        if !is_settled {
            self.judge.may_change(&inode, context)?;
            if set.size.is_some_and(|size| size != 0) {
                self.judge.may_resize(&inode, context)?;
            }
        }
        let descriptor = match self.tree.descriptor(&inode) {
            // The kernel writes back the times of a file that is gone.
            Err(Errno::ESTALE) if self.config.writeback && set.ctime.is_some() => {
                let timeout = self.config.attr_timeout();
                return Ok(Attributes {
                    attr: Attr::default(),
                    timeout,
                });
            }
            descriptor => descriptor?,
        };
        let fd = descriptor.as_fd();
        if !is_settled {
            self.files.require_mapped(&inode)?;
        }
        if inode.mount().is_remote {
            self.tree.credentials.as_server()?;
        }
        if !self.change(context, &inode, fd, set)? {
            let clear = || self.files.clear_privileges(context, &inode, fd, set);
            self.files.change_attributes(&inode, fd, clear)?;
        }
        self.follow.end_silence(&inode);
        let stat = stat_open(fd)?;
        let attributes = self.attributes(&inode, &stat);
        inode.reported.was_set();
        Ok(attributes)
    }

    /// Whether this changes content through a file handle that was opened for writing.
    fn settled_at_open(&self, node: NodeId, set: &SetAttr) -> bool {
        let file = set.handle.and_then(|handle| self.files.files.get(handle.0));
        let for_writing = file.is_some_and(|file| file.writable && file.node() == node);
        for_writing && set.mode.is_none() && set.uid.is_none() && set.gid.is_none()
    }

    /// Sets the attributes, and returns whether there were any. A change time does not count: the kernel
    /// sends it under writeback, but the lower file system keeps its own, which cannot be set.
    fn change(
        &self,
        context: &Context<'_>,
        inode: &Arc<Inode>,
        fd: BorrowedFd<'_>,
        set: &SetAttr,
    ) -> Result<bool> {
        let mut changed = false;
        if set.uid.is_some() || set.gid.is_some() {
            self.files
                .change_attributes(inode, fd, || self.change_owner(context, inode, fd, set))?;
            inode.reported.set_by_kernel(set.uid, set.gid);
            changed = true;
        }
        if let Some(mode) = set.mode {
            self.files
                .change_attributes(inode, fd, || self.change_mode(context, inode, fd, mode))?;
            changed = true;
        }
        if let Some(size) = set.size {
            let current = || Ok(stat_open(fd)?.stx_size);
            self.tree.dax.may_set_size(inode, size, current)?;
            let kills = self.files.kills_set_ids(context, fd, set.kill_suidgid)?;
            if kills {
                inode.noted.record_mode(u32::from(stat_open(fd)?.stx_mode));
            }
            let truncate = || self.change_size(context, inode, fd, (set.handle, size));
            self.files.change_content(inode, fd, kills, truncate)?;
            changed = true;
        }
        if set.atime.is_some() || set.mtime.is_some() {
            // A change of size sets these times itself.
            if set.size.is_none() && !self.are_times_of_kernel(inode, set) {
                let is_now = |time| matches!(time, None | Some(SetTime::Now));
                // Under writeback, a kernel that is asked for the current time sends it as a number.
                let by_mode = set.ctime.is_some() || is_now(set.atime) && is_now(set.mtime);
                let by = if by_mode {
                    Checked::Mode
                } else {
                    Checked::Owner
                };
                self.still_permitted(context, inode, fd, by)?;
            }
            self.files
                .change_attributes(inode, fd, || change_times(fd, set))?;
            changed = true;
        }
        Ok(changed)
    }

    /// Whether the kernel writes back times that it kept for a file open for writing. Times that a caller
    /// sets come without a handle.
    fn are_times_of_kernel(&self, inode: &Inode, set: &SetAttr) -> bool {
        set.ctime.is_some() && self.settled_at_open(inode.node(), set)
    }

    fn change_mode(
        &self,
        context: &Context<'_>,
        inode: &Arc<Inode>,
        fd: BorrowedFd<'_>,
        mode: u32,
    ) -> Result<()> {
        let mode = self.mode_beneath(inode, fd, mode)?;
        if !inode.is_directory() {
            self.check_mode(context, inode, fd, mode)?;
        }
        // The kernel has removed the bits that the caller may not set.
        self.tree.credentials.keep_set_ids(true)?;
        self.as_owner(context, inode, fd, OwnerChange::Permissions, || {
            Ok(attr::chmod(fd, mode & 0o7777)?)
        })
    }

    fn change_owner(
        &self,
        context: &Context<'_>,
        inode: &Inode,
        fd: BorrowedFd<'_>,
        set: &SetAttr,
    ) -> Result<()> {
        let uid = set.uid.map(|id| host_id(&self.config.uid_map, id));
        let gid = set.gid.map(|id| host_id(&self.config.gid_map, id));
        let (uid, gid) = (uid.transpose()?, gid.transpose()?);
        // On a change of owner, the lower file system drops set-id bits and capabilities as it must,
        // provided that this thread counts as privileged.
        self.tree.credentials.keep_set_ids(true)?;
        let change = || {
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            Ok(rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH)?)
        };
        let asked = OwnerChange::Owner {
            uid: set.uid,
            gid: set.gid,
        };
        self.as_owner(context, inode, fd, asked, change)
    }

    fn change_size(
        &self,
        context: &Context<'_>,
        inode: &Arc<Inode>,
        fd: BorrowedFd<'_>,
        (handle, size): (Option<FileHandle>, u64),
    ) -> Result<()> {
        if !inode.is_regular() {
            return Err(if inode.is_directory() {
                Errno::EISDIR
            } else {
                Errno::EINVAL
            });
        }
        let open = match handle {
            Some(handle) if self.files.is_opened_by_kernel(handle) => {
                Some(self.files.file_for(inode.node(), handle, libc::O_WRONLY)?)
            }
            handle => handle.and_then(|handle| self.files.files.get(handle.0)),
        };
        let is_its = |file: &Arc<OpenFile>| file.writable && file.node() == inode.node();
        match open.filter(is_its) {
            // Not by path: some file systems then leave the times alone if the size stays.
            Some(file) => {
                if !file.is_passthrough() {
                    file.mark_written();
                }
                self.files.may_write(&file)?;
                let lower = self.files.lower(&file, true)?;
                let truncate = || Ok(rustix::fs::ftruncate(&*lower, size)?);
                let handle = handle.unwrap_or(FileHandle(0));
                self.files
                    .change_file(context, (handle, &file), &lower, truncate)
            }
            None => Ok(attr::truncate(fd, size)?),
        }
    }

    pub(crate) fn readlink(
        &self,
        _: &Context<'_>,
        node: NodeId,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let inode = self.tree.nodes.get(node)?;
        self.judge.may_reveal(&inode)?;
        if !inode.is_symbolic_link() {
            return Err(Errno::EINVAL);
        }
        let descriptor = self.tree.descriptor(&inode)?;
        let length = rustix::fs::readlinkat_raw(descriptor.as_fd(), c"", &mut *buffer)?;
        Ok(length)
    }

    pub(crate) fn statfs(
        &self,
        context: &Context<'_>,
        node: NodeId,
    ) -> Result<FileSystemStatistics> {
        let inode = self.tree.nodes.get(node)?;
        if inode.mount().is_remote {
            context.require_blocking()?;
        }
        self.tree.freeing.settle();
        let descriptor = self.tree.descriptor(&inode)?;
        let stat = rustix::fs::fstatfs(descriptor.as_fd())?;
        Ok(file_system_statistics(&stat))
    }

    /// Refuses set-id bits that are new, or stay while others gain write permission, where
    /// [`may_set_ids`](Self::may_set_ids) does.
    fn check_mode(
        &self,
        context: &Context<'_>,
        inode: &Arc<Inode>,
        fd: BorrowedFd<'_>,
        mode: u32,
    ) -> Result<()> {
        if !self.config.maps_ids() {
            return Ok(());
        }
        let stat = rustix::fs::fstat(fd)?;
        let lets_others_write = mode & !stat.st_mode & 0o022 != 0;
        let kept = if lets_others_write { 0 } else { stat.st_mode };
        self.may_set_ids(mode & !kept, stat.st_uid, stat.st_gid)?;
        if stat.st_mode & libc::S_IFMT != libc::S_IFDIR {
            let bits = mode & !kept;
            self.may_make_program_of_another(context, bits, stat.st_uid, stat.st_gid)?;
        }
        if lets_others_write {
            self.files.drop_privileges_of_others(context.uid(), inode)?;
        }
        Ok(())
    }

    /// Refuses set-id bits of a user or group that the client sees as another one: its kernel checked the
    /// wrong owner.
    pub(crate) fn may_set_ids(&self, bits: u32, uid: u32, gid: u32) -> Result<()> {
        let user = bits & libc::S_ISUID != 0 && self.config.uid_map.hides(uid);
        let group = bits & libc::S_ISGID != 0 && self.config.gid_map.hides(gid);
        if user || group {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    /// Refuses a program that runs on the host as another user than the one who makes it, to whom the map lends
    /// that user's files. The host's root could make it there.
    pub(crate) fn may_make_program_of_another(
        &self,
        context: &Context<'_>,
        bits: u32,
        uid: u32,
        gid: u32,
    ) -> Result<()> {
        if self.config.callers_are_local && context.uid() == Some(0) {
            return Ok(());
        }
        let user = bits & libc::S_ISUID != 0 && self.config.lends(&self.config.uid_map, uid);
        let group = bits & libc::S_ISGID != 0 && self.config.lends(&self.config.gid_map, gid);
        if user || group {
            return Err(Errno::EPERM);
        }
        Ok(())
    }
}

/// The host id of a new owner. −1 is no id: calls use it for "unchanged", and no kernel sends it.
fn host_id(map: &IdMap, id: u32) -> Result<u32> {
    match map.to_host(id) {
        Some(u32::MAX) => Err(Errno::EINVAL),
        Some(id) => Ok(id),
        None => Err(Errno::EPERM),
    }
}

fn change_times(fd: BorrowedFd<'_>, set: &SetAttr) -> Result<()> {
    let times = Timestamps {
        last_access: timespec(set.atime),
        last_modification: timespec(set.mtime),
    };
    Ok(rustix::fs::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH)?)
}

fn timespec(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_OMIT,
        },
        Some(SetTime::Now) => Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_NOW,
        },
        Some(SetTime::At(Timestamp {
            seconds,
            nanoseconds,
        })) => Timespec {
            tv_sec: seconds,
            tv_nsec: i64::from(nanoseconds),
        },
    }
}

fn file_system_statistics(stat: &StatFs) -> FileSystemStatistics {
    FileSystemStatistics {
        blocks: stat.f_blocks,
        bfree: stat.f_bfree,
        bavail: stat.f_bavail,
        files: stat.f_files,
        ffree: stat.f_ffree,
        bsize: stat.f_bsize as u32,
        namelen: stat.f_namelen as u32,
        frsize: stat.f_frsize as u32,
        ..FileSystemStatistics::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_of_statfs_is_passed_on() {
        let mut stat = rustix::fs::statfs("/").unwrap();
        (stat.f_blocks, stat.f_bfree, stat.f_bavail) = (1, 2, 3);
        (stat.f_files, stat.f_ffree) = (4, 5);
        (stat.f_bsize, stat.f_namelen, stat.f_frsize) = (6, 7, 8);
        let expected = FileSystemStatistics {
            blocks: 1,
            bfree: 2,
            bavail: 3,
            files: 4,
            ffree: 5,
            bsize: 6,
            namelen: 7,
            frsize: 8,
            ..FileSystemStatistics::default()
        };
        assert_eq!(file_system_statistics(&stat), expected);
    }

    #[test]
    fn device_numbers_round_trip() {
        for (major, minor) in [(0, 0), (8, 1), (4095, 1_048_575), (1, 256), (259, 70_000)] {
            assert_eq!(decode_device(encode_device(major, minor)), (major, minor));
        }
        assert_eq!(encode_device(8, 1), 0x801, "as old device numbers");
    }
}
