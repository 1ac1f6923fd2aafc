//! OPEN, and what CREATE shares with it: flags beneath, policy, data path, audit.
//!
//! The permissions were checked by the kernel above; what it cannot check is checked here, before a handle
//! exists. What is done with an open file is in [`files`](crate::files::io).

use super::Files;
use super::guard::UseGuard;
use super::open_file::{NewOpenFile, OpenFile};
use super::versions::Found;
use crate::config::{CacheMode, Config};
use crate::filter::Filter;
use crate::judge::{ActivePolicy, AuditedOpen, PASSTHROUGH, PathDecision};
use crate::ledger::{FileNote, OpenerIds};
use crate::stat::stat_open;
use crate::tree::Inode;
use rustix::fs::Statx;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thrufs::{Context, Errno, LowerFile, OpenArgs, Opened, Result};
use thrufs_abi::{FileHandle, NodeId, OpenReplyFlags};
use thrufs_policy::{Access, DataPath, FilePath};
use thrufs_sys::attr;

/// The flags of a lower file, for a client's flags.
///
/// Without `O_APPEND`: the kernel above has decided where to write, and a lower file that appends would
/// write elsewhere. Without `O_DIRECT`, unless that was asked for: transfers need not be aligned as the
/// lower file system demands. With read access under writeback, where the kernel fills up partial pages.
pub(crate) fn lower_flags(flags: u32, config: &Config) -> u32 {
    const DROPPED: i32 = libc::O_APPEND
        | libc::O_CREAT
        | libc::O_EXCL
        | libc::O_NONBLOCK
        | libc::O_ASYNC
        | libc::O_NOFOLLOW
        | libc::O_DIRECTORY
        | libc::O_PATH;
    let mut flags = flags as i32 & !(DROPPED | (libc::O_TMPFILE & !libc::O_DIRECTORY));
    if !config.allow_direct_io || config.writeback {
        flags &= !libc::O_DIRECT;
    }
    if config.writeback && flags & libc::O_ACCMODE == libc::O_WRONLY {
        flags = flags & !libc::O_ACCMODE | libc::O_RDWR;
    }
    flags as u32
}

pub(crate) struct Opening {
    pub(crate) fd: OwnedFd,
    /// The flags to open it again.
    pub(crate) flags: i32,
    pub(crate) appends: bool,
    /// Whether the kernel may keep its cached pages of an unchanged file.
    pub(crate) may_keep_cache: bool,
    /// The caller, in ids of the client.
    pub(crate) uid: Option<u32>,
}

/// The access that these flags ask for, as rules see it.
pub(crate) fn access(flags: i32) -> Access {
    if flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0 {
        Access::Change
    } else {
        Access::Read
    }
}

/// The same in the audit log.
pub(crate) fn access_name(flags: i32) -> &'static str {
    match flags & libc::O_ACCMODE {
        libc::O_WRONLY => "write",
        libc::O_RDWR => "read and write",
        _ => "read",
    }
}

impl Files {
    pub(crate) fn open(
        &self,
        context: &Context<'_>,
        node: NodeId,
        args: &OpenArgs,
    ) -> Result<Opened> {
        let flags = lower_flags(args.flags, &self.config) as i32;
        let inode = self.to_be_opened(node, access(flags))?;
        if self.kernel_opens_files.load(Ordering::Relaxed) {
            // For the whole connection: there is no OPEN and no RELEASE from now on.
            return Err(Errno::ENOSYS);
        }
        match self.judge.active_policy() {
            None => self.open_by(context, &inode, flags, args, &PASSTHROUGH),
            Some(rules) => self.open_under_policy(context, rules, &inode, args),
        }
    }

    /// The inode of a regular file to which everybody who may do so has this access.
    pub(super) fn to_be_opened(&self, node: NodeId, access: Access) -> Result<Arc<Inode>> {
        let inode = self.tree.nodes.get(node)?;
        if inode.is_directory() {
            return Err(Errno::EISDIR);
        }
        // Fifos, sockets and devices are opened by the kernel itself; a client that asks all the same must
        // not make the server open a device or wait on a fifo.
        if !inode.is_regular() {
            return Err(Errno::ENXIO);
        }
        if access == Access::Change {
            self.config.writable()?;
            self.require_mapped(&inode)?;
            self.tree.freeing.settle();
        }
        Ok(inode)
    }

