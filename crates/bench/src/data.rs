//! Reads and writes of one file: what is to be done ([`Job`]), the file, and the loop.
//!
//! Each process has a file of its own, kept for the run, under a name that is new
//! for each measurement.

use crate::clock::Clock;
use crate::task::Task;
use rustix::fs::{Advice, OFlags, fadvise};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use thrufs_sys::shared_memory::{Access, SharedMapping};

/// What is done to the file.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    /// The file in memory (mmap), read; mapped anew for each pass: a page that was touched is no longer the file
    /// system's matter. Else `pread(2)` and `pwrite(2)`.
    pub(crate) mapped: bool,
    pub(crate) write: bool,
    /// Every block once before any comes again. Else from the start to the end.
    pub(crate) random: bool,
    /// Bytes of one operation.
    pub(crate) block_bytes: u64,
    /// Past all caches (`O_DIRECT`).
    pub(crate) direct: bool,
    /// The time lasts until everything is on disk.
    pub(crate) fsync: bool,
    /// The data are in no cache. Else in that of the file system beneath, and not in that of the mount: how fast
    /// the disk is, is not the question. (With `direct` in neither, as far as that can be without.)
    pub(crate) cold: bool,
    /// How often the file is gone through; it is opened anew each time. Where what was read once lies in the
    /// cache above, once.
    pub(crate) passes: u32,
}

/// Size of the file at the usual amount of work.
const FILE_BYTES: u64 = 256 << 20;
pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;
/// What the file is called where a job is done.
const NAME: &str = "file";
/// What is written.
pub(crate) const WRITTEN: u8 = 9;
/// Where the buffer begins, as file systems want it for `O_DIRECT`.
const ALIGNMENT: usize = 4096;

/// Size of the file: whole megabytes, at least one.
pub(crate) fn file_bytes(percent: usize) -> u64 {
    (FILE_BYTES * percent as u64 / 100 / MIB).max(1) * MIB
}

impl Job {
    /// Puts the file at `directory` beneath, which the target shows at the same place of `task.seen`, and brings
    /// it into or out of the caches.
    pub(crate) fn prepare(&self, task: &Task, directory: &str, percent: usize) -> io::Result<()> {
        let beneath = task.beneath.join(directory);
        let seen = task.seen.join(directory).join(NAME);
        fs::create_dir_all(&beneath)?;
        let bytes = file_bytes(percent);
        let (source, _) = task.kept(&format!("data-{bytes}"), |path| make(path, bytes))?;
        // What another measurement has written is on disk before this one starts.
        File::open(&source)?.sync_data()?;
        link(&source, &beneath.join(NAME))?;
        // This needs no privileges; root drops all caches besides.
        if self.cold || self.direct {
            forget(&source)?;
        } else {
            io::copy(&mut File::open(&source)?, &mut io::sink())?;
        }
        // The file that is linked may have been read above under the name that it had before.
        if self.cold || task.once {
            forget(&seen)?;
        }
        Ok(())
    }

    /// Goes through the file in `directory`, as often as the job says, until the clock says that it is over.
    pub(crate) fn run(
        &self,
        directory: &Path,
        percent: usize,
        once: bool,
        clock: &mut Clock,
    ) -> io::Result<()> {
        let blocks = 0..file_bytes(percent) / self.block_bytes;
        let mut offsets: Vec<u64> = blocks.map(|block| block * self.block_bytes).collect();
        if self.random {
            shuffle(&mut offsets);
        }
        let block = usize::try_from(self.block_bytes).map_err(io::Error::other)?;
        let mut memory = vec![WRITTEN; block + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        let buffer = &mut memory[start..start + block];
        for _ in 0..if once { 1 } else { self.passes } {
            let file = self.open(&directory.join(NAME))?;
            if self.mapped {
                let bytes = file_bytes(percent) as usize;
                let mapped = SharedMapping::with(file.as_fd(), 0, bytes, Access::Read)?;
                clock.through(&offsets, |&offset| {
                    let copied = mapped.copy_out(offset as usize, buffer);
                    std::hint::black_box(&*buffer);
                    copied.map_err(|_| io::ErrorKind::UnexpectedEof.into())
                })?;
            } else {
                clock.through(&offsets, |&offset| match self.write {
                    true => file.write_all_at(buffer, offset),
                    false => file.read_exact_at(buffer, offset),
                })?;
            }
            if self.fsync {
                file.sync_all()?;
            }
            if clock.is_over() {
                if self.fsync {
                    clock.prolong();
                }
                break;
            }
        }
        Ok(())
    }

    /// A file system that has no direct I/O says EINVAL, and that is [`io::ErrorKind::Unsupported`] here.
    fn open(&self, path: &Path) -> io::Result<File> {
        let flags = if self.direct {
            OFlags::DIRECT
        } else {
            OFlags::empty()
        };
        let flags = flags.bits().cast_signed();
        let mut options = File::options();
        let opened = options
            .read(true)
            .write(self.write)
            .custom_flags(flags)
            .open(path);
        let file = opened.map_err(|error| match error.raw_os_error() {
            Some(code) if self.direct && code == Errno::INVAL.raw_os_error() => {
                io::Error::new(io::ErrorKind::Unsupported, "no direct I/O (O_DIRECT)")
            }
            _ => error,
        })?;
        // What is read ahead is for nothing where the order is random.
        let orders = [Advice::Sequential, Advice::Random];
        if !self.direct {
            fadvise(&file, 0, None, orders[usize::from(self.random)])?;
        }
        Ok(file)
    }
}

/// An order that no readahead foresees, the same in every run.
fn shuffle(order: &mut [u64]) {
    // Fisher and Yates, with the generator of Knuth's MMIX.
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    for last in (1..order.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (state >> 33) as usize % (last + 1));
    }
}

/// Not zeros, which a file system may keep for nothing. The same megabyte is as good as another.
fn make(path: &Path, bytes: u64) -> io::Result<()> {
    let mut piece = vec![0; MIB as usize];
    File::open("/dev/urandom")?.read_exact(&mut piece)?;
    let mut file = File::create_new(path)?;
    for _ in 0..bytes / MIB {
        file.write_all(&piece)?;
    }
    file.sync_all()
}

/// Where there are no hard links, a copy has to do.
fn link(source: &Path, name: &Path) -> io::Result<()> {
    if fs::hard_link(source, name).is_err() {
        fs::copy(source, name)?;
        File::options().write(true).open(name)?.sync_data()?;
    }
    Ok(())
}

/// Has the kernel drop what it has cached of a file; a file system in memory keeps it.
fn forget(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    // Only what is clean is dropped.
    file.sync_data()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}
