//! The privileges of a file (set-user-id, set-group-id, file capabilities) fall when somebody changes
//! it, and stay when they have to: on every path that data can take, as on the file system beneath.
//!
//! [`matrix`] does each thing twice, through the mount and on a like file beneath, and compares what
//! became of the two. Where they differ, [`differences`] says so with the reason; an entry there that
//! is no longer true fails as well. [`residue`] is about bits that the kernel above cannot know of.

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
