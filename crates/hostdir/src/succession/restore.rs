//! Migration, receiving side: parses a saved state, which is untrusted input.
//!
//! Every count is bounded before memory is taken for it.

use super::rebuild::Rebuild;
use super::stream::{NodeName, Owner, Range, Reader, invalid};
use crate::files::{RANGES_MAX, lock_kind};
use crate::host::Host;
use crate::ledger::{MountRecords, OpenRecord};
use std::io::{self, Read};
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
        let mut mounted = MountRecords::new();
        for _ in 0..mounts {
            let (number, on) = reader.read()?;
            if number == 0 || mounted.insert(number, on).is_some() {
                return Err(invalid(format!("there can be no mount {number}")));
            }
        }
        let mut rebuild = Rebuild::new(self, true, mounted);
        for _ in 0..nodes {
            rebuild.node(reader.read()?)?;
        }
        if !header.is_under_policy && names > 0 {
            return Err(invalid("the state has names without a policy"));
        }
        for _ in 0..names {
            let NodeName { node, name } = reader.read()?;
            rebuild.name(node, name)?;
        }
        for _ in 0..files {
            let record: OpenRecord = reader.read()?;
            if header.is_under_policy != record.note.route.is_some() {
                return Err(invalid("how the data of an open file go is unknown"));
            }
            rebuild.file(record, None)?;
        }
        for _ in 0..directories {
            rebuild.directory(reader.read()?)?;
        }
        for _ in 0..owners {
            let (note, count): Owner = reader.read()?;
            if count > RANGES_MAX {
                return Err(invalid("an owner in the state has too many locks"));
            }
            let mut ranges = Vec::new();
            for _ in 0..count {
                let (kind, start, end): Range = reader.read()?;
                let kind = lock_kind(kind).unwrap_or(LockKind::Unlock);
                let pid = 0;
                ranges.push(RangeLock {
                    kind,
                    start,
                    end,
                    pid,
                });
            }
            rebuild.owner(note, &ranges)?;
        }
        reader.finish()?;
        rebuild.finish(header.highest)
    }
}
