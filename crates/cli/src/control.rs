//! The control socket of a mount: `thrufs explain` and `thrufs ctl` ask the server by it.
//!
//! | room | what it does |
//! |---|---|
//! | `protocol` | what is said: a JSON object a line |
//! | `place` | where the sockets are, making and removing one |
//! | `server`, `connection` | the thread of the worker that answers |
//! | `answer` | what it answers |
//! | `finding`, `client` | from a path to its mount and its server, and asking that |
//!
//! ```text
//! supervisor ── binds, names, removes ──► /run/thrufs/0-53.socket ◄── connects ── thrufs explain
//!     └── hands over the listening socket ──► worker: one thread answers
//! ```
//!
//! **Who may touch what.** The supervisor alone makes, names and removes the file; what one leaves that
//! was killed is removed by the next. The worker's thread has no name to go by: it answers whom the
//! kernel has let connect, looks at the peer's user once more, and tells from the server's tables,
//! never through the mount.

pub(crate) mod answer;
pub(crate) mod client;
mod connection;
pub(crate) mod finding;
pub(crate) mod place;
pub(crate) mod protocol;
pub(crate) mod server;
