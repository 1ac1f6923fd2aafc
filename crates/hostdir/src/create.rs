//! Making, naming and removing.

use crate::attributes::decode_device;
use crate::datapath::DataPath;
use crate::host::{Host, opened_identity};
use crate::identity::Identity;
use crate::inode::{Inode, Place};
use crate::open::lower_flags;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Statx};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use thrufs::{Context, Entry, Errno, NewNode, OpenArgs, Opened, Result};
use thrufs_abi::{Name, NodeId};
use thrufs_sys::handle::{self, FileHandleBuf};

/// `.` and `..` are no names to make or remove; the kernel never sends them here.
fn component<'a>(name: Name<'a>) -> Result<&'a CStr> {
    if name.is_dot() || name.is_dot_dot() {
        Err(Errno::EINVAL)
    } else {
        Ok(name.as_cstr())
    }
}

impl Host {
    fn creation_parent(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        umask: u32,
    ) -> Result<Arc<Inode>> {
        self.writable()?;
        let parent = self.nodes.get(parent)?;
        let config = &self.config;
        self.credentials
            .create_as(context, umask, &config.uid_map, &config.gid_map)?;
        // The kernel took out the bits that the caller may not give; without the capability the
        // lower file system would take out more, since it sees one of the caller's groups.
        self.credentials.keep_set_ids(true)?;
        Ok(parent)
    }

    fn created(&self, parent: &Arc<Inode>, fd: BorrowedFd<'_>, name: &CStr) -> Result<Entry> {
        let (inode, stat) = self.look_up_at(parent, fd, name)?;
        Ok(self.entry(&inode, &stat))
    }

    pub(crate) fn mkdir(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: &NewNode,
    ) -> Result<Entry> {
        let name = component(name)?;
        let parent = self.creation_parent(context, parent, new.umask)?;
        let descriptor = self.descriptor(&parent)?;
        let fd = descriptor.as_fd();
        rustix::fs::mkdirat(fd, name, Mode::from_raw_mode(new.mode & 0o7777))?;
        self.created(&parent, fd, name)
    }

    pub(crate) fn mknod(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: &NewNode,
    ) -> Result<Entry> {
        let name = component(name)?;
        let parent = self.creation_parent(context, parent, new.umask)?;
        let descriptor = self.descriptor(&parent)?;
        let fd = descriptor.as_fd();
        let (major, minor) = decode_device(new.rdev);
        let file_type = match FileType::from_raw_mode(new.mode) {
            FileType::Unknown if new.mode & libc::S_IFMT == 0 => FileType::RegularFile,
            FileType::Unknown | FileType::Directory | FileType::Symlink => {
                return Err(Errno::EINVAL);
            }
            other => other,
        };
        let mode = Mode::from_raw_mode(new.mode & 0o7777);
        rustix::fs::mknodat(fd, name, file_type, mode, rustix::fs::makedev(major, minor))?;
        self.created(&parent, fd, name)
    }

    pub(crate) fn symlink(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        target: &CStr,
    ) -> Result<Entry> {
        let name = component(name)?;
        let parent = self.creation_parent(context, parent, 0)?;
        let descriptor = self.descriptor(&parent)?;
        let fd = descriptor.as_fd();
        rustix::fs::symlinkat(target, fd, name)?;
        self.created(&parent, fd, name)
    }

    pub(crate) fn create(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: &NewNode,
        args: &OpenArgs,
    ) -> Result<(Entry, Opened)> {
        let name = component(name)?;
        let parent = self.creation_parent(context, parent, new.umask)?;
        let descriptor = self.descriptor(&parent)?;
        // Always exclusive: the kernel has checked that the caller may create here, not that it
        // may open what somebody else has made under this name in the meantime.
        let through = self.passthrough.permits(parent.mount()).is_ok();
        let access = if through {
            // The kernel will open it for itself.
            OFlags::RDONLY
        } else {
            OFlags::from_bits_retain(lower_flags(args.flags, self.config.writeback))
        };
        let flags = access | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let flags = flags - OFlags::TRUNC;
        let mode = Mode::from_raw_mode(new.mode & 0o7777);
        let opened =
            self.with_room(|| Ok(rustix::fs::openat(descriptor.as_fd(), name, flags, mode)?));
        let fd = match opened {
            Ok(fd) => fd,
            // ESTALE makes the kernel look the name up anew and open what it finds, with checks.
            Err(Errno::EEXIST) if args.flags & libc::O_EXCL as u32 == 0 => {
                return Err(Errno::ESTALE);
            }
            Err(error) => return Err(error),
        };
        self.enter_created(&parent, Some(name), fd, args)
    }

