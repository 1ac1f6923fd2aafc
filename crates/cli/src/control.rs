//! The control socket of a server, which `thrufs explain` and `thrufs ctl` query.
//!
//! | module | content |
//! |---|---|
//! | `protocol` | requests and replies: a JSON object per line |
//! | `socket` | the files of the sockets |
//! | `server`, `connection` | the thread of the worker that serves it |
//! | `answer`, `reload` | the replies |
//! | `finding`, `client`, `query_error` | from a path to its mount, and the client |
//!
//! ```text
//! supervisor ── binds, names, removes ──► /run/thrufs/0-53.socket ◄── connects ── thrufs explain
//!     └── passes the listening socket ──► worker: one thread replies
//! ```
//!
//! **Access.** Only the supervisor creates, names and removes the file; the next supervisor
//! removes a stale one. The worker's thread answers peers that the kernel let connect, checks their user
//! again, and reads the server's tables, never the mount.

pub(crate) mod answer;
pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod finding;
pub(crate) mod protocol;
pub(crate) mod query_error;
pub(crate) mod reload;
pub(crate) mod server;
pub(crate) mod socket;
