//! Readers above: what they ask for, the kernel keeps.

use crate::changes::{CROWD, NAMES};
use std::sync::Mutex;
use thrufs_testing::xattrs;
use thrufs_tests::prelude::*;

/// Files that are held open.
const HELD_MAX: usize = 8;

/// Open files above, by whoever opened them.
pub type Held = Arc<Mutex<Vec<Arc<File>>>>;

/// What ends readers, and makes them pause.
#[derive(Default)]
pub struct Signals {
    pub ends: AtomicBool,
    pub pauses: AtomicBool,
}

pub struct Reader {
    pub random: Random,
    pub mnt: PathBuf,
    pub held: Held,
}

impl Reader {
    pub fn run(mut self, signals: &Signals) {
        while !signals.ends.load(Ordering::SeqCst) {
            if signals.pauses.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_micros(200));
                continue;
            }
            self.one();
            if self.random.once_in(3) {
                thread::sleep(Duration::from_micros(self.random.below(500) as u64));
            }
        }
    }

    /// One question. Names may have gone meanwhile.
    fn one(&mut self) {
        let mut path = self.mnt.clone();
        for _ in 0..self.random.below(4) {
            path.push(self.random.pick(&NAMES));
        }
        match self.random.below(10) {
            0 | 1 => drop(fs::symlink_metadata(&path)),
            2 => drop(fs::read_dir(&path).map(Iterator::count)),
            3 => list_with_types(&path),
            4 => read_if_regular(&path),
            5 => self.hold(&path),
            6 => self.use_held(),
            8 => self.list_in_part(&path),
            9 => self.list_in_part(&self.mnt.join(CROWD)),
            _ => drop((xattrs(&path), fs::read_link(&path))),
        }
    }

    /// As `ls | head`, and two at once.
    fn list_in_part(&mut self, path: &Path) {
        let mut listings: Vec<_> = (0..2).filter_map(|_| fs::read_dir(path).ok()).collect();
        let looks = self.random.once_in(2);
        for _ in 0..self.random.below(5) {
            let most = self.random.below(400);
            for listing in &mut listings {
                for entry in listing.by_ref().take(most).flatten() {
                    if looks {
                        let _ = entry.metadata();
                    }
                }
            }
        }
    }

    fn hold(&mut self, path: &Path) {
        if !fs::symlink_metadata(path).is_ok_and(|found| found.is_file()) {
            return;
        }
        let Some(file) = open_regular(path) else {
            return;
        };
        let mut held = self.held.lock().unwrap();
        if held.len() == HELD_MAX {
            let at = self.random.below(HELD_MAX);
            held.swap_remove(at);
        }
        held.push(Arc::new(file));
    }

    fn use_held(&mut self) {
        let held = self.held.lock().unwrap();
        if held.is_empty() {
            return;
        }
        let file = Arc::clone(&held[self.random.below(held.len())]);
        drop(held);
        let _ = file.metadata();
        let offset = self.random.below(20_000) as u64;
        let _ = file.read_at(&mut [0; 5000], offset);
    }
}

/// As `ls -l`.
fn list_with_types(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let _ = entry.file_type();
        let _ = entry.metadata();
    }
}

/// A name may become that of a fifo, whose opening must not wait.
pub fn open_regular(path: &Path) -> Option<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    file.metadata().ok()?.is_file().then_some(file)
}

fn read_if_regular(path: &Path) {
    if let Some(mut file) = open_regular(path) {
        let _ = io::copy(&mut file, &mut io::sink());
    }
}
