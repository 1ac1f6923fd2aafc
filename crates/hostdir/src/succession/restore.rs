//! Migration, receiving side: parses a saved state, which is untrusted input, and finds its files.
//!
//! Every count is bounded before memory is taken for it. A path never leads out of the served tree; a
//! handle, which can, is used only where [`Migration::accept_handles`](crate::Migration) permits.

use super::format::{
    Directory, File, Handle, MOUNT_PATH_BYTES_MAX, Mount, Name, Node, Owner, Paths, Range, Reader,
    Way, invalid,
};
use super::paths::Walker;
use super::rebuild::{Found, Rebuild};
use crate::files::{RANGES_MAX, lock_kind};
use crate::host::Host;
use crate::identity::{Identity, KnownName};
use crate::ledger::FileNote;
use crate::stat::stat_open;
use crate::tree::{LowerMount, Place, opened_identity};
use std::collections::HashMap;
use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use thrufs::Errno;
use thrufs_abi::{FileHandle, NodeId};
use thrufs_sys::handle;
use thrufs_sys::lock::{LockKind, RangeLock};

impl Host {
    /// See [`thrufs::FileSystem::restore`].
    pub(crate) fn restore(&self, source: &mut dyn Read) -> io::Result<()> {
        let (mut reader, header) = Reader::new(source)?;
        let [mounts, nodes, names, files, directories, owners] = header.counts;
        if header.is_under_policy != self.judge.has_policy() {
            let what = match header.is_under_policy {
                true => "the session was served under a policy, and there is none here",
                false => "the session was served without a policy, and there is one here",
            };
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        let mut rebuild = Rebuild::new(self, true);
        let mut written = Paths::default();
        // The mounts of the process that saved: their paths by index, and the other way round.
        let (mut paths, mut numbers) = (HashMap::new(), HashMap::new());
        let mut bytes = 0;
        for _ in 0..mounts {
            let (number, path): Mount<'_> = reader.read()?;
            let path = written.read(&path)?.to_vec();
            if number == 0 || path.is_empty() {
                return Err(invalid("a mount of the state is the root"));
            }
            bytes += path.len();
            if bytes > MOUNT_PATH_BYTES_MAX {
                return Err(invalid("the paths of mounts are too long"));
            }
            numbers.insert(path.clone(), number);
            paths.insert(number, path);
        }
        let mut walker = Walker::new(self, Some(&numbers));
        for _ in 0..nodes {
            let record: Node<'_> = reader.read()?;
            let found = match record.found {
                // Unknown, it answers ESTALE as well.
                Way::Gone => continue,
                Way::Not => Err(Errno::ENOENT),
                Way::Path(path) => self.find_by_path(&mut walker, written.read(&path)?),
                Way::Handle(number, handle) => {
                    let mount = self.find_mount(&mut walker, &paths, number);
                    mount.and_then(|mount| self.find_by_handle(&mount, handle))
                }
            };
            let expected = record.expected;
            let found = found.and_then(|found| found.check(record.file_type, expected));
            // A session with a window does not migrate.
            let of_type = (record.file_type, 0);
            rebuild.node(NodeId(record.node), record.lookups, of_type, found)?;
        }
        if !header.is_under_policy && names > 0 {
            return Err(invalid("the state has names without a policy"));
        }
        for _ in 0..names {
            let record: Name<'_> = reader.read()?;
            let name = KnownName::new(NodeId(record.directory), record.name);
            rebuild.name(NodeId(record.node), name)?;
        }
        for _ in 0..files {
            let record: File = reader.read()?;
            if header.is_under_policy != record.note.route.is_some() {
                return Err(invalid("how the data of an open file go is unknown"));
            }
            rebuild.file(record.note, lock_kind(record.flock), record.is_open, None)?;
        }
        for _ in 0..directories {
            let (handle, node, opener, whole): Directory = reader.read()?;
            let note = FileNote {
                handle: FileHandle(handle),
                node: NodeId(node),
                flags: 0,
                route: None,
                opener,
                backing: None,
            };
            rebuild.directory(note, Some(whole))?;
        }
        for _ in 0..owners {
            read_owner(&mut reader, &mut rebuild)?;
        }
        reader.finish()?;
        rebuild.finish(header.highest)
    }

    fn find_by_path(&self, walker: &mut Walker<'_>, path: &[u8]) -> thrufs::Result<Found> {
        let level = walker.go(path)?;
        let has_handles = level.mount.has_handles;
        let mut found = Found {
            identity: level.identity()?,
            mount: Arc::clone(&level.mount),
            mode: u32::from(level.stat.stx_mode),
            place: None,
            fd: match has_handles {
                true => None,
                false => Some(rustix::io::fcntl_dupfd_cloexec(&level.fd, 3)?),
            },
        };
        // Rules decide by names, and without a handle there is no other way to the inode.
        if !has_handles || self.judge.has_policy() {
            found.place = self.place_of(walker, path)?;
        }
        let is_known = || self.tree.nodes.find(&found.identity).is_some();
        if self.judge.has_policy() && (found.place.is_none() || is_known()) {
            // Rules would decide by names that the state chooses, or by some of its names.
            return Err(Errno::ESTALE);
        }
        Ok(found)
    }

    fn place_of(&self, walker: &mut Walker<'_>, path: &[u8]) -> thrufs::Result<Option<Box<Place>>> {
        let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => {
                let directory = walker.go(&path[..at])?.identity()?;
                (self.tree.nodes.find(&directory), &path[at + 1..])
            }
            None => (Some(Arc::clone(&self.tree.root)), path),
        };
        let name = CString::new(name).map_err(|_| Errno::ENOENT)?;
        Ok(parent.map(|parent| Place::new(parent, name)))
    }

