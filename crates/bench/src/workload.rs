//! What the rows do. A `prepare` makes files beneath the mount, so that nothing is cached by it; a
//! `run` is the timed loop, at the place where the contestant shows them.

use crate::clock::Clock;
use crate::fence::Mapped;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Where a workload runs, and how long.
pub(crate) struct Place {
    beneath: PathBuf,
    seen: PathBuf,
    operations: usize,
}

impl Place {
    /// A new directory `beneath`, which the contestant shows at `seen`.
    pub(crate) fn new(beneath: PathBuf, seen: PathBuf, operations: usize) -> io::Result<Self> {
        fs::create_dir(&beneath)?;
        Ok(Place {
            beneath,
            seen,
            operations,
        })
    }

    /// Of files that are there.
    fn names(&self, top: &Path) -> Vec<PathBuf> {
        self.numbered(top, "file")
    }

    /// Of what is to be made, or to be missing. They differ from [`names`](Self::names) for the
    /// sake of the floor, which has no memory and goes by the name (`floor/answers.rs`).
    fn new_names(&self) -> Vec<PathBuf> {
        self.numbered(&self.seen, "made")
    }

    fn numbered(&self, top: &Path, stem: &str) -> Vec<PathBuf> {
        (0..self.operations)
            .map(|n| top.join(format!("{stem}-{n:06}")))
            .collect()
    }
}

const BLOCK: usize = 4096;
const PIECE: usize = 128 << 10;
const BIG: usize = 1 << 20;
/// The file of the 4 KiB rows, in blocks; each is touched once, or more often when there are more
/// operations than blocks.
const BLOCKS_MAX: usize = 16384;

pub(crate) fn nothing(_: &Place) -> io::Result<()> {
    Ok(())
}

pub(crate) fn one_file(place: &Place) -> io::Result<()> {
    filled(&place.beneath.join("file"), blocks(place) * BLOCK)
}

/// The file, and every page of it read where the contestant shows it.
pub(crate) fn one_file_read(place: &Place) -> io::Result<()> {
    one_file(place)?;
    io::copy(&mut File::open(place.seen.join("file"))?, &mut io::sink())?;
    Ok(())
}

pub(crate) fn one_file_of_pieces(place: &Place) -> io::Result<()> {
    filled(&place.beneath.join("file"), place.operations * PIECE)
}

pub(crate) fn one_big_file(place: &Place) -> io::Result<()> {
    filled(&place.beneath.join("file"), place.operations * BIG)
}

pub(crate) fn many_files(place: &Place) -> io::Result<()> {
    let bytes = vec![7; BLOCK];
    for name in place.names(&place.beneath) {
        fs::write(name, &bytes)?;
    }
    Ok(())
}

/// The files, each looked up once where the contestant shows it.
pub(crate) fn many_files_seen(place: &Place) -> io::Result<()> {
    many_files(place)?;
    for name in place.names(&place.seen) {
        rustix::fs::lstat(&name)?;
    }
    Ok(())
}

pub(crate) fn random_read_4k(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let file = File::open(place.seen.join("file"))?;
    let mut buffer = vec![0; BLOCK];
    for offset in offsets(place) {
        if !clock.more() {
            break;
        }
        file.read_exact_at(&mut buffer, offset)?;
    }
    Ok(())
}

pub(crate) fn random_write_4k(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .open(place.seen.join("file"))?;
    let buffer = vec![9; BLOCK];
    for offset in offsets(place) {
        if !clock.more() {
            break;
        }
        file.write_all_at(&buffer, offset)?;
    }
    Ok(())
}

pub(crate) fn append_4k(place: &Place, clock: &mut Clock) -> io::Result<()> {
    write_pieces(place, clock, BLOCK)
}

pub(crate) fn write_1m(place: &Place, clock: &mut Clock) -> io::Result<()> {
    write_pieces(place, clock, BIG)
}

pub(crate) fn read_128k(place: &Place, clock: &mut Clock) -> io::Result<()> {
    read_through(place, clock, &mut vec![0; PIECE])
}

pub(crate) fn read_1m(place: &Place, clock: &mut Clock) -> io::Result<()> {
    read_through(place, clock, &mut vec![0; BIG])
}

/// Past the cache above. The buffer begins with a page, as file systems on disks want it.
pub(crate) fn read_1m_direct(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let mut file = open_direct(&place.seen.join("file"))?;
    let mut memory = vec![0; BIG + BLOCK];
    let start = memory.as_ptr().align_offset(BLOCK);
    let buffer = &mut memory[start..start + BIG];
    for _ in 0..place.operations {
        if !clock.more() {
            break;
        }
        file.read_exact(buffer)?;
    }
    Ok(())
}

/// One byte of each page of a mapping. The kernel is told that the order is random, as `fio` tells
/// it: it would read 128 KiB around each page, and most pages would be there before their turn.
pub(crate) fn mmap_read_4k(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let mapped = Mapped::new(&File::open(place.seen.join("file"))?)?;
    for offset in offsets(place) {
        if !clock.more() {
            break;
        }
        std::hint::black_box(mapped.byte(offset as usize));
    }
    Ok(())
}

pub(crate) fn open_close(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let name = place.seen.join("file");
    for _ in 0..place.operations {
        if !clock.more() {
            break;
        }
        drop(File::open(&name)?);
    }
    Ok(())
}

