//! Migration, sending side: the records of a session, by the tables of this process, and where its inodes are.
//! Locks are released once the state is written (`files::suspended_locks`); nothing else here changes.

use super::order::in_order;
use super::places::Places;
use super::stream::{Header, NAMES_OF_NODE_MAX, NodeName, Saved, Writer, invalid};
use crate::config::MigrationMode;
use crate::files::lock_number;
use crate::host::Host;
use crate::identity::KnownName;
use crate::ledger::{FileNote, MountRecords, NodeRecord, OpenRecord};
use crate::tree::{Inode, LowerMount, Tree};
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::sync::Arc;
use thrufs::Errno;
use thrufs_abi::{FileHandle, NodeId};

impl Host {
    /// See [`thrufs::FileSystem::save`].
    pub(crate) fn save(&self, sink: &mut dyn Write) -> io::Result<()> {
        self.files.have_locks();
        let mut places = Places::new(self);
        let mounts = self.mount_records(&mut places);
        let nodes = self.node_records(places);
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

    fn mount_records(&self, places: &mut Places<'_>) -> MountRecords {
        let mounts = self.tree.mounts.beneath().into_iter();
        let record = |mount: Arc<LowerMount>| {
            let (parent, name) = mount.mounted_on.as_ref()?;
            Some((mount.index, places.of_mount(parent, name.to_bytes())?))
        };
        mounts.filter_map(record).collect()
    }

    /// Every inode that the client knows. One that answers ESTALE here, and is not open, may do so there.
    fn node_records(&self, mut places: Places<'_>) -> Vec<NodeRecord> {
        let migration = &self.config.migration;
        // Rules decide by paths, so inodes must be found by paths.
        let by_handle = migration.mode == MigrationMode::FileHandles && !self.judge.has_policy();
        let directories = self.files.directories.iter();
        let open: HashSet<NodeId> = directories.map(|(_, open)| open.node()).collect();
        let known: Vec<_> = self.tree.nodes.iter().collect();
        // What was looked up for mounts is known now; what is looked up from here on comes behind.
        places.looked_up.clear();
        let (mut nodes, mut missing) = (Vec::new(), HashMap::new());
        for (_, inode) in known {
            if inode.node() == NodeId::ROOT || inode.lookups() == 0 {
                continue;
            }
            let mut node = record(&inode, None);
            let is_found = by_handle && node.identity.is_some();
            node.place = (!is_found).then(|| places.of(&inode)).flatten();
            if node.place.is_none() {
                let links = self.tree.stat(&inode).map(|stat| stat.stx_nlink);
                let is_open = inode.uses.is_open() || open.contains(&node.node);
                match links {
                    Ok(0) | Err(Errno::ESTALE) if !is_open => continue,
                    Ok(1..) if !is_found => {
                        missing.insert(inode.identity().clone(), nodes.len());
                    }
                    _ => {}
                }
            }
            nodes.push(node);
        }
        if !missing.is_empty() {
            tracing::info!(files = missing.len(), "searching the whole tree for files");
            for (number, path) in places.search(missing) {
                nodes[number].place = places.at(&path);
            }
        }
        let looked_up = places.looked_up.drain(..);
        nodes.extend(looked_up.map(|(inode, at)| record(&inode, Some(at))));
        for node in &mut nodes {
            if let (true, Some(at)) = (migration.confirm_paths, &node.place) {
                let inode = self.tree.nodes.get(node.node);
                let leads_here = inode.is_ok_and(|inode| places.leads_to(at, &inode));
                node.place.take_if(|_| !leads_here);
            }
            let is_verified = migration.verify_handles && node.place.is_some();
            node.identity.take_if(|_| !(by_handle || is_verified));
        }
        let lost = nodes
            .iter()
            .filter(|it| it.place.is_none() && it.identity.is_none())
            .count();
        if lost > 0 {
            tracing::warn!(lost, "files that a client has looked up have no path");
        }
        nodes
    }
}

fn record(inode: &Inode, place: Option<KnownName>) -> NodeRecord {
    let identity = inode.identity();
    NodeRecord {
        node: inode.node(),
        lookups: inode.lookups(),
        file_type: inode.file_type,
        dax: 0,
        identity: identity.handle().map(|_| identity.clone()),
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
