//! One of many processes that do all there is to one file, while the policy above it changes.
//!
//! A file `STATE` says which policy is in force: a number, and `redacting` where the file is sure to be
//! redacted for every open that begins and ends while it says so; or `end`.
//!
//! What holds whatever the others do: no call fails with EIO, the place is not in what such an open
//! gives, and the size of an open file is never smaller than one that was seen before, since nobody cuts
//! the file. Nobody links it either: the kernel believes the size in the answer to LINK, however old it
//! is (seen on Linux 6.18).

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

/// What others do, and rules, may bring about.
const EXPECTED: [i32; 5] = [
    libc::ENOENT,
    libc::EBUSY,
    // A file that is read directly cannot be mapped shared.
    libc::ENODEV,
    // Of the rule that denies.
    libc::EPERM,
    // Nobody writes into a redacted file.
    libc::EACCES,
];

/// See the module.
pub struct Racer {
    names: [PathBuf; 2],
    original: Vec<u8>,
    state: PathBuf,
    random: Random,
    /// The largest size that was seen.
    length: u64,
    /// How many opens were looked at that had to be redacted.
    checked: u64,
}

impl Racer {
    /// Works on `a` and `b` in `directory`, which are one file with the content of `original`.
    ///
    /// # Errors
    ///
    /// When the original cannot be read, or the seed is no number.
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

    /// Goes on until the state says `end`. What went wrong, or "ok" and how much was checked.
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

    /// Opens, and tells whether what is read must be redacted.
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
        // It stays, without the file.
        drop(file);
        // Not what was appended: what lies behind a size that the kernel takes for a smaller one, be it
        // for a moment, is SIGBUS.
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

    /// Writes what is there already, as seen by who may see it.
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
