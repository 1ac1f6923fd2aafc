//! Files that a guest maps from the host's page cache, under rules that change.
//!
//! A mapping is part of what an open grants: it stays while the file is open, whatever rules say then. A guest that
//! was told to map a file does so at each open, also of what is redacted now. So under other rules than those by
//! which it was told, the file is not opened again: the guest looks it up anew (`ESTALE`), and gets another inode
//! ([`is_to_be_replaced`](Inode::is_to_be_replaced)), which it maps or not by the rules in force.

use super::Files;
use crate::tree::Inode;
use std::sync::Arc;
use thrufs::{Errno, Result};

impl Files {
    /// Withdraws the mapping of a file for which the rules in force permit something else than those by which the
    /// guest was told to map it. Fails for such a file: with `EBUSY` while it is open, then with `ESTALE`.
    pub(super) fn require_mapping_as_granted(&self, inode: &Arc<Inode>) -> Result<()> {
        let Some(granted) = inode.dax.granted().filter(|_| self.judge.has_policy()) else {
            return Ok(());
        };
        if !inode.dax.is_withdrawn() && self.judge.lasting_access(inode) == Some(granted) {
            return Ok(());
        }
        self.tree.dax.withdraw(inode);
        Err(match inode.uses.is_open() {
            true => Errno::EBUSY,
            false => Errno::ESTALE,
        })
    }

    /// The same for all files, after the rules have changed. Those that are not open are unmapped.
    pub(crate) fn withdraw_mappings(&self) {
        if self.tree.dax.window().is_some() {
            for (_, inode) in self.tree.nodes.iter() {
                let _ = self.require_mapping_as_granted(&inode);
            }
        }
    }
}
