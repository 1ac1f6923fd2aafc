//! Random changes beneath: the operations of the property tests, and what only following is about.

use crate::soak::Soak;
use std::collections::VecDeque;
use std::ffi::CString;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use thrufs_sys::handle::{self, FileHandleBuf};
use thrufs_testing::steps::Steps;
use thrufs_tests::prelude::*;
use thrufs_tests::property;

/// The names that anything may have. Only a fifo has the last one: no other call may wait in its opening.
pub const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "p"];

/// Files that are held open for writing, as [`property::call`] names them, and stores through maps.
const WRITERS: [&str; 4] = ["@0", "@1", "@2", "@3"];
const MAPS: [&str; 4] = ["@map0", "@map1", "@map2", "@map3"];

/// Writes to one file, at intervals in which one is reported by itself: more than it takes until the server wants
/// no more events about it.
const OFTEN: usize = 40;
const INTERVAL: Duration = Duration::from_micros(1200);

/// A directory of more names than one request returns, and how many there are at first.
pub const CROWD: &str = "crowd";
const CROWD_NAMES: usize = 1500;
const CROWD_CHANGES_MAX: usize = 60;

/// Calls that are kept for a report.
const CALLS_MAX: usize = 60;

/// How often a change is tried: many fail.
const TRIES_MAX: usize = 8;

/// Calls of the property tests that change nothing.
const READS: [&str; 6] = ["cat", "readlink", "getxattr", "list", "state", "fsync"];

/// Kinds of changes beside those of the property tests, and the first that is made by a name in a directory which is
/// not served.
const KINDS: usize = 16;
const OUTSIDE: usize = 13;

/// The name in the crowd with a number, long enough for few to fit in one request.
fn crowd_name(number: usize) -> String {
    format!("one-of-many-names-{number:05}")
}

pub struct Changes<'a> {
    soak: &'a Soak,
    source: PathBuf,
    random: Random,
    /// By the source, and by other servers of it.
    roots: Vec<Steps>,
    calls: VecDeque<String>,
    pub count: u64,
}

