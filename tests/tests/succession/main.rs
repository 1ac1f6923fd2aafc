//! A session that continues in another server: saved and restored by path and by handle, or recorded in a
//! ledger by a server that died. The client must not be able to tell.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod again;
mod forged;
mod ground;
mod hostile;
mod locks;
mod moved;
mod owners;
mod places;
mod rules;
#[allow(dead_code)]
#[path = "../policy/samples.rs"]
mod samples;
mod shares;
mod walked;
