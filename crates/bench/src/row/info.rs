//! What a report says of a row, and how much place it takes.

use super::{Row, WARM_UP_SHARE, Work};
use crate::fio;
use crate::job::By;
use crate::results::{self, Group};

/// Whatever is made takes a block, and names take place too.
const INODE_BYTES: u64 = 4096 + 512;

/// Of a job that is run by hand: a minute.
const LIMIT_MS: u128 = 60_000;

/// What a report says of a row.
pub(crate) fn info(row: &Row) -> results::Row {
    let (title, about, group, engine) = match &row.work {
        Work::Loop(work) => (
            work.title.to_owned(),
            work.about.to_owned(),
            work.group,
            "loop".to_owned(),
        ),
        Work::Data(job) => (job.title(), job.about(), Group::Data, job.engine()),
        Work::Build(project) => (
            project.title().to_owned(),
            project.about().to_owned(),
            Group::Programs,
            project.engine().to_owned(),
        ),
        Work::Git(git) => (
            git.title().to_owned(),
            git.about().to_owned(),
            Group::Programs,
            "git".to_owned(),
        ),
    };
    results::Row {
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
    /// Bytes that one process takes on the file system beneath at this share of the usual work, what is kept for
    /// the run included: no less than it does.
    pub(crate) fn bytes_needed(&self, percent: usize) -> u64 {
        let inodes = self.inodes_needed(percent) * INODE_BYTES;
        let contents = match &self.work {
            // A new file is as long as everything that is written.
            Work::Loop(_) => self.bytes * self.with_warm_up(percent),
            Work::Data(job) => job.file_bytes(percent) + job.file_bytes(0),
            Work::Build(project) => project.bytes_needed(),
            Work::Git(git) => git.bytes_needed(percent),
        };
        inodes + contents
    }

    /// Files and directories that one process makes, as [`bytes_needed`](Self::bytes_needed).
    pub(crate) fn inodes_needed(&self, percent: usize) -> u64 {
        const DIRECTORIES: u64 = 8;
        let own = match &self.work {
            Work::Loop(work) => work.inodes as u64 * self.with_warm_up(percent),
            Work::Data(_) => 6,
            Work::Build(project) => project.inodes_needed(),
            Work::Git(git) => git.inodes_needed(percent),
        };
        own + DIRECTORIES
    }

    fn with_warm_up(&self, percent: usize) -> u64 {
        let operations = self.scaled(percent);
        (operations + operations / WARM_UP_SHARE + 1) as u64
    }

    /// What fio is given for the row, if fio could do it: to be kept with the results, and run by hand in a
    /// directory that has a `file` as long as it says.
    pub(crate) fn job_file(&self, percent: usize) -> Option<String> {
        match &self.work {
            Work::Data(job) if job.by == By::Fio => {
                let bytes = job.file_bytes(percent);
                Some(fio::job_file(job, bytes, false, LIMIT_MS, false))
            }
            _ => None,
        }
    }
}
