//! fractal-fuse: futures on compio, over io_uring.

use crate::file::{BYTES, DIRECT_IO, LATENCY, NAME, VALID};
use fractal_fuse::{
    ENOENT, FileAttr, FileHandleId, FileType, Filesystem, FsResult, InodeId, MountOptions,
    ReplyAttr, ReplyEntry, ReplyOpen, Request, Session, Timestamp,
};
use std::ffi::OsStr;

struct Futures;

fn attr(ino: u64) -> FileAttr {
    let (kind, size) = match ino {
        1 => (FileType::Directory, 0),
        _ => (FileType::RegularFile, BYTES),
    };
    let time = Timestamp::new(0, 0);
    FileAttr {
        ino,
        size,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        mode: kind.to_mode() | 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
    }
}

#[rustfmt::skip]
impl Filesystem for Futures {
    async fn lookup(&self, _: Request, _: InodeId, name: &OsStr) -> FsResult<ReplyEntry> {
        match name == NAME {
            true => Ok(ReplyEntry { ttl: VALID, attr: attr(2), generation: 0 }),
            false => Err(ENOENT),
        }
    }
    async fn getattr(&self, _: Request, ino: InodeId, _: Option<FileHandleId>, _: u32) -> FsResult<ReplyAttr> {
        Ok(ReplyAttr { ttl: VALID, attr: attr(ino.0) })
    }
    async fn open(&self, _: Request, _: InodeId, _: u32) -> FsResult<ReplyOpen> {
        Ok(ReplyOpen { fh: FileHandleId(0), flags: DIRECT_IO, backing_id: 0 })
    }
    async fn read(&self, _: Request, _: InodeId, _: FileHandleId, _: u64, buffer: &mut [u8]) -> FsResult<usize> {
        compio_runtime::time::sleep(LATENCY).await;
        buffer.fill(1);
        Ok(buffer.len())
    }
}

pub fn serve(target: &str) {
    let options = MountOptions::new().fs_name("late");
    Session::new(target.into(), options)
        .unwrap()
        .run(Futures)
        .unwrap();
}