impl Changes<'_> {
    pub fn new(soak: &Soak) -> Changes<'_> {
        let source = soak.order.source.clone();
        let crowd = source.join(CROWD);
        fs::create_dir(&crowd).unwrap();
        (0..CROWD_NAMES).for_each(|it| fs::write(crowd.join(crowd_name(it)), "").unwrap());
        let roots = [&source].into_iter().chain(&soak.writable);
        let roots = roots.map(|root| Steps::new(root.clone(), root.clone()));
        let mut changes = Changes {
            soak,
            random: Random(soak.order.seed),
            roots: roots.collect(),
            calls: VecDeque::new(),
            count: 0,
            source,
        };
        for call in property::PRELUDE {
            changes.call(0, call).unwrap();
        }
        changes
    }

    /// One change.
    pub fn one(&mut self) {
        let Some(call) = (0..TRIES_MAX).find_map(|_| self.any().ok()) else {
            return;
        };
        self.count += 1;
        self.calls.push_back(call);
        if self.calls.len() > CALLS_MAX {
            self.calls.pop_front();
        }
    }

    fn any(&mut self) -> io::Result<String> {
        if self.random.once_in(3) {
            return self.other();
        }
        let call = property::call(&mut self.random);
        if READS.iter().any(|word| call.starts_with(word)) {
            return Err(io::ErrorKind::Other.into());
        }
        let root = match self.random.once_in(3) {
            true => self.random.below(self.roots.len()),
            false => 0,
        };
        self.call(root, &call)
    }

    /// The last calls.
    pub fn history(&self) -> String {
        Vec::from_iter(self.calls.iter().map(String::as_str)).join("\n    ")
    }

    /// Stores through maps are promised once those are closed.
    pub fn close_maps(&mut self) {
        for map in MAPS {
            self.roots[0].call(&["close", map]).unwrap();
        }
    }

    fn call(&mut self, root: usize, call: &str) -> io::Result<String> {
        let mut words: Vec<&str> = call.split_whitespace().collect();
        // A server without privilege must be able to open what it watches.
        let sets_mode = matches!(words[0], "dir" | "chmod") || call.contains("creat");
        let mode = words.last().filter(|_| sets_mode && words.len() > 2);
        let mode = mode.and_then(|word| u32::from_str_radix(word, 8).ok());
        let mode = mode.map(|mode| format!("{:o}", mode | 0o700));
        if let (Some(mode), Some(last)) = (&mode, words.last_mut()) {
            *last = mode;
        }
        if !self.soak.has_stray_links && self.is_stray(&words) {
            return Err(io::ErrorKind::Other.into());
        }
        self.roots[root].call(&words)?;
        Ok(format!("{root} {}", words.join(" ")))
    }

    /// A second name in a directory without a mark is not reported, nor what is written by it. A second name beside the
    /// first makes the server watch the file itself.
    fn is_stray(&self, words: &[&str]) -> bool {
        match *words {
            ["open", writer, path, ..] if writer.starts_with('@') => {
                fs::metadata(self.source.join(path)).is_ok_and(|found| found.nlink() > 1)
            }
            ["link", from, to] => {
                let Ok(found) = fs::symlink_metadata(self.source.join(from)) else {
                    return false;
                };
                let is_open = WRITERS.iter().any(|writer| {
                    let open = self.roots[0].stat(writer);
                    open.is_ok_and(|open| open.st_ino == found.ino())
                });
                is_open || found.nlink() == 1 && Path::new(from).parent() != Path::new(to).parent()
            }
            _ => false,
        }
    }

    /// What the property tests do not do.
    fn other(&mut self) -> io::Result<String> {
        let kinds = if self.soak.has_stray_links {
            KINDS
        } else {
            OUTSIDE
        };
        let path = self.random.pick(&property::PATHS);
        let outside = format!("../outside/{}", self.random.pick(&NAMES[..6]));
        let call = match self.random.below(kinds) {
            0 => {
                let id = 5000 + self.random.below(3);
                format!("chown {path} {id} {}", id + 1)
            }
            1 => {
                let calls = [
                    "fifo p 644",
                    "unlink p",
                    "rename2 0 p d/p",
                    "rename2 0 d/p p",
                ];
                self.random.pick(&calls).to_owned()
            }
            2 => return self.set_acl(path),
            3 => return self.store_by_map(path),
            4 | 5 => return self.write_often(path),
            6 => {
                let path = self.source.join(path);
                fs::remove_dir_all(&path)?;
                return Ok(format!("rm -r {}", path.display()));
            }
            7 | 8 => return self.change_crowd(),
            9 => format!("rename2 0 {path} {outside}"),
            10 => format!("rename2 0 {outside} {path}"),
            11 => {
                let (writer, start) = (self.random.pick(&WRITERS), self.random.below(20_000));
                format!("allocate {writer} {start} 5000 punch,keep")
            }
            12 if self.soak.shows_handles() => return self.change_by_handle(path),
            12 => format!("truncate {path} 0"),
            13 => format!("link {path} {outside}"),
            14 => format!("fill {outside} 0 {} 7", self.random.below(9000)),
            _ => format!("chmod {outside} {:o}", self.random.below(0o1000)),
        };
        self.call(0, &call)
    }

    fn set_acl(&mut self, path: &str) -> io::Result<String> {
        let list = acl::List {
            group: self.random.below(8) as u16,
            others: self.random.below(8) as u16,
            mask: Some(self.random.below(8) as u16),
            user: Some((5000, self.random.below(8) as u16)),
            other_group: None,
        };
        let at = self.source.join(path);
        let name = if at.is_dir() && self.random.once_in(2) {
            "system.posix_acl_default"
        } else {
            acl::NAME
        };
        rustix::fs::lsetxattr(&at, name, &list.value_with(&[]), XattrFlags::empty())?;
        Ok(format!("{name} {path}"))
    }

    fn store_by_map(&mut self, path: &str) -> io::Result<String> {
        let mapped = self.call(0, &format!("open @mapped {path} rw"))?;
        let length = self.roots[0].stat("@mapped")?.st_size as usize;
        if length > 0 {
            let (map, at) = (self.random.pick(&MAPS), self.random.below(length));
            self.call(0, &format!("map {map} @mapped {length} shared"))?;
            self.call(0, &format!("store {map} {at} s"))?;
        }
        self.call(0, "close @mapped")?;
        Ok(format!("{mapped} store"))
    }

    /// By a writer that stays, so that it is written again later.
    fn write_often(&mut self, path: &str) -> io::Result<String> {
        let writer = self.random.pick(&WRITERS);
        let opened = self.call(0, &format!("open {writer} {path} rw"))?;
        let offset = self.random.below(20_000);
        for count in 0..OFTEN {
            let byte = self.random.below(256);
            self.call(0, &format!("fill {writer} {} 1 {byte}", offset + count))?;
            thread::sleep(INTERVAL);
        }
        Ok(format!("{opened} often"))
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
        Ok(format!("{changes} names of {CROWD}"))
    }

    /// Of a file whose name is not in memory: no directory gets an event about it. A server without file handles has
    /// a descriptor of each file that is known above, which keeps the name.
    fn change_by_handle(&mut self, path: &str) -> io::Result<String> {
        let at = self.source.join(path);
        if !fs::symlink_metadata(&at)?.is_file() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let source = File::open(&self.source)?;
        let mut file = FileHandleBuf::new();
        let name = CString::new(at.as_os_str().as_bytes())?;
        handle::name_to_handle(CWD, &name, 0, &mut file)?;
        shrink_dcache(&self.soak.outside.join(".."))?;
        let file = File::from(handle::open_by_handle(source.as_fd(), &file, libc::O_RDWR)?);
        file.write_all_at(b"by handle", self.random.below(20_000) as u64)?;
        let mode = 0o400 | self.random.below(0o1000) as u32;
        file.set_permissions(Permissions::from_mode(mode))?;
        Ok(format!("by handle {path} {mode:o}"))
    }
}
