//! `thrufs share`: a directory for virtual machines, over vhost-user.
//!
//! | room | what it does |
//! |---|---|
//! | `launch` | what was asked for, looked at |
//! | `door` | the socket that front ends connect to, and the file that says whose it is |
//! | `supervisor`, `events` | lets front ends in, and has a worker for each |
//! | `id_maps` | ids of a user namespace that others have to give |
//! | `worker` | the process that serves one of them, shut in |
//! | `tree` | the directory as it is served to the guest of the moment |
//!
//! ```text
//!                 thrufs share ──starts──► worker ──► ended with its connection
//! QEMU ─connects─► (the supervisor:  ──hands over──►  │
//!                   holds the socket) ──starts──► the next one, waiting
//! ```
//!
//! A worker serves one connection and ends with it: what a guest may have made of it does not reach the
//! next guest. The next worker is there, shut in and ready, before anybody connects.

mod callers;
pub(crate) mod door;
mod events;
mod id_maps;
pub(crate) mod launch;
mod supervisor;
mod tree;
pub(crate) mod worker;

pub(crate) use launch::ShareArguments;
pub(crate) use tree::SharedTree;
