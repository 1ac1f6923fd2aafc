//! Opening, and reading what is small.

use super::{BLOCK, Place, REPEATS};
use crate::clock::Clock;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::PathBuf;

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

pub(crate) fn read_each(place: &Place, clock: &mut Clock) -> io::Result<()> {
    read_all(&place.files(&place.seen), clock)
}

pub(crate) fn read_each_again(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let names = place.files(&place.seen);
    for _ in 0..REPEATS {
        read_all(&names, clock)?;
    }
    Ok(())
}

/// Each file read once where the contestant shows it.
pub(crate) fn warm_contents(place: &Place) -> io::Result<()> {
    let mut buffer = [0; BLOCK];
    for name in place.files(&place.seen) {
        File::open(name)?.read_exact(&mut buffer)?;
    }
    Ok(())
}

fn read_all(names: &[PathBuf], clock: &mut Clock) -> io::Result<()> {
    let mut buffer = [0; BLOCK];
    for name in names {
        if !clock.more() {
            break;
        }
        File::open(name)?.read_exact(&mut buffer)?;
    }
    Ok(())
}
