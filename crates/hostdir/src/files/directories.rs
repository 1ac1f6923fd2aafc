//! Open directories: OPENDIR, READDIR(PLUS), RELEASEDIR and FSYNCDIR. An open directory may give its
//! descriptor and buffer back at any time, and gets them again at the next request
//! ([`listings`](crate::files::listings)). Hidden names are left out here.

use super::Files;
use super::open_directory::{OpenDirectory, Stream};
use super::versions::is_settled;
use crate::config::CacheMode;
use crate::follow::PendingLookup;
use crate::judge::{ActivePolicy, AuditedOpen, RulesOfEntries};
use crate::ledger::{FileNote, Listing, OpenerIds};
use crate::stat::{content_version, stat_open};
use crate::tree::Inode;
use rustix::fs::Statx;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thrufs::{Context, DirectorySink, Entry, Errno, OpenArgs, Opened, ReleaseArgs, Result};
use thrufs_abi::{FileHandle, NodeId, OpenReplyFlags};
use thrufs_policy::Access;
use thrufs_sys::dir::{DirEntries, DirEntry};

/// The flags of a directory that is listed.
const FLAGS: i32 = libc::O_RDONLY | libc::O_DIRECTORY;

impl Files {
    /// Where the positions of a listing are valid.
    pub(crate) fn listing(&self, directory: &OpenDirectory) -> Listing {
        let descriptor = self.tree.descriptor(&directory.inode);
        descriptor
            .ok()
            .filter(|_| !directory.is_lost)
            .map(|descriptor| Listing::of(descriptor.as_fd()))
            .unwrap_or_default()
    }

    /// The descriptor of an open directory, opened again if it was given back.
    fn held(&self, directory: &Arc<OpenDirectory>, stream: &mut Stream) -> Result<Arc<OwnedFd>> {
        if directory.is_lost {
            return Err(Errno::ESTALE);
        }
        if !std::mem::replace(&mut stream.is_entered, true) {
            self.listings.enter(directory);
        }
        if let Some(fd) = &stream.fd {
            return Ok(Arc::clone(fd));
        }
        let fd = self.tree.open_inode(&directory.inode, FLAGS)?;
        Ok(Arc::clone(stream.fd.insert(Arc::new(fd))))
    }

    pub(crate) fn directory_fd(&self, directory: &Arc<OpenDirectory>) -> Result<Arc<OwnedFd>> {
        self.held(directory, &mut directory.stream.lock())
    }

    pub(crate) fn directory_of(
        &self,
        node: NodeId,
        handle: FileHandle,
    ) -> Result<Arc<OpenDirectory>> {
        if self.is_directory_opened_by_kernel(handle) {
            return self.open_unnumbered(node);
        }
        let directory = self.directories.get(handle.0);
        directory
            .filter(|directory| directory.node() == node)
            .ok_or(Errno::EBADF)
    }

    pub(crate) fn opendir(
        &self,
        context: &Context<'_>,
        node: NodeId,
        _: &OpenArgs,
    ) -> Result<Opened> {
        if self.kernel_opens_directories.load(Ordering::Relaxed) {
            // For the whole connection: there is no OPENDIR and no RELEASEDIR from now on.
            return Err(Errno::ENOSYS);
        }
        let inode = self.tree.nodes.get(node)?;
        let opened = match self.judge.for_opens() {
            None => self.enter_directory(inode, context.uid()),
            Some(rules) => self.open_directory_under_policy(context, rules, inode),
        }?;
        if self.judge.has_policy() {
            self.note_opener_of_directory(opened.handle, self.judge.opener(context));
        }
        Ok(opened)
    }

    fn open_directory_under_policy(
        &self,
        context: &Context<'_>,
        rules: Arc<ActivePolicy>,
        inode: Arc<Inode>,
    ) -> Result<Opened> {
        if rules.policy.uses().audit {
            context.require_blocking()?;
        }
        let decided = self.judge.decide_inode(rules, &inode, context)?;
        let checked = decided.decision.check(Access::Read);
        let permitted = self.judge.permit(context, &decided, checked);
        let opened = permitted.and_then(|()| self.enter_directory(inode, context.uid()));
        let audited = AuditedOpen {
            access: "list",
            created: false,
            truncated: false,
            outcome: opened.as_ref().map(|_| None).map_err(|error| *error),
        };
        self.judge
            .record_open(context, &decided, audited)
            .inspect_err(|_| {
                if let Ok(opened) = &opened {
                    drop(self.close_directory(opened.handle));
                }
            })?;
        opened
    }

