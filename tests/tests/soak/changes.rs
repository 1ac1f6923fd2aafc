//! Random changes beneath, of every kind, and a record of them.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FallocateFlags, XattrFlags};
use thrufs_sys::handle::{self, FileHandleBuf};
use thrufs_testing::Random;
use thrufs_testing::fence::mapping::{Mapping, Sharing};
use thrufs_testing::steps::Steps;
use thrufs_tests::acl;
use thrufs_tests::mount_point::shrink_dcache;

/// The names that anything may have.
pub const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];

/// Directories in directories.
const DEPTH_MAX: usize = 3;

/// Descriptors for writing that stay open, and maps.
const WRITERS_MAX: usize = 6;

/// Largest file: some pages.
const FILE_BYTES_MAX: usize = 20_000;

/// Writes to one file, at intervals in which one is reported by itself: more than it takes until the server wants
/// no more events about it.
const OFTEN: usize = 40;
const INTERVAL: Duration = Duration::from_micros(1200);

/// Records that are kept.
const RECORDS_MAX: usize = 4000;

/// A kind of change, and how often it is chosen.
type Kind = (usize, fn(&mut Changes) -> io::Result<String>);

const KINDS: [Kind; 27] = [
    (10, Changes::create),
    (6, Changes::write),
    (5, Changes::append),
    (4, Changes::truncate),
    (8, Changes::unlink),
    (10, Changes::rename),
    (2, Changes::exchange),
    (6, Changes::make_directory),
    (3, Changes::remove_directory),
    (4, Changes::rename_directory),
    (5, Changes::change_mode),
    (4, Changes::change_owner),
    (4, Changes::change_times),
    (5, Changes::link),
    (3, Changes::symlink),
    (2, Changes::make_fifo),
    (4, Changes::set_attribute),
    (2, Changes::remove_attribute),
    (3, Changes::set_acl),
    (3, Changes::store_by_map),
    (3, Changes::open_writer),
    (6, Changes::write_by_writer),
    (3, Changes::close_writer),
    (2, Changes::write_often),
    (3, Changes::move_out),
    (3, Changes::move_in),
    (6, Changes::change_crowd),
];

/// By names in directories that are not served.
const OUTSIDE: [Kind; 3] = [
    (1, Changes::link_outside),
    (2, Changes::write_outside),
    (2, Changes::change_mode_outside),
];

/// By file handles, which takes root.
const BY_HANDLE: [Kind; 1] = [(4, Changes::change_by_handle)];

/// A directory of more names than one request returns, and how many there are at first.
pub const CROWD: &str = "crowd";
const CROWD_NAMES: usize = 1500;
const CROWD_CHANGES_MAX: usize = 60;

struct Record {
    at: Instant,
    what: String,
}

/// The name in the crowd with a number, long enough for few to fit in one request.
fn crowd_name(number: usize) -> String {
    format!("one-of-many-names-{number:05}")
}

pub struct Changes {
    random: Random,
    steps: Steps,
    /// Where others serve the source, by which some changes are made.
    writable: Vec<PathBuf>,
    source: PathBuf,
    outside: PathBuf,
    has_stray_links: bool,
    shows_handles: bool,
    writers: Vec<(PathBuf, File)>,
    maps: Vec<Mapping>,
    records: VecDeque<Record>,
    pub count: u64,
}

/// A record of a change to a path.
fn told(what: impl std::fmt::Display, path: &Path) -> io::Result<String> {
    Ok(format!("{what} {} #{}", path.display(), ino(path)))
}

/// The same of one by an open file, which may be at another path by now.
fn told_of(what: &str, (path, file): &(PathBuf, File)) -> io::Result<String> {
    let number = file.metadata()?.ino();
    Ok(format!("{what} once {} #{number}", path.display()))
}

fn ino(path: &Path) -> u64 {
    fs::symlink_metadata(path).map_or(0, |found| found.ino())
}

/// What is a file beneath may be a fifo by another mount, whose opening must not wait.
fn writing() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(libc::O_NONBLOCK);
    options
}

