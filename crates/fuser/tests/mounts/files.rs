//! A file system of files in memory, written for fuser's names alone.

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, KernelConfig,
    LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyPoll, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub const VALID: Duration = Duration::from_secs(3600);

/// Reads of this name are answered by another thread, of this one never, and of this one not at all.
pub const LATE: &str = "late";
pub const DROPPED: &str = "dropped";
pub const PANICS: &str = "panics";
/// Reads of this name count how many run at once, and wait for each other if there is a barrier.
pub const COUNTED: &str = "counted";

#[derive(Clone, Default)]
pub struct Files(pub Arc<State>);

#[derive(Default)]
pub struct State {
    /// The inode is the place and two.
    pub files: Mutex<Vec<(String, Vec<u8>)>>,
    /// Who answers late reads.
    pub late: Mutex<Option<Sender<ReplyData>>>,
    pub refuses: bool,
    pub forgotten: Mutex<u64>,
    pub listings: Mutex<u64>,
    pub destroyed: Mutex<bool>,
    pub polled: Mutex<Option<PollNotifier>>,
    /// Reads that run, and the most that ever did.
    pub running: Mutex<(usize, usize)>,
    pub meet: Mutex<Option<Arc<Barrier>>>,
}

impl Files {
    pub fn with(names: &[&str]) -> Files {
        let files = Files::default();
        for name in names {
            files.0.files.lock().unwrap().push(((*name).to_owned(), b"content".to_vec()));
        }
        files
    }

    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        let files = self.0.files.lock().unwrap();
        let size = match ino {
            INodeNo::ROOT => 0,
            INodeNo(number) => files.get(number as usize - 2)?.1.len() as u64,
        };
        let (kind, perm) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0o755),
            _ => (FileType::RegularFile, 0o644),
        };
        let time = UNIX_EPOCH + Duration::new(7, 5);
        Some(FileAttr {
            ino, size, blocks: size.div_ceil(512), atime: time, mtime: time, ctime: time, crtime: time, kind, perm,
            nlink: 1, uid: 0, gid: 0, rdev: 0, blksize: 4096, flags: 0,
        })
    }

    fn find(&self, name: &OsStr) -> Option<FileAttr> {
        let files = self.0.files.lock().unwrap();
        let place = files.iter().position(|(known, _)| *name == **known)?;
        drop(files);
        self.attr(INodeNo(place as u64 + 2))
    }

    fn with_data<T>(&self, ino: INodeNo, run: impl FnOnce(&str, &mut Vec<u8>) -> T) -> T {
        let mut files = self.0.files.lock().unwrap();
        let (name, data) = &mut files[ino.0 as usize - 2];
        run(name, data)
    }
}

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        assert!(config.kernel_abi().1 >= 31);
        if self.0.refuses { Err(io::Error::from_raw_os_error(libc::EDQUOT)) } else { Ok(()) }
    }

    fn destroy(&mut self) {
        *self.0.destroyed.lock().unwrap() = true;
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(name) {
            Some(attr) => reply.entry(&VALID, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn forget(&self, _: &Request, _: INodeNo, nlookup: u64) {
        *self.0.forgotten.lock().unwrap() += nlookup;
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(attr) => reply.attr(&VALID, &attr),
            None => reply.error(Errno::ESTALE),
        }
    }

    fn setattr(
        &self, req: &Request, ino: INodeNo, _: Option<u32>, _: Option<u32>, _: Option<u32>, size: Option<u64>,
        atime: Option<TimeOrNow>, _: Option<TimeOrNow>, _: Option<SystemTime>, fh: Option<FileHandle>,
        _: Option<SystemTime>, _: Option<SystemTime>, _: Option<SystemTime>, _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if atime == Some(TimeOrNow::SpecificTime(UNIX_EPOCH - Duration::from_millis(1))) {
            return reply.error(Errno::EROFS);
        }
        if let Some(size) = size {
            self.with_data(ino, |_, data| data.resize(size as usize, 0));
        }
        self.getattr(req, ino, fh, reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let handle = FileHandle(ino.0 + 100);
        let how = if flags.0 & libc::O_DIRECT == 0 { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::FOPEN_DIRECT_IO };
        reply.opened(handle, how);
    }

    fn create(&self, _: &Request, _: INodeNo, name: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        self.0.files.lock().unwrap().push((name.to_str().unwrap().to_owned(), Vec::new()));
        let attr = self.find(name).unwrap();
        reply.created(&VALID, &attr, Generation(0), FileHandle(attr.ino.0 + 100), FopenFlags::empty());
    }

    fn read(
        &self, _: &Request, ino: INodeNo, fh: FileHandle, offset: u64, size: u32, _: OpenFlags, _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        assert_eq!(fh.0, ino.0 + 100);
        if self.with_data(ino, |name, _| name == COUNTED) {
            {
                let mut running = self.0.running.lock().unwrap();
                running.0 += 1;
                running.1 = running.1.max(running.0);
            }
            let meet = self.0.meet.lock().unwrap().clone();
            meet.map(|barrier| barrier.wait());
            std::thread::yield_now();
            self.0.running.lock().unwrap().0 -= 1;
        }
        self.with_data(ino, |name, data| match name {
            LATE => self.0.late.lock().unwrap().as_ref().unwrap().send(reply).unwrap(),
            DROPPED => drop(reply),
            PANICS => panic!("as the test wants it"),
            _ => {
                let rest = data.get(offset as usize..).unwrap_or_default();
                reply.data(&rest[..rest.len().min(size as usize)]);
            }
        });
    }

    fn write(
        &self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, data: &[u8], _: WriteFlags, _: OpenFlags,
        _: Option<LockOwner>, reply: ReplyWrite,
    ) {
        self.with_data(ino, |_, content| {
            let end = offset as usize + data.len();
            content.resize(content.len().max(end), 0);
            content[offset as usize..end].copy_from_slice(data);
        });
        reply.written(data.len() as u32);
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        *self.0.listings.lock().unwrap() += 1;
        let files = self.0.files.lock().unwrap();
        for (place, (name, _)) in files.iter().enumerate().skip(offset as usize) {
            let place = place as u64;
            if reply.add(INodeNo(place + 2), place + 1, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }

    fn getxattr(&self, _: &Request, _: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        match (name.to_str(), size) {
            (Some("user.kind"), 0) => reply.size(6),
            (Some("user.kind"), 6..) => reply.data(b"a file"),
            (Some("user.kind"), _) => reply.error(Errno::ERANGE),
            _ => reply.error(Errno::NO_XATTR),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn poll(
        &self, _: &Request, _: INodeNo, _: FileHandle, ph: PollNotifier, events: PollEvents, flags: PollFlags,
        reply: ReplyPoll,
    ) {
        let mut polled = self.0.polled.lock().unwrap();
        let is_ready = polled.is_some();
        if flags.contains(PollFlags::FUSE_POLL_SCHEDULE_NOTIFY) {
            *polled = Some(ph);
        }
        reply.poll(if is_ready { events & PollEvents::POLLIN } else { PollEvents::empty() });
    }
}

pub fn threads(count: usize) -> Config {
    let mut config = Config::default();
    config.n_threads = Some(count);
    config
}
