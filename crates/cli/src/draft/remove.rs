//! Removes what a command left in a layer: trees of any depth, directories without permissions, strange names.

use crate::lookup;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, chmod, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::os::fd::OwnedFd;

/// Where directories are moved, to be emptied one by one: a tree of any depth needs as few descriptors as a flat one.
const MOVED: &str = "removed-";

/// Removes all of a directory of ours, `first` before all else, but for `kept`.
pub(super) fn contents(
    directory: &OwnedFd,
    first: &[&str],
    kept: &[&str],
) -> rustix::io::Result<()> {
    for name in first {
        match unlinkat(directory, *name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    let mut moved = 0;
    loop {
        let mut found = names(directory)?;
        found.retain(|name| !kept.iter().any(|it| it.as_bytes() == name.as_bytes()));
        if found.is_empty() {
            return Ok(());
        }
        for name in found {
            empty(directory, &name, &mut moved)?;
        }
    }
}

/// Removes a file, or a directory, from which the directories are moved to `top`.
fn empty(top: &OwnedFd, name: &CString, moved: &mut u64) -> rustix::io::Result<()> {
    match unlinkat(top, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        removed => return removed,
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(top, name, flags, Mode::empty())?;
    chmod(lookup::descriptor_path(&directory), Mode::RWXU)?;
    for inner in names(&directory)? {
        match unlinkat(&directory, &inner, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => loop {
                let place = format!("{MOVED}{moved}");
                *moved += 1;
                // To rename a directory, its user must be allowed to write to it.
                let found = openat(&directory, &inner, flags, Mode::empty())?;
                chmod(lookup::descriptor_path(&found), Mode::RWXU)?;
                match renameat(&directory, &inner, top, place) {
                    // Of a removal that was interrupted.
                    Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                    moved => break moved?,
                }
            },
            removed => removed?,
        }
    }
    unlinkat(top, name, AtFlags::REMOVEDIR)
}

fn names(directory: &OwnedFd) -> rustix::io::Result<Vec<CString>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = openat(directory, OsStr::new("."), flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in Dir::new(listed)? {
        let entry = entry?;
        if ![&b"."[..], b".."].contains(&entry.file_name().to_bytes()) {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}
