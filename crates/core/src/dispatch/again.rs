//! Replays a request that a dead worker had begun.
//!
//! Most requests read or set the same when they are carried out twice. For the others, the dead worker has
//! recorded when it began and what it found ([`Begun`]). They are tried again. An error that may follow
//! from a first success (EEXIST of mkdir, ENOENT of unlink) was the first reply too if the name existed
//! before (or did not); otherwise an inode that has changed since is the result of the first try. Changes
//! alone prove nothing: a directory changes with each name in it. ADR 16 says what remains in doubt.

use super::{Dispatcher, message::Message};
use crate::attributes::{Entry, OpenArgs, Timestamp};
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::file_system::FileSystem;
use crate::reply::{HEADER_BYTES, entry_out, put, put_created, put_header};
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use thrufs_abi::layout::{Attr, CreateIn};
use thrufs_abi::{Name, NodeId, Operation, Request};
use thrufs_sys::clock::coarse_time;

/// What the first CREATE has done.
const ONCE: u32 = (libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC) as u32;
/// Larger than any extended attribute.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// Values of [`Begun::before`]: unknown; and the name, or the extended attribute, did not exist. Any other
/// is the number of the inode ([`number_of`]).
const UNKNOWN: u64 = 0;
const ABSENT: u64 = u64::MAX;

/// The record of a request that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The time of the coarse clock that file systems use, in nanoseconds since 1970.
    pub nanoseconds: u64,
    /// What [`Dispatcher::look_before`] found.
    pub before: u64,
}

impl Begun {
    /// Of a request that begins now, which found `before`.
    pub fn now(before: u64) -> Begun {
        Begun {
            nanoseconds: coarse_time().as_nanos() as u64,
            before,
        }
    }

    /// Whether an inode with this change time has changed since.
    fn is_before(self, time: Timestamp) -> bool {
        let seconds = u64::try_from(time.seconds).unwrap_or(0);
        if time.nanoseconds == 0 {
            // A file system with a granularity of seconds; or one time in a billion.
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
    /// What has to be recorded before `request`, of the kind
    /// [`Repeat::Noted`](crate::Repeat::Noted). Called again with `may_block`
    /// when the request was deferred.
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
                // After two such renames, both names are as before.
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
            Operation::Setxattr { name, flags, .. } if flags & libc::XATTR_CREATE as u32 != 0 => {
                seen_by(self.fs.getxattr(context, node, name, &mut []).map(|_| 1))
            }
            Operation::Removexattr { name } => {
                seen_by(self.fs.getxattr(context, node, name, &mut []).map(|_| 1))
            }
            _ => UNKNOWN,
        }
    }

