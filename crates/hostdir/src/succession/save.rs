//! Migration, sending side: writes the state of a session, in the order in which it can be found again.
//! Locks are released once the state is written (`files::suspended_locks`); nothing else here changes.

use super::order::in_order;
use super::paths::{Directories, Finder, child};
use super::stream::{Header, NAMES_OF_NODE_MAX, NodeName, Saved, Writer, invalid};
use crate::config::MigrationMode;
use crate::files::lock_number;
use crate::host::Host;
use crate::identity::{Identity, KnownName};
use crate::ledger::{FileNote, MountRecords, NodeRecord, OpenRecord};
use crate::tree::{Inode, Tree};
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::sync::Arc;
use thrufs::Errno;
use thrufs_abi::{FileHandle, NodeId};

struct Located {
    inode: Arc<Inode>,
    way: Way,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// By handle, on the mount with this index.
    Handle(u32),
    Path(Vec<u8>),
    /// It has no name, and is not open: the client will forget it.
    Gone,
    None,
}

impl Host {
    /// See [`thrufs::FileSystem::save`].
    pub(crate) fn save(&self, sink: &mut dyn Write) -> io::Result<()> {
        self.files.have_locks();
        let mut finder = Finder::new(self);
        let located = self.locate_all(&mut finder);
        let (nodes, mounts) = self.records(&finder, &located);
        let held = self.files.held_locks().map_err(|error| {
            io::Error::other(format!("cannot read the locks that clients hold: {error}"))
        })?;
        let names = match self.judge.has_policy() {
            true => names_of(&nodes, &self.tree)?,
            false => Vec::new(),
        };
        let files: Vec<_> = self.files.files.iter().collect();
        let directories: Vec<_> = self.files.directories.iter().collect();
        let counts = [
            mounts.len(),
            nodes.len(),
            names.len(),
            files.len(),
            directories.len(),
            held.len(),
        ];
        let header = Header {
            is_under_policy: self.judge.has_policy(),
            highest: [
                self.tree.nodes.generation_max(),
                self.files.files.generation_max(),
                self.files.directories.generation_max(),
            ],
            counts: counts.map(|count| count.try_into().unwrap_or(u32::MAX)),
        };
        header.check()?;
        let mut writer = Writer::new(sink);
        writer.write(&Saved::V1(header))?;
        for mount in &mounts {
            writer.write(&mount)?;
        }
        in_order(nodes, &mounts, |record| writer.write(&record))?;
        for name in &names {
            writer.write(name)?;
        }
        for (handle, file) in files {
            let handle = FileHandle(handle);
            writer.write(&OpenRecord {
                flock: file.flock().map_or(0, lock_number),
                is_open: file.has_lower(),
                ..open(FileNote {
                    handle,
                    node: file.node(),
                    flags: file.flags(),
                    route: self.files.route_of(file.guard(), handle),
                    opener: file.opener(),
                    backing: None,
                })
            })?;
        }
        for (handle, directory) in directories {
            writer.write(&OpenRecord {
                listing: Some(self.files.listing(&directory)),
                ..open(FileNote {
                    handle: FileHandle(handle),
                    node: directory.node(),
                    flags: 0,
                    route: None,
                    opener: directory.opener(),
                    backing: None,
                })
            })?;
        }
        for (owner, ranges) in &held {
            writer.write(&(owner.note(), ranges.len() as u32))?;
            for range in ranges {
                writer.write(&(lock_number(range.kind), range.start, range.end))?;
            }
        }
        writer.finish()?;
        self.files.suspend_locks(held);
        Ok(())
    }

    /// Every inode that the client knows, in the order in which they can be found again.
    fn locate_all(&self, finder: &mut Finder<'_>) -> Vec<Located> {
        let migration = &self.config.migration;
        // Rules decide by paths, so inodes must be found by paths.
        let by_handle = migration.mode == MigrationMode::FileHandles && !self.judge.has_policy();
        let known = self.tree.nodes.iter().map(|(_, inode)| inode);
        let known = known.filter(|inode| inode.node() != NodeId::ROOT && inode.lookups() > 0);
        let mut all: Vec<Located> = known
            .map(|inode| {
                let way = if by_handle && inode.identity().handle().is_some() {
                    if self.is_gone(&inode) {
                        Way::Gone
                    } else {
                        Way::Handle(inode.identity().mount())
                    }
                } else {
                    self.path_of(finder, &inode).map_or(Way::None, Way::Path)
                };
                Located { inode, way }
            })
            .collect();
        all.sort_unstable_by(|one, other| one.way.cmp(&other.way));
        confirm(finder, &mut all);
        self.search(finder, &mut all);
        if migration.confirm_paths {
            all.sort_unstable_by(|one, other| one.way.cmp(&other.way));
            confirm(finder, &mut all);
        }
        let directories = self.files.directories.iter();
        let open: HashSet<NodeId> = directories.map(|(_, open)| open.node()).collect();
        for located in &mut all {
            if located.way == Way::Gone && open.contains(&located.inode.node()) {
                located.way = Way::None;
            }
        }
        let lost = all.iter().filter(|it| it.way == Way::None).count();
        if lost > 0 {
            tracing::warn!(lost, "files that a client has looked up have no path");
        }
        all.retain(|located| located.way != Way::Gone);
        all.sort_unstable_by(|one, other| one.way.cmp(&other.way));
        all
    }

