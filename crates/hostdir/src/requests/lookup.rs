//! LOOKUP: one component beneath a directory, never a path. `.` and `..` are answered only with `export`,
//! for file handles of clients. Under a policy, names that fold case are refused here.

use crate::follow::PendingLookup;
use crate::host::Host;
use crate::tree::Inode;
use rustix::fs::Statx;
use std::ffi::CStr;
use std::os::fd::AsFd;
use std::sync::Arc;
use thrufs::{Context, Entry, Errno, Result};
use thrufs_abi::{Name, NodeId};

impl Host {
    pub(crate) fn lookup(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
    ) -> Result<Entry> {
        if name.is_dot() {
            return self.lookup_again(parent);
        }
        if name.is_dot_dot() {
            return self.lookup_parent(parent);
        }
        let parent = self.tree.nodes.get(parent)?;
        let pending = self.follow.begin_lookup(context.uid(), &parent);
        let found = if self.tree.retries.begins(context) {
            self.tree.lookup_and_keep(context, &parent, name.as_cstr())
        } else {
            self.tree.lookup_name(&parent, name.as_cstr())
        };
        match found {
            Ok(found) => match self.is_absent(context, &parent, name.as_cstr(), &found.1) {
                Ok(false) => Ok(self.entry_of_name(&pending, name.as_cstr(), &found)),
                hidden => {
                    self.tree.forget(found.0.node(), 1);
                    hidden.and_then(|_| absent(&pending))
                }
            },
            Err(Errno::ENOENT) => absent(&pending),
            Err(error) => Err(error),
        }
    }

    /// Whether a name that was found is hidden. Errors: see
    /// `Tree::require_case_sensitive`; `DEFER`.
    fn is_absent(
        &self,
        context: &Context<'_>,
        parent: &Arc<Inode>,
        name: &CStr,
        stat: &Statx,
    ) -> Result<bool> {
        if self.judge.has_policy() {
            self.tree
                .require_case_sensitive(self.tree.descriptor(parent)?.as_fd(), name)?;
        }
        let Some(hidden) = self.judge.hidden_from_lookup(parent, name, stat)? else {
            return Ok(false);
        };
        match self.judge.refuse_entry(context, &hidden, Errno::ENOENT) {
            Errno::ENOENT => Ok(true),
            defer => Err(defer),
        }
    }

    /// `.`: the node itself, which the kernel may have forgotten (`export`).
    fn lookup_again(&self, node: NodeId) -> Result<Entry> {
        if !self.config.export {
            return Err(Errno::ESTALE);
        }
        let inode = self.tree.nodes.add_lookup(node)?;
        let pending = self.follow.unfollowed_lookup();
        match self.tree.stat(&inode) {
            Ok(stat) => Ok(self.entry(&pending, &inode, &stat)),
            Err(error) => {
                self.tree.forget(node, 1);
                Err(error)
            }
        }
    }

    /// `..`: the parent of a directory, never above the root.
    fn lookup_parent(&self, node: NodeId) -> Result<Entry> {
        if !self.config.export {
            return Err(Errno::ESTALE);
        }
        let inode = self.tree.nodes.get(node)?;
        if inode.node() == NodeId::ROOT {
            return self.lookup_again(NodeId::ROOT);
        }
        let parent = self.tree.parent_of(&inode)?;
        self.tree.must_be_inside(&parent)?;
        if self.tree.is_root(&parent)? {
            return self.lookup_again(NodeId::ROOT);
        }
        // Above the root of a submount is another mount, with its own handles.
        let mount = self.tree.mount_of(&parent, inode.mount())?;
        let pending = self.follow.unfollowed_lookup();
        let (found, stat) = self.tree.lookup_opened_on(&mount, None, parent.as_fd())?;
        Ok(self.entry(&pending, &found, &stat))
    }
}

/// The answer for a name that does not exist.
fn absent(pending: &PendingLookup<'_>) -> Result<Entry> {
    let timeout = pending.negative_timeout();
    if timeout.is_zero() {
        Err(Errno::ENOENT)
    } else {
        Ok(Entry::negative(timeout))
    }
}
