//! What nobody reaches through a mount who does not reach it beneath.
//!
//! * [`acls`]: files with ACLs, where none are served.
//! * [`links`]: directories and symbolic links that change places.
//! * [`owners`]: files whose owner is another since the kernel above asked.
//! * [`ioctls`]: commands on files that the kernel above does not know.
//! * [`shares`]: descriptors that one user takes from others.
//! * [`strangers`]: what else the kernel above passes on.
//! * [`tables`]: what is written down of all of it.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod acls;
mod ioctls;
mod links;
mod owners;
mod shares;
mod strangers;
mod tables;
