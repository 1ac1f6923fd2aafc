//! Migration, receiving side: parses a saved state, which is untrusted input, and finds its files.
//!
//! Every count is bounded before memory is taken for it. A path never leads out of the served tree; a
//! handle, which can, is used only where [`Migration::accept_handles`](crate::Migration) permits.

use super::format::{
    Handle, MAGIC, MOUNT_PATH_BYTES_MAX, MOUNTS_MAX, NAME_BYTES_MAX, NAMES_MAX, NODES_MAX,
    OPENS_MAX, OWNERS_MAX, Reader, VERSION, VERSION_UNDER_POLICY, invalid,
};
use super::paths::Walker;
use super::rebuild::{Found, Rebuild};
use super::save::{FOUND_BY_HANDLE, FOUND_BY_PATH, FOUND_GONE, FOUND_NOT};
use crate::files::{Listing, RANGES_MAX, lock_kind};
use crate::host::Host;
use crate::identity::{Identity, KnownName};
use crate::ledger::{FileNote, OpenerIds, OwnerNote, Route};
use crate::stat::stat_open;
use crate::tree::{LowerMount, Place, opened_identity};
use std::collections::HashMap;
use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use thrufs::Errno;
use thrufs_abi::{FileHandle, LockOwner, NodeId};
use thrufs_sys::handle;
use thrufs_sys::lock::{LockKind, RangeLock};

struct Header {
    is_under_policy: bool,
    highest: [u32; 3],
    mounts: u32,
    nodes: u32,
    files: u32,
    directories: u32,
    owners: u32,
}

