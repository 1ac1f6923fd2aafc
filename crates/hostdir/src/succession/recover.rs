//! Death: reads the [ledger](crate::ledger) of a process that died, and finds its files again, by handle, by
//! name, or in the fd store. That process may have been compromised, so nothing
//! in the ledger is relied upon. What is not found answers ESTALE, and the session continues.

use super::order::in_order;
use super::rebuild::Rebuild;
use crate::files::LeftOpen;
use crate::host::Host;
use crate::identity::KnownName;
use crate::ledger::{
    Contents, Key, NamesRead, OpenRecord, OwnerNote, Records, StateTables, contents,
};
use std::io;
use std::sync::Arc;
use thrufs::Errno;

impl Host {
    /// See [`thrufs::FileSystem::recover`].
    pub(crate) fn recover(&self) -> io::Result<()> {
        let unsupported = |what: &str| io::Error::new(io::ErrorKind::Unsupported, what);
        let Some(tables) = &self.tree.tables else {
            return Err(unsupported("there is no ledger to go on from"));
        };
        let records = tables.read()?;
        let mut kept = self.tree.fd_store().map(contents).unwrap_or_default();
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
        let mut rebuild = Rebuild::new(self, false, records.mounts.clone());
        let highest = records.highest;
        self.recover_all(records, tables, &mut kept, &mut rebuild)?;
        for key in kept.into_keys() {
            self.tree.discard(key);
        }
        rebuild.finish(highest)?;
        tables.set_ready();
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
        tables: &StateTables,
        kept: &mut Contents,
        rebuild: &mut Rebuild<'_>,
    ) -> io::Result<()> {
        let mut other_places = Vec::new();
        in_order(records.nodes, &records.mounts, |mut record| {
            let node = record.node;
            let other_place = record.other_place.take();
            other_places.extend(other_place.map(|place| (node, place)));
            // An invalid record is one of a compromised process.
            rebuild.node(record).or_else(|error| match error.kind() {
                io::ErrorKind::InvalidData => rebuild.lose("node", node.0, Errno::EINVAL),
                _ => Err(error),
            })
        })?;
        // Whether a node is there is seen when it is used.
        for (node, place) in other_places {
            if let (Ok(inode), Some(place)) =
                (self.tree.nodes.get(node), rebuild.locator.place(&place))
            {
                self.tree.nodes.seen_at(&inode, place);
            }
        }
        self.recover_orphans(kept);
        self.recover_names(records.names, tables);
        for record in records.files {
            self.recover_file(record, tables, kept, rebuild);
        }
        for record in records.directories {
            let (node, handle) = (record.note.node, record.note.handle);
            self.files.was_left_open(node, LeftOpen::Directory(handle));
            if let Err(error) = rebuild.directory(record) {
                tracing::warn!(handle = handle.0, %error, "an open directory is lost");
                tables.directories.remove(handle);
            }
        }
        for record in records.owners {
            self.recover_owner(record, tables, kept, rebuild)?;
        }
        Ok(())
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
    fn recover_names(&self, names: NamesRead, tables: &StateTables) {
        let mut unsure = Vec::new();
        for (node, names) in names {
            match self.tree.nodes.get(node) {
                Ok(inode) if self.judge.has_policy() => {
                    if names.iter().any(|name| name.is_unsure) {
                        unsure.push(Arc::clone(&inode));
                    }
                    inode.names.again(names);
                }
                _ => names
                    .iter()
                    .for_each(|name| tables.names.remove(name.index)),
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
        tables: &StateTables,
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
            return tables.files.remove(handle);
        }
        let given = kept.remove(&Key::File(handle)).filter(|fd| {
            let inode = self.tree.nodes.get(note.node);
            inode.is_ok_and(|inode| self.tree.is_of(fd, &inode))
        });
        let left = record.left;
        let opened = rebuild.file(record, given);
        if let Some(file) = self.files.files.get(handle.0)
            && let Some(filter) = file.guard().filter()
        {
            filter.was_left(handle, left);
        }
        if let Err(error) = opened {
            tables.files.remove(handle);
            // An open that was carried out, and then again, because the process died before it was answered.
            if self.tree.nodes.get(note.node).is_err() {
                return tracing::info!(
                    handle = handle.0,
                    node = note.node.0,
                    recorded = ?tables.recorded_of(note.node),
                    "an open file of no known node is left out"
                );
            }
            tracing::warn!(handle = handle.0, %error, "an open file is lost");
        }
    }

    fn recover_owner(
        &self,
        (index, note): (u32, OwnerNote),
        tables: &StateTables,
        kept: &mut Contents,
        rebuild: &mut Rebuild<'_>,
    ) -> io::Result<()> {
        let mut files = self.files.files_of_owner(&note);
        files.retain(|file| file.node() == note.node);
        let Some(file) = files.first() else {
            tables.forget_owner(index);
            return Ok(());
        };
        let fd = kept.remove(&Key::Owner(index));
        match fd.filter(|fd| self.tree.is_of(fd, file.inode())) {
            Some(fd) => {
                rebuild.kept_owner(file, note, fd, index);
                Ok(())
            }
            None => {
                tables.forget_owner(index);
                files.iter().for_each(|file| file.lose());
                rebuild.lose("locks of open file", note.handle.0, Errno::ENOLCK)
            }
        }
    }
}