    fn find_mount(
        &self,
        walker: &mut Walker<'_>,
        paths: &HashMap<u32, Vec<u8>>,
        number: u32,
    ) -> thrufs::Result<Arc<LowerMount>> {
        // Rules decide by paths.
        if !self.config.migration.accept_handles || self.judge.has_policy() {
            return Err(Errno::EPERM);
        }
        if number == 0 {
            return Ok(Arc::clone(self.tree.root.mount()));
        }
        let path = paths.get(&number).ok_or(Errno::ESTALE)?;
        let mount = Arc::clone(&walker.go(path)?.mount);
        if mount.index == 0 {
            // Nothing is mounted there.
            return Err(Errno::ESTALE);
        }
        Ok(mount)
    }

    fn find_by_handle(
        &self,
        mount: &Arc<LowerMount>,
        Handle(kind, bytes): Handle<'_>,
    ) -> thrufs::Result<Found> {
        if !mount.has_handles {
            return Err(Errno::EOPNOTSUPP);
        }
        let anchor = self.tree.anchor_of(mount)?;
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let fd = self.tree.with_room(|| {
            let anchor = anchor.as_fd();
            let opened = handle::open_by_handle_parts(anchor, kind, bytes, flags);
            Ok(opened?)
        })?;
        let stat = stat_open(&fd)?;
        // As this kernel writes the handle, so that lookups find it.
        let identity = opened_identity(mount, &fd, &stat)?;
        let same = Identity::from_parts(mount.index, kind, bytes);
        if same.as_ref() != Some(&identity) {
            return Err(Errno::ESTALE);
        }
        Ok(Found {
            identity,
            mount: Arc::clone(mount),
            mode: u32::from(stat.stx_mode),
            place: None,
            // The only way to an inode without names.
            fd: (stat.stx_nlink == 0).then_some(fd),
        })
    }
}

impl Found {
    fn check(self, file_type: u32, expected: Option<Handle<'_>>) -> thrufs::Result<Found> {
        let is_same_type = self.mode & libc::S_IFMT == file_type & libc::S_IFMT;
        let is_same_handle = expected
            .is_none_or(|Handle(kind, bytes)| self.identity.handle() == Some((kind, bytes)));
        if is_same_type && is_same_handle {
            Ok(self)
        } else {
            Err(Errno::ESTALE)
        }
    }
}

fn read_owner(reader: &mut Reader<'_>, rebuild: &mut Rebuild<'_>) -> io::Result<()> {
    let (note, count): Owner = reader.read()?;
    if count > RANGES_MAX {
        return Err(invalid("an owner in the state has too many locks"));
    }
    let mut ranges = Vec::new();
    for _ in 0..count {
        let (kind, start, end): Range = reader.read()?;
        ranges.push(RangeLock {
            kind: lock_kind(kind).unwrap_or(LockKind::Unlock),
            start,
            end,
            pid: 0,
        });
    }
    rebuild.owner(note, &ranges)
}