    fn open_under_policy(
        &self,
        context: &Context<'_>,
        rules: Arc<ActivePolicy>,
        inode: &Arc<Inode>,
        args: &OpenArgs,
    ) -> Result<Opened> {
        let uses = rules.policy.uses();
        if uses.content || uses.redact || uses.audit {
            // Rules may read the file, and the audit log is written.
            context.require_blocking()?;
        }
        self.judge.defer_if_many_names(context, inode)?;
        let decided = self.judge.decide_inode(rules, inode, context)?;
        let flags = lower_flags(args.flags, &self.config) as i32;
        let checked = decided.decision.check(access(flags));
        let opened = self
            .judge
            .permit(context, &decided, checked)
            .and_then(|()| {
                let opened = self.open_by(context, inode, flags, args, &decided.decision.file);
                let place = (inode, flags);
                opened.map_err(|error| {
                    self.judge
                        .refused_for_redaction(context, &decided, place, error)
                })
            });
        self.audit(context, &decided, args.flags as i32, false, opened)
    }

    /// Writes the audit record of an open if a rule audits it. An open without its record is undone.
    pub(crate) fn audit(
        &self,
        context: &Context<'_>,
        decided: &PathDecision,
        flags: i32,
        created: bool,
        opened: Result<Opened>,
    ) -> Result<Opened> {
        let audited = AuditedOpen {
            access: access_name(flags),
            created,
            truncated: flags & libc::O_TRUNC != 0,
            outcome: match &opened {
                Ok(opened) => self.file(opened.handle).map(|file| Some(file.path())),
                Err(error) => Err(*error),
            },
        };
        match self.judge.record_open(context, decided, audited) {
            Ok(()) => {
                if let Ok(opened) = &opened {
                    self.note_opener(opened.handle, self.judge.opener(context));
                }
                opened
            }
            Err(error) => {
                if let Ok(opened) = opened {
                    self.undo_open(opened.handle);
                }
                Err(error)
            }
        }
    }

    pub(crate) fn open_by(
        &self,
        context: &Context<'_>,
        inode: &Arc<Inode>,
        flags: i32,
        args: &OpenArgs,
        wanted: &FilePath,
    ) -> Result<Opened> {
        if flags & libc::O_TRUNC != 0 {
            self.tree.dax.may_resize(inode)?;
        }
        self.require_mapping_as_granted(inode)?;
        let guard = self.use_file_once_released(context, inode, args.flags as i32, wanted)?;
        if let Some(filter) = guard.filter().filter(|_| access(flags) == Access::Read) {
            self.require_no_writer(context.uid(), inode, filter)?;
        }
        let opened = if guard.path() == DataPath::Passthrough {
            self.try_as_the_kernel(context, inode, args.flags as i32)?;
            self.open_passthrough(guard, flags, args.kill_suidgid)?
        } else {
            guard.hold(self.quotas.charge(context.uid())?);
            let may_keep_cache = wanted.redaction.is_none();
            let is_written_beneath = self.is_written_beneath(context, &guard, args)?;
            let opened = self.open_lower(context.uid(), guard, flags, args, may_keep_cache)?;
            match is_written_beneath {
                true => self.without_maps(inode, opened),
                false => opened,
            }
        };
        if access(flags) == Access::Change
            && let Err(error) = self.drop_privileges_of_others(context.uid(), inode)
        {
            self.undo_open(opened.handle);
            return Err(error);
        }
        Ok(opened)
    }

    /// Opens a file that the kernel will open itself.
    fn open_passthrough(&self, guard: UseGuard, flags: i32, kill_suidgid: bool) -> Result<Opened> {
        if flags & libc::O_TRUNC != 0 {
            let descriptor = self.tree.descriptor(guard.inode())?;
            let fd = descriptor.as_fd();
            if kill_suidgid {
                guard
                    .inode()
                    .noted
                    .record_mode(u32::from(stat_open(fd)?.stx_mode));
            }
            let truncate = || Ok(attr::truncate(fd, 0)?);
            self.change_content(guard.inode(), fd, kill_suidgid, truncate)?;
        }
        self.enter_passthrough(guard, flags)
    }

