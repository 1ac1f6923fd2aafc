//! Programs above, beneath, and by other servers of the same tree, that count in files under locks of fcntl(2), as
//! databases do. Whoever has the lock of a counter must find what the last one has stored.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use thrufs_testing::Random;
use thrufs_testing::fence::mapping::{Mapping, Sharing};
use thrufs_testing::fence::record_lock::{self, Kind, Owner, Range};

use crate::readers::Signals;

const FILES: [&str; 4] = ["mapped", "ranges", "far", "log"];

/// Two pages.
const FILE_BYTES: usize = 8192;

/// Where each file has counters: some share a page.
const PLACES: [usize; 3] = [8, 24, 4096];

/// Most increments by one open file.
const OPEN_MAX: usize = 30;

/// How a counter is locked and stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    /// By its own range, and stored by a map where there is one, as SQLite's `-shm` file: times do not tell of that.
    Map,
    /// By its own range, and stored by a map or not.
    Range,
    /// Above one gibibyte, as SQLite locks a database.
    Far,
    /// By a range of another file, as SQLite locks the log of a database.
    OtherFile,
}

const GUARDS: [Guard; 4] = [Guard::Map, Guard::Range, Guard::Far, Guard::OtherFile];

impl Guard {
    /// The file that is locked, and where. The counter is in the file of the guard's own number.
    fn lock_of(self, place: usize) -> (usize, Range) {
        let (file, start) = match self {
            Guard::Map | Guard::Range => (self as usize, place),
            Guard::Far => (self as usize, (1 << 30) + place),
            Guard::OtherFile => (Guard::Range as usize, FILE_BYTES + place),
        };
        let start = start as i64;
        (file, Range { start, len: 8 })
    }

    fn is_mapped(self) -> bool {
        matches!(self, Guard::Map | Guard::Range)
    }
}

#[derive(Default)]
pub struct Counted {
    /// What was counted, and by whom last.
    counts: [[Mutex<(u64, String)>; PLACES.len()]; GUARDS.len()],
    pub lost: AtomicU64,
}

impl Counted {
    /// Makes the files.
    pub fn new(source: &Path) -> Arc<Counted> {
        for name in FILES {
            fs::write(source.join(name), [0; FILE_BYTES]).unwrap();
        }
        Arc::default()
    }

    pub fn sum(&self) -> u64 {
        let counts = self.counts.iter().flatten();
        counts.map(|count| count.lock().unwrap().0).sum()
    }
}

/// What a program has open.
struct Open {
    files: [File; FILES.len()],
    maps: [Option<Mapping>; FILES.len()],
}

impl Open {
    /// Refused where a program beneath has the file open for writing.
    fn map(&mut self, guard: Guard) -> io::Result<()> {
        let file = guard as usize;
        match Mapping::new(&self.files[file], FILE_BYTES, Sharing::Shared) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
            map => self.maps[file] = Some(map?),
        }
        Ok(())
    }

    fn load(&self, guard: Guard, at: usize, by_map: bool) -> io::Result<u64> {
        let mut bytes = [0; 8];
        match &self.maps[guard as usize] {
            Some(map) if by_map => bytes.copy_from_slice(&map.load(at, 8)),
            _ => self.files[guard as usize].read_exact_at(&mut bytes, at as u64)?,
        }
        Ok(u64::from_le_bytes(bytes))
    }

    fn store(&mut self, guard: Guard, at: usize, by_map: bool, count: u64) -> io::Result<()> {
        match &mut self.maps[guard as usize] {
            Some(map) if by_map => map.store(at, &count.to_le_bytes()),
            _ => self.files[guard as usize].write_all_at(&count.to_le_bytes(), at as u64)?,
        }
        Ok(())
    }
}

/// A program: a thread with open files of its own.
pub struct Program {
    pub random: Random,
    pub root: PathBuf,
    /// Whether the kernel above drops the pages of a map when a file is locked: that of a guest does not.
    pub may_map_first: bool,
    pub counted: Arc<Counted>,
}

impl Program {
    /// Counts until it is ended, and then each once more.
    pub fn run(mut self, signals: &Signals) {
        let ends = || signals.ends.load(Ordering::SeqCst);
        while !ends() {
            let mut open = self.open().unwrap();
            for _ in 0..=self.random.below(OPEN_MAX) {
                let (guard, place) = (self.random.pick(&GUARDS), self.random.below(PLACES.len()));
                let waits = self.random.once_in(2);
                self.count(&mut open, guard, place, waits).unwrap();
                // What is read without a lock may be anything, and the kernel keeps it.
                let (guard, at) = (self.random.pick(&GUARDS), self.random.pick(&PLACES));
                open.load(guard, at, self.random.once_in(2)).unwrap();
                self.pause(3000);
                if ends() {
                    break;
                }
            }
            drop(open);
            self.pause(40_000);
        }
        let mut open = self.open().unwrap();
        for guard in GUARDS {
            (0..PLACES.len()).for_each(|it| self.count(&mut open, guard, it, true).unwrap());
        }
    }

    fn pause(&mut self, most_us: usize) {
        thread::sleep(Duration::from_micros(self.random.below(most_us) as u64));
    }

    fn open(&mut self) -> io::Result<Open> {
        let mut options = File::options();
        let options = options.read(true).write(true);
        let [a, b, c, d] = FILES.map(|name| options.open(self.root.join(name)));
        let (files, maps) = ([a?, b?, c?, d?], Default::default());
        let mut open = Open { files, maps };
        for guard in GUARDS {
            if self.may_map_first && guard.is_mapped() && self.random.once_in(2) {
                open.map(guard)?;
            }
        }
        Ok(open)
    }

    fn count(
        &mut self,
        open: &mut Open,
        guard: Guard,
        place: usize,
        waits: bool,
    ) -> io::Result<()> {
        let at = PLACES[place];
        let (locked, range) = guard.lock_of(at);
        let set = |open: &Open, kind, waits| {
            let file = open.files[locked].as_fd();
            record_lock::set(file, Owner::Description, kind, range, waits)
        };
        match set(open, Kind::Write, waits) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            set => set?,
        }
        let always = guard == Guard::Map;
        let has_map = |open: &Open| open.maps[guard as usize].is_some();
        if guard.is_mapped() && !has_map(open) && (always || self.random.once_in(4)) {
            open.map(guard)?;
        }
        let loads = has_map(open) && self.random.once_in(2);
        let stores = has_map(open) && (always || self.random.once_in(2));
        let by = |map| format!("{} (map: {map})", self.root.display());
        let found = open.load(guard, at, loads)?;
        let mut count = self.counted.counts[guard as usize][place].lock().unwrap();
        let (expected, last) = &*count;
        if *expected != found {
            self.counted.lost.fetch_add(1, Ordering::SeqCst);
            let by = by(loads);
            eprintln!("LOST: {guard:?} at {at}: {by} found {found} for {expected} of {last}");
        }
        *count = (expected + 1, by(stores));
        open.store(guard, at, stores, count.0)?;
        drop(count);
        set(open, Kind::Unlock, false)
    }
}
