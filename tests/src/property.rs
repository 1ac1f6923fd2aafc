//! Random sequences of operations on a tree and on a native twin: the same result at every step, and the
//! same tree at the end, through the tree under test and beneath it.
//!
//! `THRUFS_PROPERTY_CASES` is the number of sequences, `THRUFS_SEED` the seed of the first. A failure
//! prints the seed that repeats it as the first case.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps,
    XattrFlags,
};

use crate::compare::{differences, snapshot};
use crate::tree::Native;
use thrufs_testing::{Random, Tree};

/// Without `THRUFS_PROPERTY_CASES`.
const CASES_DEFAULT: u64 = 40;

const STEPS: usize = 250;

/// Descriptors that a sequence may hold open at a time.
const SLOTS: usize = 4;

/// Few names, so that operations collide. Some are below others.
const PATHS: [&str; 12] = [
    "a",
    "b",
    "c",
    "d",
    "d/a",
    "d/b",
    "d/e",
    "d/e/a",
    "f",
    "f/a",
    "missing/a",
    "a/below-a-file",
];

/// Where symbolic links point: within the sequence's own directory, or nowhere.
const TARGETS: [&str; 5] = ["a", "b", "d", "nowhere", "c"];

const ATTRIBUTES: [&str; 3] = ["user.one", "user.two", "user.three"];

/// An offset or length: around pages, sometimes far.
fn size(random: &mut Random) -> u64 {
    let size = match random.below(8) {
        0 => 0,
        1 => 4096,
        2 => 4095 + random.below(3),
        3 => random.below(200_000),
        _ => random.below(9000),
    };
    size as u64
}

type Name = &'static str;

#[derive(Clone, Debug)]
enum Operation {
    Create(Name, u32, bool),
    Write(Name, u64, usize, u8),
    Append(Name, usize, u8),
    Truncate(Name, u64),
    Read(Name, u64, usize),
    Mkdir(Name, u32),
    Rmdir(Name),
    Unlink(Name),
    Rename(Name, Name, u32),
    Link(Name, Name),
    Symlink(Name, Name),
    ReadLink(Name),
    Chmod(Name, u32),
    SetTimes(Name, i64, i64),
    SetAttribute(Name, Name, usize, u8),
    GetAttribute(Name, Name),
    RemoveAttribute(Name, Name),
    ReadDir(Name),
    Stat(Name),
    Open(usize, Name, u32),
    Close(usize),
    HandleWrite(usize, u64, usize, u8),
    HandleRead(usize, u64, usize),
    HandleTruncate(usize, u64),
    HandleAllocate(usize, u64, u64),
    HandleStat(usize),
    HandleSync(usize),
}

/// The first steps of every sequence, so that the others find something.
const PRELUDE: [Operation; 8] = [
    Operation::Mkdir("d", 0o755),
    Operation::Mkdir("f", 0o755),
    Operation::Create("a", 0o644, true),
    Operation::Create("b", 0o644, true),
    Operation::Create("d/a", 0o644, true),
    Operation::Write("a", 0, 5000, b'A'),
    Operation::Open(0, "a", 1),
    Operation::Open(1, "d/a", 2),
];

