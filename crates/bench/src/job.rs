//! Reads and writes of one file: what is to be done ([`Job`]), and a loop of our own that does it (`own`).
//!
//! Each process has a file of its own, kept for the run ([`kept`](crate::kept)), under a name that is new
//! for each measurement.

pub mod data;
pub(crate) mod own;

use crate::row::needs::Needs;

/// What is done to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// How.
    pub calls: Calls,
    /// Whether it writes.
    pub write: bool,
    /// In random order; every block once before any comes again. Else from the start to the
    /// end.
    pub random: bool,
    /// Bytes of one operation.
    pub block_bytes: u64,
    /// Past all caches (`O_DIRECT`).
    pub direct: bool,
    /// The time lasts until everything is on disk.
    pub fsync: bool,
    /// The file has an extended attribute.
    pub attribute: bool,
    /// Where the data lie.
    pub cache: Cache,
    /// How often the file is gone through; it is opened anew each time. Where what was read once lies in the
    /// cache above, once.
    pub passes: u32,
}

/// By which system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// `pread(2)` and `pwrite(2)`.
    Psync,
    /// The file in memory. It is mapped anew for each pass: a page that was touched is no longer the file
    /// system's matter.
    Mmap,
}

/// Where the data lie when the clock starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// In the cache of the file system beneath, and not in that of the mount: how fast the disk is, is not the
    /// question. (With `O_DIRECT` in neither, as far as the file system beneath can be without.)
    Beneath,
    /// In none.
    Nowhere,
    /// In that of the mount.
    Above,
}

/// Size of the file at the usual amount of work.
pub const FILE_BYTES: u64 = 256 << 20;
/// Bytes.
pub const KIB: u64 = 1 << 10;
/// Bytes.
pub const MIB: u64 = 1 << 20;

impl Job {
    /// Reads of 4 KiB, one after the other, by system calls.
    pub const PLAIN: Job = Job {
        calls: Calls::Psync,
        write: false,
        random: false,
        block_bytes: 4 * KIB,
        direct: false,
        fsync: false,
        attribute: false,
        cache: Cache::Beneath,
        passes: 2,
    };

    /// The same with other blocks, and passes enough that it takes some tenths of a second on a file system in
    /// memory.
    pub const fn blocks(self, block_bytes: u64) -> Job {
        let passes = if block_bytes > 4 * KIB { 5 } else { 2 };
        Job {
            block_bytes,
            passes,
            ..self
        }
    }

    /// The same as a write.
    #[must_use]
    pub const fn write(self) -> Job {
        Job {
            write: true,
            ..self
        }
    }

    /// The same in random order.
    #[must_use]
    pub const fn random(self) -> Job {
        Job {
            random: true,
            ..self
        }
    }

    /// Size of the file: whole megabytes, at least one.
    pub fn file_bytes(&self, percent: usize) -> u64 {
        // The longest row of small blocks is a quarter as long as the others by bytes.
        let whole = if self.block_bytes < 4 * KIB {
            FILE_BYTES / 8
        } else {
            FILE_BYTES
        };
        (whole * percent as u64 / 100 / MIB).max(1) * MIB
    }

    /// What the file is called where it is kept: jobs of which this is the same have the same file.
    pub fn kept(&self, percent: usize) -> String {
        let stem = if self.attribute { "xattr-data" } else { "data" };
        format!("{stem}-{}", self.file_bytes(percent))
    }

    /// How often the file is gone through; see [`Task::once`](crate::task::Task::once).
    pub fn passes(&self, once: bool) -> u32 {
        if once { 1 } else { self.passes }
    }

    /// What a process needs for it: the file, and the one by which it warms up.
    #[must_use]
    pub fn needs(&self, percent: usize) -> Needs {
        Needs {
            bytes: self.file_bytes(percent) + self.file_bytes(0),
            inodes: 6,
        }
    }

