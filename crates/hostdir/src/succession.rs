//! Resumes a session that another process began.
//!
//! A client identifies inodes and open files by the numbers that it was given. So a resuming process must
//! use the same numbers for the same things. There are two ways:
//!
//! * [`save`] and [`restore`]: the process is alive and writes its state for another one, which may be on
//!   another machine (live migration).
//! * [`recover`]: the process is dead. Its [ledger](crate::ledger) is read.
//!
//! Either way the same records are read, [in the same order](order), and the tables [rebuilt](rebuild): nodes under their ids with their lookups, open files under
//! their handles, opened again, locks taken again. Ids that were freed are not given again, so that no id
//! changes its meaning for a client.
//!
//! **How inodes are found** on the other side: by their *names*, from the root on, where the tree has the same there
//! (shared, or a copy), or by their *file handles*, on the same file system. An inode that is not found
//! answers every request with ESTALE, unless the whole restore is to fail then.
//!
//! **Handles and trust.** A name never leads out of the served tree. A file handle leads to any file of the
//! file system, and the sender of a state chooses them. An operator who does not trust the carrier of
//! states (a machine's manager, commonly) leaves [`Migration::accept_handles`](crate::Migration::accept_handles) off.

mod find;
mod order;
mod places;
mod rebuild;
mod recover;
mod restore;
mod save;
mod stream;