fn operation(random: &mut Random) -> Operation {
    let path = random.pick(&PATHS);
    let other = random.pick(&PATHS);
    let slot = random.below(SLOTS);
    let fill = b'a' + random.below(26) as u8;
    let offset = size(random);
    let len = size(random);
    let mode = random.pick(&[0o644, 0o600, 0o755, 0o4755, 0o2775, 0o1777, 0]);
    match random.below(34) {
        0..=2 => Operation::Create(path, mode, random.below(2) == 0),
        3..=5 => Operation::Write(path, offset, len as usize, fill),
        6 => Operation::Append(path, len as usize, fill),
        7 => Operation::Truncate(path, len),
        8..=9 => Operation::Read(path, offset, len as usize),
        10..=11 => Operation::Mkdir(path, mode),
        12 => Operation::Rmdir(path),
        13 => Operation::Unlink(path),
        14..=16 => Operation::Rename(path, other, random.pick(&[0, 0, 1, 2, 3])),
        17 => Operation::Link(path, other),
        18 => Operation::Symlink(random.pick(&TARGETS), path),
        19 => Operation::ReadLink(path),
        21 => Operation::Chmod(path, mode),
        22 => Operation::SetTimes(path, random.below(2_000_000_000) as i64, offset as i64),
        23 => {
            let attribute = random.pick(&ATTRIBUTES);
            Operation::SetAttribute(path, attribute, random.below(200), fill)
        }
        24 => Operation::RemoveAttribute(path, random.pick(&ATTRIBUTES)),
        25 => Operation::GetAttribute(path, random.pick(&ATTRIBUTES)),
        26 => Operation::ReadDir(path),
        27 => Operation::Stat(path),
        20 | 28 => Operation::Open(slot, path, random.pick(&[0, 1, 2, 3])),
        29 => Operation::Close(slot),
        30 => Operation::HandleWrite(slot, offset, len as usize, fill),
        31 => Operation::HandleRead(slot, offset, len as usize),
        32 => match random.below(3) {
            0 => Operation::HandleTruncate(slot, len),
            1 => Operation::HandleAllocate(slot, offset, len),
            _ => Operation::HandleSync(slot),
        },
        _ => Operation::HandleStat(slot),
    }
}

struct Side {
    root: PathBuf,
    open: [Option<File>; SLOTS],
}

/// What a caller sees of one operation.
type Outcome = Result<Vec<u8>, i32>;

impl Side {
    fn new(root: PathBuf) -> Self {
        fs::create_dir(&root).unwrap();
        Self {
            root,
            open: Default::default(),
        }
    }

    fn apply(&mut self, operation: &Operation) -> Outcome {
        self.try_apply(operation)
            .map_err(|error| error.raw_os_error().unwrap_or(-1))
    }

    fn try_apply(&mut self, operation: &Operation) -> io::Result<Vec<u8>> {
        match *operation {
            Operation::Open(..)
            | Operation::Close(_)
            | Operation::HandleWrite(..)
            | Operation::HandleRead(..)
            | Operation::HandleTruncate(..)
            | Operation::HandleAllocate(..)
            | Operation::HandleStat(_)
            | Operation::HandleSync(_) => self.apply_to_handle(operation),
            Operation::Create(..)
            | Operation::Write(..)
            | Operation::Append(..)
            | Operation::Truncate(..)
            | Operation::Read(..) => self.apply_to_data(operation),
            _ => self.apply_to_name(operation),
        }
    }

    fn apply_to_data(&self, operation: &Operation) -> io::Result<Vec<u8>> {
        match *operation {
            Operation::Create(path, mode, exclusive) => {
                let mut options = OpenOptions::new();
                options.write(true).mode(mode);
                if exclusive {
                    options.create_new(true)
                } else {
                    options.create(true)
                };
                options.open(self.root.join(path))?;
            }
            Operation::Write(path, offset, len, fill) => {
                let file = OpenOptions::new().write(true).open(self.root.join(path))?;
                let written = file.write_at(&vec![fill; len], offset)?;
                return Ok(written.to_le_bytes().to_vec());
            }
            Operation::Append(path, len, fill) => {
                let file = OpenOptions::new().append(true).open(self.root.join(path))?;
                return Ok(rustix::io::write(&file, &vec![fill; len])?
                    .to_le_bytes()
                    .to_vec());
            }
            Operation::Truncate(path, len) => {
                OpenOptions::new()
                    .write(true)
                    .open(self.root.join(path))?
                    .set_len(len)?;
            }
            Operation::Read(path, offset, len) => {
                return read(&File::open(self.root.join(path))?, offset, len);
            }
            _ => unreachable!("sorted by the caller"),
        }
        Ok(Vec::new())
    }