    /// The probable path of an inode; if rules decide by its names, that of one that the client knows.
    fn path_of(&self, finder: &mut Finder<'_>, inode: &Arc<Inode>) -> Option<Vec<u8>> {
        for name in inode.names.all() {
            if let Ok(directory) = self.tree.nodes.get(name.directory)
                && let Some(directory) = finder.guess(&directory)
                && let path = child(&directory, &name.name)
                && finder.leads_to(&path, inode)
            {
                return Some(path);
            }
        }
        finder.guess(inode)
    }

    /// Searches the tree for inodes that are not at their probable paths.
    fn search(&self, finder: &mut Finder<'_>, all: &mut [Located]) {
        let mut missing = HashMap::new();
        for (at, located) in all.iter().enumerate() {
            if located.way == Way::None && self.has_names(&located.inode) == Ok(true) {
                missing.insert(located.inode.identity().clone(), at);
            }
        }
        for located in &mut *all {
            if located.way == Way::None && self.is_gone(&located.inode) {
                located.way = Way::Gone;
            }
        }
        if missing.is_empty() {
            return;
        }
        tracing::info!(files = missing.len(), "searching the whole tree for files");
        finder.search(missing, |at, path| all[at].way = Way::Path(path));
    }

    fn has_names(&self, inode: &Arc<Inode>) -> thrufs::Result<bool> {
        Ok(self.tree.stat(inode)?.stx_nlink > 0)
    }

    /// An inode that answers ESTALE here may do so there.
    fn is_gone(&self, inode: &Arc<Inode>) -> bool {
        let is_stale = matches!(self.has_names(inode), Ok(false) | Err(Errno::ESTALE));
        is_stale && !inode.uses.is_open()
    }

    /// What is saved of all nodes and mounts.
    fn records(&self, finder: &Finder<'_>, all: &[Located]) -> (Vec<NodeRecord>, MountRecords) {
        let mut directories = Directories::new(self);
        for located in all {
            if let (Way::Path(path), true) = (&located.way, located.inode.is_directory()) {
                directories.insert(path, located.inode.node());
            }
        }
        let mut mounts = MountRecords::new();
        for mount in self.tree.mounts.beneath() {
            if let Some((parent, name)) = &mount.mounted_on
                && let Some(path) = finder.guess(parent)
                && let Some(on) = directories.place_of(&child(&path, name.to_bytes()))
            {
                mounts.insert(mount.index, on);
            }
        }
        let verifies = self.config.migration.verify_handles;
        let mut nodes = Vec::with_capacity(all.len());
        for Located { inode, way } in all {
            let identity = Some(inode.identity().clone());
            let (identity, place) = match way {
                Way::Handle(_) => (identity, None),
                Way::Path(path) => {
                    let place = directories.place_of(path);
                    let is_verified = verifies && place.is_some();
                    let has_handle = |it: &Identity| it.handle().is_some();
                    (identity.filter(|it| is_verified && has_handle(it)), place)
                }
                Way::Gone | Way::None => (None, None),
            };
            nodes.push(record(inode, identity, place));
        }
        let looked_up = directories.looked_up.into_iter();
        nodes.extend(looked_up.map(|(inode, place)| record(&inode, None, Some(place))));
        (nodes, mounts)
    }
}

fn record(inode: &Inode, identity: Option<Identity>, place: Option<KnownName>) -> NodeRecord {
    NodeRecord {
        node: inode.node(),
        lookups: inode.lookups(),
        file_type: inode.file_type,
        dax: 0,
        identity,
        place,
        other_place: None,
    }
}

fn open(note: FileNote) -> OpenRecord {
    OpenRecord {
        note,
        flock: 0,
        is_open: true,
        listing: None,
        left: None,
        has_no_route: false,
    }
}

/// Drops paths that do not lead to their inode.
fn confirm(finder: &mut Finder<'_>, all: &mut [Located]) {
    for located in all {
        if let Way::Path(path) = &located.way
            && !finder.leads_to(path, &located.inode)
        {
            located.way = Way::None;
        }
    }
}

/// The receiver finds an inode by one name.
fn names_of(nodes: &[NodeRecord], tree: &Tree) -> io::Result<Vec<NodeName>> {
    let mut all = Vec::new();
    for record in nodes {
        let node = record.node;
        let names = tree
            .nodes
            .get(node)
            .map_or_else(|_| Vec::new(), |it| it.names.all());
        if names.len() >= NAMES_OF_NODE_MAX {
            return Err(invalid("the session knows too many names to be moved"));
        }
        all.extend(names.into_iter().map(|name| NodeName { node, name }));
    }
    Ok(all)
}
