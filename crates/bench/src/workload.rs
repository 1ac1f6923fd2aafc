//! The loops of rows about names and attributes. A `make` makes files beneath the mount, so that nothing is
//! cached by it; a `warm` looks at them where the contestant shows them; a `run` is the timed loop there.
//!
//! Names follow habits that the floor knows (`floor/answers.rs`), which has no memory: what begins with `file` is
//! a file, with `made` or `new` is not there yet, what ends in `renamed` is where something goes, and everything
//! else is a directory.

pub(crate) mod appends;
pub(crate) mod entries;
pub(crate) mod lists;
pub(crate) mod opens;
pub(crate) mod stats;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Where a workload runs, and how long.
pub(crate) struct Place {
    pub(crate) beneath: PathBuf,
    pub(crate) seen: PathBuf,
    /// Operations to do, and files to do them with.
    pub(crate) operations: usize,
}

/// Bytes of a small file.
pub(crate) const BLOCK: usize = 4096;

/// Loops that do no more than look go through what there is so often, or they would be over at once.
pub(crate) const REPEATS: usize = 20;

impl Place {
    /// Of files that are there.
    fn files(&self, top: &Path) -> Vec<PathBuf> {
        self.numbered(top, "file")
    }

    /// Of what is to be made, or to be missing.
    fn new_names(&self) -> Vec<PathBuf> {
        self.numbered(&self.seen, "made")
    }

    fn numbered(&self, top: &Path, stem: &str) -> Vec<PathBuf> {
        (0..self.operations)
            .map(|n| top.join(format!("{stem}-{n:06}")))
            .collect()
    }
}

/// For rows that make everything themselves.
pub(crate) fn nothing(_: &Place) -> io::Result<()> {
    Ok(())
}

/// One small file.
pub(crate) fn one_file(place: &Place) -> io::Result<()> {
    fs::write(place.beneath.join("file"), [7; BLOCK])
}

/// Small files in one directory.
pub(crate) fn small_files(place: &Place) -> io::Result<()> {
    for name in place.files(&place.beneath) {
        File::create_new(name)?.write_all(&[7; BLOCK])?;
    }
    Ok(())
}

/// The same without contents.
pub(crate) fn empty_files(place: &Place) -> io::Result<()> {
    for name in place.files(&place.beneath) {
        File::create_new(name)?;
    }
    Ok(())
}
