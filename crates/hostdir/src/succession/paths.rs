//! Migration, sending side: from an inode to a path that leads to it, component by component and never out of the
//! served tree.

use crate::host::Host;
use crate::identity::{Identity, KnownName};
use crate::tree::{Inode, LowerMount, component_of, opened_identity};
use rustix::fs::{Dir, Statx};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use thrufs::{Errno, Result};
use thrufs_abi::NodeId;
use thrufs_sys::proc_fd;

const DEPTH_MAX: usize = 4096;
const PATH_BYTES_MAX: usize = u16::MAX as usize;

/// A directory of a path, or its last component.
struct Level {
    name: Vec<u8>,
    fd: OwnedFd,
    stat: Statx,
    mount: Arc<LowerMount>,
}

impl Level {
    fn identity(&self) -> Result<Identity> {
        opened_identity(&self.mount, &self.fd, &self.stat)
    }
}

/// Walks paths one after the other, each from its common prefix with the one before.
struct Walker<'a> {
    host: &'a Host,
    levels: Vec<Level>,
}

impl<'a> Walker<'a> {
    fn new(host: &'a Host) -> Walker<'a> {
        let levels = Vec::new();
        Walker { host, levels }
    }

    /// What a path beneath the root leads to. Symbolic links are not followed.
    fn go(&mut self, path: &[u8]) -> Result<&Level> {
        let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        if names.len() > DEPTH_MAX {
            return Err(Errno::ELOOP);
        }
        let pairs = self.levels.iter().zip(&names);
        let shared = pairs
            .take_while(|(level, name)| level.name == **name)
            .count();
        self.levels.truncate(shared);
        for name in &names[shared..] {
            let level = self.step(name)?;
            self.levels.push(level);
        }
        self.levels.last().ok_or(Errno::ENOENT)
    }

    fn step(&self, name: &[u8]) -> Result<Level> {
        let host = self.host;
        let component = component_of(name)?;
        let root;
        let (parent_fd, parent_mount) = match self.levels.last() {
            Some(level) => (level.fd.as_fd(), &level.mount),
            None => {
                root = host.tree.descriptor(&host.tree.root)?;
                (root.as_fd(), host.tree.root.mount())
            }
        };
        let (fd, stat) = host.tree.open_component(parent_fd, &component)?;
        let id = stat.stx_mnt_id;
        let mount = if id == parent_mount.id {
            Arc::clone(parent_mount)
        } else {
            host.tree.mounts.known(id).ok_or(Errno::EXDEV)?
        };
        Ok(Level {
            name: name.to_vec(),
            fd,
            stat,
            mount,
        })
    }
}

/// The path of an entry of a directory; empty for the root.
pub(super) fn child(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        [] => name.to_vec(),
        _ => [directory, name].join(&b'/'),
    }
}

/// The directories that the client knows, by their paths.
pub(super) struct Directories<'a> {
    host: &'a Host,
    known: HashMap<Vec<u8>, NodeId>,
    /// Those that it did not know, and where they are.
    pub(super) looked_up: Vec<(Arc<Inode>, KnownName)>,
}

