//! Carrying a request out again whose first executor died, nobody knows how far it had come.
//!
//! Most requests may simply be carried out twice: what they read, or what they set, is the same the
//! second time. Of those that are not so, the dead one has noted when it began and what it found
//! ([`Begun`]). They are tried again, and an error that speaks of success the first time (mkdir's EEXIST,
//! unlink's ENOENT) is held against both: it was the first answer too when the name was there before
//! (or was not), and otherwise an inode that has changed since is the work of the first time. Changes
//! alone say nothing: a directory changes with each name in it. What remains in doubt stands in ADR 16.

use super::arguments::{create_args, open_args};
use super::{Dispatcher, Outcome, message::Message};
use crate::attributes::{Entry, Opened, Timestamp};
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::file_system::FileSystem;
use crate::reply::{HEADER_BYTES, entry_out, open_out, put, put_header};
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use thrufs_abi::layout::{Attr, EntryOut, OpenIn, OpenOut};
use thrufs_abi::{Name, NodeId, Opcode, Operation, Request};

const RENAME_NOREPLACE: u32 = 1;
const XATTR_CREATE: u32 = 1;
const TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
/// `O_CREAT`, `O_EXCL` and `O_TRUNC`, which are done.
const ONCE: u32 = 0o100 | 0o200 | 0o1000;
/// More than any value has.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// [`Begun::before`]: nothing is known; the name, or the extended attribute, was not there. Else it is
/// the number of the inode that was ([`number_of`]).
const UNKNOWN: u64 = 0;
const ABSENT: u64 = u64::MAX;

/// What it means to carry a request out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// As much as once.
    Harmless,
    /// That it began has to be noted, with [`Begun`].
    Noted,
    /// It must be noted, and not be carried out again: too few is better than too many.
    Never,
}

impl Repeat {
    /// What it means for a request of this kind.
    pub fn of(opcode: Opcode) -> Repeat {
        match opcode {
            Opcode::Forget | Opcode::BatchForget => Repeat::Never,
            Opcode::Mknod
            | Opcode::Mkdir
            | Opcode::Symlink
            | Opcode::Link
            | Opcode::Create
            | Opcode::Unlink
            | Opcode::Rmdir
            | Opcode::Rename
            | Opcode::Rename2
            | Opcode::Setxattr
            | Opcode::Removexattr
            | Opcode::Release
            | Opcode::Releasedir => Repeat::Noted,
            _ => Repeat::Harmless,
        }
    }
}

/// What was noted before a request was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The time, by the coarse clock that file systems use: nanoseconds since 1970.
    pub nanoseconds: u64,
    /// What [`Dispatcher::look_before`] has seen.
    pub before: u64,
}

impl Begun {
    /// Whether what has this time was changed since.
    fn is_before(self, time: Timestamp) -> bool {
        let seconds = u64::try_from(time.seconds).unwrap_or(0);
        if time.nanoseconds == 0 {
            // A file system that knows seconds only, or one in a billion.
            return seconds >= self.nanoseconds / 1_000_000_000;
        }
        let time = seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(time.nanoseconds.into());
        time >= self.nanoseconds
    }
}

fn changed(attr: &Attr) -> Timestamp {
    Timestamp {
        seconds: attr.ctime as i64,
        nanoseconds: attr.ctimensec,
    }
}