impl Changes {
    pub fn new(
        source: &Path,
        outside: &Path,
        writable: &[PathBuf],
        has_stray_links: bool,
        shows_handles: bool,
        seed: u64,
    ) -> Changes {
        let crowd = source.join(CROWD);
        fs::create_dir(&crowd).unwrap();
        (0..CROWD_NAMES).for_each(|it| fs::write(crowd.join(crowd_name(it)), "").unwrap());
        Changes {
            random: Random(seed),
            steps: Steps::new(source.to_owned(), source.to_owned()),
            writable: writable.to_owned(),
            source: source.to_owned(),
            outside: outside.to_owned(),
            has_stray_links,
            shows_handles,
            writers: Vec::new(),
            maps: Vec::new(),
            records: VecDeque::new(),
            count: 0,
        }
    }

    /// One change, which may fail.
    pub fn one(&mut self) {
        let outside: &[Kind] = if self.has_stray_links { &OUTSIDE } else { &[] };
        let by_handle: &[Kind] = if self.shows_handles { &BY_HANDLE } else { &[] };
        let kinds = KINDS.iter().chain(outside).chain(by_handle);
        let kinds: Vec<Kind> = kinds.copied().collect();
        let mut at = self.random.below(kinds.iter().map(|kind| kind.0).sum());
        let kind = kinds.iter().find(|kind| {
            let is_it = at < kind.0;
            at = at.saturating_sub(kind.0);
            is_it
        });
        let begun = Instant::now();
        let Ok(what) = kind.unwrap().1(self) else {
            return;
        };
        self.count += 1;
        let what = what.replace(&format!("{}/", self.source.display()), "");
        self.records.push_back(Record { at: begun, what });
        if self.records.len() > RECORDS_MAX {
            self.records.pop_front();
        }
    }

    /// A call of [`Steps`]. Returns it with the inodes that its names had and have.
    fn did(&mut self, call: &str) -> io::Result<String> {
        let words: Vec<&str> = call.split(' ').collect();
        let numbers = || words[1..].iter().map(|word| ino(Path::new(word)));
        let mut touched: BTreeSet<u64> = numbers().collect();
        self.steps.call(&words)?;
        touched.extend(numbers());
        let touched: String = touched.iter().map(|number| format!(" #{number}")).collect();
        Ok(format!("{call}{touched}"))
    }

    /// Stores through maps are promised once those are closed.
    pub fn close_maps(&mut self) {
        self.maps.clear();
    }

    /// The last changes that touched a path or an inode, or a directory above it.
    pub fn history(&self, path: &str, inodes: &[u64]) -> String {
        let inodes: Vec<String> = inodes.iter().map(|ino| format!("#{ino} ")).collect();
        let touched = |record: &&Record| {
            let what = format!("{} ", record.what);
            let mut words = what.split([' ', '#']);
            inodes.iter().any(|ino| what.contains(ino.as_str()))
                || words.any(|word| {
                    !word.is_empty() && (word == path || path.starts_with(&format!("{word}/")))
                })
        };
        let found = self.records.iter().rev().filter(touched).take(14);
        let lines = found.map(|it| format!("    {:?} ago: {}\n", it.at.elapsed(), it.what));
        lines.collect()
    }

    /// How many names lead to a path from the root.
    fn depth(&self, path: &Path) -> usize {
        let roots = self.writable.iter().chain([&self.source]);
        let within = roots.filter_map(|root| path.strip_prefix(root).ok());
        within.map(|path| path.components().count()).sum()
    }

    fn directory(&mut self) -> PathBuf {
        let (mut at, others) = (self.source.clone(), self.writable.len());
        if others > 0 && self.random.once_in(3) {
            at.clone_from(&self.writable[self.random.below(others)]);
        }
        for _ in 0..self.random.below(DEPTH_MAX + 1) {
            let found = fs::read_dir(&at).into_iter().flatten().flatten();
            let found = found.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            let found: Vec<_> = found.map(|entry| entry.path()).collect();
            if found.is_empty() {
                break;
            }
            at.clone_from(&found[self.random.below(found.len())]);
        }
        at
    }

