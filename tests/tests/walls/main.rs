//! Callers reach nothing through a mount that they do not reach beneath.
//!
//! * [`acls`]: files with ACLs, where none are served.
//! * [`links`]: directories and symbolic links that change places.
//! * [`owners`]: files with a new owner since the kernel above asked.
//! * [`ioctls`]: commands on files that the kernel above does not know.
//! * [`shares`]: descriptors that one user takes from others.
//! * [`strangers`]: what else the kernel above passes on.
//! * [`tables`]: the tables of the documentation.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod acls;
mod ioctls;
mod links;
mod owners;
mod shares;
mod strangers;
mod tables;