    /// Gives a file under passthrough a handle.
    pub(crate) fn enter_passthrough(&self, guard: UseGuard, flags: i32) -> Result<Opened> {
        let mut reply = OpenReplyFlags::PASSTHROUGH;
        let writable = flags & libc::O_ACCMODE != libc::O_RDONLY;
        if self.skips_flush(guard.inode(), writable) {
            reply |= OpenReplyFlags::NOFLUSH;
        }
        let backing = guard.backing();
        let handle = self.enter_open_file(NewOpenFile {
            guard,
            lower: None,
            flags: flags & !libc::O_TRUNC,
            appends: false,
            version: 0,
        })?;
        Ok(Opened {
            handle,
            flags: reply,
            backing,
        })
    }

    pub(crate) fn open_lower(
        &self,
        uid: Option<u32>,
        guard: UseGuard,
        flags: i32,
        args: &OpenArgs,
        may_keep_cache: bool,
    ) -> Result<Opened> {
        if flags & libc::O_TRUNC != 0 {
            if args.kill_suidgid {
                return self.open_truncating(uid, guard, flags, may_keep_cache);
            }
            self.tree.credentials.keep_set_ids(true)?;
        }
        // Not under writeback, where whole pages are written back.
        let may_append = args.flags as i32 & libc::O_APPEND != 0 && !self.config.writeback;
        let (fd, appends) = self.open_to_append(guard.inode(), flags, may_append)?;
        self.enter_lower(
            guard,
            Opening {
                fd,
                flags,
                appends,
                may_keep_cache,
                uid,
            },
            None,
        )
    }

    /// Opens a lower file, and returns whether it appends: it may be append-only (`chattr +a`).
    pub(super) fn open_to_append(
        &self,
        inode: &Arc<Inode>,
        flags: i32,
        may_append: bool,
    ) -> Result<(OwnedFd, bool)> {
        match self.tree.open_inode(inode, flags) {
            Err(Errno::EPERM) if may_append => {
                let fd = self.tree.open_inode(inode, flags | libc::O_APPEND)?;
                Ok((fd, true))
            }
            opened => Ok((opened?, false)),
        }
    }

    /// Opens for a truncation that must drop set-id bits: by a separate call, since the mode
    /// decides which bits are dropped.
    fn open_truncating(
        &self,
        uid: Option<u32>,
        guard: UseGuard,
        flags: i32,
        may_keep_cache: bool,
    ) -> Result<Opened> {
        // Truncation needs write access, whatever the open asks for.
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let access = if writes { 0 } else { libc::O_RDWR };
        let fd = self
            .tree
            .open_inode(guard.inode(), flags & !libc::O_TRUNC | access)?;
        let stat = stat_open(&fd)?;
        guard.inode().noted.record_mode(u32::from(stat.stx_mode));
        let truncate = || Ok(rustix::fs::ftruncate(&fd, 0)?);
        self.change_content(guard.inode(), fd.as_fd(), true, truncate)?;
        let stat = stat_open(&fd)?;
        // A reader gets no file that is open for writing.
        let fd = if writes {
            fd
        } else {
            self.tree.reopen(&fd, flags & !libc::O_TRUNC)?
        };
        self.enter_lower(
            guard,
            Opening {
                fd,
                flags,
                appends: false,
                may_keep_cache,
                uid,
            },
            Some(&stat),
        )
    }