    /// Any name, perhaps of nothing.
    fn name(&mut self) -> PathBuf {
        let name = self.random.pick(&NAMES);
        self.directory().join(name)
    }

    fn existing(&mut self, is_wanted: impl Fn(&fs::Metadata) -> bool) -> io::Result<PathBuf> {
        for _ in 0..20 {
            let path = self.name();
            if fs::symlink_metadata(&path).is_ok_and(|found| is_wanted(&found)) {
                return Ok(path);
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    fn file(&mut self) -> io::Result<PathBuf> {
        self.existing(fs::Metadata::is_file)
    }

    fn anything(&mut self) -> io::Result<PathBuf> {
        self.existing(|_| true)
    }

    fn bytes(&mut self) -> Vec<u8> {
        let most = FILE_BYTES_MAX >> self.random.below(8);
        let length = self.random.below(most);
        self.random.bytes(length)
    }

    fn create(&mut self) -> io::Result<String> {
        let (path, bytes) = (self.name(), self.bytes());
        if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file()) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let existed = path.exists();
        writing()
            .create(true)
            .truncate(true)
            .open(&path)?
            .write_all_at(&bytes, 0)?;
        told(format!("existed={existed} create"), &path)
    }

    fn write(&mut self) -> io::Result<String> {
        let (path, bytes) = (self.file()?, self.bytes());
        let offset = self.random.below(FILE_BYTES_MAX) as u64;
        writing().open(&path)?.write_all_at(&bytes, offset)?;
        told(format!("at {offset} write"), &path)
    }

    fn append(&mut self) -> io::Result<String> {
        let (path, bytes) = (self.file()?, self.bytes());
        io::Write::write_all(&mut writing().append(true).open(&path)?, &bytes)?;
        told("append", &path)
    }

    fn truncate(&mut self) -> io::Result<String> {
        let path = self.file()?;
        let length = self.random.below(FILE_BYTES_MAX) as u64;
        let file = writing().open(&path)?;
        if self.random.once_in(3) {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, flags, length, 5000)?;
            return told("punch", &path);
        }
        file.set_len(length)?;
        told(format!("to {length} truncate"), &path)
    }

    fn unlink(&mut self) -> io::Result<String> {
        let path = self.existing(|found| !found.is_dir())?;
        self.did(&format!("unlink {}", path.display()))
    }

    fn rename(&mut self) -> io::Result<String> {
        let (from, to) = (self.existing(|found| !found.is_dir())?, self.name());
        self.renamed("0", &from, &to)
    }

    fn exchange(&mut self) -> io::Result<String> {
        let (from, to) = (self.anything()?, self.anything()?);
        self.renamed("exchange", &from, &to)
    }

    fn rename_directory(&mut self) -> io::Result<String> {
        let (from, to) = (self.existing(fs::Metadata::is_dir)?, self.name());
        if self.depth(&to) > DEPTH_MAX {
            return Err(io::ErrorKind::Other.into());
        }
        self.renamed("0", &from, &to)
    }

    fn renamed(&mut self, flags: &str, from: &Path, to: &Path) -> io::Result<String> {
        self.did(&format!(
            "rename2 {flags} {} {}",
            from.display(),
            to.display()
        ))
    }

    fn make_directory(&mut self) -> io::Result<String> {
        let path = self.name();
        if self.depth(&path) > DEPTH_MAX {
            return Err(io::ErrorKind::Other.into());
        }
        self.did(&format!("dir {}", path.display()))
    }

    fn remove_directory(&mut self) -> io::Result<String> {
        let path = self.existing(fs::Metadata::is_dir)?;
        let number = ino(&path);
        if self.random.once_in(3) {
            fs::remove_dir_all(&path)?;
            return Ok(format!("rm -r {} #{number}", path.display()));
        }
        self.did(&format!("rmdir {}", path.display()))
    }

    /// Readable to the owner, as a server without privilege must open what it watches.
    fn change_mode(&mut self) -> io::Result<String> {
        let path = self.existing(|found| !found.is_symlink())?;
        let least = if path.is_dir() { 0o700 } else { 0o400 };
        let mode = least | self.random.below(0o10_000) as u32;
        self.did(&format!("chmod {} {mode:o}", path.display()))
    }

    fn change_owner(&mut self) -> io::Result<String> {
        let path = self.anything()?;
        let id = 5000 + self.random.below(3) as u32;
        self.did(&format!("chown {} {id} {}", path.display(), id + 1))
    }

    fn change_times(&mut self) -> io::Result<String> {
        let (path, time) = (self.anything()?, self.random.below(1_000_000_000));
        self.did(&format!("times {} {time} {time}", path.display()))
    }

    /// A second name in a directory without a mark is not reported, nor what is written by it. So without
    /// stray links the second name is beside the first, which makes the server watch the file itself.
    fn link(&mut self) -> io::Result<String> {
        let (from, mut to) = (self.existing(|found| !found.is_dir())?, self.name());
        let found = fs::symlink_metadata(&from)?;
        if !self.has_stray_links {
            if self.is_open(found.ino()) {
                return Err(io::ErrorKind::Other.into());
            }
            if found.nlink() == 1 {
                to = from.with_file_name(self.random.pick(&NAMES));
            }
        }
        self.linked(&from, &to)
    }

    fn is_open(&self, number: u64) -> bool {
        let is_it = |file: &File| file.metadata().is_ok_and(|found| found.ino() == number);
        self.writers.iter().any(|(_, file)| is_it(file))
    }

    fn linked(&mut self, from: &Path, to: &Path) -> io::Result<String> {
        self.did(&format!("link {} {}", from.display(), to.display()))
    }

    fn symlink(&mut self) -> io::Result<String> {
        let (path, number) = (self.name(), self.random.below(1000));
        self.did(&format!("symlink target-{number} {}", path.display()))
    }

    fn make_fifo(&mut self) -> io::Result<String> {
        let path = self.name();
        self.did(&format!("fifo {} 644", path.display()))
    }

    fn attribute(&mut self) -> &'static str {
        self.random.pick(&["user.one", "user.two"])
    }

