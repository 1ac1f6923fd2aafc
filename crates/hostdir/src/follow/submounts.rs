//! What is mounted and unmounted in the source: the kernel above looks up such names again.
//!
//! The table of mounts tells where something is mounted. What a name leads to is found by walking to it, since
//! numbers in the table are used again, and mounts cover each other. Descriptors are closed at once, and the
//! table has to rest for a moment before they are opened: they would hinder `umount -R`.

use super::lanes::Message;
use super::mount_table::{MountPoints, MountTable};
use super::watch::Watch;
use crate::tree::{Inode, Tree, opened_identity};
use std::collections::{BTreeMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thrufs::{Errno, Result};

/// The table is read once it has not changed for this long, or for ten times as long as the last reading took.
const REST: Duration = Duration::from_millis(20);
const WORK_SHARE: u32 = 10;

/// But this long after a change at the latest, or after one such rest.
const DELAY: Duration = Duration::from_millis(200);

/// Most attempts to walk to the mount points before one of their paths changes.
const ATTEMPTS_MAX: usize = 4;

/// Marks numbers of the table, for mounts that are not walked to: those of other machines may not answer.
const OF_TABLE: u64 = 1 << 63;

/// The id of the mount that each path leads to.
type Shown = BTreeMap<Box<[u8]>, u64>;

pub(super) struct Submounts {
    table: MountTable,
    shown: Shown,
    /// The ids of mounts that were entered and are shown no longer.
    gone: HashSet<u64>,
    due: Option<Due>,
    rest: Duration,
}

/// When the table is read again.
struct Due {
    at: Instant,
    latest: Instant,
}

/// A name in a directory that the kernel above knows.
type Place = (Arc<Inode>, Box<[u8]>);

impl Submounts {
    /// # Errors
    /// If the table cannot be read.
    pub(super) fn new(table: MountTable, tree: &Tree) -> Result<Submounts> {
        let shown = shown(&table, tree)?;
        Ok(Submounts {
            table,
            shown,
            gone: HashSet::new(),
            due: None,
            rest: REST,
        })
    }

    /// The table has changed.
    pub(super) fn changed(&mut self) {
        let now = Instant::now();
        let latest = match &self.due {
            Some(due) => due.latest,
            None => now + self.rest.max(DELAY),
        };
        let at = (now + self.rest).min(latest);
        self.due = Some(Due { at, latest });
    }

    /// How long to wait until the table is read; `None` if it has not changed.
    pub(super) fn due_in(&self) -> Option<Duration> {
        let due = self.due.as_ref()?;
        Some(due.at.saturating_duration_since(Instant::now()))
    }

    /// Reads the table if it has changed, and tells the kernel above about the names.
    pub(super) fn look(&mut self, watch: &Watch) {
        if self.due.take().is_none() {
            return;
        }
        let began = Instant::now();
        match shown(&self.table, &watch.tree) {
            Ok(shown) => {
                let places = self.compare(shown, &watch.tree);
                tracing::debug!(names = places.len(), "mounts beneath have changed");
                if !places.iter().all(|place| watch.tell_name(place, began)) {
                    watch.lose("too many notifications");
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read the table of mounts");
                watch.lose("mounts beneath may have changed");
            }
        }
        self.rest = REST.max(began.elapsed() * WORK_SHARE);
    }

    /// Takes what is shown now. Returns the names that led to something else before.
    fn compare(&mut self, shown: Shown, tree: &Tree) -> Vec<Place> {
        let before = std::mem::replace(&mut self.shown, shown);
        let moved: HashSet<u64> = before.values().copied().collect();
        let changed = changed(&before, &self.shown);
        let found = changed.into_iter().filter_map(|path| {
            let place = place(tree, &self.shown, path)?;
            let id = self.shown.get(path).filter(|id| moved.contains(*id));
            let known = id.and_then(|id| tree.mounts.known(*id));
            // A directory above it was renamed: events have told that.
            let is_there = known.is_some_and(|mount| {
                let there = mount.mounted_on.as_ref();
                there.is_some_and(|(parent, name)| {
                    Arc::ptr_eq(parent, &place.0) && name.to_bytes() == &*place.1
                })
            });
            (!is_there).then_some(place)
        });
        let mut places: Vec<Place> = found.collect();
        places.extend(self.ended(tree));
        places
    }

    /// Where mounts were entered that are not shown any more: also those whose path has changed since.
    fn ended(&mut self, tree: &Tree) -> Vec<Place> {
        let shown: HashSet<u64> = self.shown.values().copied().collect();
        let entered = tree.mounts.beneath();
        let gone = entered.iter().filter(|mount| !mount.is_remote);
        let gone: Vec<_> = gone.filter(|mount| !shown.contains(&mount.id)).collect();
        let new = gone.iter().filter(|mount| !self.gone.contains(&mount.id));
        let places = new.filter_map(|mount| {
            let (parent, name) = mount.mounted_on.as_ref()?;
            Some((Arc::clone(parent), name.to_bytes().into()))
        });
        let places = places.collect();
        self.gone = gone.iter().map(|mount| mount.id).collect();
        places
    }
}

impl AsFd for Submounts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }
}

