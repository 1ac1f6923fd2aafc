//! The loops of rows about names and attributes. A `make` makes files beneath the mount, so that the mount caches
//! nothing of them; everything else is a timed loop over the same files where the target shows them, which also
//! warms the target's caches where the row asks for that.

pub(crate) mod lists;

use crate::clock::Clock;
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Where a workload runs, and how long.
pub(crate) struct Place {
    /// The directory beneath the mount.
    pub(crate) beneath: PathBuf,
    /// The same where the target shows it.
    pub(crate) seen: PathBuf,
    /// Operations to do, and files to do them with.
    pub(crate) operations: usize,
}

/// Bytes of a small file.
pub(crate) const BLOCK: usize = 4096;

impl Place {
    /// Of files that are there.
    pub(crate) fn files(&self, top: &Path) -> Vec<PathBuf> {
        self.numbered(top, "file")
    }

    /// Of what is to be made, or to be missing.
    pub(crate) fn new_names(&self) -> Vec<PathBuf> {
        self.numbered(&self.seen, "made")
    }

    /// Of names that begin with `stem`.
    pub(crate) fn numbered(&self, top: &Path, stem: &str) -> Vec<PathBuf> {
        let name = |n| top.join(format!("{stem}-{n:06}"));
        (0..self.operations).map(name).collect()
    }

    /// Of files that lie deep, each in directories of its own.
    fn chains(&self, top: &Path) -> Vec<PathBuf> {
        let file = |chain: PathBuf| chain.join("inner/middle/deep/file");
        self.numbered(top, "chain").into_iter().map(file).collect()
    }
}

pub(crate) fn make_one_file(place: &Place) -> io::Result<()> {
    fs::write(place.beneath.join("file"), [7; BLOCK])
}

/// Small files in one directory.
pub(crate) fn make_small_files(place: &Place) -> io::Result<()> {
    let mut names = place.files(&place.beneath).into_iter();
    names.try_for_each(|name| File::create_new(name)?.write_all(&[7; BLOCK]))
}

pub(crate) fn make_empty_files(place: &Place) -> io::Result<()> {
    let mut names = place.files(&place.beneath).into_iter();
    names.try_for_each(|name| File::create_new(name).map(drop))
}

pub(crate) fn make_chains(place: &Place) -> io::Result<()> {
    for name in place.chains(&place.beneath) {
        fs::create_dir_all(name.parent().unwrap_or(&place.beneath))?;
        File::create_new(name)?;
    }
    Ok(())
}

/// By `lstat(2)`, as most programs do. The standard library asks for the time of birth as well, which costs another
/// request where a server has it.
pub(crate) fn stat_each(place: &Place, clock: &mut Clock) -> io::Result<()> {
    stat_all(&place.files(&place.seen), clock)
}

/// The kernel looks up one component after the other.
pub(crate) fn stat_each_chain(place: &Place, clock: &mut Clock) -> io::Result<()> {
    stat_all(&place.chains(&place.seen), clock)
}

/// `lstat(2)` of all of these.
fn stat_all(names: &[PathBuf], clock: &mut Clock) -> io::Result<()> {
    clock.through(names, |name| Ok(rustix::fs::lstat(name).map(drop)?))
}

pub(crate) fn stat_one(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let name = place.seen.join("file");
    clock.through(0..place.operations, |_| {
        Ok(rustix::fs::lstat(&name).map(drop)?)
    })
}

pub(crate) fn stat_missing(place: &Place, clock: &mut Clock) -> io::Result<()> {
    clock.through(place.new_names(), |name| match rustix::fs::lstat(&name) {
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err(io::Error::other("a name that should be missing")),
    })
}

pub(crate) fn open_close(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let name = place.seen.join("file");
    clock.through(0..place.operations, |_| File::open(&name).map(drop))
}

/// Opens, reads and closes each small file.
pub(crate) fn read_each(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let mut buffer = [0; BLOCK];
    clock.through(&place.files(&place.seen), |name| {
        File::open(name)?.read_exact(&mut buffer)
    })
}

pub(crate) fn create_write_4k(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let buffer = [3; BLOCK];
    clock.through(place.new_names(), |name| {
        File::create_new(name)?.write_all(&buffer)
    })
}

pub(crate) fn mkdir(place: &Place, clock: &mut Clock) -> io::Result<()> {
    clock.through(place.new_names(), fs::create_dir)
}

pub(crate) fn rename(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let names = place.files(&place.seen).into_iter();
    let pairs: Vec<_> = names
        .map(|name| (name.with_extension("renamed"), name))
        .collect();
    clock.through(pairs, |(to, from)| fs::rename(from, to))
}

pub(crate) fn unlink(place: &Place, clock: &mut Clock) -> io::Result<()> {
    clock.through(place.files(&place.seen), fs::remove_file)
}

pub(crate) fn create(place: &Place, clock: &mut Clock) -> io::Result<()> {
    clock.through(place.new_names(), |name| File::create_new(name).map(drop))
}

pub(crate) fn append_4k(place: &Place, clock: &mut Clock) -> io::Result<()> {
    append(BLOCK, place, clock)
}

pub(crate) fn append_1m(place: &Place, clock: &mut Clock) -> io::Result<()> {
    append(1 << 20, place, clock)
}

/// Writes a new file from its start to its end, so many bytes at once.
fn append(bytes: usize, place: &Place, clock: &mut Clock) -> io::Result<()> {
    let mut file = File::create_new(place.seen.join("new"))?;
    let buffer = vec![5; bytes];
    clock.through(0..place.operations, |_| file.write_all(&buffer))
}
