//! Everything that the mount shows, compared with what is beneath.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use thrufs_testing::xattrs;

use crate::changes::{CROWD, NAMES};
use crate::readers::{Held, open_regular};

/// How long a difference is watched. One that a timeout of a second ends is told apart from one that stays.
const WATCHED: Duration = Duration::from_secs(3);

/// Most stale answers of one round that are reported: of a mount that has ended, all are.
const STALE_MAX: usize = 6;

/// The inode number of the root of a btrfs subvolume.
const SUBVOLUME: u64 = 256;

/// What a mount says about a name. Attributes first: other questions may refresh them.
#[derive(Clone, Copy, Debug)]
enum Fact {
    Attributes,
    Listing,
    Data,
    Extended,
}

const FACTS: [Fact; 4] = [Fact::Attributes, Fact::Listing, Fact::Data, Fact::Extended];

/// A difference between above and beneath.
pub struct StaleAnswer {
    pub path: String,
    pub what: String,
    pub beneath: String,
    pub above: String,
    pub inodes: Vec<u64>,
    /// How long it was seen; `None` if it stayed.
    pub passed: Option<Duration>,
}

pub struct Compared<'a> {
    pub source: &'a Path,
    pub outside: &'a Path,
    pub mnt: &'a Path,
    pub held: &'a Held,
    /// Whether blocks are counted at once, not when data are written back.
    pub has_exact_blocks: bool,
    /// Whether an inode is lost above when it is moved or removed beneath.
    pub loses_moved: bool,
    /// Whether a file that is open above and replaced beneath by a rename must show that it has no name:
    /// only a mark on the file itself would report that.
    pub sees_replaced: bool,
    /// Whether inode numbers are unique, so that an open file is found beneath by its number.
    pub has_unique_numbers: bool,
}

