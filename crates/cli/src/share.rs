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
//! A worker serves one connection and ends with it: what a guest may have made of it does not reach the
//! next guest, nor the one beside it. The next worker is there, shut in and ready, before anybody connects.
//! When a worker dies before its connection does, another goes on with that.

mod callers;
mod crew;
pub(crate) mod door;
mod events;
mod figures;
mod id_maps;
mod keeping;
pub(crate) mod launch;
mod strongbox;
mod supervisor;
mod tree;
pub(crate) mod worker;

pub(crate) use launch::ShareArguments;
pub(crate) use tree::SharedTree;
