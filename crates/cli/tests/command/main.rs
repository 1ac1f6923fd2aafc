//! The command: messages, mounts, shares, clean-up.
#![allow(clippy::unwrap_used)]

mod doctor;
mod draft;
mod draft_apply;
mod draft_diff;
mod draft_hostile;
#[path = "../ground/mod.rs"]
mod ground;
mod list;
mod messages;
mod migration;
mod mount_helper;
mod mounting;
mod operate;
mod options;
mod owners;
mod peers;
mod podman;
mod policy;
mod run_ends;
mod run_escapes;
mod run_ground;
mod run_mounts;
mod run_report;
mod run_rules;
mod run_saved;
mod run_terminal;
mod run_users;
mod share;
mod stuck;
mod walls;
mod workspace;
