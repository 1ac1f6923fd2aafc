//! The known names of an inode, for rules on paths.
//!
//! Requests identify inodes by number, rules by path. So under a policy each inode records the names by
//! which it was looked up, and a path is joined from them on demand; a renamed directory changes the paths
//! of everything in it.
//!
//! A file has as many names as links. Names that no client has looked up are unknown, and names changed on
//! the host are out of date. At most as many names are kept as there are links; the oldest are dropped
//! first. The last one stays when it is removed: the rules judge an open file by the name that it had.
//!
//! **Races.** A name is found by one system call and recorded a little later; in between it may change. So
//! a rename or removal is counted before and after, by [`Rules::changing_names`](crate::judge::Rules), and
//! a lookup that overlaps one is repeated. If that does not end, all possible names count.
//!
//! **When the process dies,** the names are in the [ledger](crate::ledger). A [`rename`](crate::requests::rename)
//! records the new name before, beside the others, so that the valid one is always among them; a resuming
//! process checks which of the two it is.
//!
//! A name refers to its directory by node id, so that names never keep inodes alive. The kernel knows the
//! directories of all names that it uses.

use crate::ledger::{NameNote, Notes, Rank};
use parking_lot::Mutex;
use thrufs_abi::NodeId;

/// Most names of a file that are kept, and that it can have under a policy: all of them are decided at each
/// open.
pub(crate) const NAMES_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownName {
    pub(crate) directory: NodeId,
    pub(crate) name: Box<[u8]>,
}

impl KnownName {
    pub(crate) fn new(directory: NodeId, name: &[u8]) -> KnownName {
        KnownName {
            directory,
            name: name.into(),
        }
    }
}

/// Where the names of a node are recorded for a resuming process ([`ledger`](crate::ledger)), if at all.
#[derive(Clone, Copy)]
pub(crate) struct Noting<'a> {
    pub(crate) notes: Option<&'a Notes>,
    pub(crate) node: NodeId,
}

impl Noting<'_> {
    fn note(self, name: &KnownName, rank: Rank) -> Option<u32> {
        self.notes?.note_name(self.node, name, rank)
    }

    fn is_latest(self, known: &Known) {
        if let (Some(notes), Some(index)) = (self.notes, known.noted) {
            notes.name_is_latest(index);
        }
    }

    fn forget(self, known: &Known) {
        if let (Some(notes), Some(index)) = (self.notes, known.noted) {
            notes.forget_name(index);
        }
    }
}

/// The names of one inode, the latest first. Empty, and nearly free, without a policy.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<Option<Box<List>>>);

#[derive(Debug, Default)]
struct List {
    names: Vec<Known>,
    /// The client has forgotten the node: the ledger has no names of it.
    is_forgotten: bool,
}

#[derive(Debug)]
struct Known {
    name: KnownName,
    /// A rename may or may not have given it.
    is_unsure: bool,
    /// Its record in the ledger.
    noted: Option<u32>,
}

impl List {
    fn put_first(&mut self, noting: Noting<'_>, name: KnownName) {
        let at = self.names.iter().position(|known| known.name == name);
        if at == Some(0) && !self.names[0].is_unsure {
            return;
        }
        let known = match at {
            Some(at) => {
                let known = self.names.remove(at);
                noting.is_latest(&known);
                Known {
                    is_unsure: false,
                    ..known
                }
            }
            None => self.new_name(noting, name, Rank::Latest),
        };
        self.names.insert(0, known);
    }

    fn put_last(&mut self, noting: Noting<'_>, name: KnownName, rank: Rank) {
        if self.names.iter().all(|known| known.name != name) {
            let known = self.new_name(noting, name, rank);
            self.names.push(known);
        }
    }

    fn new_name(&self, noting: Noting<'_>, name: KnownName, rank: Rank) -> Known {
        let is_noted = !self.is_forgotten;
        Known {
            noted: is_noted.then(|| noting.note(&name, rank)).flatten(),
            name,
            is_unsure: rank == Rank::Unsure,
        }
    }

