//! The control socket of a server, which `thrufs explain` and `thrufs ctl` query.
//!
//! | room | what it does |
//! |---|---|
//! | `protocol` | what is said: a JSON object a line |
//! | `socket` | where the sockets are, making and removing one |
//! | `server`, `connection` | the thread of the worker that answers |
//! | `answer` | what it answers |
//! | `finding`, `client` | from a path to its mount and its server, and asking that |
//!
//! ```text
//! supervisor ── binds, names, removes ──► /run/thrufs/0-53.socket ◄── connects ── thrufs explain
//!     └── hands over the listening socket ──► worker: one thread answers
//! ```
//!
//! **Who may touch what.** Only the supervisor creates, names and removes the file; the next supervisor
//! removes a stale one. The worker's thread answers peers that the kernel let connect, checks their user
//! again, and reads the server's tables, never the mount.

pub(crate) mod answer;
pub(crate) mod client;
mod connection;
pub(crate) mod finding;
pub(crate) mod protocol;
pub(crate) mod server;
pub(crate) mod socket;
