//! Listing directories, and walking through trees of them. An operation is a name that is found.

use super::{BLOCK, Place};
use crate::clock::Clock;
use std::fs::{self, DirEntry};
use std::io;
use std::path::Path;

/// Whether attributes of each name are asked for as well.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// No more than the listing says: name and type.
    Name,
    /// By `lstat(2)`.
    Attributes,
}

/// Whether directories within the directory are listed as well.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    One,
    All,
}

pub(crate) fn list(place: &Place, clock: &mut Clock) -> io::Result<()> {
    walk_whole(place, Ask::Name, Depth::One, clock)
}

/// Walks through the tree of [`OF_TREE`](crate::row::OF_TREE), asking for attributes of each name.
pub fn find_stat(place: &Place, clock: &mut Clock) -> io::Result<()> {
    find(place, Ask::Attributes, clock)
}

/// Walks through the tree of [`OF_TREE`](crate::row::OF_TREE).
pub fn find(place: &Place, ask: Ask, clock: &mut Clock) -> io::Result<()> {
    walk_whole(place, ask, Depth::All, clock)
}

/// Files in each directory of a tree.
const FILES: usize = 38;
/// Directories in each that has some.
const BRANCHES: usize = 10;
/// Names that a full branch of the tree has: a directory, its directories, and the files in all of them.
const BRANCH_NAMES: usize = 1 + BRANCHES + (1 + BRANCHES) * FILES;

/// A tree of two levels with as many names as there are operations.
pub(crate) fn make_tree(place: &Place) -> io::Result<()> {
    let mut left = place.operations;
    for branch in 0..place.operations.div_ceil(BRANCH_NAMES) {
        let top = place.beneath.join(format!("branch-{branch:04}"));
        make_directory(&top, &mut left)?;
        for twig in 0..BRANCHES {
            if left > 0 {
                make_directory(&top.join(format!("twig-{twig:02}")), &mut left)?;
            }
        }
    }
    Ok(())
}

fn make_directory(path: &Path, left: &mut usize) -> io::Result<()> {
    fs::create_dir(path)?;
    *left = left.saturating_sub(1);
    for file in 0..FILES.min(*left) {
        fs::write(path.join(format!("file-{file:02}")), [7; BLOCK / 4])?;
    }
    *left = left.saturating_sub(FILES);
    Ok(())
}

fn walk_whole(place: &Place, ask: Ask, depth: Depth, clock: &mut Clock) -> io::Result<()> {
    let found = walk(&place.seen, ask, depth, clock)?;
    if found == place.operations || clock.is_over() {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "{found} names instead of {}",
            place.operations
        )))
    }
}

/// How many names were found. The first that is begun pays for opening the directory.
fn walk(directory: &Path, ask: Ask, depth: Depth, clock: &mut Clock) -> io::Result<usize> {
    let mut found = 0;
    let mut is_more = clock.more();
    let mut entries = fs::read_dir(directory)?;
    while is_more {
        let Some(entry) = entries.next() else {
            clock.take_back();
            break;
        };
        let entry = entry?;
        found += 1;
        if is_directory(&entry, ask)? && depth == Depth::All {
            found += walk(&entry.path(), ask, depth, clock)?;
        }
        is_more = clock.more();
    }
    Ok(found)
}

fn is_directory(entry: &DirEntry, ask: Ask) -> io::Result<bool> {
    if ask == Ask::Attributes {
        rustix::fs::lstat(entry.path())?;
    }
    Ok(entry.file_type()?.is_dir())
}