impl<'a> Directories<'a> {
    pub(super) fn new(host: &'a Host) -> Directories<'a> {
        Directories {
            host,
            known: HashMap::new(),
            looked_up: Vec::new(),
        }
    }

    pub(super) fn insert(&mut self, path: &[u8], node: NodeId) {
        self.known.insert(path.to_vec(), node);
    }

    /// The directory and the name of a path. A directory that the client does not know is looked up for it, and stays
    /// until the session ends.
    pub(super) fn place_of(&mut self, path: &[u8]) -> Option<KnownName> {
        let (mut node, mut start) = (NodeId::ROOT, 0);
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for (end, _) in slashes {
            node = match self.known.get(&path[..end]) {
                Some(known) => *known,
                None => self.look_up(&path[..end], KnownName::new(node, &path[start..end]))?,
            };
            start = end + 1;
        }
        Some(KnownName::new(node, &path[start..]))
    }

    fn look_up(&mut self, path: &[u8], place: KnownName) -> Option<NodeId> {
        let tree = &self.host.tree;
        let parent = tree.nodes.get(place.directory).ok()?;
        let name = component_of(&place.name).ok()?;
        let (inode, _) = tree.lookup_name(&parent, &name).ok()?;
        let node = inode.node();
        self.insert(path, node);
        match inode.lookups() {
            1 => self.looked_up.push((inode, place)),
            // Known by another path.
            _ => tree.forget(node, 1),
        }
        Some(node)
    }
}

pub(super) struct Finder<'a> {
    host: &'a Host,
    /// The target of the root descriptor's link in /proc.
    root: Option<Vec<u8>>,
    walker: Walker<'a>,
}

impl<'a> Finder<'a> {
    pub(super) fn new(host: &'a Host) -> Finder<'a> {
        let root = host.tree.descriptor(&host.tree.root).ok();
        let root = root.and_then(|root| proc_fd::path_hint(root.as_fd()).ok());
        Finder {
            host,
            root,
            walker: Walker::new(host),
        }
    }

    /// The probable path of an inode from the root, by what is known of it. `None` for a path that is too
    /// long.
    pub(super) fn guess(&self, inode: &Arc<Inode>) -> Option<Vec<u8>> {
        let guessed = self.guess_any(inode);
        guessed.filter(|path| path.len() + 256 <= PATH_BYTES_MAX)
    }

    fn guess_any(&self, inode: &Arc<Inode>) -> Option<Vec<u8>> {
        if inode.node() == NodeId::ROOT {
            return Some(Vec::new());
        }
        if inode.identity().handle().is_none() {
            return self.by_places(inode);
        }
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

    fn by_places(&self, inode: &Arc<Inode>) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        let mut at = Arc::clone(inode);
        while at.identity().handle().is_none() && at.node() != NodeId::ROOT {
            let (parent, name) = at.lower.places().into_iter().next()?;
            names.push(name.into_bytes());
            if names.len() > DEPTH_MAX {
                return None;
            }
            at = parent;
        }
        if at.node() != NodeId::ROOT {
            names.push(self.guess_any(&at)?);
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    pub(super) fn leads_to(&mut self, path: &[u8], inode: &Inode) -> bool {
        let found = self.walker.go(path).and_then(Level::identity);
        found.is_ok_and(|identity| identity == *inode.identity())
    }

    /// Searches the whole tree for inodes, and returns where they were found, by their numbers.
    pub(super) fn search(
        &mut self,
        mut missing: HashMap<Identity, usize>,
        mut found: impl FnMut(usize, Vec<u8>),
    ) {
        let mut directories = vec![Vec::new()];
        while let Some(directory) = directories.pop() {
            if missing.is_empty() {
                return;
            }
            let Ok(names) = self.list(&directory) else {
                continue;
            };
            for name in names {
                let path = child(&directory, &name);
                if path.len() > PATH_BYTES_MAX {
                    continue;
                }
                let Ok(level) = self.walker.go(&path) else {
                    continue;
                };
                if u32::from(level.stat.stx_mode) & libc::S_IFMT == libc::S_IFDIR {
                    directories.push(path.clone());
                }
                let identity = level.identity();
                if let Some(number) = identity.ok().and_then(|it| missing.remove(&it)) {
                    found(number, path);
                }
            }
        }
    }

    fn list(&mut self, directory: &[u8]) -> Result<Vec<Vec<u8>>> {
        let tree = &self.host.tree;
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        let fd = match directory {
            [] => tree.reopen(tree.descriptor(&tree.root)?, flags)?,
            _ => tree.reopen(&self.walker.go(directory)?.fd, flags)?,
        };
        let mut names = Vec::new();
        for entry in Dir::new(fd)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        Ok(names)
    }
}
