//! Where a run takes place, and what remains of it: nothing.
//!
//! ```text
//! front ──────► clean-up ─────────► inside ──► servers, measurements
//! (terminal,    (a session of its   (process 1 of its namespace
//!  Ctrl-C)       own; the folder)    where root has started it)
//! ```
//!
//! * All that a run of root's mounts and starts lives in a mount and a process namespace of its own: with the
//!   first process in there, **inside**, everything ends. An ordinary user's servers mount by fusermount3, and
//!   the clean-up process ends them.
//! * The **clean-up** process waits, outside of the terminal's session, for the end of the run or of the front. It
//!   ends what is left and removes the scratch folders. When it is killed itself, the front does so.
//! * Both adopt processes whose parents were killed (`PR_SET_CHILD_SUBREAPER`), so that no process escapes.
//! * The front and the run hold the two ends of a pipe, the **parent pipe**: a byte asks the run to come to an
//!   end with what it has measured, and its end (the front has gone, or is in a hurry) ends the run at once.
//! * If all are killed at once, the scratch folder stays, with a lock in it that no process holds.
//!   The next run in that directory removes it.

pub(crate) mod cleanup;
pub(crate) mod front;
mod namespaces;
mod refusal;
mod remains;
mod scratch;
mod tree;

pub(crate) use namespaces::enter;
pub(crate) use tree::{kind, same_tree};

/// Whether a run has namespaces, and can have the kernel drop its caches.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
