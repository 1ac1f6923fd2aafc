//! Removes what a command left in a layer: trees of any depth, directories without permissions, strange names.

use super::beneath::{names, open_in};
use crate::lookup;
use rustix::fs::{AtFlags, Mode, OFlags, chmod, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;

/// Where directories are moved, to be emptied one by one: a tree of any depth needs as few descriptors as a flat one.
const MOVED: &str = "removed-";

/// Removes all of a directory of ours, but for `kept`.
pub(super) fn contents(directory: &OwnedFd, kept: &str) -> io::Result<()> {
    let mut moved = 0;
    loop {
        let mut found = names(directory)?;
        found.retain(|name| name != kept);
        if found.is_empty() {
            return Ok(());
        }
        for name in found {
            empty(directory, &name, &mut moved)?;
        }
    }
}

/// Removes a file, or a directory, from which the directories are moved to `top`.
fn empty(top: &OwnedFd, name: &OsStr, moved: &mut u64) -> io::Result<()> {
    match unlinkat(top, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        removed => return Ok(removed?),
    }
    // To rename a directory, its user must be allowed to write to it.
    let open = |at, name: &OsStr| -> io::Result<OwnedFd> {
        let directory = open_in(at, name, OFlags::PATH | OFlags::DIRECTORY)?;
        chmod(lookup::descriptor_path(&directory), Mode::RWXU)?;
        Ok(directory)
    };
    let directory = open(top, name)?;
    for inner in names(&directory)? {
        match unlinkat(&directory, &inner, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => loop {
                let place = format!("{MOVED}{moved}");
                *moved += 1;
                open(&directory, &inner)?;
                match renameat(&directory, &inner, top, place) {
                    // Of a removal that was interrupted.
                    Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                    moved => break moved?,
                }
            },
            removed => removed?,
        }
    }
    Ok(unlinkat(top, name, AtFlags::REMOVEDIR)?)
}