    /// The entry of a file just made, and a handle for it.
    fn enter_created(
        &self,
        parent: &Arc<Inode>,
        name: Option<&CStr>,
        fd: OwnedFd,
        args: &OpenArgs,
    ) -> Result<(Entry, Opened)> {
        let (inode, stat) = self.look_up_opened(parent, name, fd.as_fd())?;
        let entry = self.entry(&inode, &stat);
        match self.open_created(&inode, fd, &stat, args) {
            Ok(opened) => Ok((entry, opened)),
            Err(error) => {
                self.nodes.forget(inode.node(), 1);
                Err(error)
            }
        }
    }

    fn open_created(
        &self,
        inode: &Arc<Inode>,
        fd: OwnedFd,
        stat: &Statx,
        args: &OpenArgs,
    ) -> Result<Opened> {
        let flags = lower_flags(args.flags, self.config.writeback) as i32 & !libc::O_TRUNC;
        let through = self.passthrough.permits(inode.mount()).is_ok();
        if through && inode.cached_descriptor().is_none() {
            // To be registered by a descriptor that does not count as an open file.
            let path_fd = self.reopen(fd.as_fd(), libc::O_PATH)?;
            self.descriptors.keep(inode, path_fd);
        }
        let guard = self.use_file(inode, args.flags as i32, Some(stat))?;
        if guard.path() == DataPath::Passthrough {
            drop(fd);
            return self.enter_through(guard, flags);
        }
        // It was opened for the kernel to open it again, which did not come about.
        let fd = if through {
            self.reopen(fd.as_fd(), flags)?
        } else {
            fd
        };
        self.enter_lower(guard, fd, flags, Some(stat), false)
    }

    pub(crate) fn tmpfile(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        new: &NewNode,
        args: &OpenArgs,
    ) -> Result<(Entry, Opened)> {
        let parent = self.creation_parent(context, parent, new.umask)?;
        let descriptor = self.descriptor(&parent)?;
        // O_EXCL has a meaning here: the file can never be given a name.
        let flags = OFlags::from_bits_retain(
            lower_flags(args.flags, self.config.writeback) | (args.flags & libc::O_EXCL as u32),
        );
        let flags = flags | OFlags::TMPFILE | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(new.mode & 0o7777);
        let fd =
            self.with_room(|| Ok(rustix::fs::openat(descriptor.as_fd(), c".", flags, mode)?))?;
        self.enter_created(&parent, None, fd, args)
    }

    pub(crate) fn link(&self, node: NodeId, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        self.writable()?;
        let name = component(name)?;
        let inode = self.nodes.get(node)?;
        let parent = self.nodes.get(parent)?;
        let descriptor = self.descriptor(&inode)?;
        let parent_fd = self.descriptor(&parent)?;
        let parent_fd = parent_fd.as_fd();
        let linked = rustix::fs::linkat(
            descriptor.as_fd(),
            c"",
            parent_fd,
            name,
            AtFlags::EMPTY_PATH,
        );
        match linked {
            Ok(()) => {}
            // Without CAP_DAC_READ_SEARCH a descriptor can only be named by way of /proc.
            Err(rustix::io::Errno::NOENT) if !self.credentials.switches() => {
                link_by_proc(descriptor.as_fd(), parent_fd, name)?;
            }
            Err(error) => return Err(error.into()),
        }
        let (linked, stat) = self.look_up_at(&parent, parent_fd, name)?;
        Ok(self.entry(&linked, &stat))
    }

