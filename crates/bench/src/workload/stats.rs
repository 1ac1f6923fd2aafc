//! Asking for names and attributes.

use super::{Place, REPEATS};
use crate::clock::Clock;
use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) fn one(place: &Place, clock: &mut Clock) -> io::Result<()> {
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
/// costs a request more where a server has it: see [`each_birth`].
pub(crate) fn each(place: &Place, clock: &mut Clock) -> io::Result<()> {
    stat_all(&place.files(&place.seen), clock)
}

/// The same over and over.
pub(crate) fn each_again(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let names = place.files(&place.seen);
    for _ in 0..REPEATS {
        stat_all(&names, clock)?;
    }
    Ok(())
}

/// Each file looked at once where the contestant shows it.
pub(crate) fn warm_files(place: &Place) -> io::Result<()> {
    for name in place.files(&place.seen) {
        rustix::fs::lstat(&name)?;
    }
    Ok(())
}

/// By `statx(2)`, with the time of birth. A server that does not know it is not asked again.
pub(crate) fn each_birth(place: &Place, clock: &mut Clock) -> io::Result<()> {
    for name in place.files(&place.seen) {
        if !clock.more() {
            break;
        }
        fs::symlink_metadata(name)?;
    }
    Ok(())
}

pub(crate) fn missing(place: &Place, clock: &mut Clock) -> io::Result<()> {
    for name in place.new_names() {
        if !clock.more() {
            break;
        }
        must_be_missing(&name)?;
    }
    Ok(())
}

/// Files that lie deep, each in directories of its own.
pub(crate) fn make_chains(place: &Place) -> io::Result<()> {
    for name in chains(place, &place.beneath) {
        fs::create_dir_all(name.parent().unwrap_or(&place.beneath))?;
        fs::File::create_new(name)?;
    }
    Ok(())
}

/// The kernel looks up one component after the other.
pub(crate) fn each_chain(place: &Place, clock: &mut Clock) -> io::Result<()> {
    stat_all(&chains(place, &place.seen), clock)
}

/// The same paths over and over.
pub(crate) fn each_chain_again(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let names = chains(place, &place.seen);
    for _ in 0..REPEATS {
        stat_all(&names, clock)?;
    }
    Ok(())
}

pub(crate) fn warm_chains(place: &Place) -> io::Result<()> {
    for name in chains(place, &place.seen) {
        rustix::fs::lstat(&name)?;
    }
    Ok(())
}

fn chains(place: &Place, top: &Path) -> Vec<PathBuf> {
    place
        .numbered(top, "chain")
        .iter()
        .map(|chain| chain.join("inner/middle/deep/file"))
        .collect()
}

/// Symbolic links to a name that is not there.
///
/// # Errors
///
/// [`io::ErrorKind::Unsupported`] where there are none; see symlink(2) for how that is said.
pub(crate) fn make_links(place: &Place) -> io::Result<()> {
    for name in place.numbered(&place.beneath, "link") {
        match rustix::fs::symlink("made-somewhere", name) {
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "no symbolic links",
                ));
            }
            outcome => outcome?,
        }
    }
    Ok(())
}

pub(crate) fn each_link(place: &Place, clock: &mut Clock) -> io::Result<()> {
    read_links(&place.numbered(&place.seen, "link"), clock)
}

pub(crate) fn each_link_again(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let names = place.numbered(&place.seen, "link");
    for _ in 0..REPEATS {
        read_links(&names, clock)?;
    }
    Ok(())
}

pub(crate) fn warm_links(place: &Place) -> io::Result<()> {
    for name in place.numbered(&place.seen, "link") {
        fs::read_link(name)?;
    }
    Ok(())
}

fn read_links(names: &[PathBuf], clock: &mut Clock) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(64);
    for name in names {
        if !clock.more() {
            break;
        }
        let target = rustix::fs::readlink(name, buffer)?;
        buffer = target.into_bytes();
    }
    Ok(())
}

fn stat_all(names: &[PathBuf], clock: &mut Clock) -> io::Result<()> {
    for name in names {
        if !clock.more() {
            break;
        }
        rustix::fs::lstat(name)?;
    }
    Ok(())
}

fn must_be_missing(name: &Path) -> io::Result<()> {
    match rustix::fs::lstat(name) {
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err(io::Error::other("a name that should be missing")),
    }
}
