//! Listing directories, and walking through trees of them. An operation is a name that is found.

use super::{BLOCK, Place};
use crate::clock::Clock;
use std::fs;
use std::io;
use std::path::Path;

/// What is done with each name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Walk {
    /// No more than the listing says, in one directory.
    List,
    /// Directories within the directory are listed as well.
    Find,
    /// The same, and attributes of each name are asked for, by `lstat(2)`.
    FindStat,
}

pub(crate) fn list(place: &Place, clock: &mut Clock) -> io::Result<()> {
    whole(place, Walk::List, clock)
}

pub(crate) fn find(place: &Place, clock: &mut Clock) -> io::Result<()> {
    whole(place, Walk::Find, clock)
}

pub(crate) fn find_stat(place: &Place, clock: &mut Clock) -> io::Result<()> {
    whole(place, Walk::FindStat, clock)
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

fn whole(place: &Place, how: Walk, clock: &mut Clock) -> io::Result<()> {
    let (found, all) = (walk(&place.seen, how, clock)?, place.operations);
    match found == all || clock.is_over() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{found} names instead of {all}"))),
    }
}

/// How many names were found. The first that is begun pays for opening the directory.
fn walk(directory: &Path, how: Walk, clock: &mut Clock) -> io::Result<usize> {
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
        if how == Walk::FindStat {
            rustix::fs::lstat(entry.path())?;
        }
        if how != Walk::List && entry.file_type()?.is_dir() {
            found += walk(&entry.path(), how, clock)?;
        }
        is_more = clock.more();
    }
    Ok(found)
}
