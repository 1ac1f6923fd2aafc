//! `thrufs share`: a directory for virtual machines, over vhost-user.
//!
//! | module | content |
//! |---|---|
//! | `launch` | checking the arguments |
//! | `listener` | the socket of front ends, and its pid file |
//! | `client_sockets` | the sockets for queries, upgrades and metrics |
//! | `supervisor` | accepting front ends, and starting workers |
//! | `workers` | the worker processes |
//! | `figures` | their statistics |
//! | `connection`, `fd_store` | what outlives a worker |
//! | `id_maps` | id maps of a user namespace |
//! | `worker` | the process that serves one front end, confined |
//! | `tree` | the served directory, with the current session |
//!
//! ```text
//!                 thrufs share ──starts──► worker ──► ends with its connection
//! QEMU ─connects─► (the supervisor:  ──passes on──►   │
//!                   holds the sockets) ──starts──► the next one, on standby
//! QEMU ─connects─►                   ──passes on──►   │
//! ```
//!
//! A worker serves one connection and ends with it: an attack by a guest does not reach the next guest,
//! nor one beside it. The next worker is on standby, confined and ready, before a front end connects.
//! When a worker dies before its connection ends, the next one resumes it.

mod callers;
mod client_sockets;
mod connection;
mod error;
mod figures;
mod id_maps;
mod incoming;
pub(crate) mod launch;
pub(crate) mod listener;
mod supervisor;
mod tree;
pub(crate) mod worker;
mod workers;

pub(crate) use error::ShareError;
pub(crate) use launch::ShareArguments;
pub(crate) use supervisor::upgrade::main as go_on;
pub(crate) use tree::SharedTree;