    /// Replays, sleeping where needed, the request that `begun` recorded. Returns the bytes of `reply` to
    /// send.
    pub fn answer_again<'a>(
        &self,
        request: impl Into<Message<'a>>,
        reply: &mut [u8],
        begun: Begun,
    ) -> usize {
        let message = request.into();
        let Ok(request) = message.parse(self.dialect()) else {
            return self.answer(message, reply);
        };
        if request_is_done(self, &request, begun) {
            return put_header(reply, request.header.unique, Ok(0));
        }
        let length = self.answer(message, reply);
        let Some(errno) = errno_of(reply, length) else {
            return length;
        };
        let look = || self.look_after(&request, errno, begun, &mut reply[HEADER_BYTES..]);
        let looked = catch_unwind(AssertUnwindSafe(look)).unwrap_or(Err(errno));
        put_header(reply, request.header.unique, looked)
    }

    /// Answers a request as another process was about to: `answer` is that of the request under its first number.
    /// Returns the bytes of `reply` to send.
    pub(crate) fn repeat(&self, request: &[u8], reply: &mut [u8], answer: &[u8]) -> usize {
        let error = thrufs_abi::Reply::parse(answer).map(|reply| reply.error);
        let (Ok(parsed), Some(body), Some(error)) = (
            Message::from(request).parse(self.dialect()),
            answer
                .get(HEADER_BYTES..)
                .filter(|it| it.len() <= reply.len() - HEADER_BYTES),
            error,
        ) else {
            return self.answer(request, reply);
        };
        reply[HEADER_BYTES..][..body.len()].copy_from_slice(body);
        let result = match error {
            0 => Ok(body.len()),
            error => Err(Errno::from_raw(-error)),
        };
        put_header(reply, parsed.header.unique, result)
    }

    fn context<'a>(&'a self, request: &'a Request<'_>) -> Context<'a> {
        Context::new(&request.header, &request.extensions, &self.interrupts, true)
    }

    /// Finds the name without counting a lookup.
    fn found(&self, context: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        let entry = self.fs.lookup(context, parent, name)?;
        if entry.node.0 == 0 {
            return Err(Errno::ENOENT);
        }
        self.fs.forget(entry.node, 1);
        Ok(entry)
    }

    /// Finds the name, counting a lookup, if the inode has changed since; otherwise `errno`.
    fn made(
        &self,
        context: &Context<'_>,
        at: (NodeId, Name<'_>),
        begun: Begun,
        errno: Errno,
        is_it: &dyn Fn(&Entry) -> bool,
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

    /// The reply to a replayed request that failed: bytes of `body`, or the error.
    fn look_after(
        &self,
        request: &Request<'_>,
        errno: Errno,
        begun: Begun,
        body: &mut [u8],
    ) -> Result<usize> {
        let (context, node) = (self.context(request), request.header.nodeid);
        let type_of = |entry: &Entry| entry.attr.mode & libc::S_IFMT;
        let made = |name: &Name<'_>, is_it: &dyn Fn(&Entry) -> bool| {
            self.made(&context, (node, *name), begun, errno, is_it)
        };
        let entry = match (&request.operation, errno) {
            (Operation::Mkdir { name, .. }, Errno::EEXIST) => {
                made(name, &|entry| type_of(entry) == libc::S_IFDIR)
            }
            (Operation::Mknod { name, arg }, Errno::EEXIST) => {
                made(name, &|entry| type_of(entry) == arg.mode & libc::S_IFMT)
            }
            (Operation::Symlink { name, target }, Errno::EEXIST) => made(name, &|entry| {
                type_of(entry) == libc::S_IFLNK && self.leads_to(&context, entry.node, target)
            }),
            (Operation::Link { name, old_node }, Errno::EEXIST) => {
                made(name, &|entry| entry.node == *old_node)
            }
            (Operation::Create { name, arg }, Errno::EEXIST | Errno::ESTALE) => {
                let entry = made(name, &|entry| type_of(entry) == libc::S_IFREG)?;
                return self.open_made(&context, arg, &entry, body);
            }
            _ => return self.look_after_rest(&context, request, errno, begun),
        };
        put(body, &entry_out(&entry?))
    }

    /// Requests without a body in their reply.
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

    /// Opens what the first CREATE made, as CREATE would have.
    fn open_made(
        &self,
        context: &Context<'_>,
        arg: &CreateIn,
        entry: &Entry,
        body: &mut [u8],
    ) -> Result<usize> {
        let args = OpenArgs {
            flags: arg.flags & !ONCE,
            kill_suidgid: false,
        };
        let open = || self.fs.open(context, entry.node, &args);
        // A file system says ESTALE once to a caller that may have an outdated name, and this one was just looked up.
        let opened = match open() {
            Err(Errno::ESTALE) => open(),
            opened => opened,
        };
        let opened = opened.inspect_err(|_| self.fs.forget(entry.node, 1))?;
        put_created(body, entry, &opened)
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

/// Whether a rename leaves both names: an exchange, or a whiteout.
fn has_two(flags: u32) -> bool {
    flags & !libc::RENAME_NOREPLACE != 0
}

/// Identifies an inode in this process and the next: nodes that the client does not know get another id
/// each time.
fn number_of(entry: &Entry) -> u64 {
    entry.attr.ino.clamp(UNKNOWN + 1, ABSENT - 1)
}

/// A value of [`Begun::before`].
fn seen_by(found: Result<u64>) -> u64 {
    match found {
        Ok(number) => number,
        Err(Errno::ENOENT | Errno::ENODATA) => ABSENT,
        Err(_) => UNKNOWN,
    }
}

/// Whether the request has visibly been done before.
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
    // An exchange or a whiteout has put another inode under the old name.
    now.is_ok_and(|entry| entry.node.0 != begun.before)
}

/// The error in a reply of `length` bytes.
fn errno_of(reply: &[u8], length: usize) -> Option<Errno> {
    let reply = thrufs_abi::Reply::parse(reply.get(..length)?)?;
    (reply.error < 0).then(|| Errno::from_raw(-reply.error))
}
