//! What a run has written to its audit log, compared with the log at its end.
//!
//! The command runs as a user who may be able to remove or change the log: a mount that covers a file goes when another
//! mount namespace removes it. So the runner keeps a copy of its records in a file without a name, and adds what
//! is missing at the end. Records of others, which share the log, stay where they are.

use super::error::RunError;
use crate::lookup;
use rustix::fs::{AtFlags, MemfdFlags, Mode, OFlags, fstat, openat, renameat, statat, unlinkat};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct LogCopy {
    path: PathBuf,
    directory: OwnedFd,
    name: OsString,
    log: File,
    copy: Arc<File>,
}

impl LogCopy {
    /// Of the log that is open as `log`, at `path`.
    pub(super) fn of(path: &Path, log: impl AsFd) -> io::Result<LogCopy> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = lookup::open(parent, flags, Mode::empty())?;
        let copy = nameless(&directory)?;
        Ok(LogCopy {
            path: path.into(),
            name: name.into(),
            directory,
            log: log.as_fd().try_clone_to_owned()?.into(),
            copy: Arc::new(copy.into()),
        })
    }

    /// What adds a record, for the thread that writes them.
    pub(super) fn adding(&self) -> impl FnMut(&str) + Send + 'static {
        let copy = Arc::clone(&self.copy);
        move |record| {
            // As long as the log: a full disk ends both.
            let _ = (&*copy).write_all(format!("{record}\n").as_bytes());
        }
    }

    /// Adds the records that the log lacks, and puts it back if another file has its name, or none.
    ///
    /// # Errors
    ///
    /// When there was something to do.
    pub(super) fn compare(self) -> Result<(), RunError> {
        let failed = |source| RunError::LogNotRestored(self.path.clone(), source);
        let missing = self.add_missing().map_err(failed)?;
        let is_gone = !self.is_in_place();
        if is_gone {
            self.put_back().map_err(failed)?;
        }
        match missing > 0 || is_gone {
            true => Err(RunError::LogChanged(self.path)),
            false => Ok(()),
        }
    }

    /// Returns how many there were. The first that is missing is followed by all later ones.
    fn add_missing(&self) -> io::Result<u64> {
        let mut copy = &*self.copy;
        copy.rewind()?;
        let mut written = BufReader::new(reopened(&self.log)?).split(b'\n');
        let mut missing = 0;
        for record in BufReader::new(copy).split(b'\n') {
            let mut record = record?;
            let is_there = written
                .by_ref()
                .any(|line| line.is_ok_and(|it| it == record));
            if !is_there {
                record.push(b'\n');
                (&self.log).write_all(&record)?;
                missing += 1;
            }
        }
        Ok(missing)
    }

    fn is_in_place(&self) -> bool {
        let named = statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        named.is_ok_and(|named| fstat(&self.log).is_ok_and(|log| lookup::is_same(log, named)))
    }

    fn put_back(&self) -> io::Result<()> {
        let passing = format!(".thrufs-{}.audit", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let whole = openat(&self.directory, &passing, flags, Mode::from_raw_mode(0o600))?;
        let copied = io::copy(&mut reopened(&self.log)?, &mut File::from(whole));
        let placed = copied.and_then(|_| {
            Ok(renameat(
                &self.directory,
                &passing,
                &self.directory,
                &self.name,
            )?)
        });
        placed.inspect_err(|_| {
            let _ = unlinkat(&self.directory, &passing, AtFlags::empty());
        })
    }
}

/// On disk, where the file system can; else in memory.
fn nameless(directory: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    openat(directory, ".", flags, Mode::RUSR | Mode::WUSR)
        .or_else(|_| rustix::fs::memfd_create(c"thrufs-audit", MemfdFlags::CLOEXEC))
}

/// From its beginning, for reading.
fn reopened(file: &File) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