    fn apply_to_name(&self, operation: &Operation) -> io::Result<Vec<u8>> {
        let at = |name: &str| self.root.join(name);
        match *operation {
            Operation::Mkdir(path, mode) => {
                rustix::fs::mkdir(at(path), Mode::from_raw_mode(mode))?;
            }
            Operation::Rmdir(path) => fs::remove_dir(at(path))?,
            Operation::Unlink(path) => rustix::fs::unlink(at(path))?,
            Operation::Rename(from, to, flags) => {
                let flags = RenameFlags::from_bits_retain(flags);
                rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags)?;
            }
            Operation::Link(from, to) => rustix::fs::link(at(from), at(to))?,
            Operation::Symlink(target, path) => rustix::fs::symlink(target, at(path))?,
            Operation::ReadLink(path) => {
                return Ok(fs::read_link(at(path))?
                    .into_os_string()
                    .into_encoded_bytes());
            }
            Operation::Chmod(path, mode) => {
                fs::set_permissions(at(path), fs::Permissions::from_mode(mode))?;
            }
            Operation::SetTimes(path, seconds, nanoseconds) => {
                return set_times(&at(path), seconds, nanoseconds);
            }
            Operation::SetAttribute(path, attribute, len, fill) => {
                let value = vec![fill; len];
                rustix::fs::lsetxattr(at(path), attribute, &value, XattrFlags::empty())?;
            }
            Operation::GetAttribute(path, attribute) => {
                let mut value = vec![0; 4096];
                let len = rustix::fs::lgetxattr(at(path), attribute, &mut value[..])?;
                value.truncate(len);
                return Ok(value);
            }
            Operation::RemoveAttribute(path, attribute) => {
                rustix::fs::lremovexattr(at(path), attribute)?;
            }
            Operation::ReadDir(path) => return read_dir(&at(path)),
            Operation::Stat(path) => return Ok(seen(&rustix::fs::lstat(at(path))?)),
            _ => unreachable!("sorted by the caller"),
        }
        Ok(Vec::new())
    }

    fn apply_to_handle(&mut self, operation: &Operation) -> io::Result<Vec<u8>> {
        // An errno that none of the calls here gives.
        let held = |slot: usize| {
            self.open[slot]
                .as_ref()
                .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOTTY))
        };
        match *operation {
            Operation::Open(slot, path, kind) => {
                let mut options = OpenOptions::new();
                match kind {
                    0 => options.read(true),
                    1 => options.read(true).write(true),
                    2 => options.read(true).append(true),
                    _ => options.read(true).write(true).truncate(true),
                };
                let file = options.open(self.root.join(path))?;
                self.open[slot] = Some(file);
            }
            Operation::Close(slot) => self.open[slot] = None,
            Operation::HandleWrite(slot, offset, len, fill) => {
                let written = held(slot)?.write_at(&vec![fill; len], offset)?;
                return Ok(written.to_le_bytes().to_vec());
            }
            Operation::HandleRead(slot, offset, len) => return read(held(slot)?, offset, len),
            Operation::HandleTruncate(slot, len) => held(slot)?.set_len(len)?,
            Operation::HandleAllocate(slot, offset, len) => {
                rustix::fs::fallocate(held(slot)?, FallocateFlags::empty(), offset, len)?;
            }
            Operation::HandleStat(slot) => return Ok(seen(&rustix::fs::fstat(held(slot)?)?)),
            Operation::HandleSync(slot) => held(slot)?.sync_all()?,
            _ => unreachable!("sorted by the caller"),
        }
        Ok(Vec::new())
    }

    /// Sends what a writeback cache still holds to the tree beneath.
    fn sync(&self, names: impl Iterator<Item = PathBuf>) {
        for name in names {
            let file =
                rustix::fs::open(self.root.join(name), OFlags::RDONLY, Mode::empty()).unwrap();
            rustix::fs::fsync(file).unwrap();
        }
    }
}