    fn set_attribute(&mut self) -> io::Result<String> {
        let (path, name) = (self.anything()?, self.attribute());
        let value = self.random.number();
        self.did(&format!("setxattr {} {name} {value:x}", path.display()))
    }

    fn remove_attribute(&mut self) -> io::Result<String> {
        let (path, name) = (self.anything()?, self.attribute());
        self.did(&format!("rmxattr {} {name}", path.display()))
    }

    fn set_acl(&mut self) -> io::Result<String> {
        let path = self.existing(|found| found.is_file() || found.is_dir())?;
        let list = acl::List {
            group: self.random.below(8) as u16,
            others: self.random.below(8) as u16,
            mask: Some(self.random.below(8) as u16),
            user: Some((5000, self.random.below(8) as u16)),
            other_group: None,
        };
        let name = if path.is_dir() && self.random.once_in(2) {
            "system.posix_acl_default"
        } else {
            acl::NAME
        };
        rustix::fs::setxattr(&path, name, &list.value_with(&[]), XattrFlags::empty())?;
        told(name, &path)
    }

    fn store_by_map(&mut self) -> io::Result<String> {
        let (path, byte) = (self.file()?, self.random.bytes(1));
        let file = writing().read(true).open(&path)?;
        let length = file.metadata()?.len() as usize;
        if length == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut map = Mapping::new(&file, length, Sharing::Shared)?;
        map.store(self.random.below(length), &byte);
        if self.random.once_in(2) && self.maps.len() < WRITERS_MAX {
            self.maps.push(map);
        }
        told("map store", &path)
    }

    fn open_writer(&mut self) -> io::Result<String> {
        let path = self.file()?;
        let is_stray = fs::symlink_metadata(&path)?.nlink() > 1 && !self.has_stray_links;
        if self.writers.len() == WRITERS_MAX || is_stray {
            return Err(io::ErrorKind::Other.into());
        }
        let file = writing().open(&path)?;
        let what = told("open writer", &path);
        self.writers.push((path, file));
        what
    }

