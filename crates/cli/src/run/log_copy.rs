//! What a run has written to its audit log, compared with the log at its end.
//!
//! The command runs as a user who may be able to remove or change the log: a mount that covers a file goes when another
//! mount namespace removes it. So the runner keeps a copy of its records in a file without a name, and adds what
//! is missing at the end. Records of others, which share the log, stay where they are.

use super::error::RunError;
use crate::lookup;
use rustix::fs::{AtFlags, MemfdFlags, Mode, OFlags, fstat, openat, renameat, unlinkat};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

#[derive(Debug)]
pub(super) struct LogCopy {
    path: PathBuf,
    directory: OwnedFd,
    name: OsString,
    log: File,
    copy: Arc<File>,
    /// The error number of the first record that is not in the copy, which ends there; or 0.
    failed: Arc<AtomicI32>,
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
            failed: Arc::default(),
        })
    }

    /// What adds a record, for the thread that writes them.
    pub(super) fn adding(&self) -> impl FnMut(&str) + Send + 'static {
        let (copy, failed) = (Arc::clone(&self.copy), Arc::clone(&self.failed));
        let mut length = 0;
        move |record| {
            if failed.load(Ordering::Relaxed) != 0 {
                return;
            }
            let line = format!("{record}\n");
            match (&*copy).write_all(line.as_bytes()) {
                Ok(()) => length += line.len() as u64,
                Err(error) => {
                    let _ = copy.set_len(length);
                    let errno = error.raw_os_error().unwrap_or(libc::EIO);
                    failed.store(errno, Ordering::Relaxed);
                }
            }
        }
    }

    /// Adds the records that the log lacks, and puts it back if another file has its name, or none.
    ///
    /// # Errors
    ///
    /// When there was something to do, or the copy is not complete.
    pub(super) fn compare(self) -> Result<(), RunError> {
        let failed = |source| RunError::LogNotRestored(self.path.clone(), source);
        let missing = self.add_missing().map_err(failed)?;
        let is_gone = !self.is_in_place();
        if is_gone {
            self.put_back().map_err(failed)?;
        }
        let errno = self.failed.load(Ordering::Relaxed);
        if errno != 0 {
            let error = io::Error::from_raw_os_error(errno);
            return Err(RunError::LogNotCompared(self.path, error));
        }
        if !self.is_reached() {
            let there = lookup::path_of(&self.directory).map_err(failed)?;
            return Err(RunError::LogMoved(self.path, there.join(&self.name)));
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
        lookup::is_called(&self.log, &self.directory, &self.name)
    }

    /// Whether the path still leads to the directory, which could have been moved with the log in it.
    fn is_reached(&self) -> bool {
        let parent = self.path.parent().unwrap_or(&self.path);
        let found = lookup::open(parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
        let stats = found.and_then(|found| Ok((fstat(found)?, fstat(&self.directory)?)));
        stats.is_ok_and(|(found, directory)| lookup::is_same(found, directory))
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
    File::open(lookup::descriptor_path(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_that_is_not_copied_is_an_error_at_the_end() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let mut log = File::options()
            .append(true)
            .create(true)
            .open(&path)
            .unwrap();
        let mut copy = LogCopy::of(&path, &log).unwrap();
        copy.copy = Arc::new(
            File::options()
                .read(true)
                .write(true)
                .open("/dev/full")
                .unwrap(),
        );
        let mut add = copy.adding();
        for record in ["one", "two"] {
            log.write_all(format!("{record}\n").as_bytes()).unwrap();
            add(record);
        }
        copy.copy = Arc::new(tempfile::tempfile().unwrap());
        let compared = copy.compare();
        assert!(
            matches!(&compared, Err(RunError::LogNotCompared(_, error))
                if error.raw_os_error() == Some(libc::ENOSPC)),
            "{compared:?}"
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
    }
}