    pub(crate) fn enter_directory(&self, inode: Arc<Inode>, uid: Option<u32>) -> Result<Opened> {
        let charge = self.quotas.charge(uid)?;
        let opener = OpenerIds::counted_for(charge.as_ref());
        let fd = self.tree.open_inode(&inode, FLAGS)?;
        let flags = self.listing_flags(&inode);
        let node = inode.node();
        let mut handle = FileHandle(0);
        let directory = self
            .directories
            .insert_with(|id| {
                handle = FileHandle(id);
                OpenDirectory::new(inode, fd, charge)
            })
            .map_err(|_| Errno::ENFILE)?;
        self.listings.enter(&directory);
        if let Some(tables) = &self.tree.tables {
            tables.directories.insert(FileNote {
                handle,
                node,
                flags: 0,
                route: None,
                opener,
                backing: None,
            });
        }
        Ok(Opened {
            handle,
            flags,
            backing: None,
        })
    }

    /// Whether the kernel may cache a listing: not one from before this policy, nor where visibility may
    /// change with the owner or mode of an entry.
    fn listing_flags(&self, inode: &Inode) -> OpenReplyFlags {
        let rules = self.judge.active_policy();
        let hides = rules.as_ref().is_some_and(|rules| rules.policy.uses().hide);
        let keeps = matches!(self.config.cache, CacheMode::Always | CacheMode::Metadata);
        if !keeps || hides {
            return OpenReplyFlags::empty();
        }
        let is_of_now = match rules {
            Some(rules) => inode.cached_version.replace(rules.generation) == rules.generation,
            None => true,
        };
        if is_of_now {
            OpenReplyFlags::CACHE_DIR | OpenReplyFlags::KEEP_CACHE
        } else {
            OpenReplyFlags::CACHE_DIR
        }
    }

