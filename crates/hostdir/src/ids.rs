//! Ids as words of a saved session.

use serde::{Deserialize, Serialize};
use thrufs_abi::{FileHandle, LockOwner, NodeId};

#[derive(Serialize, Deserialize)]
#[serde(remote = "NodeId")]
pub(crate) struct NodeWord(u64);

#[derive(Serialize, Deserialize)]
#[serde(remote = "FileHandle")]
pub(crate) struct HandleWord(u64);

#[derive(Serialize, Deserialize)]
#[serde(remote = "LockOwner")]
pub(crate) struct OwnerWord(u64);