    fn retain(&mut self, noting: Noting<'_>, keep: impl Fn(&Known) -> bool) {
        self.names.retain(|known| {
            let kept = keep(known);
            if !kept {
                noting.forget(known);
            }
            kept
        });
    }

    fn truncate(&mut self, noting: Noting<'_>, most: usize) {
        while self.names.len() > most.max(1) {
            if let Some(known) = self.names.pop() {
                noting.forget(&known);
            }
        }
    }
}

impl Names {
    /// Records the name by which an inode with `links` links was found, if `holds` is still true under the
    /// lock; returns that. A change of names makes `holds` false before it takes the lock.
    pub(crate) fn record_if(
        &self,
        noting: Noting<'_>,
        name: KnownName,
        links: u32,
        holds: impl FnOnce() -> bool,
    ) -> bool {
        let mut slot = self.0.lock();
        if !holds() {
            return false;
        }
        let list = slot.get_or_insert_default();
        list.put_first(noting, name);
        list.truncate(noting, NAMES_MAX.min(links as usize));
        true
    }

    /// Adds a name that it may have lost since. No other one is dropped for it.
    pub(crate) fn record_uncertain(&self, noting: Noting<'_>, name: KnownName) {
        let mut slot = self.0.lock();
        slot.get_or_insert_default()
            .put_last(noting, name, Rank::Last);
    }

    /// A rename to this name begins. [`renamed`](Self::renamed) or [`rename_failed`](Self::rename_failed)
    /// follows unless the process dies.
    pub(crate) fn rename_begins(&self, noting: Noting<'_>, name: KnownName) {
        let mut slot = self.0.lock();
        slot.get_or_insert_default()
            .put_last(noting, name, Rank::Unsure);
    }

    pub(crate) fn rename_failed(&self, noting: Noting<'_>, name: &KnownName) {
        if let Some(list) = self.0.lock().as_deref_mut() {
            list.retain(noting, |known| !(known.is_unsure && known.name == *name));
        }
    }

    pub(crate) fn renamed(&self, noting: Noting<'_>, from: &KnownName, to: KnownName) {
        let mut slot = self.0.lock();
        let list = slot.get_or_insert_default();
        list.put_first(noting, to.clone());
        list.retain(noting, |known| known.name != *from || known.name == to);
    }

    pub(crate) fn removed(&self, noting: Noting<'_>, name: &KnownName) {
        if let Some(list) = self.0.lock().as_deref_mut()
            && list.names.len() > 1
        {
            list.retain(noting, |known| known.name != *name);
        }
    }

    pub(crate) fn forget(&self, noting: Noting<'_>) {
        let mut slot = self.0.lock();
        if slot.is_none() && noting.notes.is_none_or(|notes| !notes.has_names()) {
            return;
        }
        let list = slot.get_or_insert_default();
        list.is_forgotten = true;
        for known in &mut list.names {
            noting.forget(known);
            known.noted = None;
        }
    }

    /// Takes the names that another process recorded.
    pub(crate) fn again(&self, noted: Vec<NameNote>) {
        let mut slot = self.0.lock();
        slot.get_or_insert_default().names = noted
            .into_iter()
            .map(|note| Known {
                name: note.name,
                is_unsure: note.is_unsure,
                noted: Some(note.index),
            })
            .collect();
    }

    /// Drops uncertain names that do not lead here; if one does, all other names that do not as well.
    pub(crate) fn settle(&self, noting: Noting<'_>, leads_here: impl Fn(&KnownName) -> bool) {
        let mut slot = self.0.lock();
        let Some(list) = slot.as_deref_mut() else {
            return;
        };
        let unsure: Vec<KnownName> = list
            .names
            .iter()
            .filter(|known| known.is_unsure)
            .map(|known| known.name.clone())
            .collect();
        if unsure.is_empty() {
            return;
        }
        let (has, has_not): (Vec<_>, Vec<_>) =
            unsure.into_iter().partition(|name| leads_here(name));
        if has.is_empty() {
            list.retain(noting, |known| !has_not.contains(&known.name));
            return;
        }
        for name in &has {
            list.put_first(noting, name.clone());
        }
        list.retain(noting, |known| {
            has.contains(&known.name) || leads_here(&known.name)
        });
    }

