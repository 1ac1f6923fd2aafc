//! The test directory of a target, made in its share by requests and removed at the end.

use super::arguments::{Bench, Target};
use crate::tool::share::{Share, failed};
use crate::tool::{Connection, ToolError};
use rustix::fs::OFlags;
use std::sync::Mutex;
use std::sync::PoisonError;
use thrufs::Errno;
use thrufs_abi::NodeId;

/// Names of the big file and the big directory.
const DATA: &str = "data";
const MANY: &str = "many";

/// Number of names that LOOKUP asks for in turn.
const LOOKED_UP: usize = 64;

pub(crate) struct Ground {
    /// Locked to count lookups; measured requests go to the front end.
    share: Share,
    name: String,
    directory: String,
    pub(crate) top: NodeId,
    pub(crate) many: NodeId,
    /// Of the directory `many`.
    pub(crate) files: Vec<NodeId>,
    pub(crate) data: NodeId,
    pub(crate) fh: u64,
    pub(crate) file_bytes: u64,
    owed: Mutex<Lookups>,
}

/// Lookups made by measurements, to be forgotten.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lookups {
    /// Of the first files of the directory `many`.
    pub(crate) by_name: Vec<u64>,
    /// Of all its files.
    pub(crate) listings: u64,
}

/// The name of a file of the directory `many`.
pub(crate) fn file_name(number: usize) -> String {
    format!("file-{number:06}")
}

impl Ground {
    pub(crate) fn prepare(
        connection: &Connection,
        target: &Target,
        bench: &Bench,
        index: usize,
    ) -> Result<Ground, ToolError> {
        let share = Share::mount(connection)?;
        // Two targets may serve the same directory.
        let directory = format!("{}-{}-{index}", bench.directory, std::process::id());
        let made = |errno| failed(&directory, errno);
        let root = share.root();
        let entry = root
            .mkdir(NodeId::ROOT, directory.as_bytes(), 0o755)
            .map_err(made)?;
        share.counted(entry.nodeid);
        let top = NodeId(entry.nodeid);
        let (data, fh) = write_data(&share, top, bench.file_bytes).map_err(made)?;
        let (many, files) = make_many(&share, top, bench.entries).map_err(made)?;
        Ok(Ground {
            name: target.name.clone(),
            top,
            many,
            files,
            data,
            fh,
            file_bytes: bench.file_bytes,
            owed: Mutex::default(),
            directory,
            share,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn share(&self) -> &Share {
        &self.share
    }

    pub(crate) fn looked_up(&self) -> &[NodeId] {
        &self.files[..self.files.len().min(LOOKED_UP)]
    }

    /// Counts lookups, to be forgotten at the end.
    pub(crate) fn settle(&self, lookups: &Lookups) {
        let mut owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        owed.listings += lookups.listings;
        if owed.by_name.len() < lookups.by_name.len() {
            owed.by_name.resize(lookups.by_name.len(), 0);
        }
        for (sum, count) in owed.by_name.iter_mut().zip(&lookups.by_name) {
            *sum += count;
        }
    }

    /// Removes the test directory and forgets its nodes.
    pub(crate) fn clear(self) -> Result<(), ToolError> {
        self.remove()
            .map_err(|errno| failed(&self.directory, errno))?;
        let owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, &node) in self.files.iter().enumerate() {
            let by_name = owed.by_name.get(index).copied().unwrap_or_default();
            self.share.counted_times(node.0, owed.listings + by_name);
        }
        Ok(())
    }

    fn remove(&self) -> Result<(), Errno> {
        let root = self.share.root();
        root.release(self.data, self.fh)?;
        root.unlink(self.top, DATA.as_bytes())?;
        for number in 0..self.files.len() {
            root.unlink(self.many, file_name(number).as_bytes())?;
        }
        root.rmdir(self.top, MANY.as_bytes())?;
        root.rmdir(NodeId::ROOT, self.directory.as_bytes())
    }
}

fn write_data(share: &Share, top: NodeId, bytes: u64) -> Result<(NodeId, u64), Errno> {
    let root = share.root();
    let flags = (OFlags::RDWR | OFlags::CREATE).bits().cast_signed();
    let (entry, open) = root.create(top, DATA.as_bytes(), flags, 0o644)?;
    share.counted(entry.nodeid);
    let node = NodeId(entry.nodeid);
    let chunk = vec![0x5a; share.transfer_bytes()];
    let mut offset = 0;
    while offset < bytes {
        let length = (bytes - offset).min(chunk.len() as u64) as usize;
        offset += u64::from(root.write(node, open.fh, offset, &chunk[..length], 0)?);
    }
    Ok((node, open.fh))
}

fn make_many(share: &Share, top: NodeId, count: u32) -> Result<(NodeId, Vec<NodeId>), Errno> {
    let root = share.root();
    let entry = root.mkdir(top, MANY.as_bytes(), 0o755)?;
    share.counted(entry.nodeid);
    let many = NodeId(entry.nodeid);
    let flags = (OFlags::WRONLY | OFlags::CREATE).bits().cast_signed();
    let mut files = Vec::new();
    for number in 0..count as usize {
        let (entry, open) = root.create(many, file_name(number).as_bytes(), flags, 0o644)?;
        share.counted(entry.nodeid);
        files.push(NodeId(entry.nodeid));
        root.release(NodeId(entry.nodeid), open.fh)?;
    }
    Ok((many, files))
}
