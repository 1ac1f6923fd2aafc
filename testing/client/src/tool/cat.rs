//! `cat`.

use super::outcome::ToolError;
use super::share::{Found, Share, failed};
use super::show::file_type;
use rustix::fs::{FileType, OFlags};
use std::io::Write;
use thrufs::Errno;
use thrufs_abi::NodeId;

/// Arguments of `cat`.
#[derive(Clone, Debug)]
pub struct Cat {
    /// Files of the share.
    pub paths: Vec<String>,
}

pub(crate) fn cat(share: &Share, cat: &Cat, out: &mut dyn Write) -> Result<(), ToolError> {
    for path in &cat.paths {
        let found = share.find(path)?;
        let mut reader = Reader::open(share, path, found)?;
        while let Some(bytes) = reader.next()? {
            out.write_all(&bytes)?;
        }
    }
    Ok(())
}

/// A file of the share, read from its start.
struct Reader<'a> {
    share: &'a Share,
    path: &'a str,
    node: NodeId,
    fh: u64,
    offset: u64,
}

impl<'a> Reader<'a> {
    fn open(share: &'a Share, path: &'a str, found: Found) -> Result<Reader<'a>, ToolError> {
        // A guest's kernel sends no OPEN for them.
        match file_type(found.attr.mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(failed(path, Errno::EISDIR)),
            _ => return Err(failed(path, Errno::EINVAL)),
        }
        let flags = OFlags::RDONLY.bits().cast_signed();
        let open = share.root().open(found.node, flags);
        Ok(Reader {
            share,
            path,
            node: found.node,
            fh: open.map_err(|errno| failed(path, errno))?.fh,
            offset: 0,
        })
    }

    fn next(&mut self) -> Result<Option<Vec<u8>>, ToolError> {
        let size = self.share.transfer_bytes() as u32;
        let root = self.share.root();
        let bytes = root
            .read(self.node, self.fh, self.offset, size)
            .map_err(|errno| failed(self.path, errno))?;
        self.offset += bytes.len() as u64;
        Ok((!bytes.is_empty()).then_some(bytes))
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let _ = self.share.root().release(self.node, self.fh);
    }
}
