//! fuser: a thread for each read, which sleeps.

use crate::file::{BYTES, DIRECT_IO, LATENCY, NAME, VALID};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen, Request,
};
use std::ffi::OsStr;
use std::time::UNIX_EPOCH;

struct Threads;

fn attr(ino: INodeNo) -> FileAttr {
    let (kind, size) = match ino {
        INodeNo::ROOT => (FileType::Directory, 0),
        _ => (FileType::RegularFile, BYTES),
    };
    FileAttr {
        ino,
        size,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        flags: 0,
        blksize: 4096,
    }
}

#[rustfmt::skip]
impl Filesystem for Threads {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == NAME {
            true => reply.entry(&VALID, &attr(INodeNo(2)), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }
    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&VALID, &attr(ino));
    }
    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::from_bits_retain(DIRECT_IO));
    }
    fn read(&self, _: &Request, _: INodeNo, _: FileHandle, _: u64, size: u32, _: OpenFlags, _: Option<LockOwner>, reply: ReplyData) {
        std::thread::spawn(move || {
            std::thread::sleep(LATENCY);
            reply.data(&vec![1; size as usize]);
        });
    }
}

pub fn serve(target: &str) {
    let mut config = Config::default();
    config.n_threads = Some(std::thread::available_parallelism().unwrap().get());
    fuser::mount(Threads, target, &config).unwrap();
}
