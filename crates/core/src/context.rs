//! The caller of a request, and what its serving thread may do.

use crate::errno::{Errno, Result};
use crate::interrupt::{InterruptToken, Interrupts};
use crate::late::{Late, LateAnswer, LateOffer};
use crate::notify::PollHandle;
use std::sync::LazyLock;
use thrufs_abi::{Extensions, Header, Opcode, UNIQUE_RESEND, Unique};

/// What a request says about its caller, and what the serving thread may do for it.
///
/// Borrowed by every method of [`FileSystem`](crate::FileSystem); it lives as long as the request.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    unique: Unique,
    opcode: Opcode,
    uid: u32,
    gid: u32,
    pid: u32,
    may_block: bool,
    extensions: &'a Extensions<'a>,
    interrupts: &'a Interrupts,
    late: Option<&'a LateOffer<'a>>,
    poll_handle: Option<PollHandle>,
}

/// "No caller": sent for the kernel's own requests once idmapped mounts were negotiated, and for ids
/// without a mapping.
const NO_ID: u32 = u32::MAX;

impl<'a> Context<'a> {
    pub(crate) fn new(
        header: &Header,
        extensions: &'a Extensions<'a>,
        interrupts: &'a Interrupts,
        may_block: bool,
    ) -> Context<'a> {
        Context {
            unique: header.unique,
            opcode: header.opcode,
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
            may_block,
            extensions,
            interrupts,
            late: None,
            poll_handle: None,
        }
    }

    /// A caller with these ids, for tests that call methods of a file system directly, on a thread that may sleep.
    /// `u32::MAX` is no caller. There is no request: [`answer_later`](Self::answer_later) fails, and the number is 0.
    pub fn of(uid: u32, gid: u32) -> Context<'static> {
        static EXTENSIONS: LazyLock<Extensions<'static>> = LazyLock::new(Extensions::default);
        static INTERRUPTS: LazyLock<Interrupts> = LazyLock::new(Interrupts::default);
        Context {
            unique: Unique(0),
            opcode: Opcode::Lookup,
            uid,
            gid,
            pid: std::process::id(),
            may_block: true,
            extensions: &EXTENSIONS,
            interrupts: &INTERRUPTS,
            late: None,
            poll_handle: None,
        }
    }

    pub(crate) fn with_late(self, late: &'a LateOffer<'a>) -> Context<'a> {
        let late = Some(late);
        Context { late, ..self }
    }

    pub(crate) fn with_poll_handle(self, poll_handle: Option<PollHandle>) -> Context<'a> {
        Context {
            poll_handle,
            ..self
        }
    }

    /// The request's number, unique on this connection while the request is open.
    pub fn unique(&self) -> Unique {
        Unique(self.unique.0 & !UNIQUE_RESEND)
    }

    /// The request's operation.
    pub fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// The caller's file-system user id, in the server's user namespace; `None` for a request without a
    /// caller, which then runs as the server itself.
    pub fn uid(&self) -> Option<u32> {
        (self.uid != NO_ID).then_some(self.uid)
    }

    /// The caller's file-system group id; `None` without a caller. Requests do not carry supplementary
    /// groups, see [`supplementary_group`](Self::supplementary_group).
    pub fn gid(&self) -> Option<u32> {
        (self.gid != NO_ID).then_some(self.gid)
    }

    /// The caller's thread id in the server's pid namespace, 0 when it has none there.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The one supplementary group that the kernel sends with a creation when it equals the
    /// parent's group (`CREATE_SUPP_GROUP`).
    pub fn supplementary_group(&self) -> Option<u32> {
        self.extensions.supplementary_group()
    }

    /// Name and value of the security label that a new file must carry (`SECURITY_CTX`).
    pub fn security_context(&self) -> Option<(&'a std::ffi::CStr, &'a [u8])> {
        self.extensions.security_context()
    }

    /// In [`poll`](crate::FileSystem::poll): the handle for
    /// [`Notifier::poll_wakeup`](crate::Notifier::poll_wakeup) once one of the events occurs; `None` when no
    /// caller waits for it.
    pub fn poll_handle(&self) -> Option<PollHandle> {
        self.poll_handle
    }

    /// Whether the calling thread may sleep for long (disk, network, another lock holder).
    ///
    /// False on a thread that other requests wait for: finish without sleeping, or return
    /// [`Errno::DEFER`] before anything was changed.
    pub fn may_block(&self) -> bool {
        self.may_block
    }

    /// The first line of an operation that is known to take long.
    ///
    /// # Errors
    /// [`Errno::DEFER`] where the thread may not sleep.
    pub fn require_blocking(&self) -> Result<()> {
        if self.may_block {
            Ok(())
        } else {
            Err(Errno::DEFER)
        }
    }

    /// Takes the request, to be answered later, from any thread, while no thread of the library waits for it.
    /// The method then returns [`Errno::LATER`]; if it returns anything else, that is the answer, and the
    /// [`Late`] has no effect. `T` is what the method returns, see [`LateAnswer`].
    ///
    /// Comes before the method has changed anything, since it may fail:
    ///
    /// # Errors
    /// [`Errno::DEFER`] when [`SessionConfig::late_max`](crate::SessionConfig::late_max) requests are out and this
    /// thread may not sleep; where it may, this call waits for one of them. `ENOTCONN` when the session ends,
    /// `EINTR` when the client was signalled meanwhile. `EIO`, and a line in the log, for a `T` of another method,
    /// for a second call, and where an answer is needed now: while the state of a request is looked up that a
    /// process which died had begun (over virtio-fs, see [`FileSystem::recover`](crate::FileSystem::recover)).
    pub fn answer_later<T: LateAnswer>(&self) -> Result<Late<T>> {
        let late = self.late.ok_or(Errno::EIO)?;
        late.take(self.interrupts, self.may_block)
    }

    /// Runs `wait`, a system call or a wait that another process ends, so that the client's signal
    /// interrupts it.
    ///
    /// While `wait` runs, an INTERRUPT for this request sets the token and signals this thread until `wait`
    /// has returned, so that its system calls return `EINTR`. A wait that is no system call reads
    /// [`InterruptToken::is_set`] at intervals. Only where [`may_block`](Self::may_block) is true.
    ///
    /// # Errors
    /// `EINTR` when the request was interrupted before or during `wait`, `ENOTCONN` when the session ends;
    /// else those of `wait`.
    pub fn interruptible<T>(&self, wait: impl FnOnce(&InterruptToken) -> Result<T>) -> Result<T> {
        self.interrupts.run(self.unique, wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_of_a_test_has_its_ids_and_may_sleep() {
        let context = Context::of(1000, u32::MAX);
        assert_eq!((context.uid(), context.gid()), (Some(1000), None));
        assert_eq!(context.require_blocking(), Ok(()));
        assert_eq!(context.interruptible(|token| Ok(token.is_set())), Ok(false));
        assert_eq!(context.answer_later::<()>().unwrap_err(), Errno::EIO);
    }
}
