//! CREATE, TMPFILE, MKDIR, MKNOD and SYMLINK: everything that makes an inode. The thread takes on the
//! caller's ids for it; CREATE never opens a file that exists (`docs/adr/0006-create-is-exclusive.md`).

use super::attributes::decode_device;
use crate::files::{Opening, SET_IDS, lower_flags};
use crate::host::Host;
use crate::judge::{NewFile, PASSTHROUGH, UNNAMED};
use crate::quota::QuotaCharge;
use crate::tree::{ATTEMPTS_MAX, End, Inode, component};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use thrufs::{Context, Entry, Errno, NewNode, OpenArgs, Opened, Result};
use thrufs_abi::{Name, NodeId};
use thrufs_policy::{Attributes, DataPath, FilePath};

/// Whether a program with this mode runs in its own group, whatever process executes it.
fn runs_in_its_group(mode: u32) -> bool {
    const BITS: u32 = libc::S_ISGID | libc::S_IXGRP;
    mode & BITS == BITS && mode & libc::S_IFMT != libc::S_IFDIR
}

impl Host {
    fn creation_parent(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        mode: u32,
        umask: u32,
    ) -> Result<Arc<Inode>> {
        self.config.writable()?;
        self.tree.freeing.settle();
        let parent = self.tree.nodes.get(parent)?;
        self.files.require_mapped(&parent)?;
        // Marking takes on the credentials of the server.
        let _ = self.follow.mark(context.uid(), &parent);
        self.create_as_caller(context, umask)?;
        if runs_in_its_group(mode) && !self.gives_group_as_reported(context, &parent)? {
            // The lower file system decides, by the one group of the caller that is known.
            self.tree.credentials.keep_set_ids(false)?;
        }
        Ok(parent)
    }