    pub(crate) fn readdir(
        &self,
        context: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        sink: &mut DirectorySink<'_>,
        entry_of: impl Fn(&PendingLookup<'_>, &CStr, (Arc<Inode>, Statx)) -> Entry,
    ) -> Result<()> {
        if !self.is_directory_opened_by_kernel(handle) {
            let directory = self.directory_of(node, handle)?;
            return self.readdir_from(context, &directory, offset, sink, entry_of);
        }
        let reader = context.pid();
        let rest = match offset {
            0 => None,
            _ => self.part_read.take(node, offset, reader),
        };
        let (directory, version) = match rest {
            Some(rest) => rest,
            None => {
                let directory = self.open_unnumbered(node)?;
                let version = self.listing_version(&directory);
                (directory, version)
            }
        };
        if offset == 0 {
            self.part_read.begin(node, reader, version);
        }
        let open = directory.stream.lock().fd.clone();
        let open = open.as_ref().map(|fd| fd.as_fd());
        self.follow
            .listing_begins(context.uid(), &directory.inode, open);
        self.readdir_from(context, &directory, offset, sink, entry_of)?;
        if !sink.is_empty() {
            directory.stream.lock().is_without_attributes |= !sink.is_plus();
            self.part_read.keep(directory, reader, version);
        } else {
            let without_attributes = directory.stream.lock().is_without_attributes;
            self.follow
                .listing_ended(&directory.inode, without_attributes);
        }
        Ok(())
    }

    /// A number that another change of a directory's entries changes, if there is one.
    fn listing_version(&self, directory: &OpenDirectory) -> Option<u64> {
        let fd = directory.stream.lock().fd.clone()?;
        let stat = stat_open(&fd).ok()?;
        is_settled(directory.inode.mount(), &stat).then(|| content_version(&stat))
    }

    fn is_directory_opened_by_kernel(&self, handle: FileHandle) -> bool {
        handle == FileHandle(0) && self.kernel_opens_directories.load(Ordering::Relaxed)
    }

    /// A directory that the kernel has opened by itself.
    fn open_unnumbered(&self, node: NodeId) -> Result<Arc<OpenDirectory>> {
        let inode = self.tree.nodes.get(node)?;
        let fd = self.tree.open_inode(&inode, FLAGS).map_err(was_removed)?;
        let directory = Arc::new(OpenDirectory::new(inode, fd, None));
        self.listings.enter(&directory);
        Ok(directory)
    }

    fn readdir_from(
        &self,
        context: &Context<'_>,
        directory: &Arc<OpenDirectory>,
        offset: u64,
        sink: &mut DirectorySink<'_>,
        entry_of: impl Fn(&PendingLookup<'_>, &CStr, (Arc<Inode>, Statx)) -> Entry,
    ) -> Result<()> {
        if directory.inode.mount().is_remote {
            context.require_blocking()?;
        }
        let rules = self.judge.rules_of_entries(&directory.inode)?;
        let mut stream = directory.stream.lock();
        let stream = &mut *stream;
        let was_given_back = stream.fd.is_none();
        let fd = self.held(directory, stream).map_err(|error| {
            if was_given_back && !directory.is_lost {
                was_removed(error)
            } else {
                error
            }
        })?;
        let fd = fd.as_fd();
        stream.seek(fd, offset)?;
        loop {
            match stream.fill(fd) {
                Ok(true) => {}
                Ok(false) => {
                    stream.is_at_end = !sink.is_empty();
                    return Ok(());
                }
                // The entries so far have raised lookup counts: they must be sent.
                Err(error) if sink.is_empty() => return Err(error),
                Err(_) => return Ok(()),
            }
            let mut entries = DirEntries::new(&stream.buffer[stream.start..stream.end]);
            let Some(entry) = entries.next() else {
                stream.start = stream.end;
                continue;
            };
            if !self.list(
                context,
                (directory, fd),
                rules.as_ref(),
                &entry,
                sink,
                &entry_of,
            ) {
                return Ok(());
            }
            stream.position = entry.off as u64;
            stream.start += record_bytes(&stream.buffer[stream.start..stream.end]);
        }
    }

    /// Returns one entry; false when the sink is full.
    fn list(
        &self,
        context: &Context<'_>,
        (directory, fd): (&OpenDirectory, BorrowedFd<'_>),
        rules: Option<&RulesOfEntries>,
        entry: &DirEntry<'_>,
        sink: &mut DirectorySink<'_>,
        entry_of: impl Fn(&PendingLookup<'_>, &CStr, (Arc<Inode>, Statx)) -> Entry,
    ) -> bool {
        let name = entry.name.to_bytes();
        let next = entry.off as u64;
        if !sink.fits(name.len()) {
            return false;
        }
        let parent = &directory.inode;
        match rules.map(|rules| rules.hide_entry(fd, entry.name)) {
            None | Some(Ok(false)) => {}
            Some(Ok(true) | Err(_)) => return true,
        }
        let ino = parent.mount().client_ino(entry.ino);
        if !sink.is_plus() || name == b"." || name == b".." {
            return sink.entry(ino, next, entry.kind, name);
        }
        let pending = self.follow.begin_lookup(context.uid(), parent);
        match self.tree.lookup_at(parent, fd, entry.name) {
            Ok(found) => {
                let found = entry_of(&pending, entry.name, found);
                let written = sink.entry_plus(&found, next, entry.kind, name);
                if !written {
                    self.tree.forget(found.node, 1);
                }
                written
            }
            // Removed meanwhile, or not accessible: only the name; a lookup reports the error.
            Err(_) => sink.entry(ino, next, entry.kind, name),
        }
    }

    pub(crate) fn releasedir(&self, _: &Context<'_>, node: NodeId, args: &ReleaseArgs) {
        if self.directory_of(node, args.handle).is_err() {
            return;
        }
        drop(self.close_directory(args.handle));
    }

    pub(crate) fn fsyncdir(
        &self,
        context: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        data_only: bool,
    ) -> Result<()> {
        let directory = self.directory_of(node, handle)?;
        if !directory.inode.mount().is_memory() {
            context.require_blocking()?;
        }
        super::io::sync(self.directory_fd(&directory)?, data_only)
    }
}

/// The error of a directory that is opened again: an open descriptor would have reported its removal.
fn was_removed(error: Errno) -> Errno {
    if error == Errno::ESTALE {
        Errno::ENOENT
    } else {
        error
    }
}

/// The length of the first record in what `getdents64` filled (`d_reclen`).
fn record_bytes(records: &[u8]) -> usize {
    let length = records.get(16..).and_then(<[u8]>::first_chunk);
    let length = length.map_or(records.len(), |bytes| u16::from_ne_bytes(*bytes).into());
    length.max(1).min(records.len())
}