    /// Gives an opened lower file a handle.
    pub(crate) fn enter_lower(
        &self,
        guard: UseGuard,
        opening: Opening,
        stat: Option<&Statx>,
    ) -> Result<Opened> {
        let Opening {
            fd, flags, appends, ..
        } = opening;
        let writable = flags & libc::O_ACCMODE != libc::O_RDONLY;
        // The kernel learns the size of a new or truncated file from the answer.
        let knows_size = stat.is_some() || flags & libc::O_TRUNC != 0;
        let stat = match stat {
            Some(stat) => Some(*stat),
            None if writable || self.config.cache == CacheMode::Auto || self.judge.has_policy() => {
                Some(stat_open(&fd)?)
            }
            None => None,
        };
        let inode = Arc::clone(guard.inode());
        let inode = &inode;
        if let Some(stat) = &stat {
            inode.noted.record_mode(u32::from(stat.stx_mode));
        }
        let lower = Arc::new(LowerFile::new(fd, inode.mount().no_wait));
        let mut found = Found::default();
        let reply = match guard.filter() {
            Some(filter) => {
                if flags & libc::O_ACCMODE == libc::O_RDONLY {
                    self.check_filtered(opening.uid, &lower, filter)?;
                }
                self.filtered_reply_flags(inode, writable)
            }
            None => {
                let known = stat.as_ref().filter(|_| guard.path() == DataPath::Cached);
                if let Some(stat) = known.filter(|_| opening.may_keep_cache) {
                    found = self.cached_data(inode, &lower, writable, stat);
                }
                let may_be_behind = self.config.cache == CacheMode::Auto && !self.config.writeback;
                // With a valid version, an open has had the attributes refreshed: this one or one before.
                let may_be_behind = may_be_behind && !found.keeps_cache;
                if let Some(stat) = known.filter(|_| may_be_behind && !knows_size) {
                    self.refresh_size(inode, stat);
                }
                let may_keep = opening.may_keep_cache && self.keeps_pages(inode);
                let keeps = found.keeps_cache || may_keep;
                self.lower_reply_flags(inode, guard.path(), writable, keeps)
            }
        };
        inode.lower.set_opened(&lower);
        let appending = if appends { libc::O_APPEND } else { 0 };
        let filter = guard.filter().filter(|_| writable).cloned();
        let handle = self.enter_open_file(NewOpenFile {
            guard,
            lower: Some(Arc::clone(&lower)),
            flags: flags & !libc::O_TRUNC | appending,
            appends,
            version: found.version,
        })?;
        if let Some(filter) = filter {
            self.begin_writing(inode, &filter, &lower, handle)?;
        }
        Ok(Opened {
            handle,
            flags: reply,
            backing: None,
        })
    }

    fn enter_open_file(&self, new: NewOpenFile) -> Result<FileHandle> {
        let mut handle = FileHandle(0);
        let file = self
            .files
            .insert_with(|id| {
                handle = FileHandle(id);
                OpenFile::new(new)
            })
            .map_err(|_| Errno::ENFILE)?;
        self.tree.was_opened(file.inode());
        self.note_file(FileNote {
            handle,
            node: file.node(),
            flags: file.flags(),
            route: self.route_of(file.guard(), handle),
            opener: OpenerIds::counted_for(file.guard().charge()),
            backing: file.guard().backing(),
        });
        Ok(handle)
    }

    /// Makes an open file the writer of a redacted file.
    fn begin_writing(
        &self,
        inode: &Inode,
        filter: &Filter,
        lower: &LowerFile,
        handle: FileHandle,
    ) -> Result<()> {
        let begun = filter.begin_writing(handle, lower, |other| {
            if let Some(other) = other {
                self.note_writing(other, filter.redaction, false);
            }
        });
        match begun {
            Ok(()) => {
                self.note_writing(handle, filter.redaction, true);
                self.close_lower_files(inode, handle);
                Ok(())
            }
            Err(error) => {
                self.undo_open(handle);
                Err(error)
            }
        }
    }

    /// Readers have a page cache, which is dropped at the next open. Writes bypass it, so that no page is
    /// completed with redacted content.
    fn filtered_reply_flags(&self, inode: &Inode, writable: bool) -> OpenReplyFlags {
        inode.cached_version.set(0);
        if writable || self.config.cache.data_path() == DataPath::Direct {
            OpenReplyFlags::DIRECT_IO
        } else if self.skips_flush(inode, writable) && !inode.mount().is_remote {
            OpenReplyFlags::NOFLUSH
        } else {
            OpenReplyFlags::empty()
        }
    }

