//! Everything that the mount shows, compared with what is beneath.

use crate::changes::{CROWD, NAMES};
use crate::readers::{Held, open_regular};
use crate::soak::Soak;
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::DirEntryExt;
use thrufs_testing::xattrs;
use thrufs_tests::prelude::*;

/// Most stale answers of one round that are reported: of a mount that has ended, all are.
const STALE_MAX: usize = 6;

/// The inode number of the root of a btrfs subvolume.
const SUBVOLUME: u64 = 256;

/// What a mount says about a name.
type Fact = (&'static str, fn(&Path) -> io::Result<String>);

/// Attributes first: other questions may refresh them.
const FACTS: [Fact; 4] = [
    ("attributes", |path| {
        Ok(attributes(&fs::symlink_metadata(path)?))
    }),
    ("listing", listing),
    ("data", data),
    ("extended attributes", extended),
];

fn text(answer: io::Result<String>) -> String {
    answer.unwrap_or_else(|error| error.to_string())
}

fn difference(what: &str, path: &Path, beneath: &str, above: &str) -> Option<String> {
    let is_stale = beneath != above;
    let path = path.display();
    is_stale.then(|| format!("{what} of {path}\n  beneath: {beneath}\n  above:   {above}"))
}

/// The differences between above and beneath, a text each.
pub fn stale(soak: &Soak, held: &Held) -> Vec<String> {
    let (source, mnt) = (&soak.order.source, &soak.order.mnt);
    let mut paths = vec![PathBuf::new(), CROWD.into()];
    let mut at = 0;
    while let Some(path) = paths.get(at).cloned() {
        at += 1;
        let found = fs::symlink_metadata(source.join(&path));
        if path != Path::new(CROWD) && found.is_ok_and(|found| found.is_dir()) {
            paths.extend(NAMES.map(|name| path.join(name)));
        }
    }
    let ask = |(what, ask): &Fact, path: &PathBuf| {
        let [beneath, above] = [source, mnt].map(|root| text(ask(&root.join(path))));
        difference(what, path, &beneath, &above)
    };
    let all = FACTS.iter().flat_map(|fact| {
        let paths = paths.iter();
        paths.filter_map(move |path| ask(fact, path))
    });
    let mut stale: Vec<String> = all.take(STALE_MAX).collect();
    // An open file is found beneath by its number.
    if !soak.has_subvolumes {
        let inside = paths.iter().map(|path| source.join(path));
        let number = |path: PathBuf| Some((fs::symlink_metadata(&path).ok()?.ino(), path));
        let places = inside.chain(all_in(&soak.outside)).filter_map(number);
        let places: BTreeMap<u64, PathBuf> = places.collect();
        let held = held.lock().unwrap().clone();
        stale.extend(held.iter().filter_map(|it| stale_held(soak, it, &places)));
    }
    stale
}

fn all_in(directory: &Path) -> Vec<PathBuf> {
    let mut all = vec![directory.to_owned()];
    let mut at = 0;
    while at < all.len() {
        let found = fs::read_dir(&all[at]).into_iter().flatten().flatten();
        all.extend(found.map(|entry| entry.path()));
        at += 1;
    }
    all
}

fn stale_held(soak: &Soak, file: &File, places: &BTreeMap<u64, PathBuf>) -> Option<String> {
    // Without handles, an inode is lost above when it is moved or removed beneath.
    let is_lost =
        |error: &io::Error| soak.loses_moved() && error.raw_os_error() == Some(libc::ESTALE);
    let found = match file.metadata() {
        Ok(found) => found,
        Err(error) if is_lost(&error) => return None,
        Err(error) => return Some(format!("fstat of an open file: {error}")),
    };
    let place = places.get(&found.ino())?;
    let beneath = text(fs::metadata(place).map(|it| attributes(&it)));
    let changed = difference(
        "attributes by an open file",
        place,
        &beneath,
        &attributes(&found),
    );
    changed.or_else(|| match data_of(file) {
        Err(error) if is_lost(&error) => None,
        above => difference(
            "data by an open file",
            place,
            &text(data(place)),
            &text(above),
        ),
    })
}

fn attributes(found: &Metadata) -> String {
    format!(
        "ino {} mode {:o} nlink {} owner {}:{} rdev {} size {} mtime {}.{:09} ctime {}.{:09}",
        found.ino(),
        found.mode(),
        found.nlink(),
        found.uid(),
        found.gid(),
        found.rdev(),
        found.size(),
        found.mtime(),
        found.mtime_nsec(),
        found.ctime(),
        found.ctime_nsec()
    )
}

fn listing(path: &Path) -> io::Result<String> {
    if !fs::symlink_metadata(path)?.is_dir() {
        return Ok(String::new());
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        // A subvolume's own number is not that of its entry.
        let number = fs::symlink_metadata(entry.path()).map_or(0, |found| found.ino());
        let number = if number == SUBVOLUME {
            number
        } else {
            entry.ino()
        };
        names.push(format!("{:?} #{number} {kind:?}", entry.file_name()));
    }
    names.sort();
    Ok(names.join("\n"))
}

fn data(path: &Path) -> io::Result<String> {
    if fs::symlink_metadata(path)?.is_symlink() {
        return Ok(fs::read_link(path)?.display().to_string());
    }
    open_regular(path).map_or(Ok(String::new()), |file| data_of(&file))
}

/// Length, and a sum of each page.
fn data_of(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; 1 << 20];
    let length = file.read_at(&mut bytes, 0)?;
    let sums = bytes[..length].chunks(4096).map(|page| {
        let mut sum = DefaultHasher::new();
        page.hash(&mut sum);
        format!(" {:016x}", sum.finish())
    });
    Ok(format!("{length} bytes{}", sums.collect::<String>()))
}

/// Attributes of the security module and of overlays are not served.
fn extended(path: &Path) -> io::Result<String> {
    fs::symlink_metadata(path)?;
    let mut found = xattrs(path)?;
    found.retain(|name, _| name.starts_with(b"user.") || name.starts_with(b"system."));
    Ok(format!("{found:?}"))
}
