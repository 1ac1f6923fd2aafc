//! Migration, sending side: writes the state of a session, in the order in which it can be found again.
//! Locks are released once the state is written (`files::suspended_locks`); nothing else here changes.

use super::format::{
    self, File, Handle, Header, NAMES_OF_NODE_MAX, Name, Node, Paths, Saved, Writer, invalid,
};
use super::paths::{Finder, child};
use crate::config::MigrationMode;
use crate::files::lock_number;
use crate::host::Host;
use crate::identity::KnownName;
use crate::ledger::FileNote;
use crate::tree::Inode;
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
        let nodes = self.locate_all(&mut finder);
        let mounts = self.locate_mounts(&mut finder);
        let held = self.files.held_locks().map_err(|error| {
            io::Error::other(format!("cannot read the locks that clients hold: {error}"))
        })?;
        let names = match self.judge.has_policy() {
            true => names_of(&nodes)?,
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
        let (mut writer, mut paths) = (Writer::new(sink), Paths::default());
        writer.write(&Saved::V1(header))?;
        for (number, path) in &mounts {
            writer.write(&(*number, paths.write(path)))?;
        }
        for located in &nodes {
            self.write_node(&mut writer, &mut paths, located)?;
        }
        for (node, name) in &names {
            writer.write(&Name {
                node: node.0,
                directory: name.directory.0,
                name: &name.name,
            })?;
        }
        for (handle, file) in files {
            let handle = FileHandle(handle);
            writer.write(&File {
                note: FileNote {
                    handle,
                    node: file.node(),
                    flags: file.flags(),
                    route: self.files.route_of(file.guard(), handle),
                    opener: file.opener(),
                    backing: None,
                },
                flock: file.flock().map_or(0, lock_number),
                is_open: file.has_lower(),
            })?;
        }
        for (handle, directory) in directories {
            let (node, opener) = (directory.node().0, directory.opener());
            let whole = self.files.listing(&directory);
            writer.write(&(handle, node, opener, whole))?;
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
                    finder.guess(&inode).map_or(Way::None, Way::Path)
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
        all.sort_unstable_by(|one, other| one.way.cmp(&other.way));
        if self.judge.has_policy() {
            self.keep_to_known_directories(finder, &mut all);
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
        all.sort_unstable_by(|one, other| one.way.cmp(&other.way));
        all
    }

    /// Under a policy, a receiver takes nodes only in directories that the client knows, and those before. The path
    /// of another link, or one since a rename on the host, may be in another directory.
    fn keep_to_known_directories(&self, finder: &mut Finder<'_>, all: &mut [Located]) {
        let mut directories = HashSet::from([Vec::new()]);
        for located in all {
            let Way::Path(path) = &located.way else {
                break;
            };
            let inode = &located.inode;
            if !directories.contains(directory_of(path)) {
                let known = self.known_paths(finder, inode).into_iter().find(|path| {
                    directories.contains(directory_of(path)) && finder.leads_to(path, inode)
                });
                located.way = match known {
                    Some(path) => Way::Path(path),
                    None if inode.uses.is_open() => Way::None,
                    None => Way::Gone,
                };
            }
            if let Way::Path(path) = &located.way
                && inode.is_directory()
            {
                directories.insert(path.clone());
            }
        }
    }

    /// The paths of an inode by the names that the client knows.
    fn known_paths(&self, finder: &Finder<'_>, inode: &Arc<Inode>) -> Vec<Vec<u8>> {
        let names = inode.names.all().into_iter();
        let path_of = |name: KnownName| {
            let directory = self.tree.nodes.get(name.directory).ok()?;
            Some(child(&finder.guess(&directory)?, &name.name))
        };
        names.filter_map(path_of).collect()
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

    fn locate_mounts(&self, finder: &mut Finder<'_>) -> Vec<(u32, Vec<u8>)> {
        let mut mounts: Vec<(u32, Vec<u8>)> = Vec::new();
        for mount in self.tree.mounts.beneath() {
            let Some((parent, name)) = mount.mounted_on.as_ref() else {
                continue;
            };
            if let Some(path) = finder.guess(parent) {
                mounts.push((mount.index, child(&path, name.to_bytes())));
            }
        }
        mounts.sort_unstable();
        mounts
    }

    fn write_node(
        &self,
        writer: &mut Writer<'_>,
        paths: &mut Paths,
        located: &Located,
    ) -> io::Result<()> {
        let inode = &located.inode;
        let handle = inode.identity().handle();
        let handle = handle.map(|(kind, bytes)| Handle(kind, bytes));
        let found = match &located.way {
            Way::None => format::Way::Not,
            Way::Gone => format::Way::Gone,
            Way::Path(path) => format::Way::Path(paths.write(path)),
            Way::Handle(mount) => format::Way::Handle(*mount, handle.unwrap_or_default()),
        };
        let is_there = !matches!(located.way, Way::Gone | Way::None);
        let verifies = is_there && self.config.migration.verify_handles;
        writer.write(&Node {
            node: inode.node().0,
            lookups: inode.lookups(),
            file_type: inode.file_type,
            found,
            expected: handle.filter(|_| verifies),
        })
    }
}

/// Without the last name; empty for the root.
fn directory_of(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    &path[..slash.unwrap_or(0)]
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
fn names_of(nodes: &[Located]) -> io::Result<Vec<(NodeId, KnownName)>> {
    let too_many = |located: &Located| located.inode.names.count() >= NAMES_OF_NODE_MAX;
    if nodes.iter().any(too_many) {
        return Err(invalid("the session knows too many names to be moved"));
    }
    let names = nodes.iter().flat_map(|located| {
        let node = located.inode.node();
        let all = located.inode.names.all().into_iter();
        all.map(move |name| (node, name))
    });
    Ok(names.collect())
}
