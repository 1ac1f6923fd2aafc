//! The privileges of a file (set-user-id, set-group-id, file capabilities) fall when another user changes
//! it, and stay when they have to: on every data path, as on the file system beneath.
//!
//! [`matrix`] does each thing through the mount and on a like file beneath, and compares the two.
//! [`differences`] names each difference with its reason; an entry that is no longer true fails as well.
//! [`residue`] is about bits that the kernel above cannot know of.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod callers;
mod differences;
mod mapped;
mod matrix;
mod operations;
mod privileges;
mod residue;
mod ways;