    pub(crate) fn latest(&self) -> Option<KnownName> {
        let slot = self.0.lock();
        Some(slot.as_ref()?.names.first()?.name.clone())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().as_ref().map_or(0, |list| list.names.len())
    }

    pub(crate) fn all(&self) -> Vec<KnownName> {
        let slot = self.0.lock();
        let names = slot.iter().flat_map(|list| &list.names);
        names.map(|known| known.name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(directory: u64, name: &str) -> KnownName {
        KnownName::new(NodeId(directory), name.as_bytes())
    }

    fn found(names: &Names, name: KnownName, links: u32) {
        assert!(names.record_if(NOWHERE, name, links, || true));
    }

    const NOWHERE: Noting<'_> = Noting {
        notes: None,
        node: NodeId(5),
    };

    #[test]
    fn uncertain_name_displaces_no_other() {
        let names = Names::default();
        found(&names, name(1, "a"), 1);
        assert!(!names.record_if(NOWHERE, name(1, "b"), 1, || false));
        assert_eq!(names.all(), [name(1, "a")]);
        names.record_uncertain(NOWHERE, name(1, "b"));
        assert_eq!(names.all(), [name(1, "a"), name(1, "b")]);
        found(&names, name(1, "a"), 1);
        assert_eq!(names.all(), [name(1, "a")]);
    }

    #[test]
    fn names_are_bounded_by_links() {
        let names = Names::default();
        found(&names, name(1, "a"), 1);
        found(&names, name(1, "b"), 2);
        found(&names, name(1, "a"), 2);
        assert_eq!(names.all(), [name(1, "a"), name(1, "b")]);
        found(&names, name(2, "c"), 2);
        assert_eq!(names.all(), [name(2, "c"), name(1, "a")]);
        found(&names, name(3, "d"), 1);
        assert_eq!(names.all(), [name(3, "d")]);
    }

    #[test]
    fn last_name_stays_when_removed() {
        let names = Names::default();
        found(&names, name(1, "a"), 1);
        found(&names, name(1, "b"), 2);
        names.removed(NOWHERE, &name(1, "b"));
        names.removed(NOWHERE, &name(1, "a"));
        assert_eq!(names.latest(), Some(name(1, "a")));
    }

    #[test]
    fn name_of_a_pending_rename_counts() {
        let names = Names::default();
        found(&names, name(1, "a"), 1);
        names.rename_begins(NOWHERE, name(1, "b"));
        assert_eq!(names.all(), [name(1, "a"), name(1, "b")]);
        names.rename_failed(NOWHERE, &name(1, "b"));
        assert_eq!(names.all(), [name(1, "a")]);
        names.rename_begins(NOWHERE, name(1, "b"));
        names.renamed(NOWHERE, &name(1, "a"), name(1, "b"));
        assert_eq!(names.all(), [name(1, "b")]);
        // Two names of one file: rename(2) does nothing, and both stay.
        found(&names, name(1, "c"), 2);
        names.rename_begins(NOWHERE, name(1, "b"));
        names.rename_failed(NOWHERE, &name(1, "b"));
        assert_eq!(names.all(), [name(1, "c"), name(1, "b")]);
    }

    #[test]
    fn settle_keeps_names_that_lead_to_the_inode() {
        for (real, expected) in [("b", "b"), ("a", "a")] {
            let names = Names::default();
            found(&names, name(1, "a"), 1);
            names.rename_begins(NOWHERE, name(1, "b"));
            names.settle(NOWHERE, |known| *known == name(1, real));
            assert_eq!(names.all(), [name(1, expected)]);
        }
    }

    #[test]
    fn rename_replaces_one_name() {
        let names = Names::default();
        found(&names, name(1, "a"), 1);
        found(&names, name(1, "b"), 2);
        names.renamed(NOWHERE, &name(1, "a"), name(2, "c"));
        assert_eq!(names.all(), [name(2, "c"), name(1, "b")]);
    }
}
