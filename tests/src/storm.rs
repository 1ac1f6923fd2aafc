//! A process that makes every call on a mount, at random and without end: right and wrong arguments, open
//! files, maps, blocking locks. It is meant to be killed.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::PathBuf;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, SeekFrom,
    Timespec, Timestamps, UTIME_NOW, XattrFlags,
};

use thrufs_testing::Random;
use thrufs_testing::fence::mapping::{Mapping, Sharing};
use thrufs_testing::fence::record_lock::{self, Kind, Owner, Range};

/// Files that it keeps open at most.
const KEPT_MAX: usize = 100;

/// Nothing is written or allocated beyond, in bytes.
const SIZE_MAX: u64 = 4 << 20;

const NAMES: u64 = 12;

pub struct Storm {
    random: Random,
    kept: Vec<File>,
}

impl Storm {
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random(seed),
            kept: Vec::new(),
        }
    }

    fn pick(&mut self, count: u64) -> u64 {
        self.random.below(count as usize) as u64
    }

    fn flag<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.pick(of.len() as u64) as usize]
    }

    fn name(&mut self) -> OsString {
        let bytes = match self.pick(40) {
            0 => vec![b'x'; 255],
            1 => vec![b'x'; 256],
            2 => b"..".to_vec(),
            3 => b".".to_vec(),
            4 => vec![0xff, 0xfe, b'\n', 0x80],
            _ => format!("n{}", self.pick(NAMES)).into_bytes(),
        };
        OsString::from_vec(bytes)
    }

    /// Of up to three names.
    fn path(&mut self) -> PathBuf {
        (0..=self.pick(3)).map(|_| self.name()).collect()
    }

    fn offset(&mut self) -> u64 {
        match self.pick(20) {
            0 => i64::MAX as u64 - self.pick(8192),
            1 => u64::MAX - self.pick(8192),
            _ => self.pick(SIZE_MAX),
        }
    }

    fn within(&mut self) -> u64 {
        self.pick(SIZE_MAX)
    }

    /// Does one thing; any result is right.
    pub fn step(&mut self) {
        let _ = match self.pick(10) {
            0..=2 => self.open(),
            3..=5 => self.use_a_file(),
            6 | 7 => self.change_names(),
            8 => self.change_attributes(),
            _ => self.look(),
        };
    }

    fn open(&mut self) -> io::Result<()> {
        if self.kept.len() >= KEPT_MAX {
            let at = self.pick(KEPT_MAX as u64) as usize;
            self.kept.swap_remove(at);
        }
        let mut flags = self.flag(&[OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR]);
        for more in [
            OFlags::CREATE,
            OFlags::EXCL,
            OFlags::TRUNC,
            OFlags::APPEND,
            OFlags::DIRECT,
            OFlags::DIRECTORY,
            OFlags::NOFOLLOW,
            OFlags::SYNC,
            OFlags::PATH,
        ] {
            flags.set(more, self.pick(6) == 0);
        }
        let name = self.path();
        let path = if self.pick(20) == 0 {
            flags = OFlags::TMPFILE | OFlags::RDWR;
            PathBuf::from(".")
        } else {
            flags |= OFlags::NONBLOCK;
            name
        };
        let mode = self.pick(0o10000) as u32 & 0o7777;
        let file = rustix::fs::openat(CWD, &path, flags, Mode::from_raw_mode(mode))?;
        self.kept.push(File::from(file));
        Ok(())
    }

    fn use_a_file(&mut self) -> io::Result<()> {
        if self.kept.is_empty() {
            return Ok(());
        }
        let at = self.pick(self.kept.len() as u64) as usize;
        let other = self.pick(self.kept.len() as u64) as usize;
        let (offset, near, length) = (self.offset(), self.within(), self.pick(200_000));
        let what = self.pick(14);
        let mode = self.flag(&[
            FallocateFlags::empty(),
            FallocateFlags::KEEP_SIZE,
            FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE,
            FallocateFlags::ZERO_RANGE,
        ]);
        let kind = self.flag(&[Kind::Read, Kind::Write, Kind::Unlock]);
        let owner = self.flag(&[Owner::Process, Owner::Description]);
        let waits = self.pick(8) == 0;
        let file = &self.kept[at];
        match what {
            0 | 1 => file
                .read_at(&mut vec![0; length as usize], offset)
                .map(drop),
            2 | 3 => file.write_at(&vec![7; length as usize], near).map(drop),
            4 => file.set_len(near),
            5 => Ok(rustix::fs::fallocate(file, mode, near, length + 1)?),
            6 => {
                let range = Range {
                    start: near as i64,
                    len: length as i64,
                };
                record_lock::set(file.as_fd(), owner, kind, range, waits)
            }
            7 => {
                let operation = match kind {
                    Kind::Read => FlockOperation::NonBlockingLockShared,
                    Kind::Write if waits => FlockOperation::LockExclusive,
                    Kind::Write => FlockOperation::NonBlockingLockExclusive,
                    Kind::Unlock => FlockOperation::Unlock,
                };
                Ok(rustix::fs::flock(file, operation)?)
            }
            8 => {
                let (mut from, mut to) = (offset, near);
                let other = &self.kept[other];
                let length = length as usize;
                Ok(
                    rustix::fs::copy_file_range(
                        file,
                        Some(&mut from),
                        other,
                        Some(&mut to),
                        length,
                    )
                    .map(drop)?,
                )
            }
            9 => file.sync_all(),
            10 => {
                let sharing = if waits {
                    Sharing::Private
                } else {
                    Sharing::Shared
                };
                let mut map = Mapping::new(file, 4096, sharing)?;
                // Behind the end of the file that is SIGBUS, which ends this process.
                map.store(0, b"stored");
                Ok(())
            }
            11 => Ok(rustix::fs::seek(file, SeekFrom::Data(near)).map(drop)?),
            12 => file.metadata().map(drop),
            _ => {
                drop(self.kept.swap_remove(at));
                Ok(())
            }
        }
    }

    fn change_names(&mut self) -> io::Result<()> {
        let (one, other) = (self.path(), self.path());
        match self.pick(10) {
            0 | 1 => {
                let flags = self.flag(&[
                    RenameFlags::empty(),
                    RenameFlags::NOREPLACE,
                    RenameFlags::EXCHANGE,
                    RenameFlags::WHITEOUT,
                    RenameFlags::NOREPLACE | RenameFlags::EXCHANGE,
                ]);
                Ok(rustix::fs::renameat_with(CWD, &one, CWD, &other, flags)?)
            }
            2 => fs::hard_link(one, other),
            3 => symlink(one, other),
            4 => fs::remove_file(one),
            5 => fs::remove_dir(one),
            6 | 7 => fs::create_dir(one),
            8 => {
                let kind =
                    self.flag(&[FileType::Fifo, FileType::Socket, FileType::CharacterDevice]);
                Ok(rustix::fs::mknodat(
                    CWD,
                    &one,
                    kind,
                    Mode::from_raw_mode(0o600),
                    0,
                )?)
            }
            _ => match self.kept.last() {
                Some(file) => {
                    let flags = AtFlags::EMPTY_PATH;
                    Ok(rustix::fs::linkat(file, "", CWD, &one, flags)?)
                }
                None => Ok(()),
            },
        }
    }

    fn change_attributes(&mut self) -> io::Result<()> {
        let path = self.path();
        match self.pick(6) {
            0 => fs::set_permissions(path, fs::Permissions::from_mode(self.pick(0o10000) as u32)),
            1 => std::os::unix::fs::chown(path, Some(self.pick(70_000) as u32), None),
            2 => {
                let now = Timespec {
                    tv_sec: 0,
                    tv_nsec: UTIME_NOW,
                };
                let old = Timespec {
                    tv_sec: self.offset() as i64,
                    tv_nsec: 999_999_999,
                };
                let times = Timestamps {
                    last_access: now,
                    last_modification: old,
                };
                Ok(rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty())?)
            }
            3 => {
                let value = vec![1; self.pick(70_000) as usize];
                let name = self.flag(&[
                    "user.a",
                    "user.b",
                    "trusted.c",
                    "security.capability",
                    "nothing",
                ]);
                let flags =
                    self.flag(&[XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE]);
                Ok(rustix::fs::setxattr(&path, name, &value, flags)?)
            }
            4 => Ok(rustix::fs::removexattr(&path, "user.a")?),
            _ => {
                let file = OpenOptions::new().write(true).open(path)?;
                file.set_len(self.within())
            }
        }
    }

    fn look(&mut self) -> io::Result<()> {
        let path = self.path();
        match self.pick(6) {
            0 => fs::symlink_metadata(path).map(drop),
            1 => fs::read_link(path).map(drop),
            2 => fs::read_dir(path)?.try_for_each(|entry| entry.map(drop)),
            3 => Ok(rustix::fs::getxattr(&path, "user.a", &mut [0_u8; 64][..]).map(drop)?),
            4 => Ok(rustix::fs::statfs(&path).map(drop)?),
            _ => Ok(rustix::fs::listxattr(&path, &mut [0_u8; 64][..]).map(drop)?),
        }
    }
}