    pub(crate) fn unlink(&self, parent: NodeId, name: Name<'_>, directory: bool) -> Result<()> {
        self.writable()?;
        let name = component(name)?;
        let parent = self.nodes.get(parent)?;
        let descriptor = self.descriptor(&parent)?;
        let victim = self.hold_without_handles(&parent, descriptor.as_fd(), name);
        let known = self.known(&parent, descriptor.as_fd(), name);
        let flags = if directory {
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        rustix::fs::unlinkat(descriptor.as_fd(), name, flags)?;
        if let Some(victim) = victim {
            victim.set_place(None);
        }
        if let Some(known) = known {
            known.name_removed();
        }
        Ok(())
    }

    /// The inode behind a name, where it has a handle and the kernel knows it.
    fn known(
        &self,
        parent: &Arc<Inode>,
        parent_fd: BorrowedFd<'_>,
        name: &CStr,
    ) -> Option<Arc<Inode>> {
        if !parent.mount().has_handles() {
            return None;
        }
        let mut buffer = FileHandleBuf::default();
        let mount_id = handle::name_to_handle(parent_fd, name, 0, &mut buffer).ok()?;
        if mount_id != parent.mount().id() {
            return None;
        }
        self.nodes
            .find(&Identity::by_handle(parent.mount().index(), &buffer))
    }

    /// For mounts without file handles: the inode behind a name that is about to go, made to hold
    /// its descriptor, since nothing else will lead to it. `None` where that is not needed.
    fn hold_without_handles(
        &self,
        parent: &Arc<Inode>,
        parent_fd: BorrowedFd<'_>,
        name: &CStr,
    ) -> Option<Arc<Inode>> {
        if parent.mount().has_handles() {
            return None;
        }
        self.hold(parent, parent_fd, name)
    }

    /// The inode behind a name, made to hold its descriptor; `None` when the kernel does not know
    /// it.
    fn hold(
        &self,
        parent: &Arc<Inode>,
        parent_fd: BorrowedFd<'_>,
        name: &CStr,
    ) -> Option<Arc<Inode>> {
        let (fd, stat) = self.open_component(parent_fd, name).ok()?;
        let identity = opened_identity(parent.mount(), &fd, &stat).ok()?;
        let inode = self.nodes.find(&identity)?;
        self.descriptors.keep(&inode, fd);
        Some(inode)
    }

    pub(crate) fn rename(
        &self,
        parent: NodeId,
        name: Name<'_>,
        new_parent: NodeId,
        new_name: Name<'_>,
        flags: u32,
    ) -> Result<()> {
        self.writable()?;
        let (name, new_name) = (component(name)?, component(new_name)?);
        let from = self.nodes.get(parent)?;
        let to = self.nodes.get(new_parent)?;
        let from_descriptor = self.descriptor(&from)?;
        let to_descriptor = self.descriptor(&to)?;
        let (from_fd, to_fd) = (from_descriptor.as_fd(), to_descriptor.as_fd());
        let flags = RenameFlags::from_bits_retain(flags);
        if to.mount().has_handles() && flags.is_empty() {
            // Who replaces a file again and again has clients that know the one before, and are
            // about to open it. The kernel looks up the name once more when that fails, but no
            // third time. So it must not fail: what is replaced stays within reach.
            match rustix::fs::renameat_with(from_fd, name, to_fd, new_name, RenameFlags::NOREPLACE)
            {
                // Something is there, or the lower file system does not know the flag.
                Err(rustix::io::Errno::EXIST | rustix::io::Errno::INVAL) => {
                    self.hold(&to, to_fd, new_name);
                }
                renamed => return Ok(renamed?),
            }
        }
        let moved = self.hold_without_handles(&from, from_fd, name);
        let replaced = self.hold_without_handles(&to, to_fd, new_name);
        rustix::fs::renameat_with(from_fd, name, to_fd, new_name, flags)?;
        let place = |parent: &Arc<Inode>, name: &CStr| {
            Some(Box::new(Place {
                parent: Arc::clone(parent),
                name: name.to_owned(),
            }))
        };
        if let Some(replaced) = replaced {
            let exchanged = flags.contains(RenameFlags::EXCHANGE);
            replaced.set_place(if exchanged { place(&from, name) } else { None });
        }
        if let Some(moved) = moved {
            moved.set_place(place(&to, new_name));
        }
        Ok(())
    }
}

fn link_by_proc(fd: BorrowedFd<'_>, parent_fd: BorrowedFd<'_>, name: &CStr) -> Result<()> {
    let from = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(rustix::fs::linkat(
        CWD,
        from,
        parent_fd,
        name,
        AtFlags::SYMLINK_FOLLOW,
    )?)
}
