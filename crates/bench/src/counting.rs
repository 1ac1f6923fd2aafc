//! Counts what an operation costs, in a measurement of its own that is not timed: the requests that a
//! mount sends, by opcode, and the system calls that its server's processes make. Works for every FUSE
//! server, needs root and tracefs.
//!
//! * **Requests** are those that pass the tracepoint `fuse:fuse_request_send` with the mount's connection:
//!   a counter for each opcode on each processor. On the ring a request without a waiter (RELEASE,
//!   readahead) passes it too, as far as the lab's test `requests_are_counted_over_the_ring` shows. FORGET never
//!   does: the kernel does not count it as a request.
//! * **System calls** are those that pass `raw_syscalls:sys_enter` in any thread of the server's processes,
//!   of their children, and in what they start meanwhile. What the kernel does for a server without being
//!   called (the ring's task work) is none.
//!
//! Counters have no buffers: they are exact, however busy the machine is. What else uses the mount in the
//! meantime is counted as well.

mod connection;
mod counters;
pub(crate) mod outside;
pub(crate) mod servers;
mod tracepoints;

use crate::Outcome;
use crate::results::Counts;
use connection::Connection;
use counters::Counting;
use rustix::process::Pid;
use std::path::Path;

/// A count that runs, wherever it does.
pub enum Running {
    /// In this process.
    Here(Counting),
    /// See `outside`.
    Outside,
}

impl Running {
    /// Begins to count the requests of what is mounted at `mount`, and the system calls of `servers`, their
    /// threads and children. Where none are given, those that serve the mount are looked for, here and in the
    /// namespace that the run has left; where none are found, no system calls are counted.
    ///
    /// # Errors
    /// As a text: why counting cannot be had here. It is so for all mounts of a run, then.
    pub fn start(mount: &Path, servers: &[Pid]) -> Outcome<Running> {
        if !servers.is_empty() {
            return Counting::start(mount, servers).map(Running::Here);
        }
        if outside::start(mount)? {
            return Ok(Running::Outside);
        }
        let servers = servers::of_connection(Connection::of(mount)?);
        Counting::start(mount, &servers).map(Running::Here)
    }

    /// Ends, and says what `operations` operations have cost.
    ///
    /// # Errors
    /// The counter outside has gone.
    pub fn stop(self, operations: u64) -> Outcome<Counts> {
        match self {
            Running::Here(counting) => counting.stop(operations),
            Running::Outside => outside::stop(operations),
        }
    }
}

#[cfg(test)]
mod tests;
