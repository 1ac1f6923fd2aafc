//! The file of a job: kept for the run, linked to a name of its own for each measurement, and brought into or out
//! of the caches.

use super::{Cache, Job, MIB};
use crate::kept::Claim;
use crate::task::Task;
use rustix::fs::{Advice, XattrFlags, fadvise};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

/// What the file is called where a job is done.
pub const NAME: &str = "file";
/// The attribute of files that have one.
pub const ATTRIBUTE: &str = "user.bench";

/// Puts a file of so many bytes at `directory` beneath, which the target shows at the same place of
/// `task.seen`. What is handed back keeps others from it.
pub fn prepare(job: &Job, task: &Task, directory: &str, percent: usize) -> io::Result<Claim> {
    let bytes = job.file_bytes(percent);
    let beneath = task.beneath.join(directory);
    let seen = task.seen.join(directory);
    fs::create_dir_all(&beneath)?;
    let kept = task.kept_beneath()?;
    let claim = Claim::take(&kept, &job.kept(percent), |path| {
        make(path, bytes, job.attribute)
    })?;
    let source = kept.join(&claim.name);
    // What another measurement has written is on disk before this one starts.
    File::open(&source)?.sync_data()?;
    link(&source, &beneath.join(NAME), job.attribute)?;
    match job.cache {
        Cache::Beneath if job.direct => forget(&source)?,
        Cache::Beneath => {
            read(&source)?;
            // The file that is linked may have been read above under the name that it had before.
            if task.once {
                forget(&seen.join(NAME))?;
            }
        }
        // This needs no privileges; a privileged run drops all caches besides.
        Cache::Nowhere => {
            forget(&seen.join(NAME))?;
            forget(&source)?;
        }
        Cache::Above => read(&seen.join(NAME))?,
    }
    Ok(claim)
}

/// Not zeros, which a file system may keep for nothing. The same megabyte is as good as another.
fn make(path: &Path, bytes: u64, attribute: bool) -> io::Result<()> {
    let mut piece = vec![0; MIB as usize];
    File::open("/dev/urandom")?.read_exact(&mut piece)?;
    let mut file = File::create_new(path)?;
    for _ in 0..bytes / MIB {
        file.write_all(&piece)?;
    }
    if attribute {
        set_attribute(&file)?;
    }
    file.sync_all()
}

fn set_attribute(file: &File) -> io::Result<()> {
    match rustix::fs::fsetxattr(file, ATTRIBUTE, b"1", XattrFlags::empty()) {
        Err(Errno::OPNOTSUPP) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "no extended attributes (user.*)",
        )),
        outcome => Ok(outcome?),
    }
}

/// Where there are no hard links, a copy has to do.
fn link(source: &Path, name: &Path, attribute: bool) -> io::Result<()> {
    if fs::hard_link(source, name).is_ok() {
        return Ok(());
    }
    fs::copy(source, name)?;
    let copy = File::options().write(true).open(name)?;
    if attribute {
        set_attribute(&copy)?;
    }
    copy.sync_data()
}

fn read(path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut piece = vec![0; MIB as usize];
    while file.read(&mut piece)? > 0 {}
    Ok(())
}

/// Has the kernel drop what it has cached of a file; a file system in memory keeps it.
fn forget(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    // Only what is clean is dropped.
    file.sync_data()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}
