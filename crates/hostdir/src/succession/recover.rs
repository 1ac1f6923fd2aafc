//! Death: reads the [ledger](crate::ledger) of a process that died, and finds its files again, by handle, by
//! name, or in the strongbox. That process may have been compromised, so nothing
//! in the ledger is relied upon. What is not found answers ESTALE, and the session continues.

use super::rebuild::{Found, Rebuild};
use crate::files::{LeftOpen, lock_kind};
use crate::host::Host;
use crate::identity::KnownName;
use crate::ledger::{
    Contents, Key, NamesRead, NodeRecord, Notes, OpenRecord, OwnerNote, Records, contents,
};
use crate::tree::{LowerMount, Place};
use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use thrufs::Errno;
use thrufs_abi::NodeId;

/// Most levels of directories that are known by name.
const DEPTH_MAX: usize = 4096;

impl Host {
    /// See [`thrufs::FileSystem::recover`].
    pub(crate) fn recover(&self) -> io::Result<()> {
        let unsupported = |what: &str| io::Error::new(io::ErrorKind::Unsupported, what);
        let Some(notes) = &self.tree.notes else {
            return Err(unsupported("there is no ledger to go on from"));
        };
        let records = notes.read()?;
        let mut kept = self.tree.strongbox().map(contents).unwrap_or_default();
        tracing::info!(
            nodes = records.nodes.len(),
            files = records.files.len(),
            directories = records.directories.len(),
            stored = kept.len(),
            "goes on with the session of a process that died"
        );
        if let Some(root) = kept.remove(&Key::NameLock)
            && self.tree.is_of(&root, &self.tree.root)
        {
            self.judge.go_on_with_name_lock(root);
        }
        let mut rebuild = Rebuild::new(self, false);
        let highest = self.recover_all(records, notes, &mut kept, &mut rebuild)?;
        for key in kept.into_keys() {
            self.tree.discard(key);
        }
        rebuild.finish(highest)?;
        notes.set_ready();
        // The process that died may not have come to it.
        self.files.withdraw_mappings();
        self.files.end_backings_of_the_last();
        self.files.left.go_on();
        self.tree.retries.go_on();
        self.follow.go_on();
        Ok(())
    }

    fn recover_all(
        &self,
        records: Records,
        notes: &Notes,
        kept: &mut Contents,
        rebuild: &mut Rebuild<'_>,
    ) -> io::Result<[u32; 3]> {
        let highest = records.highest;
        let mut pending: HashMap<NodeId, NodeRecord> = HashMap::new();
        let mut mounts = HashMap::from([(0, Arc::clone(self.tree.root.mount()))]);
        let mut others_of = Vec::new();
        for record in records.nodes {
            let others = record.places.iter().skip(1);
            others_of.extend(others.map(|place| (record.node, place.clone())));
            pending.insert(record.node, record);
        }
        self.recover_nodes(&mut pending, &mounts, rebuild)?;
        self.recover_other_places(&mut others_of);
        // In the order in which they were entered: each mount point is on an earlier mount.
        for (number, parent, name) in records.mounts {
            match self.mount_again(number, parent, &name) {
                Ok(found) => {
                    mounts.insert(number, found);
                    self.recover_nodes(&mut pending, &mounts, rebuild)?;
                    self.recover_other_places(&mut others_of);
                }
                Err(why) => rebuild.lose("mount", u64::from(number), why)?,
            }
        }
        for (node, record) in pending {
            let of_type = (record.file_type, record.dax);
            rebuild.node(node, record.lookups, of_type, Err(Errno::ESTALE))?;
        }
        self.recover_orphans(kept);
        self.recover_names(records.names, notes);
        for record in records.files {
            self.recover_file(record, notes, kept, rebuild);
        }
        for record in records.directories {
            let (node, handle) = (record.note.node, record.note.handle);
            self.files.was_left_open(node, LeftOpen::Directory(handle));
            if let Err(error) = rebuild.directory(record.note, None) {
                tracing::warn!(handle = handle.0, %error, "an open directory is lost");
                notes.directories.remove(handle);
            }
        }
        for record in records.owners {
            self.recover_owner(record, notes, kept, rebuild)?;
        }
        Ok(highest)
    }