impl Host {
    /// See [`thrufs::FileSystem::restore`].
    pub(crate) fn restore(&self, source: &mut dyn Read) -> io::Result<()> {
        let mut reader = Reader::new(source);
        let header = read_header(&mut reader)?;
        if header.is_under_policy != self.judge.has_policy() {
            let what = match header.is_under_policy {
                true => "the session was served under a policy, and there is none here",
                false => "the session was served without a policy, and there is one here",
            };
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        let mut rebuild = Rebuild::new(self, true);
        // The mounts of the process that saved: their paths by index, and the other way round.
        let (mut paths, mut numbers) = (HashMap::new(), HashMap::new());
        let mut bytes = 0;
        for _ in 0..header.mounts {
            let number = reader.u32()?;
            let path = reader.path()?;
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
        for _ in 0..header.nodes {
            let (node, lookups, file_type) = (NodeId(reader.u64()?), reader.u64()?, reader.u32()?);
            let found = match reader.byte()? {
                FOUND_NOT => Err(Errno::ENOENT),
                FOUND_GONE => {
                    // Unknown, it answers ESTALE as well.
                    reader.handle()?;
                    continue;
                }
                FOUND_BY_PATH => {
                    let path = reader.path()?;
                    self.find_by_path(&mut walker, &path)
                }
                FOUND_BY_HANDLE => {
                    let (number, handle) = (reader.u32()?, reader.handle()?);
                    self.find_mount(&mut walker, &paths, number)
                        .and_then(|mount| self.find_by_handle(&mount, &handle))
                }
                _ => return Err(invalid("a node of the state is found in an unknown way")),
            };
            let expected = reader.handle()?;
            let found = found.and_then(|found| found.check(file_type, &expected));
            // A session with a window does not migrate.
            rebuild.node(node, lookups, (file_type, 0), found)?;
        }
        if header.is_under_policy {
            read_names(&mut reader, &rebuild)?;
        }
        read_opens(&mut reader, &header, &mut rebuild)?;
        read_owners(&mut reader, &header, &mut rebuild)?;
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
        (kind, bytes): &Handle,
    ) -> thrufs::Result<Found> {
        if !mount.has_handles {
            return Err(Errno::EOPNOTSUPP);
        }
        let anchor = self.tree.anchor_of(mount)?;
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let fd = self.tree.with_room(|| {
            let anchor = anchor.as_fd();
            let opened = handle::open_by_handle_parts(anchor, *kind, bytes, flags);
            Ok(opened?)
        })?;
        let stat = stat_open(&fd)?;
        // As this kernel writes the handle, so that lookups find it.
        let identity = opened_identity(mount, &fd, &stat)?;
        let same = Identity::from_parts(mount.index, *kind, bytes);
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
    fn check(self, file_type: u32, expected: &Handle) -> thrufs::Result<Found> {
        let is_same_type = self.mode & libc::S_IFMT == file_type & libc::S_IFMT;
        let (kind, bytes) = expected;
        let is_same_handle =
            *expected == Handle::default() || self.identity.handle() == Some((*kind, bytes));
        if is_same_type && is_same_handle {
            Ok(self)
        } else {
            Err(Errno::ESTALE)
        }
    }
}

fn read_header(reader: &mut Reader<'_>) -> io::Result<Header> {
    if reader.array()? != MAGIC {
        return Err(invalid("this is no state of a served directory"));
    }
    let version = reader.u32()?;
    if version != VERSION && version != VERSION_UNDER_POLICY {
        return Err(invalid(format!(
            "the state has version {version}; {VERSION_UNDER_POLICY} and before are known here"
        )));
    }
    Ok(Header {
        is_under_policy: version == VERSION_UNDER_POLICY,
        highest: [reader.u32()?, reader.u32()?, reader.u32()?],
        mounts: reader.count(MOUNTS_MAX)?,
        nodes: reader.count(NODES_MAX)?,
        files: reader.count(OPENS_MAX)?,
        directories: reader.count(OPENS_MAX)?,
        owners: reader.count(OWNERS_MAX)?,
    })
}

/// The names of nodes beside those by which they were found.
fn read_names(reader: &mut Reader<'_>, rebuild: &Rebuild<'_>) -> io::Result<()> {
    for _ in 0..reader.count(NAMES_MAX)? {
        let node = NodeId(reader.u64()?);
        let directory = NodeId(reader.u64()?);
        let name = reader.short(NAME_BYTES_MAX)?;
        rebuild.name(node, KnownName::new(directory, &name))?;
    }
    Ok(())
}

fn read_opens(
    reader: &mut Reader<'_>,
    header: &Header,
    rebuild: &mut Rebuild<'_>,
) -> io::Result<()> {
    for _ in 0..header.files {
        let mut note = read_note(reader)?;
        note.flags = reader.u32()?.cast_signed();
        let flock = lock_kind(reader.byte()?);
        let is_open = reader.byte()? != 0;
        if header.is_under_policy {
            note.opener = OpenerIds::from_word(reader.u64()?);
            note.route = Route::from_number(reader.u32()?);
            if note.route.is_none() {
                return Err(invalid(
                    "an open file of the state is read in an unknown way",
                ));
            }
        }
        rebuild.file(note, flock, is_open, None)?;
    }
    for _ in 0..header.directories {
        let mut note = read_note(reader)?;
        let whole = Listing {
            file_system: reader.u64()?,
            ino: reader.u64()?,
        };
        if header.is_under_policy {
            note.opener = OpenerIds::from_word(reader.u64()?);
        }
        rebuild.directory(note, Some(whole))?;
    }
    Ok(())
}

/// What the records of open files and of open directories begin with.
fn read_note(reader: &mut Reader<'_>) -> io::Result<FileNote> {
    Ok(FileNote {
        handle: FileHandle(reader.u64()?),
        node: NodeId(reader.u64()?),
        flags: 0,
        route: None,
        opener: OpenerIds::default(),
    })
}

fn read_owners(
    reader: &mut Reader<'_>,
    header: &Header,
    rebuild: &mut Rebuild<'_>,
) -> io::Result<()> {
    for _ in 0..header.owners {
        let note = OwnerNote {
            node: NodeId(reader.u64()?),
            owner: LockOwner(reader.u64()?),
            handle: FileHandle(reader.u64()?),
            pid: reader.u32()?,
        };
        let count = reader.count(RANGES_MAX)?;
        let mut ranges = Vec::new();
        for _ in 0..count {
            ranges.push(RangeLock {
                kind: lock_kind(reader.byte()?).unwrap_or(LockKind::Unlock),
                start: reader.u64()?,
                end: reader.u64()?,
                pid: 0,
            });
        }
        rebuild.owner(note, &ranges)?;
    }
    Ok(())
}
