//! Under which names an inode is known, for rules on paths.
//!
//! Requests name inodes by number, rules name them by path. So where a policy is in force, each
//! inode remembers the names by which it was looked up, and a path is put together from them when it
//! is asked for; renaming a directory thus changes the paths of all that lies in it.
//!
//! A file has as many names as links, of which those that no client has looked up are unknown, and
//! those that were changed beneath are out of date. Names are kept up to the number of links, the
//! oldest go first. The last one stays when it is removed: a file that somebody has open is judged by
//! the name that it had.
//!
//! **Races.** A name is found by one system call and remembered a little later; in between it may have
//! become another. So whoever renames or removes counts that before and after, under
//! [`Rules::changing_names`](crate::rules::Rules), and whoever finds a name while something was
//! changed anywhere looks once more. Where that does not end, all names count that it may have.
//!
//! A name holds its directory by number, so that names never keep inodes alive. The kernel knows
//! the directories of every name that it still uses.

use parking_lot::Mutex;
use thrufs_abi::NodeId;

/// One name of an inode.
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

/// The names of one inode, the latest first. Empty, and nearly free, without a policy.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<Option<Box<List>>>);

#[derive(Debug, Default)]
struct List(Vec<KnownName>);

impl Names {
    /// It was found under this name, when it had `links` links. Told with false, and without effect,
    /// unless that `holds` at this moment: whoever changes names of an inode says so first, and then
    /// comes here.
    pub(crate) fn found_if(
        &self,
        name: KnownName,
        links: u32,
        holds: impl FnOnce() -> bool,
    ) -> bool {
        let mut slot = self.0.lock();
        if !holds() {
            return false;
        }
        let names = &mut slot.get_or_insert_default().0;
        if names.first() != Some(&name) {
            names.retain(|known| *known != name);
            names.insert(0, name);
        }
        names.truncate(links.max(1) as usize);
        true
    }

    /// It was found under this name, which it may have lost since. No other one is given up for it.
    pub(crate) fn perhaps_found(&self, name: KnownName) {
        let mut slot = self.0.lock();
        let names = &mut slot.get_or_insert_default().0;
        if !names.contains(&name) {
            names.push(name);
        }
    }

    /// It has lost this name.
    pub(crate) fn removed(&self, name: &KnownName) {
        if let Some(List(names)) = self.0.lock().as_deref_mut()
            && names.len() > 1
        {
            names.retain(|known| known != name);
        }
    }

    /// This name has become that one.
    pub(crate) fn renamed(&self, from: &KnownName, to: KnownName) {
        let mut slot = self.0.lock();
        let names = &mut slot.get_or_insert_default().0;
        names.retain(|known| known != from && *known != to);
        names.insert(0, to);
    }

    /// The latest.
    pub(crate) fn latest(&self) -> Option<KnownName> {
        self.0.lock().as_ref()?.0.first().cloned()
    }

    /// All that are known, the latest first.
    pub(crate) fn all(&self) -> Vec<KnownName> {
        let slot = self.0.lock();
        slot.as_ref().map(|list| list.0.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(directory: u64, name: &str) -> KnownName {
        KnownName::new(NodeId(directory), name.as_bytes())
    }

    fn found(names: &Names, name: KnownName, links: u32) {
        assert!(names.found_if(name, links, || true));
    }

    #[test]
    fn a_name_that_may_be_lost_displaces_no_other() {
        let names = Names::default();
        found(&names, name(1, "a"), 1);
        assert!(!names.found_if(name(1, "b"), 1, || false));
        assert_eq!(names.all(), [name(1, "a")]);
        names.perhaps_found(name(1, "b"));
        assert_eq!(names.all(), [name(1, "a"), name(1, "b")]);
        found(&names, name(1, "a"), 1);
        assert_eq!(names.all(), [name(1, "a")]);
    }

    #[test]
    fn as_many_names_are_kept_as_there_are_links() {
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
    fn the_last_name_stays_when_it_is_removed() {
        let names = Names::default();
        found(&names, name(1, "a"), 1);
        found(&names, name(1, "b"), 2);
        names.removed(&name(1, "b"));
        names.removed(&name(1, "a"));
        assert_eq!(names.latest(), Some(name(1, "a")));
    }

    #[test]
    fn a_rename_replaces_one_name() {
        let names = Names::default();
        found(&names, name(1, "a"), 1);
        found(&names, name(1, "b"), 2);
        names.renamed(&name(1, "a"), name(2, "c"));
        assert_eq!(names.all(), [name(2, "c"), name(1, "b")]);
    }
}
