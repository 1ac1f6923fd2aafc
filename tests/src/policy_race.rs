//! One of many processes that do everything to one file while the policy changes.
//!
//! A file `STATE` names the policy in force: a number, with `redacting` if every open that begins and ends
//! meanwhile must be redacted; or `end`.
//!
//! Invariants: no call fails with EIO; such an open does not show the place; the size of an open file never
//! shrinks, since no process truncates it. Nor does one link it: the kernel caches the size in the answer
//! to LINK, however old it is (seen on Linux 6.18).

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use thrufs_testing::Random;
use thrufs_testing::fence::mapping::{Mapping, Sharing};

/// What is in the original and in nothing that is redacted.
pub const SECRET: &[u8] = b"48.137154";

/// How large the file may become.
const LENGTH_MAX: u64 = 256 * 1024;

/// Errors that other processes and rules may cause.
const EXPECTED: [i32; 5] = [
    libc::ENOENT,
    libc::EBUSY,
    // A file that is read directly cannot be mapped shared.
    libc::ENODEV,
    // A rule that denies.
    libc::EPERM,
    // Redacted files are not writable.
    libc::EACCES,
];

pub struct Racer {
    names: [PathBuf; 2],
    original: Vec<u8>,
    state: PathBuf,
    random: Random,
    length: u64,
    /// Opens that had to be redacted.
    checked: u64,
}

impl Racer {
    /// Works on `a` and `b` in `directory`, which are one file with the content of `original`.
    pub fn new(directory: &str, original: &str, state: &str, seed: &str) -> io::Result<Self> {
        let directory = Path::new(directory);
        let seed: u64 = seed.parse().map_err(io::Error::other)?;
        Ok(Self {
            names: ["a", "b"].map(|name| directory.join(name)),
            original: fs::read(original)?,
            state: state.into(),
            random: Random(seed),
            length: 0,
            checked: 0,
        })
    }

    /// Runs until the state says `end`. Returns a fault, or "ok" and the number of checked opens.
    pub fn run(mut self) -> String {
        loop {
            let state = self.state();
            if state == "end" {
                return format!("ok {}", self.checked);
            }
            match self.one(&state) {
                Err(error) if EXPECTED.contains(&error.raw_os_error().unwrap_or(0)) => {}
                Err(error) => return format!("{error} under {state}, then {}", self.state()),
                Ok(()) => {}
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    fn state(&self) -> String {
        fs::read_to_string(&self.state).unwrap_or_default()
    }

    fn pick(&mut self, below: u64) -> u64 {
        self.random.below(below as usize) as u64
    }

    fn one(&mut self, state: &str) -> io::Result<()> {
        let [this, other] = if self.pick(2) == 0 { [0, 1] } else { [1, 0] };
        let (path, other) = (self.names[this].clone(), self.names[other].clone());
        match self.pick(10) {
            0..=2 => self.read(&path, state),
            3 | 4 => self.map(&path, state),
            5 => self.write(&path),
            6 => self.append(&path),
            7 => fs::rename(path, other),
            8 => {
                let mode = [0o644, 0o600][self.pick(2) as usize];
                fs::set_permissions(path, Permissions::from_mode(mode))
            }
            _ => fs::metadata(path).map(drop),
        }
    }

    /// Opens, and returns whether what is read must be redacted.
    fn open(&self, path: &Path, state: &str) -> io::Result<(File, bool)> {
        let file = File::open(path)?;
        Ok((file, state.ends_with("redacting") && self.state() == state))
    }

    fn read(&mut self, path: &Path, state: &str) -> io::Result<()> {
        let (mut file, must_be_clean) = self.open(path, state)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        self.check(&bytes, must_be_clean, "read")?;
        self.saw(file.metadata()?.len(), "fstat")
    }

    fn map(&mut self, path: &Path, state: &str) -> io::Result<()> {
        let (file, must_be_clean) = self.open(path, state)?;
        let length = file.metadata()?.len();
        self.saw(length, "fstat")?;
        let sharing = [Sharing::Private, Sharing::SharedRead][self.pick(2) as usize];
        let mapping = Mapping::new(&file, length as usize, sharing)?;
        // The map stays without the file.
        drop(file);
        // Without what was appended: touching a page behind the size that the kernel has, be it for a
        // moment, is SIGBUS.
        let certain = self.original.len();
        self.check(&mapping.load(0, certain), must_be_clean, "map")
    }

    fn check(&mut self, bytes: &[u8], must_be_clean: bool, how: &str) -> io::Result<()> {
        self.checked += u64::from(must_be_clean);
        if must_be_clean && bytes.windows(SECRET.len()).any(|part| part == SECRET) {
            return Err(io::Error::other(format!("{how}: the place is there")));
        }
        Ok(())
    }

    /// Writes what is there already.
    fn write(&mut self, path: &Path) -> io::Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let at = self.pick(self.original.len() as u64 - 100) as usize;
        file.write_all_at(&self.original[at..at + 100], at as u64)?;
        self.saw(file.metadata()?.len(), "fstat after a write")
    }

    fn append(&mut self, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).open(path)?;
        let before = file.metadata()?.len();
        if before < LENGTH_MAX {
            file.write_all(&[b'.'; 10])?;
            self.saw(before + 10, "append")?;
        }
        self.saw(file.metadata()?.len(), "fstat after an append")
    }

    fn saw(&mut self, length: u64, how: &str) -> io::Result<()> {
        if length < self.length {
            let lengths = format!("{length} after {}", self.length);
            return Err(io::Error::other(format!("{how}: a stale size, {lengths}")));
        }
        self.length = length;
        Ok(())
    }
}