    /// Rebuilds nodes on known mounts, directories before their entries.
    fn recover_nodes(
        &self,
        pending: &mut HashMap<NodeId, NodeRecord>,
        mounts: &HashMap<u32, Arc<LowerMount>>,
        rebuild: &mut Rebuild<'_>,
    ) -> io::Result<()> {
        let is_ready = |record: &NodeRecord| mounts.contains_key(&record.identity.mount());
        let mut ready: HashMap<NodeId, NodeRecord> =
            pending.extract_if(|_, record| is_ready(record)).collect();
        let nodes: Vec<NodeId> = ready.keys().copied().collect();
        let mut chain = Vec::new();
        for node in nodes {
            let mut next = Some(node);
            while let Some(record) = next.and_then(|node| ready.remove(&node)) {
                let parent = record.places.first().map(|(parent, _)| *parent);
                next = parent.filter(|_| chain.len() < DEPTH_MAX);
                chain.push(record);
            }
            while let Some(record) = chain.pop() {
                self.recover_node(record, mounts, rebuild)?;
            }
        }
        Ok(())
    }

    /// The second places of nodes. Whether a node is there is seen when it is used.
    fn recover_other_places(&self, others_of: &mut Vec<(NodeId, (NodeId, CString))>) {
        others_of.retain(|(node, (parent, name))| {
            let nodes = &self.tree.nodes;
            let (Ok(inode), Ok(parent)) = (nodes.get(*node), nodes.get(*parent)) else {
                // Perhaps on a mount that comes later.
                return true;
            };
            nodes.seen_at(&inode, Place::new(parent, name.clone()));
            false
        });
    }

    fn recover_node(
        &self,
        record: NodeRecord,
        mounts: &HashMap<u32, Arc<LowerMount>>,
        rebuild: &mut Rebuild<'_>,
    ) -> io::Result<()> {
        let found = self.found_again(&record, mounts);
        let of_type = (record.file_type, record.dax);
        let inserted = rebuild.node(record.node, record.lookups, of_type, found);
        // An invalid record is one of a compromised process.
        inserted.or_else(|error| match error.kind() {
            io::ErrorKind::InvalidData => rebuild.lose("node", record.node.0, Errno::EINVAL),
            _ => Err(error),
        })
    }

    /// Whether it still exists is seen when it is used.
    fn found_again(
        &self,
        record: &NodeRecord,
        mounts: &HashMap<u32, Arc<LowerMount>>,
    ) -> thrufs::Result<Found> {
        let mount = mounts.get(&record.identity.mount()).ok_or(Errno::ESTALE)?;
        if mount.has_handles != record.identity.handle().is_some() {
            return Err(Errno::ESTALE);
        }
        // The client may have forgotten the directory, and know another name of the file, or have it open.
        let place = record.places.first().and_then(|(parent, name)| {
            let parent = self.tree.nodes.get(*parent).ok()?;
            Some(Place::new(parent, name.clone()))
        });
        Ok(Found {
            identity: record.identity.clone(),
            mount: Arc::clone(mount),
            mode: record.file_type,
            place,
            fd: None,
        })
    }

    fn mount_again(
        &self,
        number: u32,
        parent: NodeId,
        name: &std::ffi::CStr,
    ) -> thrufs::Result<Arc<LowerMount>> {
        let parent = self.tree.nodes.get(parent)?;
        let descriptor = self.tree.descriptor(&parent)?;
        let (_, stat) = self.tree.open_component(&descriptor, name)?;
        if stat.stx_mnt_id == parent.mount().id {
            return Err(Errno::ESTALE);
        }
        let fd = descriptor.as_fd();
        self.tree
            .mounts
            .enter_as(stat.stx_mnt_id, &parent, fd, name, Some(number))
    }

