//! What rows need and do not use up: big files and trees of small ones, made once for a run. Making them for
//! every measurement would take longer than the measurements.
//!
//! Processes that measure at the same time must not share: each **claims** the first free one, by
//! flock(2) on a file beside it, which goes with the process however it ends.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Processes that can measure at once.
const CLAIMS_MAX: usize = 1024;

/// Something kept that is this process's until the value is dropped.
pub struct Claim {
    /// Its name in the directory of what is kept.
    pub name: String,
    lock: File,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Not by closing it alone: a process that is just being started has it too, for a moment.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Claim {
    /// The first free one of those that are called `stem` in `directory`. Where there is none yet, `make` makes
    /// it at the path it is given; what an earlier one has left half done is gone by then.
    ///
    /// # Errors
    ///
    /// As of making it, and of flock(2).
    pub fn take(
        directory: &Path,
        stem: &str,
        make: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<Claim> {
        for number in 0..CLAIMS_MAX {
            let name = format!("{stem}-{number}");
            let lock = File::create(directory.join(format!("{name}.lock")))?;
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => continue,
                outcome => outcome?,
            }
            let whole = directory.join(&name);
            if fs::symlink_metadata(&whole).is_err() {
                make_whole(&whole, make)?;
            }
            return Ok(Claim { name, lock });
        }
        Err(io::Error::other(format!(
            "{CLAIMS_MAX} processes have a {stem}"
        )))
    }
}

/// Under another name first: what has the right one is complete.
fn make_whole(whole: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let part: PathBuf = whole.with_extension("part");
    match fs::symlink_metadata(&part) {
        Ok(left) if left.is_dir() => fs::remove_dir_all(&part)?,
        Ok(_) => fs::remove_file(&part)?,
        Err(_) => {}
    }
    make(&part)?;
    fs::rename(part, whole)
}

#[cfg(test)]
mod tests {
    use super::Claim;
    use std::fs;
    use std::io;

    #[test]
    fn claims_held_at_once_differ_and_a_released_one_is_reused() {
        let directory = tempfile::tempdir().unwrap();
        let mut made = 0;
        let mut take = || {
            Claim::take(directory.path(), "tree", |path| {
                made += 1;
                fs::create_dir(path)
            })
            .unwrap()
        };
        let (first, second) = (take(), take());
        assert_eq!(
            (first.name.as_str(), second.name.as_str()),
            ("tree-0", "tree-1")
        );
        drop(first);
        assert_eq!(take().name, "tree-0");
        assert_eq!(made, 2);
    }

    /// As a process that is just being started has.
    #[test]
    fn a_claim_that_is_dropped_is_free_even_while_a_child_has_its_descriptor() {
        let directory = tempfile::tempdir().unwrap();
        let take = || Claim::take(directory.path(), "tree", |path| fs::create_dir(path)).unwrap();
        let claim = take();
        let other = claim.lock.try_clone().unwrap();
        drop(claim);
        assert_eq!(take().name, "tree-0");
        drop(other);
    }

    #[test]
    fn a_half_made_file_is_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let broken = Claim::take(directory.path(), "data", |path| {
            fs::write(path, "ha")?;
            Err(io::Error::other("the disk is full"))
        });
        assert!(broken.is_err());
        let claim = Claim::take(directory.path(), "data", |path| {
            assert!(!path.exists());
            fs::write(path, "half")
        });
        let kept = directory.path().join(&claim.unwrap().name);
        assert_eq!(fs::read(kept).unwrap(), b"half");
    }
}
