//! The replies: one type for each kind of answer, which any thread gives.

use crate::answer::Answer;
use crate::{
    BackingId, Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, PollEvents,
};
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use thrufs::{
    Attributes, Backings, DirectorySink, Entry, FileSystemStatistics, Listing, LockArgs, NodeId,
    OpenReplyFlags, Opened,
};

/// The largest value of an extended attribute, and list of their names (`XATTR_SIZE_MAX` of the kernel).
const XATTR_BYTES_MAX: u32 = 65_536;

macro_rules! replies {
    ($($(#[$doc:meta])* $name:ident<$answer:ty> { $($field:ident: $type:ty),* })*) => {$(
        $(#[$doc])*
        ///
        /// Dropped without an answer, the request fails with EIO, and a line is logged.
        #[derive(Debug)]
        pub struct $name {
            pub(crate) answer: Answer<$answer>,
            $(pub(crate) $field: $type,)*
        }

        impl $name {
            #[allow(dead_code, reason = "those with more fields are made by their names")]
            pub(crate) fn of(answer: Answer<$answer>$(, $field: $type)*) -> $name {
                $name { answer, $($field),* }
            }

            /// The request fails.
            pub fn error(self, errno: Errno) {
                self.answer.give(Err(errno));
            }
        }
    )*};
}

replies! {
    /// Answers with data.
    ReplyData<Vec<u8>> {}
    /// Answers with an inode.
    ReplyEntry<Entry> {}
    /// Answers with attributes.
    ReplyAttr<Attributes> {}
    /// Answers an open.
    ReplyOpen<Opened> { backings: Backings }
    /// Answers a create.
    ReplyCreate<(Entry, Opened)> { backings: Backings }
    /// Answers with the figures of a file system.
    ReplyStatfs<FileSystemStatistics> {}
    /// Answers with a lock.
    ReplyLock<Option<LockArgs>> { asked: LockArgs }
    /// Answers with a block, or an offset.
    ReplyBmap<u64> {}
    /// Answers with the result of an ioctl.
    ReplyIoctl<(i32, Vec<u8>)> {}
    /// Answers with events.
    ReplyPoll<u32> {}
    /// Answers with a listing.
    ReplyDirectory<Listing> { sink: DirectorySink<'static> }
    /// Answers with a listing with attributes.
    ReplyDirectoryPlus<Listing> { sink: DirectorySink<'static> }
    /// Answers with an extended attribute, or the names of all.
    ReplyXattr<Vec<u8>> { size: u32 }
    /// Answers with an offset.
    ReplyLseek<u64> {}
}

fn entry(times: (&Duration, &Duration), attr: &FileAttr, generation: Generation) -> Entry {
    Entry {
        node: NodeId(attr.ino.0),
        generation: thrufs::Generation(generation.0),
        attr: attr.into(),
        entry_timeout: *times.0,
        attr_timeout: *times.1,
    }
}

fn opened(handle: FileHandle, flags: FopenFlags, backing: Option<&BackingId>) -> Opened {
    let mut flags = OpenReplyFlags::from_bits_retain(flags.bits());
    flags.set(OpenReplyFlags::PASSTHROUGH, backing.is_some());
    Opened {
        handle: thrufs::FileHandle(handle.0),
        flags,
        backing: backing.map(BackingId::id),
    }
}

impl ReplyData {
    /// With these bytes, cut to what was asked for.
    pub fn data(self, data: &[u8]) {
        self.answer.give(Ok(data.to_vec()));
    }
}

impl ReplyEntry {
    /// With an inode, whose name and attributes the kernel may cache for `ttl`. Inode 0: there is no such name.
    pub fn entry(self, ttl: &Duration, attr: &FileAttr, generation: Generation) {
        self.entry_with_ttls(ttl, ttl, attr, generation);
    }

    /// The same, with a time for the attributes and one for the name.
    pub fn entry_with_ttls(
        self,
        attr_ttl: &Duration,
        entry_ttl: &Duration,
        attr: &FileAttr,
        generation: Generation,
    ) {
        self.answer
            .give(Ok(entry((entry_ttl, attr_ttl), attr, generation)));
    }
}

impl ReplyAttr {
    /// With attributes, which the kernel may cache for `ttl`.
    pub fn attr(self, ttl: &Duration, attr: &FileAttr) {
        let (attr, timeout) = (attr.into(), *ttl);
        self.answer.give(Ok(Attributes { attr, timeout }));
    }
}

macro_rules! backing {
    ($($name:ident)*) => {$(
        impl $name {
            /// Registers a file for passthrough. All opens of an inode that are open at the same time name the same
            /// registration.
            ///
            /// # Errors
            /// The kernel's: EPERM without CAP_SYS_ADMIN or without `FUSE_PASSTHROUGH`, ...
            pub fn open_backing(&self, file: impl AsFd) -> io::Result<BackingId> {
                BackingId::open(&self.backings, file)
            }

            /// Takes a registration that [`BackingId::into_raw`] gave away. (An unsafe function in fuser; here a number
            /// that is none makes opens fail.)
            pub fn wrap_backing(&self, id: u32) -> BackingId {
                BackingId::wrap(&self.backings, id)
            }
        }
    )*};
}

backing! { ReplyOpen ReplyCreate }

impl ReplyOpen {
    /// Opened.
    pub fn opened(self, handle: FileHandle, flags: FopenFlags) {
        self.answer.give(Ok(opened(handle, flags, None)));
    }

    /// Opened; the kernel reads and writes the registered file itself.
    pub fn opened_passthrough(self, handle: FileHandle, flags: FopenFlags, backing: &BackingId) {
        self.answer.give(Ok(opened(handle, flags, Some(backing))));
    }
}

impl ReplyCreate {
    /// Made and opened.
    pub fn created(
        self,
        ttl: &Duration,
        attr: &FileAttr,
        generation: Generation,
        handle: FileHandle,
        flags: FopenFlags,
    ) {
        let made = entry((ttl, ttl), attr, generation);
        self.answer.give(Ok((made, opened(handle, flags, None))));
    }

    /// Made and opened; the kernel reads and writes the registered file itself.
    pub fn created_passthrough(
        self,
        ttl: &Duration,
        attr: &FileAttr,
        generation: Generation,
        handle: FileHandle,
        flags: FopenFlags,
        backing: &BackingId,
    ) {
        let made = entry((ttl, ttl), attr, generation);
        self.answer
            .give(Ok((made, opened(handle, flags, Some(backing)))));
    }
}

impl ReplyStatfs {
    /// With these figures: blocks of `frsize` bytes, inodes, the block size, the longest name.
    #[allow(clippy::too_many_arguments)]
    pub fn statfs(
        self,
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
    ) {
        self.answer.give(Ok(FileSystemStatistics {
            blocks,
            bfree,
            bavail,
            files,
            ffree,
            bsize,
            namelen,
            frsize,
            ..FileSystemStatistics::default()
        }));
    }
}

impl ReplyLock {
    /// With the lock that is in the way, or `F_UNLCK`.
    pub fn locked(self, start: u64, end: u64, typ: i32, pid: u32) {
        let lock = LockArgs {
            start,
            end,
            kind: typ as u32,
            pid,
            ..self.asked
        };
        self.answer.give(Ok((typ != libc::F_UNLCK).then_some(lock)));
    }
}

impl ReplyBmap {
    /// With a block of the device.
    pub fn bmap(self, block: u64) {
        self.answer.give(Ok(block));
    }
}

impl ReplyIoctl {
    /// With the result and the output.
    pub fn ioctl(self, result: i32, data: &[u8]) {
        self.answer.give(Ok((result, data.to_vec())));
    }
}

impl ReplyPoll {
    /// With the events that are ready.
    pub fn poll(self, events: PollEvents) {
        self.answer.give(Ok(events.bits()));
    }
}

impl ReplyDirectory {
    /// Adds an entry, after which a listing goes on at `offset`. True when it does not fit.
    #[must_use]
    pub fn add<T: AsRef<OsStr>>(
        &mut self,
        ino: INodeNo,
        offset: u64,
        kind: FileType,
        name: T,
    ) -> bool {
        let name = name.as_ref().as_bytes();
        !self.sink.entry(ino.0, offset, kind.entry_kind(), name)
    }

    /// With the entries that were added; with none, the listing ends.
    pub fn ok(self) {
        self.answer.give(Ok(self.sink.into_listing()));
    }
}

impl ReplyDirectoryPlus {
    /// Adds an entry, after which a listing goes on at `offset`. True when it does not fit.
    pub fn add<T: AsRef<OsStr>>(
        &mut self,
        ino: INodeNo,
        offset: u64,
        name: T,
        ttl: &Duration,
        attr: &FileAttr,
        generation: Generation,
    ) -> bool {
        let name = name.as_ref().as_bytes();
        let node = NodeId(ino.0);
        let found = Entry {
            node,
            ..entry((ttl, ttl), attr, generation)
        };
        !self
            .sink
            .entry_plus(&found, offset, attr.kind.entry_kind(), name)
    }

    /// With the entries that were added; with none, the listing ends.
    pub fn ok(self) {
        self.answer.give(Ok(self.sink.into_listing()));
    }
}

impl ReplyXattr {
    /// With a size, where that was asked for.
    pub fn size(self, size: u32) {
        // The answer is as long as it says; its bytes are not sent.
        self.answer.give(match self.size {
            0 if size <= XATTR_BYTES_MAX => Ok(vec![0; size as usize]),
            0 => Err(Errno::E2BIG),
            _ => Err(Errno::ERANGE),
        });
    }

    /// With a value.
    pub fn data(self, data: &[u8]) {
        self.answer.give(Ok(data.to_vec()));
    }
}

impl ReplyLseek {
    /// With an offset.
    pub fn offset(self, offset: i64) {
        self.answer.give(Ok(offset as u64));
    }
}

/// Answers without data.
///
/// Dropped without an answer, the request fails with EIO, and a line is logged.
#[derive(Debug)]
pub struct ReplyEmpty {
    /// None for RELEASE and RELEASEDIR, whose answer nothing waits for.
    answer: Option<Answer<()>>,
}

impl ReplyEmpty {
    pub(crate) fn of(answer: Answer<()>) -> ReplyEmpty {
        let answer = Some(answer);
        ReplyEmpty { answer }
    }

    pub(crate) fn to_nobody() -> ReplyEmpty {
        ReplyEmpty { answer: None }
    }

    /// Done.
    pub fn ok(self) {
        self.give(Ok(()));
    }

    /// The request fails.
    pub fn error(self, errno: Errno) {
        self.give(Err(errno));
    }

    fn give(self, answer: Result<(), Errno>) {
        if let Some(slot) = self.answer {
            slot.give(answer);
        }
    }
}

/// Answers with how many bytes were written or copied.
#[derive(Debug)]
pub struct ReplyWrite(Count);

#[derive(Debug)]
enum Count {
    Written(Answer<usize>),
    Copied(Answer<u64>),
}

impl ReplyWrite {
    pub(crate) fn of(answer: Answer<usize>) -> ReplyWrite {
        ReplyWrite(Count::Written(answer))
    }

    pub(crate) fn copied(answer: Answer<u64>) -> ReplyWrite {
        ReplyWrite(Count::Copied(answer))
    }

    /// So many.
    pub fn written(self, size: u32) {
        self.give(Ok(size));
    }

    /// The request fails.
    pub fn error(self, errno: Errno) {
        self.give(Err(errno));
    }

    fn give(self, size: Result<u32, Errno>) {
        match self.0 {
            Count::Written(answer) => answer.give(size.map(|size| size as usize)),
            Count::Copied(answer) => answer.give(size.map(u64::from)),
        }
    }
}
