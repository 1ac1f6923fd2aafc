//! The trait `FileSystem`: which module answers which request.

use crate::config::{CacheMode, Locks};
use crate::files::{Files, sync};
use crate::host::{Host, HostDir};
use crate::tree::{start_freeing, start_housekeeping};
use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use thrufs::{
    Attributes, Context, CopyArgs, DirectorySink, Entry, ExtendedAttributes, Features, FileSystem,
    FileSystemStatistics, LockArgs, MapArgs, MappedFile, MountOptions, Negotiation, NewNode,
    OpenArgs, Opened, ReadAnswer, ReadArgs, ReadReply, ReleaseArgs, Result, Services, SetAttr,
    WriteArgs, WriteSource,
};
use thrufs_abi::{FileHandle, InitFlags, LockOwner, Name, NodeId};

/// Methods that forward to the method of this name, of the host or of what is open. The second word says
/// what is noted of the answer, for a call by path that the kernel repeats.
macro_rules! answered_by {
    ($part:ident, $note:ident: $(fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $name(&self, context: &Context<'_>, $($argument: $type),*) -> $answer {
            let answer = self.$part().$name(context, $($argument),*);
            self.$note(context, answer)
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

    fn nothing_noted<T>(&self, _: &Context<'_>, answer: T) -> T {
        answer
    }

    fn failure_noted<T>(&self, context: &Context<'_>, answer: Result<T>) -> Result<T> {
        answer.inspect_err(|error| self.host.tree.retries.failed(context, *error))
    }

    fn outcome_noted<T>(&self, context: &Context<'_>, answer: Result<T>) -> Result<T> {
        self.host.tree.retries.note(context, answer)
    }
}

impl FileSystem for HostDir {
    answered_by! { host, nothing_noted:
        fn lookup(parent: NodeId, name: Name<'_>) -> Result<Entry>;
        fn rename(
            parent: NodeId, name: Name<'_>, new_parent: NodeId, new_name: Name<'_>, flags: u32
        ) -> Result<()>;
        fn symlink(parent: NodeId, name: Name<'_>, target: &CStr) -> Result<Entry>;
        fn mknod(parent: NodeId, name: Name<'_>, new: &NewNode) -> Result<Entry>;
        fn mkdir(parent: NodeId, name: Name<'_>, new: &NewNode) -> Result<Entry>;
        fn readdir(
            node: NodeId, handle: FileHandle, offset: u64, sink: &mut DirectorySink<'_>
        ) -> Result<()>;
        fn map(node: NodeId, args: &MapArgs) -> Result<MappedFile>;
        fn statfs(node: NodeId) -> Result<FileSystemStatistics>;
        fn ioctl(
            node: NodeId, handle: FileHandle, command: u32, data: &mut [u8], room: usize
        ) -> Result<(i32, usize)>;
    }

    answered_by! { host, failure_noted:
        fn getattr(node: NodeId, handle: Option<FileHandle>) -> Result<Attributes>;
        fn statx(
            node: NodeId, handle: Option<FileHandle>, flags: u32, mask: u32
        ) -> Result<ExtendedAttributes>;
        fn readlink(node: NodeId, buffer: &mut [u8]) -> Result<usize>;
        fn getxattr(node: NodeId, name: &CStr, buffer: &mut [u8]) -> Result<usize>;
        fn listxattr(node: NodeId, buffer: &mut [u8]) -> Result<usize>;
        fn open(node: NodeId, args: &OpenArgs) -> Result<Opened>;
    }

    answered_by! { host, outcome_noted:
        fn setattr(node: NodeId, set: &SetAttr) -> Result<Attributes>;
        fn link(node: NodeId, new_parent: NodeId, new_name: Name<'_>) -> Result<Entry>;
        fn setxattr(
            node: NodeId, name: &CStr, value: &[u8], flags: u32, clear_set_group_id: bool
        ) -> Result<()>;
        fn removexattr(node: NodeId, name: &CStr) -> Result<()>;
    }

    answered_by! { files, nothing_noted:
        fn release(node: NodeId, args: &ReleaseArgs) -> ();
        fn read(node: NodeId, args: &ReadArgs, reply: ReadReply<'_>) -> Result<ReadAnswer>;
        fn write(node: NodeId, args: &WriteArgs, data: WriteSource<'_>) -> Result<usize>;
        fn flush(node: NodeId, handle: FileHandle, owner: LockOwner) -> Result<()>;
        fn fsync(node: NodeId, handle: FileHandle, data_only: bool) -> Result<()>;
        fn opendir(node: NodeId, args: &OpenArgs) -> Result<Opened>;
        fn releasedir(node: NodeId, args: &ReleaseArgs) -> ();
        fn fsyncdir(node: NodeId, handle: FileHandle, data_only: bool) -> Result<()>;
        fn getlk(node: NodeId, lock: &LockArgs) -> Result<Option<LockArgs>>;
        fn setlk(node: NodeId, lock: &LockArgs, wait: bool) -> Result<()>;
        fn fallocate(
            node: NodeId, handle: FileHandle, offset: u64, length: u64, mode: u32
        ) -> Result<()>;
        fn lseek(node: NodeId, handle: FileHandle, offset: u64, whence: u32) -> Result<u64>;
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
        negotiation.want(InitFlags::SETXATTR_EXT | InitFlags::HAS_EXPIRE_ONLY);
        let keeps_listings = self.host.may_leave_opendir_to_kernel();
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
        if keeps_listings {
            negotiation.want(InitFlags::NO_OPENDIR_SUPPORT);
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
        // Guests offer it whose machine monitor has a window.
        let of_window = InitFlags::MAP_ALIGNMENT | InitFlags::HAS_INODE_DAX;
        let of_window = of_window & negotiation.offered();
        let has_passthrough = config.passthrough && self.host.tree.credentials.may_register();
        let has_better =
            has_passthrough && negotiation.offers(InitFlags::PASSTHROUGH) || !of_window.is_empty();
        if self.host.is_to_open_files_itself(has_better) {
            // Without an OPEN that truncates: there is none.
            negotiation.want(InitFlags::NO_OPEN_SUPPORT);
        } else {
            negotiation.want(InitFlags::ATOMIC_O_TRUNC | of_window);
            if has_passthrough {
                negotiation.want(InitFlags::PASSTHROUGH);
                negotiation.set_stack_depth_max(self.host.tree.root.mount().stack_depth());
            }
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
        let Host {
            config,
            tree,
            files,
            ..
        } = &*self.host;
        let (wanted, privileged) = (config.passthrough, tree.credentials.may_register());
        self.host.follow.start(&services.notifier);
        let _ = tree.notifier.set(services.notifier);
        if features.flags.contains(InitFlags::MAP_ALIGNMENT)
            && let Some(window) = services.window
        {
            tree.dax.begin(window);
        }
        let flags = features.flags;
        let set = |flag: &AtomicBool, is_set| flag.store(is_set, Ordering::Relaxed);
        // Otherwise nothing would tell the kernel that a file has changed. A session of another process that has
        // begun so has no choice.
        let is_told = !config.follows() || self.host.follow.is_started();
        let opens_files = flags.contains(InitFlags::NO_OPEN_SUPPORT) && is_told;
        set(&files.kernel_opens_files, opens_files);
        let passthrough = &files.passthrough;
        match opens_files {
            true => passthrough.exclude(),
            false => passthrough.settle(wanted, privileged, features, services.backings),
        }
        set(
            &files.may_skip_flush,
            !flags.contains(InitFlags::WRITEBACK_CACHE),
        );
        set(&files.keeps_locks, flags.contains(InitFlags::POSIX_LOCKS));
        set(
            &files.kernel_opens_directories,
            flags.contains(InitFlags::NO_OPENDIR_SUPPORT) && self.host.follow.is_started(),
        );
        let ignores_acls = config.default_permissions && !flags.contains(InitFlags::POSIX_ACL);
        set(&self.host.kernel_ignores_acls, ignores_acls);
        let announces = flags.contains(InitFlags::SUBMOUNTS);
        set(&self.host.announces_submounts, announces);
        start_housekeeping(tree);
        start_freeing(&tree.freeing);
    }

    fn destroy(&self) {
        self.host.files.passthrough.end();
        self.host.files.end_record();
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
        if let Some(forgotten) = self.host.tree.take_lookups(node, count) {
            self.host.files.close_left(node);
            self.host.follow.forgotten(&forgotten);
        }
    }

    fn unlink(&self, context: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        self.host.unlink(context, parent, name, false)
    }

    fn rmdir(&self, context: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        self.host.unlink(context, parent, name, true)
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
}