impl<F: FileSystem> Dispatcher<F> {
    /// What has to be known of the time before `request`, whose opcode is one of [`Repeat::Noted`]. To
    /// be asked again by who may block, when the request is deferred.
    pub fn look_before<'a>(&self, request: impl Into<Message<'a>>, may_block: bool) -> u64 {
        let Ok(request) = request.into().parse(self.dialect()) else {
            return UNKNOWN;
        };
        let context = Context::new(
            &request.header,
            &request.extensions,
            &self.interrupts,
            may_block,
        );
        let look = || self.seen(&context, &request);
        catch_unwind(AssertUnwindSafe(look)).unwrap_or(UNKNOWN)
    }

    fn seen(&self, context: &Context<'_>, request: &Request<'_>) -> u64 {
        let node = request.header.nodeid;
        match &request.operation {
            Operation::Rename { flags, name, .. } => match self.found(context, node, *name) {
                // Twice, and two names are as they were.
                Ok(entry) if has_two(*flags) => entry.node.0,
                found => seen_by(found.map(|entry| number_of(&entry))),
            },
            Operation::Mkdir { name, .. }
            | Operation::Mknod { name, .. }
            | Operation::Symlink { name, .. }
            | Operation::Link { name, .. }
            | Operation::Create { name, .. }
            | Operation::Unlink { name }
            | Operation::Rmdir { name } => {
                let found = self.found(context, node, *name);
                seen_by(found.map(|entry| number_of(&entry)))
            }
            Operation::Setxattr { name, flags, .. } if flags & XATTR_CREATE != 0 => {
                seen_by(self.fs.getxattr(context, node, name, &mut []).map(|_| 1))
            }
            Operation::Removexattr { name } => {
                seen_by(self.fs.getxattr(context, node, name, &mut []).map(|_| 1))
            }
            _ => UNKNOWN,
        }
    }

    /// Carries out to its end, sleeping where needed, what `begun` says was begun before. Returns the
    /// bytes of `reply` that are the answer.
    pub fn answer_again<'a>(
        &self,
        request: impl Into<Message<'a>>,
        reply: &mut [u8],
        begun: Begun,
    ) -> usize {
        let message = request.into();
        let Ok(request) = message.parse(self.dialect()) else {
            return self.first_answer(message, reply);
        };
        if request_is_done(self, &request, begun) {
            return put_header(reply, request.header.unique, Ok(0));
        }
        let length = self.first_answer(message, reply);
        let Some(errno) = errno_of(reply, length) else {
            return length;
        };
        let look = || self.look_after(&request, errno, begun, &mut reply[HEADER_BYTES..]);
        let looked = catch_unwind(AssertUnwindSafe(look)).unwrap_or(Err(errno));
        put_header(reply, request.header.unique, looked)
    }

    fn first_answer(&self, message: Message<'_>, reply: &mut [u8]) -> usize {
        match self.dispatch(message, reply, true) {
            Outcome::Reply(length) => length,
            // No request that is noted is answered by a file.
            Outcome::File(_) | Outcome::Silent | Outcome::Defer(_) => 0,
        }
    }

    fn context<'a>(&'a self, request: &'a Request<'_>) -> Context<'a> {
        Context::new(&request.header, &request.extensions, &self.interrupts, true)
    }

    /// What has this name, uncounted.
    fn found(&self, context: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        let entry = self.fs.lookup(context, parent, name)?;
        if entry.node.0 == 0 {
            return Err(Errno::ENOENT);
        }
        self.fs.forget(entry.node, 1);
        Ok(entry)
    }

    /// What has this name and was changed since, counted; otherwise `errno`.
    fn made(
        &self,
        context: &Context<'_>,
        at: (NodeId, Name<'_>),
        begun: Begun,
        errno: Errno,
        is_it: impl FnOnce(&Entry) -> bool,
    ) -> Result<Entry> {
        let entry = self.fs.lookup(context, at.0, at.1).map_err(|_| errno)?;
        if entry.node.0 == 0 {
            return Err(errno);
        }
        let is_new = begun.before != number_of(&entry) && begun.is_before(changed(&entry.attr));
        if is_new && is_it(&entry) {
            return Ok(entry);
        }
        self.fs.forget(entry.node, 1);
        Err(errno)
    }

    /// The answer to a request that failed the second time: bytes of `body`, or the error.
    fn look_after(
        &self,
        request: &Request<'_>,
        errno: Errno,
        begun: Begun,
        body: &mut [u8],
    ) -> Result<usize> {
        let (context, node) = (self.context(request), request.header.nodeid);
        let of_type = |mode: u32| move |entry: &Entry| entry.attr.mode & TYPE == mode & TYPE;
        let entry = match (&request.operation, errno) {
            (Operation::Mkdir { name, .. }, Errno::EEXIST) => {
                self.made(&context, (node, *name), begun, errno, of_type(DIRECTORY))
            }
            (Operation::Mknod { name, arg }, Errno::EEXIST) => {
                self.made(&context, (node, *name), begun, errno, of_type(arg.mode))
            }
            (Operation::Symlink { name, target }, Errno::EEXIST) => {
                let is_it = |entry: &Entry| {
                    of_type(SYMLINK)(entry) && self.leads_to(&context, entry.node, target)
                };
                self.made(&context, (node, *name), begun, errno, is_it)
            }
            (Operation::Link { name, old_node }, Errno::EEXIST) => {
                let is_it = |entry: &Entry| entry.node == *old_node;
                self.made(&context, (node, *name), begun, errno, is_it)
            }
            (Operation::Create { name, .. }, Errno::EEXIST | Errno::ESTALE) => {
                let entry = self.made(&context, (node, *name), begun, errno, of_type(REGULAR))?;
                return self.open_made(&context, request, &entry, body);
            }
            _ => return self.look_after_rest(&context, request, errno, begun),
        };
        put(body, &entry_out(&entry?))
    }

    /// The requests that are answered with nothing.
    fn look_after_rest(
        &self,
        context: &Context<'_>,
        request: &Request<'_>,
        errno: Errno,
        begun: Begun,
    ) -> Result<usize> {
        let node = request.header.nodeid;
        let (was_absent, was_there) = (
            begun.before == ABSENT,
            !matches!(begun.before, UNKNOWN | ABSENT),
        );
        let attributes = |node| self.fs.getattr(context, node, None).map_err(|_| errno);
        let is_done = match (&request.operation, errno) {
            (Operation::Unlink { .. } | Operation::Rmdir { .. }, Errno::ENOENT) => {
                !was_absent && begun.is_before(changed(&attributes(node)?.attr))
            }
            (
                Operation::Rename {
                    new_parent,
                    new_name,
                    flags,
                    ..
                },
                Errno::ENOENT,
            ) => {
                let entry = self.found(context, *new_parent, *new_name);
                let entry = entry.map_err(|_| errno)?;
                match begun.before {
                    UNKNOWN => begun.is_before(changed(&entry.attr)),
                    before => !has_two(*flags) && before == number_of(&entry),
                }
            }
            (Operation::Setxattr { name, value, .. }, Errno::EEXIST) => {
                !was_there
                    && begun.is_before(changed(&attributes(node)?.attr))
                    && self.has_value(context, node, name, value)
            }
            (Operation::Removexattr { .. }, Errno::ENODATA) => {
                !was_absent && begun.is_before(changed(&attributes(node)?.attr))
            }
            (Operation::Release(_) | Operation::Releasedir(_), _) => true,
            _ => false,
        };
        if is_done { Ok(0) } else { Err(errno) }
    }

    /// Opens what the first CREATE has made: as it would have been open, had it been answered.
    fn open_made(
        &self,
        context: &Context<'_>,
        request: &Request<'_>,
        entry: &Entry,
        body: &mut [u8],
    ) -> Result<usize> {
        let Operation::Create { arg, .. } = &request.operation else {
            return Err(Errno::EIO);
        };
        let flags = create_args(arg).1.flags & !ONCE;
        let args = open_args(&OpenIn {
            flags,
            open_flags: 0,
        });
        let opened = self.fs.open(context, entry.node, &args);
        let opened: Opened = opened.inspect_err(|_| self.fs.forget(entry.node, 1))?;
        put(body, &entry_out(entry))?;
        put(&mut body[size_of::<EntryOut>()..], &open_out(&opened))?;
        Ok(size_of::<EntryOut>() + size_of::<OpenOut>())
    }

    fn leads_to(&self, context: &Context<'_>, node: NodeId, target: &CStr) -> bool {
        let mut buffer = vec![0; target.to_bytes().len() + 1];
        let length = self.fs.readlink(context, node, &mut buffer);
        length.is_ok_and(|length| buffer.get(..length) == Some(target.to_bytes()))
    }

    fn has_value(&self, context: &Context<'_>, node: NodeId, name: &CStr, value: &[u8]) -> bool {
        let mut buffer = vec![0; VALUE_BYTES_MAX];
        let length = self.fs.getxattr(context, node, name, &mut buffer);
        length.is_ok_and(|length| buffer.get(..length) == Some(value))
    }
}