impl Watch {
    /// A name leads to something else. False if there is no room for that.
    fn tell_name(&self, (directory, name): &Place, since: Instant) -> bool {
        let (_, handle) = directory.identity().parts();
        self.changes.happened(handle);
        let node = directory.node();
        let messages = [
            Message::Name {
                name: (node, name.clone()),
                expire_only: false,
            },
            Message::Node {
                node,
                data: true,
                name: None,
            },
        ];
        messages
            .into_iter()
            .all(|message| self.lanes.push(message, since))
    }
}

/// The paths that lead to another mount, or to none.
fn changed<'a>(before: &'a Shown, now: &'a Shown) -> Vec<&'a [u8]> {
    let come = now
        .iter()
        .filter(|(path, id)| before.get(*path) != Some(*id));
    let went = before.iter().filter(|(path, _)| !now.contains_key(*path));
    come.chain(went).map(|(path, _)| &**path).collect()
}

/// What the mount points in the source lead to.
fn shown(table: &MountTable, tree: &Tree) -> Result<Shown> {
    tree.credentials.as_server()?;
    let mut points = read(table)?;
    for _ in 0..ATTEMPTS_MAX {
        let (shown, is_complete) = walk_to_all(&points, tree)?;
        if is_complete {
            return Ok(shown);
        }
        let before = std::mem::replace(&mut points, read(table)?);
        if points == before {
            // They are covered, or unreachable for us.
            return Ok(shown);
        }
    }
    Err(Errno::EAGAIN)
}

fn read(table: &MountTable) -> Result<MountPoints> {
    table.read().map_err(|error| {
        let errno = rustix::io::Errno::from_io_error(&error);
        errno.map_or(Errno::EIO, Errno::from)
    })
}

/// The mounts behind these paths, and whether each path was there.
fn walk_to_all(points: &MountPoints, tree: &Tree) -> Result<(Shown, bool)> {
    let mut shown = Shown::new();
    let mut is_complete = true;
    for (path, mounted) in points {
        if is_remote(path, points) {
            shown.insert(path.clone(), OF_TABLE | mounted.number);
            continue;
        }
        match tree.walk(path) {
            Ok((_, stat)) => drop(shown.insert(path.clone(), stat.stx_mnt_id)),
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EACCES) => {
                is_complete = false;
            }
            Err(error) => return Err(error),
        }
    }
    Ok((shown, is_complete))
}

/// Whether another machine has to answer on the way to a path.
fn is_remote(path: &[u8], points: &MountPoints) -> bool {
    let mut on_the_way = above(path)
        .chain([path])
        .filter_map(|path| points.get(path));
    on_the_way.any(|mounted| mounted.is_remote)
}

/// The last name of a path, in its directory, if the kernel above knows that.
fn place(tree: &Tree, shown: &Shown, path: &[u8]) -> Option<Place> {
    let is_remote = |path| shown.get(path).is_some_and(|id| id & OF_TABLE != 0);
    if above(path).any(is_remote) {
        // It is asked for again soon.
        return None;
    }
    let Some(directory) = above(path).last() else {
        return Some((Arc::clone(&tree.root), path.into()));
    };
    let name = &path[directory.len() + 1..];
    let (fd, stat) = tree.walk(directory).ok()?;
    let mount = tree.mounts.known(stat.stx_mnt_id)?;
    let identity = opened_identity(&mount, &fd, &stat).ok()?;
    Some((tree.nodes.find(&identity)?, name.into()))
}

/// The directories on the way to a path.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let bytes = path.iter().enumerate();
    let ends = bytes.filter(|(_, byte)| **byte == b'/');
    ends.map(|(end, _)| &path[..end])
}

#[cfg(test)]
mod tests {
    use super::super::mount_table::Mounted;
    use super::*;

    fn shown(paths: &[(&str, u64)]) -> Shown {
        let paths = paths.iter();
        paths
            .map(|(path, id)| (path.as_bytes().into(), *id))
            .collect()
    }

    #[test]
    fn what_came_went_or_was_replaced_has_changed() {
        let before = shown(&[("gone", 1), ("same", 2), ("same/deep", 3), ("replaced", 4)]);
        let now = shown(&[("come", 5), ("same", 2), ("same/deep", 3), ("replaced", 6)]);
        let mut paths = changed(&before, &now);
        paths.sort_unstable();
        assert_eq!(paths, [&b"come"[..], b"gone", b"replaced"]);
        assert!(changed(&now, &now).is_empty());
    }

    #[test]
    fn what_another_machine_serves_is_not_walked_to() {
        let mounted = |is_remote| Mounted {
            number: 1,
            is_remote,
        };
        let points = MountPoints::from([
            (b"net"[..].into(), mounted(true)),
            (b"net/dir/in".as_slice().into(), mounted(false)),
            (b"network"[..].into(), mounted(false)),
        ]);
        let remote = |path: &str| is_remote(path.as_bytes(), &points);
        assert!(remote("net") && remote("net/dir/in"));
        assert!(!remote("network") && !remote("ne"));
    }
}
