//! The served tree: the inodes that the kernel has looked up, what leads to them, and the mounts beneath.

mod descriptor_limits;
mod descriptors;
mod housekeeping;
mod identity;
mod idle_expiry;
mod inode;
mod keeping;
mod mounts;
mod names;
mod nodes;
mod retries;
mod slots;

pub(crate) use descriptor_limits::DescriptorLimits;
pub(crate) use descriptors::Descriptors;
pub(crate) use housekeeping::start;
pub(crate) use identity::{HANDLE_BYTES_MAX, Identity};
pub(crate) use inode::{Descriptor, Inode, Place};
pub use mounts::{Handles, MountProperties};
pub(crate) use mounts::{LowerMount, Mounts, mount_id, mount_id_mask, open_beneath};
#[cfg(test)]
pub(crate) use names::Names;
pub(crate) use names::{KnownName, NAMES_MAX, Noting};
pub(crate) use nodes::{NewInode, Nodes};
pub(crate) use retries::{ATTEMPTS_MAX, Retries};
#[cfg(test)]
pub(crate) use slots::GENERATION_MAX;
pub(crate) use slots::Slots;
