//! One process of many that open, change and rename a few names in every way, and the invariants that each
//! checks.
//!
//! `shared-*` are opened with every combination of flags, mapped, truncated, renamed onto one another,
//! linked, removed. `growing` is only appended to: its size is never less than what the process itself has
//! written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use thrufs_testing::Random;
use thrufs_testing::fence::mapping::{Mapping, Sharing};

pub struct Racer {
    dir: PathBuf,
    random: Random,
    growing_seen: u64,
    stale: u64,
}

const SHARED: u64 = 3;

impl Racer {
    /// Works in `dir` with random decisions of its own.
    pub fn new(dir: &Path, seed: u64) -> Self {
        Self {
            dir: dir.to_owned(),
            random: Random(seed),
            growing_seen: 0,
            stale: 0,
        }
    }

    /// How many creating opens failed with ESTALE: others removed or made the name between LOOKUP and OPEN,
    /// twice in a row. No other call may.
    pub fn stale(&self) -> u64 {
        self.stale
    }

    fn pick(&mut self, count: u64) -> u64 {
        self.random.below(count as usize) as u64
    }

    fn shared(&mut self) -> PathBuf {
        let at = self.pick(SHARED);
        self.dir.join(format!("shared-{at}"))
    }

    /// Does one thing. The error is a violated invariant; errors that other processes cause (a name that is
    /// gone) are none.
    pub fn step(&mut self) -> Result<(), String> {
        let (what, outcome) = match self.pick(12) {
            0 => ("rename", self.rename()),
            1 => ("link", self.link()),
            2 => ("remove", fs::remove_file(self.shared())),
            3 => ("chmod", self.change_mode()),
            4 => ("truncate", self.open_to_truncate()),
            5 | 6 => ("grow", self.grow()),
            _ => ("open", self.open_and_use()),
        };
        match outcome {
            Ok(()) => Ok(()),
            Err(error) if is_by_others(&error) => Ok(()),
            Err(error) => Err(format!("{what}: {error}")),
        }
    }

    fn rename(&mut self) -> io::Result<()> {
        let (from, to) = (self.shared(), self.shared());
        fs::rename(from, to)
    }

    fn link(&mut self) -> io::Result<()> {
        let (from, to) = (self.shared(), self.shared());
        fs::hard_link(from, to)
    }

    fn change_mode(&mut self) -> io::Result<()> {
        let mode = [0o644, 0o4755, 0o2755, 0o600][self.pick(4) as usize];
        fs::set_permissions(self.shared(), fs::Permissions::from_mode(mode))
    }

    fn open_to_truncate(&mut self) -> io::Result<()> {
        let len = self.pick(50_000);
        let file = OpenOptions::new().write(true).open(self.shared())?;
        file.set_len(len).map_err(of_an_open_file)
    }

    fn open(&mut self) -> io::Result<(File, bool)> {
        const EXTRA: [i32; 6] = [
            0,
            libc::O_TRUNC,
            libc::O_APPEND,
            libc::O_DIRECT,
            libc::O_NONBLOCK,
            libc::O_SYNC | libc::O_TRUNC,
        ];
        let writes = self.pick(3) != 0;
        let reads = !writes || self.pick(2) == 0;
        let extra = EXTRA[self.pick(EXTRA.len() as u64) as usize];
        let mut options = OpenOptions::new();
        options.read(reads).write(writes).custom_flags(extra);
        if writes {
            // Made anew when it was removed.
            options.create(true).truncate(false);
        }
        let opened = options.open(self.shared());
        if writes && opened.as_ref().err().and_then(io::Error::raw_os_error) == Some(libc::ESTALE) {
            self.stale += 1;
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        Ok((opened?, writes && extra & libc::O_DIRECT == 0))
    }

    fn open_and_use(&mut self) -> io::Result<()> {
        let (file, writes) = self.open()?;
        self.use_open(&file, writes).map_err(of_an_open_file)
    }

    fn use_open(&mut self, file: &File, writes: bool) -> io::Result<()> {
        if writes {
            let at = self.pick(40_000);
            file.write_all_at(&[b'x'; 500], at)?;
        } else {
            file.read_at(&mut [0; 512], 0)
                .map(drop)
                .or_else(unless_write_only)?;
        }
        // Not touched: a truncation by another process makes it SIGBUS.
        let sharing = if self.pick(2) == 0 {
            Sharing::SharedRead
        } else {
            Sharing::Private
        };
        drop(Mapping::new(file, 4_096, sharing));
        file.metadata()?;
        match self.pick(4) {
            0 => file.sync_data(),
            1 => {
                drop(file.try_clone()?);
                file.metadata().map(drop)
            }
            _ => Ok(()),
        }
    }

    fn grow(&mut self) -> io::Result<()> {
        let path = self.dir.join("growing");
        let mut file = OpenOptions::new().append(true).create(true).open(&path)?;
        file.write_all(b"0123456789")?;
        let seen = file.metadata()?.len();
        if seen < self.growing_seen + 10 {
            return Err(io::Error::other(format!(
                "a stale size: {seen} bytes, after 10 more than {}",
                self.growing_seen
            )));
        }
        // Bytes that others write may be seen by one read and not by the next.
        let written = file.stream_position()?;
        let again = fs::metadata(&path)?.len();
        if seen < written || again < written {
            return Err(io::Error::other(format!(
                "a stale size: {seen} and {again} bytes when {written} were written"
            )));
        }
        self.growing_seen = written;
        Ok(())
    }
}

/// Names come and go. And a program that is being executed, a full table: not here.
fn is_by_others(error: &io::Error) -> bool {
    [libc::ENOENT, libc::EEXIST]
        .map(Some)
        .contains(&error.raw_os_error())
}

/// Other processes cause no error of an open file.
fn of_an_open_file(error: io::Error) -> io::Error {
    io::Error::other(format!("of an open file: {error}"))
}

/// EBADF by this process's own flags.
fn unless_write_only(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        // Direct I/O wants aligned memory.
        Some(libc::EBADF | libc::EINVAL) => Ok(()),
        _ => Err(error),
    }
}