    fn make(
        &self,
        context: &Context<'_>,
        place: (NodeId, Name<'_>),
        (file_type, mode, umask): (FileType, u32, u32),
        make: impl FnOnce(BorrowedFd<'_>, &CStr) -> rustix::io::Result<()>,
    ) -> Result<Entry> {
        let name = component(place.1)?;
        let parent = self.creation_parent(context, place.0, mode, umask)?;
        let descriptor = self.tree.descriptor(&parent)?;
        let end = End::new(&parent, descriptor.as_fd(), name);
        let new = || self.new_file(context, end, file_type, mode & !umask);
        self.may_begin_set_id(context, mode, file_type, new)?;
        if self.judge.has_policy() {
            self.judge.may_make(context, end, &new())?;
        }
        let pending = self.follow.begin_lookup(context.uid(), &parent);
        make(end.fd, name).map_err(|error| self.judge.taken(Some(context), end, error.into()))?;
        let (inode, stat) = self.tree.lookup_at(&parent, end.fd, name)?;
        let made = self.entry(&pending, &inode, &stat);
        self.labelled(context, place, made, file_type == FileType::Directory)
    }

    /// Refuses to create a file with set-id bits that would belong to another user than the caller.
    fn may_begin_set_id(
        &self,
        context: &Context<'_>,
        mode: u32,
        file_type: FileType,
        new: impl FnOnce() -> NewFile,
    ) -> Result<()> {
        if mode & SET_IDS == 0 || file_type == FileType::Directory {
            return Ok(());
        }
        // A server that cannot act as its callers creates everything as its own user.
        let is_own = |uid| uid == 0 || uid == self.tree.credentials.server_uid;
        if !self.tree.credentials.switches && !context.uid().is_none_or(is_own) {
            return Err(Errno::EPERM);
        }
        let Attributes { uid, gid, .. } = new().attributes;
        self.may_set_ids(mode, uid, gid)?;
        self.may_make_program_of_another(context, mode, uid, gid)
    }

    /// The attributes that rules see of a file that is about to be created.
    fn new_file(
        &self,
        context: &Context<'_>,
        end: End<'_>,
        file_type: FileType,
        mode: u32,
    ) -> NewFile {
        let credentials = &self.tree.credentials;
        let uid = context.uid().and_then(|id| self.config.uid_map.to_host(id));
        let gid = context.gid().and_then(|id| self.config.gid_map.to_host(id));
        let gid = gid.unwrap_or(credentials.server_gid);
        // A set-group-ID directory passes its group on.
        let given_on = rustix::fs::fstat(end.fd)
            .ok()
            .filter(|parent| parent.st_mode & libc::S_ISGID != 0);
        let attributes = Attributes {
            uid: uid.unwrap_or(credentials.server_uid),
            gid: given_on.map_or(gid, |parent| parent.st_gid),
            mode: mode & 0o7777,
            size: 0,
        };
        NewFile {
            file_type,
            attributes,
        }
    }

    pub(crate) fn create_as_caller(&self, context: &Context<'_>, umask: u32) -> Result<()> {
        let config = &self.config;
        self.tree
            .credentials
            .create_as(context, umask, &config.uid_map, &config.gid_map)?;
        // The kernel has removed the bits that the caller may not give. Without the capability the lower
        // file system would remove more, since it sees one of the caller's groups.
        self.tree.credentials.keep_set_ids(true)
    }

    pub(crate) fn mkdir(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: &NewNode,
    ) -> Result<Entry> {
        let what = (FileType::Directory, new.mode, new.umask);
        let mode = Mode::from_raw_mode(new.mode & 0o7777);
        self.make(context, (parent, name), what, |fd, name| {
            rustix::fs::mkdirat(fd, name, mode)
        })
    }

    pub(crate) fn mknod(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: &NewNode,
    ) -> Result<Entry> {
        let (major, minor) = decode_device(new.rdev);
        let file_type = match FileType::from_raw_mode(new.mode) {
            FileType::Unknown if new.mode & libc::S_IFMT == 0 => FileType::RegularFile,
            FileType::Unknown | FileType::Directory | FileType::Symlink => {
                return Err(Errno::EINVAL);
            }
            other => other,
        };
        let what = (file_type, new.mode, new.umask);
        let mode = Mode::from_raw_mode(new.mode & 0o7777);
        let device = rustix::fs::makedev(major, minor);
        self.make(context, (parent, name), what, |fd, name| {
            rustix::fs::mknodat(fd, name, file_type, mode, device)
        })
    }

    pub(crate) fn symlink(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        target: &CStr,
    ) -> Result<Entry> {
        let what = (FileType::Symlink, 0o777, 0);
        self.make(context, (parent, name), what, |fd, name| {
            rustix::fs::symlinkat(target, fd, name)
        })
    }

    pub(crate) fn create(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: &NewNode,
        args: &OpenArgs,
    ) -> Result<(Entry, Opened)> {
        let name = Some(component(name)?);
        self.make_open(context, (parent, name), new, args)
    }

    pub(crate) fn tmpfile(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        new: &NewNode,
        args: &OpenArgs,
    ) -> Result<(Entry, Opened)> {
        self.make_open(context, (parent, None), new, args)
    }

    /// Makes a file, with or without a name, and opens it.
    fn make_open(
        &self,
        context: &Context<'_>,
        (parent, name): (NodeId, Option<&CStr>),
        new: &NewNode,
        args: &OpenArgs,
    ) -> Result<(Entry, Opened)> {
        let parent = self.creation_parent(context, parent, new.mode, new.umask)?;
        let descriptor = self.tree.descriptor(&parent)?;
        let end = End::new(&parent, descriptor.as_fd(), name.unwrap_or(UNNAMED));
        self.create_under_policy(context, end, new, args, |wanted, recording| {
            // Before anything is created.
            let charge = self.files.quotas.charge(context.uid())?;
            let fd = match name {
                Some(_) => self.open_named(recording, end, new, args, wanted)?,
                None => self.open_unnamed(end, new, args, wanted)?,
            };
            let (entry, opened) =
                self.enter_created(context, (&parent, name), fd, args, wanted, charge)?;
            if name.is_none() {
                let inode = self.tree.nodes.get(entry.node)?;
                if self.files.is_opened_by_kernel(opened.handle) {
                    inode.lower.set_only_held();
                }
                let charged = self.tree.charge_removed(context.uid(), &inode);
                charged.inspect_err(|_| {
                    self.files.undo_open(opened.handle);
                    self.tree.forget(entry.node, 1);
                })?;
            }
            Ok((entry, opened))
        })
    }

    fn create_under_policy(
        &self,
        context: &Context<'_>,
        end: End<'_>,
        new: &NewNode,
        args: &OpenArgs,
        create: impl FnOnce(&FilePath, Option<&Context<'_>>) -> Result<(Entry, Opened)>,
    ) -> Result<(Entry, Opened)> {
        let file_type = FileType::RegularFile;
        let file = |mode| self.new_file(context, end, file_type, mode);
        self.may_begin_set_id(context, new.mode, file_type, || file(new.mode))?;
        let Some(rules) = self.judge.active_policy() else {
            return create(&PASSTHROUGH, None);
        };
        if rules.policy.uses().audit {
            context.require_blocking()?;
        }
        let file = file(new.mode & !new.umask);
        let decided = self.judge.decide_new(&rules, context, end, &file)?;
        let recording = Some(context).filter(|_| decided.decision.audit.is_none());
        let permitted = self
            .judge
            .permit(context, &decided, decided.decision.check_new());
        let made = permitted.and_then(|()| create(&decided.decision.file, recording));
        // The kernel looks the name up again and opens what it finds: that open is audited.
        if matches!(made, Err(Errno::ESTALE)) {
            return made;
        }
        let (flags, opened) = (args.flags as i32, made.map(|(_, opened)| opened));
        // An open without its record is undone.
        let audited = self.files.audit(context, &decided, flags, true, opened);
        if let (Ok((entry, _)), Err(_)) = (made, &audited) {
            self.tree.forget(entry.node, 1);
        }
        audited.and_then(|opened| Ok((made?.0, opened)))
    }

    fn open_named(
        &self,
        recording: Option<&Context<'_>>,
        end: End<'_>,
        new: &NewNode,
        args: &OpenArgs,
        wanted: &FilePath,
    ) -> Result<OwnedFd> {
        let End { parent, fd, name } = end;
        // Always exclusive: the kernel has checked that the caller may create here, not that it may open a
        // file that was created under this name in the meantime.
        let passthrough = self.files.may_use_passthrough(parent.mount(), wanted);
        let access = if passthrough {
            // The kernel will open it itself. O_DIRECT is tried here, since it could fail there.
            OFlags::from_bits_retain(args.flags) & OFlags::DIRECT
        } else {
            OFlags::from_bits_retain(lower_flags(args.flags, &self.config))
        };
        let flags = access | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let flags = flags - OFlags::TRUNC;
        let mode = Mode::from_raw_mode(new.mode & 0o7777);
        let opened = self.open_new(fd, name, flags, mode);
        match opened.map_err(|error| self.judge.taken(recording, end, error)) {
            // ESTALE makes the kernel look the name up again and open what it finds, with checks.
            Err(Errno::EEXIST) if args.flags & libc::O_EXCL as u32 == 0 => Err(Errno::ESTALE),
            opened => opened,
        }
    }

    /// Creates a file exclusively. EEXIST counts only if something is there.
    fn open_new(
        &self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd> {
        for _ in 0..ATTEMPTS_MAX {
            let opened = self
                .tree
                .with_room(|| Ok(rustix::fs::openat(parent, name, flags, mode)?));
            let is_gone = || {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                let stat = rustix::fs::statat(parent, name, flags);
                matches!(stat, Err(rustix::io::Errno::NOENT))
            };
            match opened {
                Err(Errno::EEXIST) if is_gone() => {}
                opened => return opened,
            }
        }
        Err(Errno::EEXIST)
    }

    /// The entry and the handle of a new file.
    fn enter_created(
        &self,
        context: &Context<'_>,
        (parent, name): (&Arc<Inode>, Option<&CStr>),
        fd: OwnedFd,
        args: &OpenArgs,
        wanted: &FilePath,
        charge: Option<QuotaCharge>,
    ) -> Result<(Entry, Opened)> {
        let pending = match name {
            Some(_) => self.follow.begin_lookup(context.uid(), parent),
            None => self.follow.unfollowed_lookup(),
        };
        let (inode, stat) = self.tree.lookup_opened(parent, name, fd.as_fd())?;
        // No rename can come before the kernel has the entry.
        let known = name.unwrap_or(UNNAMED).to_bytes();
        self.tree.record_new_name(&inode, parent.node(), known);
        if name.is_none() {
            self.tree.keep_inode(&inode, fd.as_fd());
        }
        let entry = self.entry(&pending, &inode, &stat);
        match self.open_created(&inode, (fd, charge), &stat, args, wanted) {
            Ok(opened) => Ok((entry, opened)),
            Err(error) => {
                self.tree.forget(inode.node(), 1);
                Err(error)
            }
        }
    }

    fn open_created(
        &self,
        inode: &Arc<Inode>,
        (fd, charge): (OwnedFd, Option<QuotaCharge>),
        stat: &Statx,
        args: &OpenArgs,
        wanted: &FilePath,
    ) -> Result<Opened> {
        let flags = lower_flags(args.flags, &self.config) as i32 & !libc::O_TRUNC;
        let passthrough = self.files.may_use_passthrough(inode.mount(), wanted);
        if let Some(opened) = self.files.created_for_kernel() {
            // By which a file without a name is kept.
            self.tree.descriptor(inode)?;
            return Ok(opened);
        }
        let guard = self
            .files
            .use_file(inode, args.flags as i32, Some(stat), wanted)?;
        if guard.path() == DataPath::Passthrough {
            drop(fd);
            return self.files.enter_passthrough(guard, flags);
        }
        // A user without a quota is not counted among the waiting ones either.
        let uid = charge.as_ref().map(QuotaCharge::uid);
        guard.hold(charge);
        // It was opened O_PATH for passthrough, which was refused.
        let fd = if passthrough {
            self.tree.reopen(fd.as_fd(), flags)?
        } else {
            fd
        };
        let opening = Opening {
            fd,
            flags,
            appends: false,
            may_keep_cache: wanted.redaction.is_none(),
            uid,
        };
        self.files.enter_lower(guard, opening, Some(stat))
    }

    fn open_unnamed(
        &self,
        end: End<'_>,
        new: &NewNode,
        args: &OpenArgs,
        wanted: &FilePath,
    ) -> Result<OwnedFd> {
        // O_EXCL with O_TMPFILE: the file can never be given a name.
        let mut meant = libc::O_EXCL as u32;
        if self.files.may_use_passthrough(end.parent.mount(), wanted) {
            // As in `create`.
            meant |= libc::O_DIRECT as u32;
        }
        let flags =
            OFlags::from_bits_retain(lower_flags(args.flags, &self.config) | (args.flags & meant));
        let flags = flags | OFlags::TMPFILE | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(new.mode & 0o7777);
        self.tree
            .with_room(|| Ok(rustix::fs::openat(end.fd, c".", flags, mode)?))
    }
}
