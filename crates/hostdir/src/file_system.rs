//! The trait `FileSystem`: which module answers which request.

use crate::config::{CacheMode, Locks};
use crate::files::{Files, sync};
use crate::host::Host;
use crate::host::HostDir;
use crate::tree::start_housekeeping;
use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use thrufs::{
    Attributes, Context, CopyArgs, DirectorySink, Entry, ExtendedAttributes, Features, FileSystem,
    FileSystemStatistics, LockArgs, MountOptions, Negotiation, NewNode, OpenArgs, Opened,
    ReadAnswer, ReadArgs, ReadReply, ReleaseArgs, Result, Services, SetAttr, WriteArgs,
    WriteSource,
};
use thrufs_abi::{FileHandle, InitFlags, LockOwner, Name, NodeId};

/// Methods that forward to the method of this name, of the host or of a part of it.
macro_rules! answered_by {
    ($part:ident: $(fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $name(&self, context: &Context<'_>, $($argument: $type),*) -> $answer {
            self.$part().$name(context, $($argument),*)
        }
    )*};
}

impl HostDir {
    fn host(&self) -> &Host {
        &self.host
    }

    fn files(&self) -> &Files {
        &self.host.files
    }
}

impl FileSystem for HostDir {
    answered_by! { host:
        fn lookup(parent: NodeId, name: Name<'_>) -> Result<Entry>;
        fn rename(
            parent: NodeId, name: Name<'_>, new_parent: NodeId, new_name: Name<'_>, flags: u32
        ) -> Result<()>;
        fn readdir(
            node: NodeId, handle: FileHandle, offset: u64, sink: &mut DirectorySink<'_>
        ) -> Result<()>;
        fn statfs(node: NodeId) -> Result<FileSystemStatistics>;
    }

    answered_by! { files:
        fn read(node: NodeId, args: &ReadArgs, reply: ReadReply<'_>) -> Result<ReadAnswer>;
        fn write(node: NodeId, args: &WriteArgs, data: WriteSource<'_>) -> Result<usize>;
        fn flush(node: NodeId, handle: FileHandle, owner: LockOwner) -> Result<()>;
        fn fsync(node: NodeId, handle: FileHandle, data_only: bool) -> Result<()>;
        fn fsyncdir(node: NodeId, handle: FileHandle, data_only: bool) -> Result<()>;
        fn setlk(node: NodeId, lock: &LockArgs, wait: bool) -> Result<()>;
        fn fallocate(
            node: NodeId, handle: FileHandle, offset: u64, length: u64, mode: u32
        ) -> Result<()>;
        fn copy_file_range(node: NodeId, copy: &CopyArgs) -> Result<u64>;
    }

    fn may_be_mounted(&self, options: &MountOptions) -> std::result::Result<(), &'static str> {
        if options.allow_other && !options.default_permissions {
            return Err(
                "a directory is served with the server's own privilege, and relies on the kernel to check \
                 permissions: allow_other needs default_permissions",
            );
        }
        Ok(())
    }

    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        let config = &self.host.config;
        negotiation
            .want(InitFlags::ATOMIC_O_TRUNC | InitFlags::SETXATTR_EXT | InitFlags::HAS_EXPIRE_ONLY);
        if config.readdirplus {
            negotiation.want(InitFlags::DO_READDIRPLUS | InitFlags::READDIRPLUS_AUTO);
        }
        // Guests offer it; a kernel that mounts by itself does not.
        if config.announce_submounts && negotiation.offers(InitFlags::SUBMOUNTS) {
            negotiation.want(InitFlags::SUBMOUNTS);
        }
        negotiation.want(if config.export {
            InitFlags::EXPORT_SUPPORT
        } else {
            InitFlags::NO_EXPORT_SUPPORT
        });
        // The lower file system drops the attribute of this name. Where clients' attribute has another name
        // on the host, their kernel drops it.
        let map = config.xattr_map.as_ref();
        let is_another = map.is_some_and(|map| map.alters(c"security.capability"));
        if config.killpriv && !is_another {
            negotiation.want(InitFlags::HANDLE_KILLPRIV_V2);
        }
        if config.acl {
            negotiation.want(InitFlags::POSIX_ACL | InitFlags::DONT_MASK);
        }
        if config.security_label && negotiation.offers(InitFlags::SECURITY_CTX) {
            negotiation.want(InitFlags::SECURITY_CTX);
        }
        if config.locks == Locks::Shared {
            negotiation.want(InitFlags::POSIX_LOCKS | InitFlags::FLOCK_LOCKS);
        }
        if config.writeback {
            negotiation.want(InitFlags::WRITEBACK_CACHE);
        }
        match config.cache {
            // Writes to redacted files bypass the cache, so they must not be mapped.
            CacheMode::Never | CacheMode::Metadata
                if self.host.judge.has_policy() || !config.allow_mmap => {}
            CacheMode::Never | CacheMode::Metadata => {
                negotiation.want(InitFlags::DIRECT_IO_ALLOW_MMAP);
            }
            // The target of a symbolic link never changes: another target is another inode.
            CacheMode::Auto => {
                negotiation.want(InitFlags::AUTO_INVAL_DATA | InitFlags::CACHE_SYMLINKS);
            }
            CacheMode::Always => {
                negotiation.want(InitFlags::EXPLICIT_INVAL_DATA | InitFlags::CACHE_SYMLINKS);
            }
        }
        if config.passthrough && self.host.tree.credentials.may_register() {
            negotiation.want(InitFlags::PASSTHROUGH);
            negotiation.set_stack_depth_max(self.host.tree.root.mount().stack_depth());
        }
        // Submounts may be on other file systems. Few are.
        negotiation.set_prompt(self.host.tree.root.mount().is_memory());
        if let Some(bytes) = config.max_write {
            negotiation.set_write_bytes_max(bytes);
        }
        if let Some(bytes) = config.max_readahead {
            negotiation.set_readahead_bytes_max(bytes);
        }
        if let Some(requests) = config.max_background {
            negotiation.set_background_requests_max(requests);
        }
        Ok(())
    }

    fn started(&self, features: &Features, services: Services) {
        let wanted = self.host.config.passthrough;
        let privileged = self.host.tree.credentials.may_register();
        let _ = self.host.tree.notifier.set(services.notifier);
        self.host
            .files
            .passthrough
            .settle(wanted, privileged, features, services.backings);
        // If the kernel keeps no locks and no written data, close(2) needs no FLUSH.
        let flags = features.flags;
        let nothing_to_settle =
            !flags.intersects(InitFlags::POSIX_LOCKS | InitFlags::WRITEBACK_CACHE);
        self.host
            .files
            .may_skip_flush
            .store(nothing_to_settle, Ordering::Relaxed);
        let kernel_ignores_acls =
            self.host.config.default_permissions && !flags.contains(InitFlags::POSIX_ACL);
        self.host
            .kernel_ignores_acls
            .store(kernel_ignores_acls, Ordering::Relaxed);
        let announces = flags.contains(InitFlags::SUBMOUNTS);
        self.host
            .announces_submounts
            .store(announces, Ordering::Relaxed);
        start_housekeeping(&self.host.tree);
    }

    fn destroy(&self) {
        self.host.files.passthrough.end();
        self.host.files.end_notes();
    }

    fn save(&self, sink: &mut dyn io::Write) -> io::Result<()> {
        self.host.save(sink)
    }

    fn restore(&self, source: &mut dyn io::Read) -> io::Result<()> {
        self.host.restore(source)
    }

    fn recover(&self) -> io::Result<()> {
        self.host.recover()
    }

    fn forget(&self, node: NodeId, count: u64) {
        self.host.tree.forget(node, count);
    }

    fn getattr(
        &self,
        context: &Context<'_>,
        node: NodeId,
        handle: Option<FileHandle>,
    ) -> Result<Attributes> {
        let attributes = self.host.getattr(node, handle);
        attributes.inspect_err(|error| self.host.tree.retries.failed(context, *error))
    }

    fn statx(
        &self,
        context: &Context<'_>,
        node: NodeId,
        _: Option<FileHandle>,
        flags: u32,
        mask: u32,
    ) -> Result<ExtendedAttributes> {
        let attributes = self.host.statx(node, flags, mask);
        attributes.inspect_err(|error| self.host.tree.retries.failed(context, *error))
    }

    fn setattr(&self, context: &Context<'_>, node: NodeId, set: &SetAttr) -> Result<Attributes> {
        let attributes = self.host.setattr(context, node, set);
        self.host.tree.retries.note(context, attributes)
    }

    fn readlink(&self, context: &Context<'_>, node: NodeId, buffer: &mut [u8]) -> Result<usize> {
        let target = self.host.readlink(node, buffer);
        target.inspect_err(|error| self.host.tree.retries.failed(context, *error))
    }

    fn symlink(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        target: &CStr,
    ) -> Result<Entry> {
        let made = self.host.symlink(context, parent, name, target)?;
        self.host.labelled(context, (parent, name), made, false)
    }

    fn mknod(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: &NewNode,
    ) -> Result<Entry> {
        let made = self.host.mknod(context, parent, name, new)?;
        self.host.labelled(context, (parent, name), made, false)
    }

    fn mkdir(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: &NewNode,
    ) -> Result<Entry> {
        let made = self.host.mkdir(context, parent, name, new)?;
        self.host.labelled(context, (parent, name), made, true)
    }

    fn unlink(&self, context: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        self.host.unlink(context, parent, name, false)
    }

    fn rmdir(&self, context: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        self.host.unlink(context, parent, name, true)
    }

    fn link(
        &self,
        context: &Context<'_>,
        node: NodeId,
        new_parent: NodeId,
        new_name: Name<'_>,
    ) -> Result<Entry> {
        let linked = self.host.link(context, node, new_parent, new_name);
        self.host.tree.retries.note(context, linked)
    }

    fn open(&self, context: &Context<'_>, node: NodeId, args: &OpenArgs) -> Result<Opened> {
        let opened = self.host.files.open_file(context, node, args);
        self.host.tree.retries.note(context, opened)
    }

    fn create(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: &NewNode,
        args: &OpenArgs,
    ) -> Result<(Entry, Opened)> {
        let made = self.host.create(context, parent, name, new, args);
        let made = self.host.tree.retries.note(context, made)?;
        self.host
            .opened_labelled(context, Some((parent, name)), made)
    }

    fn tmpfile(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        new: &NewNode,
        args: &OpenArgs,
    ) -> Result<(Entry, Opened)> {
        let made = self.host.tmpfile(context, parent, new, args)?;
        self.host.opened_labelled(context, None, made)
    }

    fn release(&self, _: &Context<'_>, node: NodeId, args: &ReleaseArgs) {
        self.host.files.release_file(node, args);
    }

    fn opendir(&self, context: &Context<'_>, node: NodeId, _: &OpenArgs) -> Result<Opened> {
        self.host.files.open_directory(context, node)
    }

    fn releasedir(&self, _: &Context<'_>, node: NodeId, args: &ReleaseArgs) {
        self.host.files.release_directory(node, args);
    }

    fn syncfs(&self, context: &Context<'_>, node: NodeId) -> Result<()> {
        context.require_blocking()?;
        let inode = self.host.tree.nodes.get(node)?;
        let flags = libc::O_RDONLY | libc::O_NONBLOCK;
        let fd = if inode.is_directory() || inode.is_regular() {
            self.host.tree.open_inode(&inode, flags)?
        } else {
            self.host.tree.open_inode(&self.host.tree.root, flags)?
        };
        rustix::fs::syncfs(&fd)?;
        sync(fd.as_fd(), false)
    }

    fn setxattr(
        &self,
        context: &Context<'_>,
        node: NodeId,
        name: &CStr,
        value: &[u8],
        flags: u32,
        clear_set_group_id: bool,
    ) -> Result<()> {
        let set = self.host.tree.nodes.get(node).and_then(|inode| {
            self.host.judge.may_change(&inode, context)?;
            self.host
                .setxattr(context, &inode, name, value, flags, clear_set_group_id)
        });
        self.host.tree.retries.note(context, set)
    }

    fn getxattr(
        &self,
        context: &Context<'_>,
        node: NodeId,
        name: &CStr,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let length = self.host.getxattr(node, name, buffer);
        length.inspect_err(|error| self.host.tree.retries.failed(context, *error))
    }

    fn listxattr(&self, context: &Context<'_>, node: NodeId, buffer: &mut [u8]) -> Result<usize> {
        let length = self.host.listxattr(context, node, buffer);
        length.inspect_err(|error| self.host.tree.retries.failed(context, *error))
    }

    fn removexattr(&self, context: &Context<'_>, node: NodeId, name: &CStr) -> Result<()> {
        let removed = self.host.tree.nodes.get(node).and_then(|inode| {
            self.host.judge.may_change(&inode, context)?;
            self.host.removexattr(context, &inode, name)
        });
        self.host.tree.retries.note(context, removed)
    }

    fn getlk(&self, _: &Context<'_>, node: NodeId, lock: &LockArgs) -> Result<Option<LockArgs>> {
        self.host.files.getlk(node, lock)
    }

    fn lseek(
        &self,
        _: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        whence: u32,
    ) -> Result<u64> {
        self.host.files.lseek(node, handle, offset, whence)
    }

    fn ioctl(
        &self,
        context: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        command: u32,
        data: &mut [u8],
        _: usize,
    ) -> Result<(i32, usize)> {
        self.host.ioctl(context, node, handle, command, data)
    }
}
