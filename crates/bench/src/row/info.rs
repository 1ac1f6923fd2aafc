//! What a report says of a row, and how much place it takes.

use super::{Needs, Row, WARM_UP_SHARE, Work};
use crate::results::{self, Group};

/// Whatever is made takes a block, and names take place too.
const INODE_BYTES: u64 = 4096 + 512;

/// What a report says of a row.
pub(crate) fn info(row: &Row) -> results::RowInfo {
    let (title, about, group, engine) = match &row.work {
        Work::Loop(work) => (
            work.title.to_owned(),
            work.about.to_owned(),
            work.group,
            "loop".to_owned(),
        ),
        Work::Data(job) => {
            let engine = format!("loop {}", job.calls.name());
            (job.title(), job.about(), Group::Data, engine)
        }
        Work::Other(program) => (
            program.title(),
            program.about(),
            program.group(),
            program.engine(),
        ),
    };
    results::RowInfo {
        name: row.name.to_owned(),
        title,
        about,
        group,
        operation_bytes: row.bytes,
        in_seconds: group == Group::Programs,
        cold: row.cold,
        engine,
        goal: row.goal,
    }
}

impl Row {
    /// What one process takes on the file system beneath at this share of the usual work, what is kept for
    /// the run included: no less than it does.
    pub fn needs(&self, percent: usize) -> Needs {
        const DIRECTORIES: u64 = 8;
        let needs = match &self.work {
            Work::Loop(work) => {
                let operations = self.scaled(percent);
                let operations = (operations + operations / WARM_UP_SHARE + 1) as u64;
                Needs {
                    // A new file is as long as everything that is written.
                    bytes: self.bytes * operations,
                    inodes: work.inodes as u64 * operations,
                }
            }
            Work::Data(job) => job.needs(percent),
            Work::Other(program) => program.needs(percent),
        };
        let inodes = needs.inodes + DIRECTORIES;
        Needs {
            bytes: needs.bytes + inodes * INODE_BYTES,
            inodes,
        }
    }

    /// What the file is called that is kept for the run, if it needs no more than that: rows of which this is the
    /// same have the same file.
    pub(crate) fn kept(&self, percent: usize) -> Option<String> {
        match &self.work {
            Work::Loop(_) => None,
            Work::Data(job) => Some(job.kept(percent)),
            Work::Other(program) => program.kept(percent),
        }
    }

    /// Operations of a measurement at this share of the usual work.
    pub fn scaled(&self, percent: usize) -> usize {
        let usual = match &self.work {
            Work::Loop(work) => work.operations,
            Work::Data(_) | Work::Other(_) => 1,
        };
        (usual * percent / 100).max(16)
    }
}