impl Compared<'_> {
    pub fn stale(&self) -> Vec<StaleAnswer> {
        let mut paths = vec![PathBuf::new()];
        let mut at = 0;
        while at < paths.len() {
            let path = paths[at].clone();
            at += 1;
            let is_directory = |path: &Path| {
                fs::symlink_metadata(self.source.join(path)).is_ok_and(|found| found.is_dir())
            };
            if is_directory(&path) {
                paths.extend(NAMES.map(|name| path.join(name)));
            }
        }
        let mut stale = Vec::new();
        for fact in FACTS {
            for path in &paths {
                stale.extend(self.difference(path, fact));
                if stale.len() == STALE_MAX {
                    return stale;
                }
            }
        }
        stale.extend(self.difference(Path::new(CROWD), Fact::Attributes));
        stale.extend(self.difference(Path::new(CROWD), Fact::Listing));
        if self.has_unique_numbers {
            self.compare_held(&paths, &mut stale);
        }
        stale
    }

    fn difference(&self, path: &Path, fact: Fact) -> Option<StaleAnswer> {
        let ask = |root: &Path| self.ask(&root.join(path), fact);
        let (beneath, above) = (ask(self.source), ask(self.mnt));
        if beneath == above {
            return None;
        }
        let ino = |root: &Path| fs::symlink_metadata(root.join(path)).map(|found| found.ino());
        let inodes = [self.source, self.mnt]
            .into_iter()
            .filter_map(|root| ino(root).ok());
        Some(StaleAnswer {
            path: path.display().to_string(),
            what: format!("{fact:?}"),
            inodes: inodes.collect(),
            passed: passes(|| ask(self.source) == ask(self.mnt)),
            beneath,
            above,
        })
    }

    fn ask(&self, path: &Path, fact: Fact) -> String {
        let answer = match fact {
            Fact::Attributes => fs::symlink_metadata(path).map(|found| self.attributes(&found)),
            Fact::Listing => listing(path),
            Fact::Data => data(path),
            Fact::Extended => extended(path),
        };
        answer.unwrap_or_else(|error| error.to_string())
    }

    fn attributes(&self, found: &Metadata) -> String {
        let blocks = if self.has_exact_blocks {
            found.blocks()
        } else {
            0
        };
        format!(
            "ino {} mode {:o} nlink {} owner {}:{} rdev {} size {} blocks {blocks} mtime {}.{:09} ctime {}.{:09}",
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

    /// Open files, with what has their inode number beneath, or with none if it has no name any more.
    fn compare_held(&self, paths: &[PathBuf], stale: &mut Vec<StaleAnswer>) {
        let inside = paths.iter().map(|path| self.source.join(path));
        let mut outside = vec![self.outside.to_owned()];
        let mut at = 0;
        while at < outside.len() {
            let found = fs::read_dir(&outside[at]).into_iter().flatten().flatten();
            outside.extend(found.map(|entry| entry.path()));
            at += 1;
        }
        let number = |path: PathBuf| Some((fs::symlink_metadata(&path).ok()?.ino(), path));
        let places: BTreeMap<u64, PathBuf> = inside.chain(outside).filter_map(number).collect();
        let held = self.held.lock().unwrap().clone();
        for file in held {
            stale.extend(self.difference_of_held(&file, &places));
        }
    }

    fn difference_of_held(
        &self,
        file: &File,
        places: &BTreeMap<u64, PathBuf>,
    ) -> Option<StaleAnswer> {
        let text = |answer: io::Result<String>| answer.unwrap_or_else(|error| error.to_string());
        let found = match file.metadata() {
            Ok(found) => found,
            Err(error) if self.loses_moved && error.raw_os_error() == Some(libc::ESTALE) => {
                return None;
            }
            Err(error) => return Some(no_answer(&error)),
        };
        let place = places.get(&found.ino());
        let Some(place) = place else {
            if !self.sees_replaced {
                return None;
            }
            let is_gone = || file.metadata().is_ok_and(|found| found.nlink() == 0);
            return (!is_gone()).then(|| StaleAnswer {
                path: "held open".to_owned(),
                what: "links".to_owned(),
                beneath: "0".to_owned(),
                above: self.attributes(&found),
                inodes: vec![found.ino()],
                passed: passes(is_gone),
            });
        };
        let beneath = || text(fs::metadata(place).map(|found| self.attributes(&found)));
        let above = || text(file.metadata().map(|found| self.attributes(&found)));
        let beneath_data = || text(data(place));
        let above_data = || text(data_of(file));
        let stale = |what: &str, beneath: String, above: String, passed| StaleAnswer {
            path: place.display().to_string(),
            what: format!("{what} by an open file"),
            beneath,
            above,
            inodes: vec![found.ino()],
            passed,
        };
        let (below, shown) = (beneath(), self.attributes(&found));
        if below != shown {
            let passed = passes(|| beneath() == above());
            return Some(stale("attributes", below, shown, passed));
        }
        let (below, shown) = (beneath_data(), above_data());
        if below != shown && !(self.loses_moved && shown.contains("Stale")) {
            let passed = passes(|| beneath_data() == above_data());
            return Some(stale("data", below, shown, passed));
        }
        None
    }
}

fn no_answer(error: &io::Error) -> StaleAnswer {
    StaleAnswer {
        path: "held open".to_owned(),
        what: "fstat".to_owned(),
        beneath: String::new(),
        above: error.to_string(),
        inodes: Vec::new(),
        passed: None,
    }
}

/// How long it takes until this is so, if it does.
fn passes(is_so: impl Fn() -> bool) -> Option<Duration> {
    let begun = Instant::now();
    while begun.elapsed() < WATCHED {
        if is_so() {
            return Some(begun.elapsed());
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    None
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
    let found = fs::symlink_metadata(path)?;
    if found.is_symlink() {
        return Ok(fs::read_link(path)?.display().to_string());
    }
    match open_regular(path) {
        Some(file) => data_of(&file),
        None => Ok(String::new()),
    }
}

fn data_of(file: &File) -> io::Result<String> {
    let (mut bytes, mut block) = (Vec::new(), [0; 8192]);
    loop {
        match file.read_at(&mut block, bytes.len() as u64)? {
            0 => return Ok(summary(&bytes)),
            count => bytes.extend(&block[..count]),
        }
    }
}

/// Length, and a sum of each page.
fn summary(bytes: &[u8]) -> String {
    let mut text = format!("{} bytes", bytes.len());
    for page in bytes.chunks(4096) {
        let hash = page.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        let _ = write!(text, " {hash:016x}");
    }
    text
}

fn extended(path: &Path) -> io::Result<String> {
    fs::symlink_metadata(path)?;
    let found = xattrs(path)?;
    let names = found
        .into_iter()
        .map(|(name, value)| (String::from_utf8_lossy(&name).into_owned(), value));
    // Attributes of the security module and of overlays are not served.
    let names = names.filter(|(name, _)| name.starts_with("user.") || name.starts_with("system."));
    Ok(format!("{:?}", names.collect::<Vec<_>>()))
}