    fn lower_reply_flags(
        &self,
        inode: &Inode,
        path: DataPath,
        writable: bool,
        keeps_cache: bool,
    ) -> OpenReplyFlags {
        let mut flags = match (path, self.config.cache) {
            (DataPath::Direct, _) | (_, CacheMode::Never | CacheMode::Metadata) => {
                OpenReplyFlags::DIRECT_IO | OpenReplyFlags::PARALLEL_DIRECT_WRITES
            }
            // Under a policy, pages may have been cached under another policy.
            (_, CacheMode::Always) if !self.judge.has_policy() => OpenReplyFlags::KEEP_CACHE,
            (_, CacheMode::Always | CacheMode::Auto) => {
                if keeps_cache {
                    OpenReplyFlags::KEEP_CACHE
                } else {
                    OpenReplyFlags::empty()
                }
            }
        };
        // A writer's close(2) waits in FLUSH until the lower file is closed.
        let settles = writable || inode.mount().is_remote;
        if self.skips_flush(inode, writable) && !settles {
            flags |= OpenReplyFlags::NOFLUSH;
        }
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_flags_drop_o_append_and_o_direct() {
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_DIRECT | libc::O_CREAT | libc::O_SYNC;
        let mut config = Config::default();
        let lower = lower_flags(flags as u32, &config) as i32;
        assert_eq!(lower, libc::O_WRONLY | libc::O_SYNC);
        config.allow_direct_io = true;
        assert_eq!(
            lower_flags(flags as u32, &config) as i32,
            libc::O_WRONLY | libc::O_SYNC | libc::O_DIRECT,
            "unless it was asked for"
        );
        config.writeback = true;
        let lower = lower_flags((libc::O_WRONLY | libc::O_DIRECT) as u32, &config) as i32;
        assert_eq!(lower, libc::O_RDWR);
        let config = Config::default();
        let tmpfile = (libc::O_TMPFILE | libc::O_RDWR) as u32;
        assert_eq!(lower_flags(tmpfile, &config) as i32, libc::O_RDWR);
    }

    #[test]
    fn open_reply_flags_follow_the_cache_mode() {
        use crate::follow::Follow;
        use crate::judge::{AuditLog, Judge};
        use crate::tree::Tree;
        use CacheMode::{Always, Auto, Metadata, Never};
        use DataPath::{Cached, Direct};
        use thrufs_policy::{Accounts, Policy};
        let place = tempfile::tempdir().unwrap();
        let served = |cache, has_rules: bool| {
            let policy = Policy::parse(b"", &Accounts::default()).unwrap();
            let config = Config {
                cache,
                ..Config::default()
            };
            let source = std::fs::File::open(place.path()).unwrap();
            let tree = Arc::new(Tree::new(source.into(), &config, None, None, has_rules).unwrap());
            let policy = has_rules.then(|| Arc::new(policy));
            let judge = Judge::new(
                Arc::clone(&tree),
                &config,
                policy,
                AuditLog::default(),
                None,
            );
            let config = Arc::new(config);
            let follow = Follow::new(Arc::clone(&tree), Arc::clone(&config));
            Files::new(config, (tree, Arc::new(judge), Arc::new(follow)))
        };
        let (nothing, keep) = (OpenReplyFlags::empty(), OpenReplyFlags::KEEP_CACHE);
        let filtered = OpenReplyFlags::DIRECT_IO;
        let direct = filtered.union(OpenReplyFlags::PARALLEL_DIRECT_WRITES);
        for (cache, has_rules, path, keeps, expected) in [
            (Auto, false, Cached, false, nothing),
            (Auto, false, Cached, true, keep),
            (Auto, false, Direct, true, direct),
            (Always, false, Cached, false, keep),
            (Always, true, Cached, false, nothing),
            (Always, true, Cached, true, keep),
            (Never, false, Cached, true, direct),
            (Metadata, false, Cached, true, direct),
        ] {
            let files = served(cache, has_rules);
            let root = &files.tree.root;
            for (writable, skips) in [(false, false), (false, true), (true, false), (true, true)] {
                files.may_skip_flush.store(skips, Ordering::Relaxed);
                let no_flush = match skips && !writable {
                    true => OpenReplyFlags::NOFLUSH,
                    false => nothing,
                };
                let flags = files.lower_reply_flags(root, path, writable, keeps);
                assert_eq!(flags, expected.union(no_flush), "{cache:?} {path:?}");
                let flags = files.filtered_reply_flags(root, writable);
                let is_direct = writable || matches!(cache, Never | Metadata);
                assert_eq!(flags, if is_direct { filtered } else { no_flush });
            }
        }
    }
}
