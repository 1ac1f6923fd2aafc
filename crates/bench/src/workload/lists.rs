//! Listing directories, and walking through trees of them. An operation is a name that is found.

use super::{BLOCK, Place, REPEATS};
use crate::clock::Clock;
use std::fs::{self, DirEntry};
use std::io;
use std::path::Path;

/// Whether attributes of each name are asked for as well.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ask {
    /// No more than the listing says: name and type.
    Name,
    /// By `lstat(2)`.
    Attributes,
}

pub(crate) fn list(place: &Place, clock: &mut Clock) -> io::Result<()> {
    list_times(1, place, Ask::Name, clock)
}

pub(crate) fn list_stat(place: &Place, clock: &mut Clock) -> io::Result<()> {
    list_times(1, place, Ask::Attributes, clock)
}

/// The directory listed, and each name in it looked at, where the contestant shows it.
pub(crate) fn warm_list(place: &Place) -> io::Result<()> {
    walk_silently(&place.seen).map(drop)
}

pub(crate) fn find(place: &Place, clock: &mut Clock) -> io::Result<()> {
    walk_times(1, place, Ask::Name, clock)
}

pub(crate) fn find_again(place: &Place, clock: &mut Clock) -> io::Result<()> {
    walk_times(REPEATS, place, Ask::Name, clock)
}

pub(crate) fn find_stat(place: &Place, clock: &mut Clock) -> io::Result<()> {
    walk_times(1, place, Ask::Attributes, clock)
}

pub(crate) fn find_stat_again(place: &Place, clock: &mut Clock) -> io::Result<()> {
    walk_times(REPEATS, place, Ask::Attributes, clock)
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

fn list_times(times: usize, place: &Place, ask: Ask, clock: &mut Clock) -> io::Result<()> {
    for _ in 0..times {
        let found = walk(&place.seen, ask, Depth::One, clock)?;
        must_be_all(found, place, clock)?;
        if clock.is_over() {
            break;
        }
    }
    Ok(())
}

fn walk_times(times: usize, place: &Place, ask: Ask, clock: &mut Clock) -> io::Result<()> {
    for _ in 0..times {
        let found = walk(&place.seen, ask, Depth::All, clock)?;
        must_be_all(found, place, clock)?;
        if clock.is_over() {
            break;
        }
    }
    Ok(())
}

fn must_be_all(found: usize, place: &Place, clock: &Clock) -> io::Result<()> {
    if found == place.operations || clock.is_over() {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "{found} names instead of {}",
            place.operations
        )))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    One,
    All,
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

/// The same with everything asked for, and out of the time.
fn walk_silently(directory: &Path) -> io::Result<usize> {
    let mut found = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        found += 1;
        if is_directory(&entry, Ask::Attributes)? {
            found += walk_silently(&entry.path())?;
        }
    }
    Ok(found)
}
