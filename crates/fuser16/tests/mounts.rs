//! A file system that was written for fuser 0.16, mounted.
#![allow(clippy::unwrap_used)]

extern crate thrufs_fuser16 as fuser;

#[path = "../../core/tests/ground/mod.rs"]
mod ground;

use fuser::{
    FileAttr, FileType, Filesystem, KernelConfig, MountOption, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, TimeOrNow, consts,
    spawn_mount2,
};
use ground::{can_mount, is_mounted};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thrufs_testing::wait_until;

/// What `ground` mounts by default.
const OVER: thrufs::Transport = thrufs::Transport::Dev;

const VALID: Duration = Duration::from_secs(3600);

/// One file, and a counter that no lock guards.
struct One {
    data: Arc<Mutex<Vec<u8>>>,
    asked: u64,
    refuses: bool,
}

impl One {
    fn attr(&self, ino: u64) -> FileAttr {
        let (kind, perm) = match ino {
            1 => (FileType::Directory, 0o755),
            _ => (FileType::RegularFile, 0o600),
        };
        let (time, size) = (
            UNIX_EPOCH + Duration::from_secs(7),
            self.data.lock().unwrap().len() as u64,
        );
        FileAttr {
            ino,
            size,
            blocks: 1,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for One {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> Result<(), libc::c_int> {
        config.add_capabilities(consts::FUSE_ASYNC_READ).unwrap();
        assert_eq!(config.add_capabilities(1 << 63), Err(1 << 63));
        if self.refuses {
            Err(libc::EDQUOT)
        } else {
            Ok(())
        }
    }

    fn lookup(&mut self, _: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEntry) {
        self.asked += 1;
        match (parent, name.to_str()) {
            (1, Some("file")) => reply.entry(&VALID, &self.attr(2), 0),
            _ => reply.error(libc::ENOENT),
        }
    }

    fn getattr(&mut self, _: &Request<'_>, ino: u64, _: Option<u64>, reply: ReplyAttr) {
        self.asked += 1;
        reply.attr(&VALID, &self.attr(ino));
    }

    fn setattr(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<u64>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<u32>,
        reply: ReplyAttr,
    ) {
        self.data.lock().unwrap().resize(size.unwrap() as usize, 0);
        reply.attr(&VALID, &self.attr(ino));
    }

    fn open(&mut self, _: &Request<'_>, _: u64, _: i32, reply: ReplyOpen) {
        reply.opened(77, consts::FOPEN_KEEP_CACHE);
    }

    fn read(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        fh: u64,
        offset: i64,
        _: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyData,
    ) {
        assert_eq!((ino, fh), (2, 77));
        let data = self.data.lock().unwrap().clone();
        std::thread::spawn(move || reply.data(&data[offset as usize..]));
    }

    fn write(
        &mut self,
        _: &Request<'_>,
        _: u64,
        _: u64,
        offset: i64,
        data: &[u8],
        _: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyWrite,
    ) {
        let mut content = self.data.lock().unwrap();
        content.truncate(offset as usize);
        content.extend_from_slice(data);
        reply.written(data.len() as u32);
    }

    fn readdir(&mut self, _: &Request<'_>, _: u64, _: u64, offset: i64, mut reply: ReplyDirectory) {
        if offset == 0 {
            let _ = reply.add(2, 1, FileType::RegularFile, "file");
        }
        reply.ok();
    }
}

fn one(refuses: bool) -> (One, Arc<Mutex<Vec<u8>>>) {
    let data = Arc::new(Mutex::new(b"content".to_vec()));
    let fs = One {
        data: Arc::clone(&data),
        asked: 0,
        refuses,
    };
    (fs, data)
}

#[test]
fn a_file_is_listed_read_written_and_notified() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let (fs, data) = one(false);
    let session = spawn_mount2(
        fs,
        directory.path(),
        &[MountOption::FSName("one".to_owned())],
    )
    .unwrap();
    let names = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["file"]);
    assert_eq!(fs::read(&path).unwrap(), b"content");
    assert_eq!(
        (
            fs::metadata(&path).unwrap().mode(),
            fs::metadata(&path).unwrap().mtime()
        ),
        (0o100_600, 7)
    );
    fs::write(&path, b"written").unwrap();
    assert_eq!(*data.lock().unwrap(), b"written");
    *data.lock().unwrap() = b"changed".to_vec();
    session.notifier().inval_inode(2, 0, 0).unwrap();
    wait_until("it is read again", || {
        fs::read(&path).unwrap() == b"changed"
    });
    assert!(!session.guard.is_finished());
    session.join();
    assert!(!is_mounted(directory.path()));
}

#[test]
fn a_session_runs_until_it_is_unmounted_and_init_may_refuse() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let refused = Session::new(one(true).0, directory.path(), &[])
        .err()
        .unwrap();
    assert_eq!(refused.raw_os_error(), Some(libc::EDQUOT));
    let twice = [MountOption::RO, MountOption::RW];
    let refused = Session::new(one(false).0, directory.path(), &twice)
        .err()
        .unwrap();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    let mut session = Session::new(
        one(false).0,
        directory.path(),
        &[MountOption::RO, MountOption::AllowRoot],
    )
    .unwrap();
    let mut unmounter = session.unmount_callable();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| session.run());
        let refused = fs::write(directory.path().join("file"), b"").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
        unmounter.unmount().unwrap();
        serving.join().unwrap().unwrap();
    });
    assert!(!is_mounted(directory.path()));
}
