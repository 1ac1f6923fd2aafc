//! Migration, sending side: where an inode is, as a name in a directory that the client knows.

use crate::host::Host;
use crate::identity::{Identity, KnownName};
use crate::tree::{Inode, component_of, opened_identity};
use rustix::fs::Dir;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use thrufs::Result;
use thrufs_abi::NodeId;
use thrufs_sys::proc_fd;

pub(super) struct Places<'a> {
    host: &'a Host,
    /// The target of the root descriptor's link in /proc.
    root: Option<Vec<u8>>,
    /// Directories by their paths.
    directories: HashMap<Vec<u8>, NodeId>,
    /// Those that the client did not know, and where they are.
    pub(super) looked_up: Vec<(Arc<Inode>, KnownName)>,
}

impl<'a> Places<'a> {
    pub(super) fn new(host: &'a Host) -> Places<'a> {
        let root = host.tree.descriptor(&host.tree.root).ok();
        Places {
            host,
            root: root.and_then(|root| proc_fd::path_hint(root.as_fd()).ok()),
            directories: HashMap::new(),
            looked_up: Vec::new(),
        }
    }

    /// Where an inode is; if rules decide by its names, at one of those.
    pub(super) fn of(&mut self, inode: &Arc<Inode>) -> Option<KnownName> {
        let places = inode.lower.places().into_iter();
        let places = places.map(|(parent, name)| KnownName::new(parent.node(), name.to_bytes()));
        let mut known = inode.names.all().into_iter().chain(places);
        let here = |at: &KnownName| self.is_known(at.directory) && self.leads_to(at, inode);
        known.find(here).or_else(|| {
            let path = self.path(inode)?;
            self.at(&path).filter(|at| self.leads_to(at, inode))
        })
    }

    /// The directory and the name that a mount is mounted on.
    pub(super) fn of_mount(&mut self, parent: &Arc<Inode>, name: &[u8]) -> Option<KnownName> {
        if self.is_known(parent.node()) {
            return Some(KnownName::new(parent.node(), name));
        }
        let path = child(&self.path(parent)?, name);
        self.at(&path)
    }

    fn is_known(&self, node: NodeId) -> bool {
        let inode = self.host.tree.nodes.get(node);
        inode.is_ok_and(|inode| node == NodeId::ROOT || inode.lookups() > 0)
    }

    pub(super) fn leads_to(&self, at: &KnownName, inode: &Inode) -> bool {
        self.host.tree.leads_to(at, inode).unwrap_or(false)
    }

    /// The path of an inode from the root, by what the kernel shows.
    fn path(&self, inode: &Arc<Inode>) -> Option<Vec<u8>> {
        let descriptor = self.host.tree.descriptor(inode).ok()?;
        let path = proc_fd::path_hint(descriptor.as_fd()).ok()?;
        let root = self.root.as_ref()?;
        let rest = path.strip_prefix(root.as_slice())?;
        let rest = match root.ends_with(b"/") {
            true => rest,
            false => rest.strip_prefix(b"/")?,
        };
        Some(rest.to_vec())
    }

    /// The directory and the name of a path. A directory that the client does not know is looked up for it, and stays
    /// until the session ends.
    pub(super) fn at(&mut self, path: &[u8]) -> Option<KnownName> {
        let (mut node, mut start) = (NodeId::ROOT, 0);
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for (end, _) in slashes {
            node = match self.directories.get(&path[..end]) {
                Some(known) => *known,
                None => self.look_up(&path[..end], KnownName::new(node, &path[start..end]))?,
            };
            start = end + 1;
        }
        Some(KnownName::new(node, &path[start..]))
    }

    fn look_up(&mut self, path: &[u8], at: KnownName) -> Option<NodeId> {
        let tree = &self.host.tree;
        let parent = tree.nodes.get(at.directory).ok()?;
        let name = component_of(&at.name).ok()?;
        let (inode, _) = tree.lookup_name(&parent, &name).ok()?;
        let node = inode.node();
        self.directories.insert(path.to_vec(), node);
        match inode.lookups() {
            1 => self.looked_up.push((inode, at)),
            _ => tree.forget(node, 1),
        }
        Some(node)
    }

    /// Searches the whole tree for inodes. Returns their numbers, and their paths.
    pub(super) fn search(&self, mut missing: HashMap<Identity, usize>) -> Vec<(usize, Vec<u8>)> {
        let (mut directories, mut found) = (vec![Vec::new()], Vec::new());
        while let Some(directory) = directories.pop()
            && !missing.is_empty()
        {
            let entries = self.entries(&directory).unwrap_or_default();
            for (path, identity, is_directory) in entries {
                found.extend(
                    missing
                        .remove(&identity)
                        .map(|number| (number, path.clone())),
                );
                directories.extend(is_directory.then_some(path));
            }
        }
        found
    }

    /// The paths of what is in a directory, and whether they are directories.
    fn entries(&self, directory: &[u8]) -> Result<Vec<(Vec<u8>, Identity, bool)>> {
        let tree = &self.host.tree;
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        let fd = match directory {
            [] => tree.reopen(tree.descriptor(&tree.root)?, flags)?,
            _ => tree.reopen(tree.walk(directory)?.0, flags)?,
        };
        let mut entries = Vec::new();
        for entry in Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if let Ok(component) = component_of(name)
                && let Ok((opened, stat)) = tree.open_component(&fd, &component)
                && let Some(mount) = tree.mounts.known(stat.stx_mnt_id)
            {
                let is_directory = u32::from(stat.stx_mode) & libc::S_IFMT == libc::S_IFDIR;
                let identity = opened_identity(&mount, &opened, &stat)?;
                entries.push((child(directory, name), identity, is_directory));
            }
        }
        Ok(entries)
    }
}

/// The path of an entry of a directory; empty for the root.
fn child(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        [] => name.to_vec(),
        _ => [directory, name].join(&b'/'),
    }
}
