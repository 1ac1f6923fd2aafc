//! fuse3: futures on tokio.

use crate::file::{BYTES, DIRECT_IO, LATENCY, NAME, VALID};
use fuse3::raw::prelude::*;
use fuse3::{FileType, MountOptions, Result, Timestamp};
use std::ffi::OsStr;
use std::num::NonZeroU32;

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
        kind,
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
    }
}

#[rustfmt::skip]
impl Filesystem for Futures {
    async fn init(&self, _: Request) -> Result<ReplyInit> {
        Ok(ReplyInit { max_write: NonZeroU32::new(1 << 20).unwrap() })
    }
    async fn destroy(&self, _: Request) {}
    async fn lookup(&self, _: Request, _: u64, name: &OsStr) -> Result<ReplyEntry> {
        match name == NAME {
            true => Ok(ReplyEntry { ttl: VALID, attr: attr(2), generation: 0 }),
            false => Err(libc::ENOENT.into()),
        }
    }
    async fn getattr(&self, _: Request, ino: u64, _: Option<u64>, _: u32) -> Result<ReplyAttr> {
        Ok(ReplyAttr { ttl: VALID, attr: attr(ino) })
    }
    async fn open(&self, _: Request, _: u64, _: u32) -> Result<ReplyOpen> {
        Ok(ReplyOpen { fh: 0, flags: DIRECT_IO })
    }
    async fn read(&self, _: Request, _: u64, _: u64, _: u64, size: u32) -> Result<ReplyData> {
        tokio::time::sleep(LATENCY).await;
        Ok(ReplyData { data: vec![1; size as usize].into() })
    }
}

pub fn serve(target: &str) {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let session = Session::new(MountOptions::default());
        session.mount(Futures, target).await.unwrap().await.unwrap();
    });
}
