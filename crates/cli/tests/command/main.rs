//! The command: messages, mounts, shares, clean-up.
#![allow(clippy::unwrap_used)]

mod doctor;
#[path = "../ground/mod.rs"]
mod ground;
mod guest;
mod messages;
mod migration;
mod mounting;
mod owners;
mod policy;
mod share;
mod stuck;
mod unmounting;
mod walls;
mod workspace;
