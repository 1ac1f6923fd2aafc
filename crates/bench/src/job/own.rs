//! A job by a loop of our own: the same system calls in the same order as fio's.

use super::{Calls, Job, data};
use crate::clock::Clock;
use crate::fence::Mapped;
use rustix::fs::{Advice, Mode, OFlags, fadvise};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What is written.
pub(crate) const WRITTEN: u8 = 9;
/// Where the buffer begins, as file systems want it for `O_DIRECT`.
const ALIGNMENT: usize = 4096;

/// Goes through the file in `directory`, as often as the job says, until the clock says that it is over.
///
/// # Errors
///
/// Of the system calls; [`io::ErrorKind::Unsupported`] where there is no `O_DIRECT`.
pub(crate) fn run(
    job: &Job,
    directory: &Path,
    file_bytes: u64,
    once: bool,
    clock: &mut Clock,
) -> io::Result<()> {
    let offsets = job.offsets(file_bytes);
    let block = usize::try_from(job.block_bytes).map_err(io::Error::other)?;
    let mut memory = vec![WRITTEN; block + ALIGNMENT];
    let start = memory.as_ptr().align_offset(ALIGNMENT);
    let buffer = &mut memory[start..start + block];
    let path = directory.join(data::NAME);
    for _ in 0..job.passes(once) {
        let file = open(job, &path)?;
        match job.calls {
            Calls::Mmap => mapped(job, &file, &offsets, buffer, clock)?,
            _ => called(job, &file, &offsets, buffer, clock)?,
        }
        if job.fsync {
            file.sync_all()?;
        }
        if clock.is_over() {
            if job.fsync {
                clock.prolong();
            }
            break;
        }
    }
    Ok(())
}

fn called(
    job: &Job,
    file: &File,
    offsets: &[u64],
    buffer: &mut [u8],
    clock: &mut Clock,
) -> io::Result<()> {
    for &offset in offsets {
        if !clock.more() {
            break;
        }
        if job.write {
            file.write_all_at(buffer, offset)?;
        } else {
            file.read_exact_at(buffer, offset)?;
        }
    }
    Ok(())
}

fn mapped(
    job: &Job,
    file: &File,
    offsets: &[u64],
    buffer: &mut [u8],
    clock: &mut Clock,
) -> io::Result<()> {
    let mapped = Mapped::new(file, job.write, advice(job))?;
    for &offset in offsets {
        if !clock.more() {
            break;
        }
        if job.write {
            mapped.copy_in(offset as usize, buffer);
        } else {
            mapped.copy_out(offset as usize, buffer);
            std::hint::black_box(&*buffer);
        }
    }
    Ok(())
}

/// A file system that has no direct I/O says EINVAL, and that is [`io::ErrorKind::Unsupported`] here.
fn open(job: &Job, path: &Path) -> io::Result<File> {
    let mut flags = OFlags::CLOEXEC;
    flags |= if job.write {
        OFlags::RDWR
    } else {
        OFlags::RDONLY
    };
    flags.set(OFlags::DIRECT, job.direct);
    let file: File = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::INVAL) if job.direct => {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "no direct I/O (O_DIRECT)",
            ));
        }
        outcome => outcome?.into(),
    };
    // As fio does: what is read ahead is for nothing where the order is random.
    if !job.direct {
        fadvise(&file, 0, None, file_advice(job))?;
    }
    Ok(file)
}

fn file_advice(job: &Job) -> Advice {
    if job.random {
        Advice::Random
    } else {
        Advice::Sequential
    }
}

fn advice(job: &Job) -> rustix::mm::Advice {
    if job.random {
        rustix::mm::Advice::Random
    } else {
        rustix::mm::Advice::Sequential
    }
}