    /// For people: `random write 4 KiB, O_DIRECT`.
    pub fn title(&self) -> String {
        let mut title = String::new();
        if self.random {
            title.push_str("random ");
        }
        title.push_str(if self.write { "write " } else { "read " });
        title.push_str(&amount(self.block_bytes));
        let more = [
            (self.direct, "O_DIRECT"),
            (self.calls == Calls::Mmap, "mmap"),
            (self.attribute, "file with an xattr"),
            (self.fsync, "fsync at close"),
            (self.cache == Cache::Nowhere, "nothing cached"),
            (self.cache == Cache::Above, "cached"),
        ];
        for (_, what) in more.iter().filter(|(is, _)| *is) {
            title.push_str(", ");
            title.push_str(what);
        }
        title
    }

    /// For people: what one operation is, and what is cached.
    pub fn about(&self) -> String {
        let block = amount(self.block_bytes);
        let how = match (self.calls, self.write) {
            (Calls::Psync, false) => format!("pread(2) of {block}"),
            (Calls::Psync, true) => format!("pwrite(2) of {block} over what is there"),
            (Calls::Mmap, false) => format!("copying {block} out of a shared mapping"),
            (Calls::Mmap, true) => format!("copying {block} into a shared mapping"),
        };
        let order = if self.random {
            "in random order, every block once before any comes again"
        } else {
            "from the start to the end"
        };
        let cached = match self.cache {
            _ if self.direct => "past all caches (O_DIRECT)",
            Cache::Beneath => "in the cache of the file system beneath, not in that of the mount",
            Cache::Nowhere => "in no cache",
            Cache::Above => "in the mount's cache",
        };
        let mut about = format!("One operation is {how}, {order}. The data are {cached}.");
        if self.fsync {
            about.push_str(" The time includes fsync(2) when the file is closed.");
        }
        if self.attribute {
            about.push_str(
                " The file has an extended attribute (user.bench): a mount that does not take care asks \
                 for security.capability before every write.",
            );
        }
        about
    }

    /// Offsets of one pass through a file of this size.
    pub fn offsets(&self, file_bytes: u64) -> Vec<u64> {
        let count = file_bytes / self.block_bytes;
        let mut order: Vec<u64> = (0..count).map(|block| block * self.block_bytes).collect();
        if self.random {
            shuffle(&mut order);
        }
        order
    }
}

impl Calls {
    /// As fio calls them.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Calls::Psync => "psync",
            Calls::Mmap => "mmap",
        }
    }
}

/// An order that no readahead foresees, the same in every run.
fn shuffle(order: &mut [u64]) {
    // Fisher and Yates, with the generator of Knuth's MMIX.
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    for last in (1..order.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (state >> 33) as usize % (last + 1));
    }
}

/// `4 KiB`, `1 MiB`, `512 bytes`.
fn amount(bytes: u64) -> String {
    match bytes {
        _ if bytes >= MIB => format!("{} MiB", bytes / MIB),
        _ if bytes >= KIB => format!("{} KiB", bytes / KIB),
        _ => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Cache, Job, KIB, MIB};

    #[test]
    fn every_block_comes_once_in_order_or_not() {
        let blocks: Vec<u64> = (0..256).map(|block| block * 4096).collect();
        assert_eq!(Job::PLAIN.offsets(MIB), blocks);
        let mut random = Job::PLAIN.random().offsets(MIB);
        assert_ne!(random, blocks);
        let neighbours = random.windows(2).filter(|two| two[0] + 4096 == two[1]);
        assert!(neighbours.count() < 16);
        random.sort_unstable();
        assert_eq!(random, blocks);
    }

    #[test]
    fn a_file_is_whole_megabytes() {
        assert_eq!(Job::PLAIN.file_bytes(100), 256 << 20);
        assert_eq!(Job::PLAIN.file_bytes(10), 25 << 20);
        assert_eq!(Job::PLAIN.file_bytes(0), 1 << 20);
        assert_eq!(Job::PLAIN.blocks(512).file_bytes(100), 32 << 20);
    }

    #[test]
    fn titles_say_what_differs() {
        let direct = Job {
            direct: true,
            ..Job::PLAIN
        };
        let title = direct.random().write().title();
        assert_eq!(title, "random write 4 KiB, O_DIRECT");
        let cold = Job {
            cache: Cache::Nowhere,
            ..Job::PLAIN.blocks(128 * KIB)
        };
        assert_eq!(cold.title(), "read 128 KiB, nothing cached");
        assert_eq!(Job::PLAIN.blocks(512).title(), "read 512 bytes");
    }
}
