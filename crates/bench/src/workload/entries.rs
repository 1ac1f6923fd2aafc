//! Making, renaming and removing names.

use super::{BLOCK, Place};
use crate::clock::Clock;
use std::fs::{self, File};
use std::io::{self, Write};

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
    let buffer = [3; BLOCK];
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

/// Empty directories for [`rmdir`].
pub(crate) fn make_directories(place: &Place) -> io::Result<()> {
    place
        .numbered(&place.beneath, "directory")
        .iter()
        .try_for_each(fs::create_dir)
}

/// Each looked at once where the contestant shows it.
pub(crate) fn warm_directories(place: &Place) -> io::Result<()> {
    for name in place.numbered(&place.seen, "directory") {
        rustix::fs::lstat(&name)?;
    }
    Ok(())
}

pub(crate) fn rmdir(place: &Place, clock: &mut Clock) -> io::Result<()> {
    for name in place.numbered(&place.seen, "directory") {
        if !clock.more() {
            break;
        }
        fs::remove_dir(name)?;
    }
    Ok(())
}

pub(crate) fn rename(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let names = place.files(&place.seen);
    let pairs: Vec<_> = names
        .iter()
        .map(|name| (name, name.with_extension("renamed")))
        .collect();
    for (from, to) in pairs {
        if !clock.more() {
            break;
        }
        fs::rename(from, to)?;
    }
    Ok(())
}

pub(crate) fn unlink(place: &Place, clock: &mut Clock) -> io::Result<()> {
    for name in place.files(&place.seen) {
        if !clock.more() {
            break;
        }
        fs::remove_file(name)?;
    }
    Ok(())
}
