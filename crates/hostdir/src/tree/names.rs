//! The known names of an inode, for rules on paths.
//!
//! Requests identify inodes by number, rules by path. So under a policy each inode records the names by which
//! it was looked up, and a path is joined from them on demand; a renamed directory changes the paths of
//! everything in it.
//!
//! A file has as many names as links. Names that no client has looked up are unknown, and names changed on
//! the host are out of date. At most as many names are kept as there are links; the oldest are dropped first.
//! The last one stays when it is removed: the rules judge an open file by the name that it had.
//!
//! **Races.** A name is found by one system call and recorded a little later; in between it may change. So a
//! rename or removal is counted before and after, by [`NameChanges::during`], and a lookup that overlaps one
//! is repeated. If that does not end, all possible names count.
//!
//! **When the process dies,** the names are in the [ledger](crate::ledger). A
//! `requests::rename` records the new name before, beside the others, so that the valid one
//! is always among them; a resuming process checks which of the two it is.
//!
//! A name refers to its directory by node id, so that names never keep inodes alive. The kernel knows the
//! directories of all names that it uses.

use crate::identity::KnownName;
use crate::ledger::{NameNote, Rank, StateTables};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use thrufs_abi::NodeId;

/// Most names of a file that are kept, and that it can have under a policy: all of them are decided at each
/// open.
pub(crate) const NAMES_MAX: usize = 1024;

/// Where the names of a node are recorded for a resuming process ([`ledger`](crate::ledger)), if at all.
#[derive(Clone, Copy)]
pub(crate) struct Noting<'a> {
    pub(crate) tables: Option<&'a StateTables>,
    pub(crate) node: NodeId,
}

impl Noting<'_> {
    fn note(self, name: &KnownName, rank: Rank) -> Option<u32> {
        self.tables?.names.insert(self.node, name, rank)
    }

    fn make_latest(self, known: &Known) {
        if let (Some(tables), Some(index)) = (self.tables, known.noted) {
            tables.names.make_latest(index);
        }
    }

    fn forget(self, known: &Known) {
        if let (Some(tables), Some(index)) = (self.tables, known.noted) {
            tables.names.remove(index);
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
                noting.make_latest(&known);
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
        if slot.is_none() && noting.tables.is_none_or(|tables| !tables.names.are_used()) {
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

/// Changes of names through this server, so that a lookup that overlaps one is noticed.
#[derive(Debug, Default)]
pub(crate) struct NameChanges {
    /// How many have begun, and how many have ended.
    begun: AtomicU64,
    ended: AtomicU64,
}

impl NameChanges {
    /// Runs `change`, which changes names on the lower file system and in the inodes.
    pub(crate) fn during(&self, change: impl FnOnce() -> thrufs::Result<()>) -> thrufs::Result<()> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let changed = change();
        self.ended.fetch_add(1, Ordering::SeqCst);
        changed
    }

    /// The state of all names, to be read before a name is looked up; `None` while a name changes.
    pub(crate) fn state(&self) -> Option<u64> {
        // In this order, so that a change that begins in between is seen.
        let changed = self.ended.load(Ordering::SeqCst);
        (changed == self.begun.load(Ordering::SeqCst)).then_some(changed)
    }

    /// Whether no name has changed since `state`, and none is changing.
    pub(crate) fn unchanged_since(&self, state: u64) -> bool {
        self.begun.load(Ordering::SeqCst) == state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;

    fn name(directory: u64, name: &str) -> KnownName {
        KnownName::new(NodeId(directory), name.as_bytes())
    }

    fn found(names: &Names, name: KnownName, links: u32) {
        assert!(names.record_if(NOWHERE, name, links, || true));
    }

    const NODE: NodeId = NodeId(5);

    const NOWHERE: Noting<'_> = Noting {
        tables: None,
        node: NODE,
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

    /// The names of the node in the ledger, and whether each is uncertain.
    fn noted(ledger: &Ledger) -> Vec<(KnownName, bool)> {
        let next = StateTables::new(ledger.clone()).unwrap();
        let mut read = next.read().unwrap().names;
        let names = read.remove(&NODE).unwrap_or_default();
        let names = names.into_iter();
        names.map(|note| (note.name, note.is_unsure)).collect()
    }

    #[test]
    fn ledger_has_the_names_after_each_change() {
        let ledger = Ledger::new().unwrap();
        let tables = StateTables::new(ledger.clone()).unwrap();
        let noting = Noting {
            tables: Some(&tables),
            node: NODE,
        };
        let names = Names::default();
        let found_once = |text, links| {
            assert!(names.record_if(noting, name(1, text), links, || true));
        };
        let as_known = || {
            let known = names.all();
            let read: Vec<KnownName> = noted(&ledger).into_iter().map(|(name, _)| name).collect();
            assert_eq!(read, known);
            known.len()
        };
        found_once("a", 1);
        found_once("b", 3);
        found_once("c", 3);
        assert_eq!(as_known(), 3);
        found_once("a", 3);
        assert_eq!(as_known(), 3);
        names.renamed(noting, &name(1, "a"), name(1, "d"));
        assert_eq!(as_known(), 3);
        names.removed(noting, &name(1, "b"));
        assert_eq!(as_known(), 2);
        found_once("e", 2);
        assert_eq!(as_known(), 2);
        names.record_uncertain(noting, name(1, "p"));
        assert_eq!(as_known(), 3);
        names.removed(noting, &name(1, "p"));
        names.rename_begins(noting, name(1, "f"));
        assert_eq!(as_known(), 3);
        assert_eq!(noted(&ledger).last(), Some(&(name(1, "f"), true)));
        names.rename_failed(noting, &name(1, "f"));
        assert_eq!(as_known(), 2);
        names.rename_begins(noting, name(1, "f"));
        names.renamed(noting, &name(1, "e"), name(1, "f"));
        assert_eq!(as_known(), 2);
        assert!(noted(&ledger).iter().all(|(_, is_unsure)| !is_unsure));
        // Freed records are used again.
        for _ in 0..10_000 {
            found_once("x", 1);
            found_once("y", 1);
        }
        assert_eq!(as_known(), 1);
        let next = StateTables::new(ledger.clone()).unwrap();
        let index = next.read().unwrap().names[&NODE][0].index;
        assert!(index < 10, "{index}");
        names.forget(noting);
        found_once("z", 1);
        assert_eq!(noted(&ledger), [], "of a node that is forgotten");
    }
}