/// Whether a rename leaves something under both names: an exchange, or a whiteout.
fn has_two(flags: u32) -> bool {
    flags & !RENAME_NOREPLACE != 0
}

/// What distinguishes an inode from others that had its name, here and in a successor: nodes that the
/// client does not know get another id each time.
fn number_of(entry: &Entry) -> u64 {
    entry.attr.ino.clamp(UNKNOWN + 1, ABSENT - 1)
}

/// As [`Begun::before`] has it.
fn seen_by(found: Result<u64>) -> u64 {
    match found {
        Ok(number) => number,
        Err(Errno::ENOENT | Errno::ENODATA) => ABSENT,
        Err(_) => UNKNOWN,
    }
}

/// Whether it can be seen, before it is tried again, that it was done.
fn request_is_done<F: FileSystem>(
    dispatcher: &Dispatcher<F>,
    request: &Request<'_>,
    begun: Begun,
) -> bool {
    let Operation::Rename { flags, name, .. } = &request.operation else {
        return false;
    };
    if !has_two(*flags) || matches!(begun.before, UNKNOWN | ABSENT) {
        return false;
    }
    let context = dispatcher.context(request);
    let now = dispatcher.found(&context, request.header.nodeid, *name);
    // An exchange, or a whiteout in its place: another has the old name now.
    now.is_ok_and(|entry| entry.node.0 != begun.before)
}

/// The error that a reply of `length` bytes says.
fn errno_of(reply: &[u8], length: usize) -> Option<Errno> {
    let reply = thrufs_abi::Reply::parse(reply.get(..length)?)?;
    (reply.error < 0).then(|| Errno::from_raw(-reply.error))
}
