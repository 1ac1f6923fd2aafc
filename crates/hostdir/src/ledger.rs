//! A record of a client's session, in memory that outlives the process.
//!
//! A supervisor makes a [`Ledger`] for each connection and gives it to every worker that serves it, one
//! after the other. The worker records what its client may know before the client gets the answer. When
//! the worker dies, the next one finds all nodes, open files and owners of locks there.
//!
//! **Cost.** A few stores to shared memory, under the lock that a lookup or an open holds anyway; no
//! system call, except when a table grows. Without a ledger, a check of an `Option`.
//!
//! **Dying between two stores.** Stores are in the memory in order, up to the last one. Each record has a
//! state word, which is stored last when the record is filled, and first when it is freed; a record in use
//! is changed one word at a time, or (a place) beside the old one. So a record is complete, or absent.
//!
//! **Lookups** are counted up before the client gets the answer, and down when it sends FORGET. A request
//! that was carried out but not answered is replayed by the next worker, so a lookup may count twice: the
//! node then stays until the session ends, which costs memory only. It never counts too little, because
//! FORGETs are *not* replayed: a lost one costs the same as a lookup that counts twice.
//!
//! **Trust.** None: the worker that died may have been compromised. The reader checks everything like
//! input from a client.
//!
//! | table | a record | most |
//! |---|---|---|
//! | nodes, by index | state and generation, lookups, mount, type, handle (or number and birth) | 2^24 |
//! | places, by the node's index | two places (parent, name), at one of which the node is; a handle of more than 32 bytes | 2^24 |
//! | files and directories, by index | state and generation, node, flags, kind of `flock(2)` | 2^20 each |
//! | owners of locks | state, node, owner, open file, process | 15,360 |
//! | mounts, by number | state, directory and name that it is mounted on | 7,168 |
//! | names, under a policy, in any order | state, rank, node, directory and name | 2^24 |
//! | the last audit records | state, request, digest of the record | 1024 |
//!
//! The file is sparse: unused records take no memory. When the client has forgotten most of many nodes, that of
//! their records and names is given back, and the header keeps the highest generation.

mod audit_records;
mod fd_store;
mod memory;
mod names;
mod opener;
mod opens;
mod read;
mod records;
mod route;
mod state_tables;
mod table;
mod words;

pub(crate) use audit_records::{AuditId, Before};
pub use fd_store::FdStore;
pub(crate) use fd_store::{Contents, Key, contents};
pub use memory::Ledger;
pub(crate) use names::{NameNote, NamesRead, Rank};
pub(crate) use opener::OpenerIds;
pub(crate) use opens::{FileNote, Listing, OpenRecord};
pub(crate) use read::{MountRecords, NodeRecord, Records};
pub(crate) use records::RETRYING_MAX;
pub(crate) use route::Route;
pub(crate) use state_tables::{NotedPlace, OwnerNote, StateTables};

#[cfg(test)]
mod tests;