/// To read and write, as programs do that do not know whether the file is there.
pub(crate) fn open_close_write(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let name = place.seen.join("file");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    for _ in 0..place.operations {
        if !clock.more() {
            break;
        }
        drop(options.open(&name)?);
    }
    Ok(())
}

pub(crate) fn stat_one(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let name = place.seen.join("file");
    for _ in 0..place.operations {
        if !clock.more() {
            break;
        }
        rustix::fs::lstat(&name)?;
    }
    Ok(())
}

/// By `lstat(2)`, as most programs do. The standard library asks for the time of birth as well, which
/// costs a request more where a server has it: see [`stat_each_birth`].
pub(crate) fn stat_each(place: &Place, clock: &mut Clock) -> io::Result<()> {
    for name in place.names(&place.seen) {
        if !clock.more() {
            break;
        }
        rustix::fs::lstat(&name)?;
    }
    Ok(())
}

/// By `statx(2)`, with the time of birth. A server that does not know it is not asked again.
pub(crate) fn stat_each_birth(place: &Place, clock: &mut Clock) -> io::Result<()> {
    for name in place.names(&place.seen) {
        if !clock.more() {
            break;
        }
        fs::symlink_metadata(name)?;
    }
    Ok(())
}

pub(crate) fn stat_missing(place: &Place, clock: &mut Clock) -> io::Result<()> {
    for name in place.new_names() {
        if !clock.more() {
            break;
        }
        match rustix::fs::lstat(&name) {
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Err(io::Error::other("a name that should be missing")),
        }
    }
    Ok(())
}

pub(crate) fn list(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let mut found = 0;
    for entry in fs::read_dir(&place.seen)? {
        if !clock.more() {
            return Ok(());
        }
        entry?.file_type()?;
        found += 1;
    }
    if found == place.operations {
        Ok(())
    } else {
        Err(io::Error::other("names are missing"))
    }
}

pub(crate) fn read_each(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let mut buffer = vec![0; BLOCK];
    for name in place.names(&place.seen) {
        if !clock.more() {
            break;
        }
        File::open(name)?.read_exact(&mut buffer)?;
    }
    Ok(())
}

pub(crate) fn create(place: &Place, clock: &mut Clock) -> io::Result<()> {
    for name in place.new_names() {
        if !clock.more() {
            break;
        }
        File::create_new(name)?;
    }
    Ok(())
}

pub(crate) fn create_write_4k(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let buffer = vec![3; BLOCK];
    for name in place.new_names() {
        if !clock.more() {
            break;
        }
        File::create_new(name)?.write_all(&buffer)?;
    }
    Ok(())
}

pub(crate) fn mkdir(place: &Place, clock: &mut Clock) -> io::Result<()> {
    for name in place.new_names() {
        if !clock.more() {
            break;
        }
        fs::create_dir(name)?;
    }
    Ok(())
}

pub(crate) fn rename(place: &Place, clock: &mut Clock) -> io::Result<()> {
    for name in place.names(&place.seen) {
        if !clock.more() {
            break;
        }
        fs::rename(&name, name.with_extension("renamed"))?;
    }
    Ok(())
}

pub(crate) fn unlink(place: &Place, clock: &mut Clock) -> io::Result<()> {
    for name in place.names(&place.seen) {
        if !clock.more() {
            break;
        }
        fs::remove_file(name)?;
    }
    Ok(())
}

/// A file system that has no direct I/O says EINVAL, and that is [`io::ErrorKind::Unsupported`] here.
fn open_direct(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => Ok(file.into()),
        Err(Errno::INVAL) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "no direct I/O (O_DIRECT)",
        )),
        Err(error) => Err(error.into()),
    }
}

fn read_through(place: &Place, clock: &mut Clock, buffer: &mut [u8]) -> io::Result<()> {
    let mut file = File::open(place.seen.join("file"))?;
    for _ in 0..place.operations {
        if !clock.more() {
            break;
        }
        file.read_exact(buffer)?;
    }
    Ok(())
}

fn write_pieces(place: &Place, clock: &mut Clock, size: usize) -> io::Result<()> {
    let mut file = File::create_new(place.seen.join("new"))?;
    let buffer = vec![5; size];
    for _ in 0..place.operations {
        if !clock.more() {
            break;
        }
        file.write_all(&buffer)?;
    }
    Ok(())
}

fn filled(path: &Path, size: usize) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    let buffer = vec![1; BIG];
    let mut left = size;
    while left > 0 {
        let piece = left.min(BIG);
        file.write_all(&buffer[..piece])?;
        left -= piece;
    }
    Ok(())
}

fn blocks(place: &Place) -> usize {
    place.operations.clamp(1, BLOCKS_MAX)
}

/// Offsets of blocks in an order that no readahead foresees, the same in every run: every block
/// before any comes again.
fn offsets(place: &Place) -> impl Iterator<Item = u64> {
    let count = blocks(place);
    let mut order: Vec<u64> = (0..count as u64).collect();
    // Fisher and Yates, with the generator of Knuth's MMIX.
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    for last in (1..count).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (state >> 33) as usize % (last + 1));
    }
    (0..place.operations).map(move |n| order[n % count] * BLOCK as u64)
}
