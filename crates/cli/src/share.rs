//! `thrufs share`: a directory for virtual machines, over vhost-user.
//!
//! | room | what it does |
//! |---|---|
//! | `launch` | what was asked for, looked at |
//! | `door` | the socket that front ends connect to, and the file that says whose it is |
//! | `supervisor`, `events` | lets front ends in, and has a worker for each |
//! | `crew` | the workers |
//! | `figures` | what they say of themselves, together |
//! | `keeping`, `strongbox` | what outlives a worker that dies |
//! | `id_maps` | ids of a user namespace that others have to give |
//! | `worker` | the process that serves one of them, shut in |
//! | `tree` | the directory as it is served to the guest of the moment |
//!
//! ```text
//!                 thrufs share ──starts──► worker ──► ended with its connection
//! QEMU ─connects─► (the supervisor:  ──passes on──►   │
//!                   holds the sockets) ──starts──► the next one, waiting
//! QEMU ─connects─►                   ──passes on──►   │
//! ```
//!
//! A worker serves one connection and ends with it: an attack by a guest does not reach the next guest,
//! nor one beside it. The next worker is on standby, confined and ready, before a front end connects.
//! When a worker dies before its connection ends, the next one resumes it.

mod callers;
mod events;
mod figures;
mod id_maps;
mod keeping;
pub(crate) mod launch;
pub(crate) mod listener;
mod strongbox;
mod supervisor;
mod tree;
pub(crate) mod worker;
mod workers;

pub(crate) use launch::ShareArguments;
pub(crate) use tree::SharedTree;