    /// Files by stored descriptors. Those are of another process's mounts, so that link(2) refuses them: they
    /// are the last way.
    fn recover_orphans(&self, kept: &mut Contents) {
        let known = |key: &Key| match key {
            Key::Node(node) => Some((*key, self.tree.nodes.get(*node).ok()?)),
            Key::File(_) | Key::Owner(_) | Key::NameLock => None,
        };
        for (key, inode) in kept.keys().filter_map(known).collect::<Vec<_>>() {
            if let Some(fd) = kept.remove(&key).filter(|fd| self.tree.is_of(fd, &inode)) {
                if self.tree.descriptor(&inode).is_err() {
                    let found = self.tree.find_by_link(&fd, &inode).unwrap_or(fd);
                    self.tree.descriptors.keep(&inode, found);
                }
                self.tree.record_stored(&inode);
            }
        }
    }

    /// The names by which rules decide. Those that were being given when the process died are checked.
    fn recover_names(&self, names: NamesRead, notes: &Notes) {
        let mut unsure = Vec::new();
        for (node, names) in names {
            match self.tree.nodes.get(node) {
                Ok(inode) if self.judge.has_policy() => {
                    if names.iter().any(|name| name.is_unsure) {
                        unsure.push(Arc::clone(&inode));
                    }
                    inode.names.again(names);
                }
                _ => names.iter().for_each(|name| notes.names.remove(name.index)),
            }
        }
        for inode in unsure {
            let leads_here = |name: &KnownName| self.tree.leads_to(name, &inode).unwrap_or(false);
            inode.names.settle(self.tree.noting(&inode), leads_here);
        }
    }

    fn recover_file(
        &self,
        record: OpenRecord,
        notes: &Notes,
        kept: &mut Contents,
        rebuild: &mut Rebuild<'_>,
    ) {
        let note = record.note;
        let handle = note.handle;
        self.files.was_left_open(note.node, LeftOpen::File(handle));
        if record.has_no_route {
            tracing::warn!(
                handle = handle.0,
                "an open file is lost: its data path was not recorded"
            );
            return notes.files.remove(handle);
        }
        let given = kept.remove(&Key::File(handle)).filter(|fd| {
            let inode = self.tree.nodes.get(note.node);
            inode.is_ok_and(|inode| self.tree.is_of(fd, &inode))
        });
        let opened = rebuild.file(note, lock_kind(record.flock), true, given);
        if let Some(file) = self.files.files.get(handle.0)
            && let Some(filter) = file.guard().filter()
        {
            filter.was_left(handle, record.left);
        }
        if let Err(error) = opened {
            notes.files.remove(handle);
            // An open that was carried out, and then again, because the process died before it was answered.
            if self.tree.nodes.get(note.node).is_err() {
                return tracing::info!(
                    handle = handle.0,
                    node = note.node.0,
                    recorded = ?notes.recorded_of(note.node),
                    "an open file of no known node is left out"
                );
            }
            tracing::warn!(handle = handle.0, %error, "an open file is lost");
        }
    }

    fn recover_owner(
        &self,
        (index, note): (u32, OwnerNote),
        notes: &Notes,
        kept: &mut Contents,
        rebuild: &mut Rebuild<'_>,
    ) -> io::Result<()> {
        let mut files = self.files.files_of_owner(&note);
        files.retain(|file| file.node() == note.node);
        let Some(file) = files.first() else {
            notes.forget_owner(index);
            return Ok(());
        };
        let fd = kept.remove(&Key::Owner(index));
        match fd.filter(|fd| self.tree.is_of(fd, file.inode())) {
            Some(fd) => {
                rebuild.kept_owner(file, note, fd, index);
                Ok(())
            }
            None => {
                notes.forget_owner(index);
                files.iter().for_each(|file| file.lose());
                rebuild.lose("locks of open file", note.handle.0, Errno::ENOLCK)
            }
        }
    }
}