    fn write_by_writer(&mut self) -> io::Result<String> {
        if self.writers.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let bytes = self.bytes();
        let at = self.random.below(self.writers.len());
        let offset = self.random.below(FILE_BYTES_MAX) as u64;
        self.writers[at].1.write_all_at(&bytes, offset)?;
        told_of("write by writer", &self.writers[at])
    }

    /// By a writer that may stay, so that it is written again later.
    fn write_often(&mut self) -> io::Result<String> {
        if self.writers.is_empty() || self.random.once_in(3) {
            self.open_writer()?;
        }
        let at = self.random.below(self.writers.len());
        let offset = self.random.below(FILE_BYTES_MAX - OFTEN) as u64;
        for count in 0..OFTEN {
            let byte = self.random.bytes(1);
            self.writers[at]
                .1
                .write_all_at(&byte, offset + count as u64)?;
            std::thread::sleep(INTERVAL);
        }
        told_of("write often by writer", &self.writers[at])
    }

    fn close_writer(&mut self) -> io::Result<String> {
        if self.writers.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let at = self.random.below(self.writers.len());
        told_of("close writer", &self.writers.swap_remove(at))
    }

    fn change_crowd(&mut self) -> io::Result<String> {
        let crowd = self.source.join(CROWD);
        let changes = self.random.below(CROWD_CHANGES_MAX);
        for _ in 0..changes {
            let path = crowd.join(crowd_name(self.random.below(CROWD_NAMES * 5 / 4)));
            match fs::remove_file(&path) {
                Ok(()) => {}
                Err(_) => fs::write(&path, "")?,
            }
        }
        Ok(format!("{changes} names of {}", crowd.display()))
    }

    /// Of a file whose name is not in memory: no directory gets an event about it. A server without file handles has
    /// a descriptor of each file that is known above, which keeps the name.
    fn change_by_handle(&mut self) -> io::Result<String> {
        let (path, bytes) = (self.file()?, self.bytes());
        let number = ino(&path);
        let source = File::open(&self.source)?;
        let mut file = FileHandleBuf::new();
        let name = CString::new(path.as_os_str().as_bytes())?;
        handle::name_to_handle(CWD, &name, 0, &mut file)?;
        shrink_dcache(&self.outside.join(".."))?;
        let flags = libc::O_RDWR | libc::O_NONBLOCK;
        let file = File::from(handle::open_by_handle(source.as_fd(), &file, flags)?);
        file.write_all_at(&bytes, self.random.below(FILE_BYTES_MAX) as u64)?;
        let mode = 0o400 | self.random.below(0o1000) as u32;
        file.set_permissions(Permissions::from_mode(mode))?;
        Ok(format!("by handle {} #{number} {mode:o}", path.display()))
    }

    fn change_mode_outside(&mut self) -> io::Result<String> {
        let path = self.place_outside();
        if !fs::symlink_metadata(&path)?.is_file() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mode = 0o400 | self.random.below(0o1000) as u32;
        self.did(&format!("chmod {} {mode:o}", path.display()))
    }

    fn place_outside(&mut self) -> PathBuf {
        self.outside.join(self.random.pick(&NAMES))
    }

    fn move_out(&mut self) -> io::Result<String> {
        let (from, to) = (self.anything()?, self.place_outside());
        self.renamed("0", &from, &to)
    }

    fn move_in(&mut self) -> io::Result<String> {
        let (from, to) = (self.place_outside(), self.name());
        if self.depth(&to) > DEPTH_MAX {
            return Err(io::ErrorKind::Other.into());
        }
        self.renamed("0", &from, &to)
    }

    fn link_outside(&mut self) -> io::Result<String> {
        let (from, to) = (self.file()?, self.place_outside());
        self.linked(&from, &to)
    }

    fn write_outside(&mut self) -> io::Result<String> {
        let (path, bytes) = (self.place_outside(), self.bytes());
        if !fs::symlink_metadata(&path)?.is_file() {
            return Err(io::ErrorKind::NotFound.into());
        }
        writing().open(&path)?.write_all_at(&bytes, 0)?;
        told("write outside", &path)
    }
}
