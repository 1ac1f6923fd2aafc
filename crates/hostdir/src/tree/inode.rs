//! One inode that the kernel has looked up: its lookup count, what leads to it (handle, place, descriptor),
//! and what was reported of it. Makes no system calls except closing descriptors.

use super::dax_state::DaxState;
use super::followed::Followed;
use super::lower_inode::{self, LowerInode};
use super::lower_mount;
use super::names::Names;
use super::noted::{CachedVersion, Noted, NotedBits};
use super::reported::ReportedAttributes;
use super::uses::Uses;
use crate::identity::Identity;
use rustix::fs::FileType;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thrufs_abi::NodeId;

pub(crate) type LowerMount = lower_mount::LowerMount<Inode>;
pub(crate) type Place = lower_inode::Place<Inode>;

/// Shared by the requests that use it; the table of nodes holds it until the kernel forgets it.
pub(crate) struct Inode {
    node: NodeId,
    mount: Arc<LowerMount>,
    pub(crate) file_type: u32,
    lookups: AtomicU64,
    pub(crate) lower: LowerInode<Inode>,
    /// Forgotten, and kept for `export`.
    pub(crate) dormant: AtomicBool,
    /// Owner, group and mode as last reported to the kernel above.
    pub(crate) reported: ReportedAttributes,
    pub(crate) noted: NotedBits,
    pub(crate) cached_version: CachedVersion,
    pub(crate) uses: Uses,
    /// By which it was looked up; tracked under a policy.
    pub(crate) names: Names,
    /// How its changes beneath are told.
    pub(crate) followed: Followed,
    /// Whether a guest maps it.
    pub(crate) dax: DaxState,
}

pub(crate) struct NewInode<'a> {
    pub(crate) identity: Identity,
    pub(crate) mount: &'a Arc<LowerMount>,
    pub(crate) file_type: u32,
    pub(crate) place: Option<Box<Place>>,
}

impl lower_inode::Directory for Inode {
    fn node(&self) -> NodeId {
        self.node
    }

    fn lower_mut(&mut self) -> &mut LowerInode<Inode> {
        &mut self.lower
    }
}

impl Inode {
    pub(super) fn new(node: NodeId, lookups: u64, new: NewInode<'_>) -> Inode {
        Inode {
            node,
            mount: Arc::clone(new.mount),
            file_type: new.file_type,
            lookups: AtomicU64::new(lookups),
            lower: LowerInode::new(new.identity, new.place),
            dormant: AtomicBool::new(false),
            reported: ReportedAttributes::none(),
            noted: NotedBits::default(),
            cached_version: CachedVersion::default(),
            uses: Uses::default(),
            names: Names::default(),
            followed: Followed::default(),
            dax: DaxState::default(),
        }
    }

    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.lower.identity
    }

    pub(crate) fn mount(&self) -> &Arc<LowerMount> {
        &self.mount
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.file_type == libc::S_IFDIR
    }

    pub(crate) fn is_regular(&self) -> bool {
        self.file_type == libc::S_IFREG
    }

    pub(crate) fn is_symbolic_link(&self) -> bool {
        self.file_type == libc::S_IFLNK
    }

    pub(crate) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.file_type)
    }

    /// Whether the next lookup gives the guest another inode of the file: it would map this one, which rules forbid
    /// now, until it forgets it. While the file is open, both would have it open in different ways.
    pub(crate) fn is_to_be_replaced(&self) -> bool {
        self.dax.is_withdrawn() && !self.uses.is_open()
    }

    pub(crate) fn lookups(&self) -> u64 {
        self.lookups.load(Ordering::Acquire)
    }

    pub(crate) fn add_lookup(&self) {
        if self.lookups.fetch_add(1, Ordering::AcqRel) == 0 {
            self.dax.reset();
        }
    }

    /// Takes back lookups and returns how many are left; never below zero, whatever a client forgets.
    pub(crate) fn take_lookups(&self, count: u64) -> u64 {
        let take = |lookups: u64| Some(lookups.saturating_sub(count));
        let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
        let before = self.lookups.fetch_update(set, fetch, take);
        before.unwrap_or(0).saturating_sub(count)
    }

    /// A name was removed: nothing is cached once it is no longer open.
    pub(crate) fn name_removed(&self) {
        let uses = self.uses.lock();
        if uses.is_some() {
            self.noted.set(Noted::LostAName);
        } else {
            drop(uses);
            self.lower.drop_descriptor();
        }
    }

    /// The last name was removed: its space is freed once it is no longer open.
    pub(super) fn last_name_removed(&self) {
        self.lower.set_gone();
        self.name_removed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inode_fits_in_300_bytes() {
        // With the two counts of Arc, a slot in the table and an entry in the map. glibc takes as much for 8 bytes less.
        let bytes = size_of::<Inode>() + 16 + 24 + 8;
        assert!(bytes <= 248, "{bytes} bytes an inode");
    }
}
