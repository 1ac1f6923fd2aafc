//! Numbers as words of records, and ids as words of a saved session.

use serde::{Deserialize, Serialize};
use thrufs_abi::{FileHandle, LockOwner, NodeId};

#[derive(Serialize, Deserialize)]
#[serde(remote = "NodeId")]
pub(super) struct NodeWord(u64);

#[derive(Serialize, Deserialize)]
#[serde(remote = "FileHandle")]
pub(super) struct HandleWord(u64);

#[derive(Serialize, Deserialize)]
#[serde(remote = "LockOwner")]
pub(super) struct OwnerWord(u64);

pub(super) fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

pub(super) fn join(upper: u32, lower: u32) -> u64 {
    u64::from(upper) << 32 | u64::from(lower)
}