fn read(file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut data = vec![0; len];
    let mut filled = 0;
    while filled < len {
        match file.read_at(&mut data[filled..], offset + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    data.truncate(filled);
    Ok(data)
}

/// The same time of access and of modification.
pub fn timestamps(tv_sec: i64, tv_nsec: i64) -> Timestamps {
    let time = Timespec { tv_sec, tv_nsec };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

fn set_times(path: &Path, seconds: i64, nanoseconds: i64) -> io::Result<Vec<u8>> {
    let times = timestamps(seconds, nanoseconds);
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    let stat = rustix::fs::lstat(path)?;
    Ok(format!("{}.{}", stat.st_mtime, stat.st_mtime_nsec).into_bytes())
}

fn read_dir(path: &Path) -> io::Result<Vec<u8>> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        lines.push(format!(
            "{:?} {:?}\n",
            entry.file_name(),
            entry.file_type()?
        ));
    }
    lines.sort();
    Ok(lines.concat().into_bytes())
}

/// The parts of a stat that two trees have in common.
fn seen(stat: &Stat) -> Vec<u8> {
    let is_dir = FileType::from_raw_mode(stat.st_mode).is_dir();
    let size = if is_dir { 0 } else { stat.st_size };
    format!(
        "mode {:o} links {} owner {}:{} size {size}",
        stat.st_mode, stat.st_nlink, stat.st_uid, stat.st_gid
    )
    .into_bytes()
}

/// One sequence in a directory of its own in both trees. The error tells the step.
fn run_case(tree: &dyn Tree, native: &Native, seed: u64) -> Result<usize, String> {
    let name = format!("case-{seed}");
    let mut random = Random(seed);
    let mut through = Side::new(tree.root().join(&name));
    let mut twin = Side::new(native.root().join(&name));
    let mut history = Vec::new();
    let mut successes = 0;
    for step in 0..STEPS {
        let operation = PRELUDE
            .get(step)
            .cloned()
            .unwrap_or_else(|| operation(&mut random));
        let expected = twin.apply(&operation);
        let found = through.apply(&operation);
        successes += usize::from(expected.is_ok());
        history.push(format!("{step:4} {operation:?}: {}", brief(&expected)));
        if expected != found {
            return Err(format!(
                "step {step}, {operation:?}: the mount gives {}, the native tree {}\n{}",
                brief(&found),
                brief(&expected),
                history.join("\n")
            ));
        }
    }
    drop((
        std::mem::take(&mut through.open),
        std::mem::take(&mut twin.open),
    ));
    let mut lines = Vec::new();
    let text = |error: io::Error| format!("{error}\n{}", history.join("\n"));
    let expected = snapshot(&twin.root).map_err(text)?;
    let found = snapshot(&through.root).map_err(text)?;
    let files = found
        .iter()
        .filter(|(_, node)| FileType::from_raw_mode(node.mode).is_file());
    through.sync(files.map(|(path, _)| path.clone()));
    let beneath = snapshot(&tree.beneath().join(&name)).map_err(text)?;
    lines.extend(differences(
        ("the mount", &found),
        ("the native tree", &expected),
    ));
    lines.extend(differences(
        ("beneath", &beneath),
        ("the native tree", &expected),
    ));
    if !lines.is_empty() {
        return Err(format!("{}\n{}", lines.join("\n"), history.join("\n")));
    }
    Ok(successes)
}

fn brief(outcome: &Outcome) -> String {
    match outcome {
        Ok(data) if data.len() > 60 => {
            let sum = data.iter().fold(0_u64, |sum, &byte| {
                sum.wrapping_mul(31).wrapping_add(u64::from(byte) + 1)
            });
            format!(
                "{} bytes, sum {sum:x}, \"{}\"...",
                data.len(),
                data[..40].escape_ascii()
            )
        }
        Ok(data) => format!("\"{}\"", data.escape_ascii()),
        Err(errno) => io::Error::from_raw_os_error(*errno).to_string(),
    }
}

/// Runs the sequences on `tree`; panics at the first difference, with the steps that led to it. `what`
/// names the setting and `test` the test.
#[track_caller]
pub fn run_cases(tree: &dyn Tree, what: &str, test: &str) {
    let cases = thrufs_test_report::number("THRUFS_PROPERTY_CASES", CASES_DEFAULT);
    let mut seed = thrufs_test_report::seed();
    let native = Native::start();
    let mut successes = 0;
    for _ in 0..cases {
        match run_case(tree, &native, seed) {
            Ok(count) => successes += count,
            Err(report) => panic!(
                "{what}: {report}\nrepeat with THRUFS_SEED={seed} \
                 THRUFS_PROPERTY_CASES=1 and the test {test}"
            ),
        }
        seed = Random(seed).number() >> 16;
    }
    // A generator that only makes errors would test nothing.
    let steps = cases as usize * STEPS;
    assert!(
        successes * 4 > steps,
        "only {successes} of {steps} operations succeeded"
    );
}
