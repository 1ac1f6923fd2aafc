//! `cat` and `cp`.

use super::share::{Found, Share, failed};
use super::show::file_type;
use super::{Cat, Connection, Cp, Place, ToolError};
use rustix::fs::{FileType, OFlags};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use thrufs::Errno;
use thrufs_abi::layout::SetattrIn;
use thrufs_abi::{LockOwner, NodeId, SetattrValid};

/// The owner of our locks, of which there are none.
const OWNER: LockOwner = LockOwner(1);

/// Prints files.
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

/// Copies a file into the share, out of it or within it, with its mode.
pub(crate) fn cp(connection: &Connection, cp: &Cp) -> Result<(), ToolError> {
    if let (Place::Local(_), Place::Local(_)) = (&cp.from, &cp.to) {
        return Err(ToolError::Usage(
            "neither file is in the share: write :PATH for one that is".to_owned(),
        ));
    }
    let share = Share::mount(connection)?;
    match (&cp.from, &cp.to) {
        (Place::Share(from), Place::Local(to)) => copy_out(&share, from, to),
        (Place::Local(from), Place::Share(to)) => copy_in(&share, from, to),
        (Place::Share(from), Place::Share(to)) => copy_within(&share, from, to),
        (Place::Local(_), Place::Local(_)) => Ok(()),
    }
}

fn local(path: &Path) -> impl Fn(io::Error) -> ToolError {
    let path = path.to_owned();
    move |source| ToolError::Local {
        path: path.clone(),
        source,
    }
}

fn copy_out(share: &Share, from: &str, to: &Path) -> Result<(), ToolError> {
    let found = share.find(from)?;
    let mut reader = Reader::open(share, from, found)?;
    let to = if to.is_dir() {
        let name = from.trim_end_matches('/').rsplit('/').next();
        to.join(name.unwrap_or_default())
    } else {
        to.to_owned()
    };
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(found.attr.mode & 0o777)
        .open(&to)
        .map_err(local(&to))?;
    while let Some(bytes) = reader.next()? {
        file.write_all(&bytes).map_err(local(&to))?;
    }
    Ok(())
}

fn copy_in(share: &Share, from: &Path, to: &str) -> Result<(), ToolError> {
    let mut file = File::open(from).map_err(local(from))?;
    let metadata = file.metadata().map_err(local(from))?;
    if metadata.is_dir() {
        return Err(local(from)(io::ErrorKind::IsADirectory.into()));
    }
    let name = from.file_name().unwrap_or_default().to_string_lossy();
    let to = within_directory(share, to, &name);
    let mut writer = Writer::create(share, &to, metadata.permissions().mode() & 0o777)?;
    let mut buffer = vec![0; share.transfer_bytes()];
    loop {
        let length = file.read(&mut buffer).map_err(local(from))?;
        if length == 0 {
            return writer.finish();
        }
        writer.write(&buffer[..length])?;
    }
}

fn copy_within(share: &Share, from: &str, to: &str) -> Result<(), ToolError> {
    let found = share.find(from)?;
    let name = from.trim_end_matches('/').rsplit('/').next();
    let to = within_directory(share, to, name.unwrap_or_default());
    if share.find(&to).is_ok_and(|there| there.node == found.node) {
        return Err(ToolError::Usage(format!(
            ":{from} and :{to} are the same file"
        )));
    }
    let mut reader = Reader::open(share, from, found)?;
    let mut writer = Writer::create(share, &to, found.attr.mode & 0o777)?;
    while let Some(bytes) = reader.next()? {
        writer.write(&bytes)?;
    }
    writer.finish()
}

/// The path itself, or with the name where it leads to a directory.
fn within_directory(share: &Share, path: &str, name: &str) -> String {
    let is_directory = share
        .find(path)
        .is_ok_and(|found| file_type(found.attr.mode) == FileType::Directory);
    if is_directory {
        let joined = PathBuf::from(path).join(name);
        joined.to_string_lossy().into_owned()
    } else {
        path.to_owned()
    }
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
        // A guest's kernel never asks to open them.
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

/// A file of the share, written from its start.
struct Writer<'a> {
    share: &'a Share,
    path: &'a str,
    node: NodeId,
    fh: u64,
    offset: u64,
}

impl<'a> Writer<'a> {
    /// Makes the file, or empties the one that is there.
    fn create(share: &'a Share, path: &'a str, mode: u32) -> Result<Writer<'a>, ToolError> {
        let (parent, name) = share.parent(path)?;
        let (node, fh) = Writer::make(share, parent, name, mode).map_err(|e| failed(path, e))?;
        Ok(Writer {
            share,
            path,
            node,
            fh,
            offset: 0,
        })
    }

    fn make(share: &Share, parent: NodeId, name: &str, mode: u32) -> Result<(NodeId, u64), Errno> {
        let root = share.root();
        let flags = OFlags::WRONLY.bits().cast_signed();
        match share.lookup(parent, name.as_bytes()) {
            Ok(found) => {
                if file_type(found.attr.mode) != FileType::RegularFile {
                    return Err(Errno::EEXIST);
                }
                let open = root.open(found.node, flags)?;
                let empty = SetattrIn {
                    valid: (SetattrValid::SIZE | SetattrValid::FH).bits(),
                    fh: open.fh,
                    ..SetattrIn::default()
                };
                root.setattr(found.node, &empty)?;
                Ok((found.node, open.fh))
            }
            Err(Errno::ENOENT) => {
                let flags = flags | OFlags::CREATE.bits().cast_signed();
                let (entry, open) = root.create(parent, name.as_bytes(), flags, mode)?;
                share.counted(entry.nodeid);
                Ok((NodeId(entry.nodeid), open.fh))
            }
            Err(errno) => Err(errno),
        }
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), ToolError> {
        while !bytes.is_empty() {
            let part = &bytes[..bytes.len().min(self.share.transfer_bytes())];
            let root = self.share.root();
            let written = root
                .write(self.node, self.fh, self.offset, part, 0)
                .map_err(|errno| failed(self.path, errno))? as usize;
            if written == 0 || written > part.len() {
                return Err(failed(self.path, Errno::EIO));
            }
            self.offset += written as u64;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Flushes, as close(2) does: an error of writing may come as late as here.
    fn finish(self) -> Result<(), ToolError> {
        match self.share.root().flush(self.node, self.fh, OWNER) {
            Ok(()) | Err(Errno::ENOSYS) => Ok(()),
            Err(errno) => Err(failed(self.path, errno)),
        }
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        let _ = self.share.root().release(self.node, self.fh);
    }
}
