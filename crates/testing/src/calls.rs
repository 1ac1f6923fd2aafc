//! Requests as calls: one method for each operation, which builds the request and parses its reply.

use crate::carrier::Carrier;
use crate::client::Caller;
use crate::listing::{Listed, collect};
use thrufs::{Errno, Result};
use thrufs_abi::layout::{
    AccessIn, AttrOut, BatchForgetIn, CopyFileRangeIn, CopyFileRangeOut, CreateIn, EntryOut,
    FallocateIn, FileLock, FlushIn, ForgetIn, ForgetOne, FsyncIn, GetattrIn, GetxattrIn,
    GetxattrOut, IoctlIn, IoctlOut, Kstatfs, LinkIn, LkIn, LkOut, LseekIn, LseekOut, MkdirIn,
    MknodIn, OpenIn, OpenOut, PollIn, PollOut, ReadIn, ReleaseIn, RemovemappingIn,
    RemovemappingOne, Rename2In, SetattrIn, SetupmappingIn, SetxattrIn, StatxIn, StatxOut,
    SyncfsIn, WriteIn, WriteOut,
};
use thrufs_abi::{FileHandle, InitFlags, LockOwner, NodeId, Opcode};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const LISTING_BYTES: u32 = 32 * 1024;

/// Asks for a size, then for so many bytes.
fn sized(ask: impl Fn(u32) -> Result<Vec<u8>>) -> Result<Vec<u8>> {
    let size: GetxattrOut = structure(&ask(0)?)?;
    match size.size {
        0 => Ok(Vec::new()),
        size => ask(size),
    }
}

fn structure<T: FromBytes>(body: &[u8]) -> Result<T> {
    Ok(T::read_from_prefix(body).map_err(|_| Errno::EPROTO)?.0)
}

impl<C: Carrier> Caller<'_, C> {
    fn named(&self, opcode: Opcode, node: NodeId, name: &[u8]) -> Result<Vec<u8>> {
        self.call(self.request(opcode, node).name(name))
    }

    fn with(
        &self,
        opcode: Opcode,
        node: NodeId,
        arg: &(impl IntoBytes + Immutable),
    ) -> Result<Vec<u8>> {
        self.call(self.request(opcode, node).arg(arg))
    }

    /// LOOKUP. A cached absence comes back as an entry with node id 0.
    ///
    /// # Errors
    ///
    /// Those of the file system, as with all calls below.
    pub fn lookup(&self, parent: NodeId, name: &[u8]) -> Result<EntryOut> {
        structure(&self.named(Opcode::Lookup, parent, name)?)
    }

    /// Walks a path from the root; leaves one lookup on every node along it.
    ///
    /// # Errors
    ///
    /// ENOENT also for a cached absence.
    pub fn walk(&self, path: &str) -> Result<NodeId> {
        path.split('/')
            .filter(|name| !name.is_empty())
            .try_fold(NodeId::ROOT, |node, name| {
                match self.lookup(node, name.as_bytes())?.nodeid {
                    0 => Err(Errno::ENOENT),
                    found => Ok(NodeId(found)),
                }
            })
    }

    /// FORGET.
    pub fn forget(&self, node: NodeId, nlookup: u64) {
        let request = self
            .request(Opcode::Forget, node)
            .arg(&ForgetIn { nlookup });
        self.client.transact(&request.finish());
    }

    /// BATCH_FORGET.
    pub fn batch_forget(&self, nodes: &[(NodeId, u64)]) {
        let arg = BatchForgetIn {
            count: nodes.len() as u32,
            dummy: 0,
        };
        let mut request = self.request(Opcode::BatchForget, NodeId(0)).arg(&arg);
        for &(node, nlookup) in nodes {
            request = request.bytes(
                ForgetOne {
                    nodeid: node.0,
                    nlookup,
                }
                .as_bytes(),
            );
        }
        self.client.transact(&request.finish());
    }

    /// GETATTR.
    pub fn getattr(&self, node: NodeId) -> Result<AttrOut> {
        structure(&self.with(Opcode::Getattr, node, &GetattrIn::default())?)
    }

    /// STATX.
    pub fn statx(&self, node: NodeId, mask: u32) -> Result<StatxOut> {
        let arg = StatxIn {
            sx_mask: mask,
            ..StatxIn::default()
        };
        structure(&self.with(Opcode::Statx, node, &arg)?)
    }

    /// SETATTR.
    pub fn setattr(&self, node: NodeId, arg: &SetattrIn) -> Result<AttrOut> {
        structure(&self.with(Opcode::Setattr, node, arg)?)
    }

    /// READLINK.
    pub fn readlink(&self, node: NodeId) -> Result<Vec<u8>> {
        self.call(self.request(Opcode::Readlink, node))
    }

    /// SYMLINK.
    pub fn symlink(&self, parent: NodeId, name: &[u8], target: &[u8]) -> Result<EntryOut> {
        structure(
            &self.call(
                self.request(Opcode::Symlink, parent)
                    .name(name)
                    .name(target),
            )?,
        )
    }

    /// MKNOD.
    pub fn mknod(&self, parent: NodeId, name: &[u8], mode: u32, rdev: u32) -> Result<EntryOut> {
        let arg = MknodIn {
            mode,
            rdev,
            umask: 0o022,
            padding: 0,
        };
        structure(&self.call(self.request(Opcode::Mknod, parent).arg(&arg).name(name))?)
    }

    /// MKDIR.
    pub fn mkdir(&self, parent: NodeId, name: &[u8], mode: u32) -> Result<EntryOut> {
        let arg = MkdirIn { mode, umask: 0o022 };
        structure(&self.call(self.request(Opcode::Mkdir, parent).arg(&arg).name(name))?)
    }

    /// UNLINK.
    pub fn unlink(&self, parent: NodeId, name: &[u8]) -> Result<()> {
        self.named(Opcode::Unlink, parent, name).map(drop)
    }

    /// RMDIR.
    pub fn rmdir(&self, parent: NodeId, name: &[u8]) -> Result<()> {
        self.named(Opcode::Rmdir, parent, name).map(drop)
    }

    /// RENAME2.
    pub fn rename(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), flags: u32) -> Result<()> {
        let arg = Rename2In {
            newdir: to.0.0,
            flags,
            padding: 0,
        };
        let request = self
            .request(Opcode::Rename2, from.0)
            .arg(&arg)
            .name(from.1)
            .name(to.1);
        self.call(request).map(drop)
    }

    /// LINK.
    pub fn link(&self, node: NodeId, parent: NodeId, name: &[u8]) -> Result<EntryOut> {
        let arg = LinkIn { oldnodeid: node.0 };
        structure(&self.call(self.request(Opcode::Link, parent).arg(&arg).name(name))?)
    }

    fn create_by(
        &self,
        opcode: Opcode,
        parent: NodeId,
        name: &[u8],
        (flags, mode): (i32, u32),
    ) -> Result<(EntryOut, OpenOut)> {
        let arg = CreateIn {
            flags: flags as u32,
            mode,
            umask: 0o022,
            open_flags: 0,
        };
        let body = self.call(self.request(opcode, parent).arg(&arg).name(name))?;
        let open = body.get(size_of::<EntryOut>()..).ok_or(Errno::EPROTO)?;
        Ok((structure(&body)?, structure(open)?))
    }

    /// CREATE, with `open(2)` flags.
    pub fn create(
        &self,
        parent: NodeId,
        name: &[u8],
        flags: i32,
        mode: u32,
    ) -> Result<(EntryOut, OpenOut)> {
        self.create_by(Opcode::Create, parent, name, (flags, mode))
    }

    /// TMPFILE.
    pub fn tmpfile(&self, parent: NodeId, flags: i32, mode: u32) -> Result<(EntryOut, OpenOut)> {
        self.create_by(Opcode::Tmpfile, parent, b"#1", (flags, mode))
    }

    /// OPEN.
    pub fn open(&self, node: NodeId, flags: i32) -> Result<OpenOut> {
        let arg = OpenIn {
            flags: flags as u32,
            open_flags: 0,
        };
        structure(&self.with(Opcode::Open, node, &arg)?)
    }

    /// READ.
    pub fn read(&self, node: NodeId, fh: u64, offset: u64, size: u32) -> Result<Vec<u8>> {
        let arg = ReadIn {
            fh,
            offset,
            size,
            ..ReadIn::default()
        };
        self.with(Opcode::Read, node, &arg)
    }

    /// WRITE, with `FUSE_WRITE_*` flags.
    pub fn write(
        &self,
        node: NodeId,
        fh: u64,
        offset: u64,
        data: &[u8],
        write_flags: u32,
    ) -> Result<u32> {
        let arg = WriteIn {
            fh,
            offset,
            write_flags,
            ..WriteIn::default()
        };
        self.write_as(node, arg, data)
    }

    /// WRITE, with a size that is that of `data`.
    pub fn write_as(&self, node: NodeId, arg: WriteIn, data: &[u8]) -> Result<u32> {
        let size = data.len() as u32;
        let arg = WriteIn { size, ..arg };
        let out: WriteOut =
            structure(&self.call(self.request(Opcode::Write, node).arg(&arg).bytes(data))?)?;
        Ok(out.size)
    }

    /// FLUSH.
    pub fn flush(&self, node: NodeId, fh: u64, owner: LockOwner) -> Result<()> {
        let arg = FlushIn {
            fh,
            lock_owner: owner.0,
            ..FlushIn::default()
        };
        self.with(Opcode::Flush, node, &arg).map(drop)
    }

    fn release_by(&self, opcode: Opcode, node: NodeId, fh: u64) -> Result<()> {
        let arg = ReleaseIn {
            fh,
            ..ReleaseIn::default()
        };
        self.with(opcode, node, &arg).map(drop)
    }

    /// RELEASE.
    pub fn release(&self, node: NodeId, fh: u64) -> Result<()> {
        self.release_by(Opcode::Release, node, fh)
    }

    fn fsync_by(&self, opcode: Opcode, node: NodeId, fh: u64) -> Result<()> {
        let arg = FsyncIn {
            fh,
            ..FsyncIn::default()
        };
        self.with(opcode, node, &arg).map(drop)
    }

    /// FSYNC.
    pub fn fsync(&self, node: NodeId, fh: u64) -> Result<()> {
        self.fsync_by(Opcode::Fsync, node, fh)
    }

    /// OPENDIR.
    pub fn opendir(&self, node: NodeId) -> Result<OpenOut> {
        structure(&self.with(Opcode::Opendir, node, &OpenIn::default())?)
    }

    /// One READDIR or READDIRPLUS.
    pub fn readdir(
        &self,
        node: NodeId,
        fh: u64,
        offset: u64,
        size: u32,
        plus: bool,
    ) -> Result<Vec<Listed>> {
        let opcode = if plus {
            Opcode::Readdirplus
        } else {
            Opcode::Readdir
        };
        let arg = ReadIn {
            fh,
            offset,
            size,
            ..ReadIn::default()
        };
        Ok(collect(&self.with(opcode, node, &arg)?, plus))
    }

    /// The whole of a directory: OPENDIR, READDIRs to the end, RELEASEDIR.
    pub fn list(&self, node: NodeId, plus: bool) -> Result<Vec<Listed>> {
        let fh = self.opendir(node)?.fh;
        let mut all: Vec<Listed> = Vec::new();
        loop {
            let offset = all.last().map_or(0, |last| last.offset);
            let more = self.readdir(node, fh, offset, LISTING_BYTES, plus)?;
            if more.is_empty() {
                break;
            }
            all.extend(more);
        }
        self.releasedir(node, fh)?;
        Ok(all)
    }

    /// RELEASEDIR.
    pub fn releasedir(&self, node: NodeId, fh: u64) -> Result<()> {
        self.release_by(Opcode::Releasedir, node, fh)
    }

    /// FSYNCDIR.
    pub fn fsyncdir(&self, node: NodeId, fh: u64) -> Result<()> {
        self.fsync_by(Opcode::Fsyncdir, node, fh)
    }

    /// STATFS.
    pub fn statfs(&self, node: NodeId) -> Result<Kstatfs> {
        structure(&self.call(self.request(Opcode::Statfs, node))?)
    }

    /// SYNCFS.
    pub fn syncfs(&self, node: NodeId) -> Result<()> {
        self.with(Opcode::Syncfs, node, &SyncfsIn::default())
            .map(drop)
    }

    /// SETXATTR.
    pub fn setxattr(&self, node: NodeId, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        let arg = SetxattrIn {
            size: value.len() as u32,
            flags,
            ..SetxattrIn::default()
        };
        let request = self.request(Opcode::Setxattr, node);
        let request = if self.client.agreed().contains(InitFlags::SETXATTR_EXT) {
            request.arg(&arg)
        } else {
            request.arg(&[arg.size, arg.flags])
        };
        let request = request.name(name).bytes(value);
        self.call(request).map(drop)
    }

    /// GETXATTR: asks for the size, then for the value.
    pub fn getxattr(&self, node: NodeId, name: &[u8]) -> Result<Vec<u8>> {
        sized(|size| {
            let arg = GetxattrIn { size, padding: 0 };
            self.call(self.request(Opcode::Getxattr, node).arg(&arg).name(name))
        })
    }

    /// LISTXATTR: asks for the size, then for the names.
    pub fn listxattr(&self, node: NodeId) -> Result<Vec<Vec<u8>>> {
        let names = sized(|size| {
            let arg = GetxattrIn { size, padding: 0 };
            self.with(Opcode::Listxattr, node, &arg)
        })?;
        let names = names
            .split(|&byte| byte == 0)
            .filter(|name| !name.is_empty());
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    /// REMOVEXATTR.
    pub fn removexattr(&self, node: NodeId, name: &[u8]) -> Result<()> {
        self.named(Opcode::Removexattr, node, name).map(drop)
    }

    /// GETLK.
    pub fn getlk(&self, node: NodeId, fh: u64, owner: u64, lk: FileLock) -> Result<FileLock> {
        let arg = LkIn {
            fh,
            owner,
            lk,
            ..LkIn::default()
        };
        let out: LkOut = structure(&self.with(Opcode::Getlk, node, &arg)?)?;
        Ok(out.lk)
    }

    /// SETLK or, with `wait`, SETLKW.
    pub fn setlk(&self, node: NodeId, arg: &LkIn, wait: bool) -> Result<()> {
        let opcode = if wait { Opcode::Setlkw } else { Opcode::Setlk };
        self.with(opcode, node, arg).map(drop)
    }

    /// FALLOCATE.
    pub fn fallocate(&self, node: NodeId, arg: &FallocateIn) -> Result<()> {
        self.with(Opcode::Fallocate, node, arg).map(drop)
    }

    /// LSEEK.
    pub fn lseek(&self, node: NodeId, fh: u64, offset: u64, whence: u32) -> Result<u64> {
        let arg = LseekIn {
            fh,
            offset,
            whence,
            padding: 0,
        };
        let out: LseekOut = structure(&self.with(Opcode::Lseek, node, &arg)?)?;
        Ok(out.offset)
    }

    /// COPY_FILE_RANGE.
    pub fn copy_file_range(&self, node: NodeId, arg: &CopyFileRangeIn) -> Result<u32> {
        let out: WriteOut = structure(&self.with(Opcode::CopyFileRange, node, arg)?)?;
        Ok(out.size)
    }

    /// COPY_FILE_RANGE_64.
    pub fn copy_file_range_64(&self, node: NodeId, arg: &CopyFileRangeIn) -> Result<u64> {
        let out: CopyFileRangeOut = structure(&self.with(Opcode::CopyFileRange64, node, arg)?)?;
        Ok(out.bytes_copied)
    }

    /// SETUPMAPPING.
    pub fn setup_mapping(&self, node: NodeId, arg: &SetupmappingIn) -> Result<()> {
        self.with(Opcode::SetupMapping, node, arg).map(drop)
    }

    /// REMOVEMAPPING of parts of the window.
    pub fn remove_mapping(&self, node: NodeId, mappings: &[RemovemappingOne]) -> Result<()> {
        let count = mappings.len() as u32;
        let request = self.request(Opcode::RemoveMapping, node);
        let request = request.arg(&RemovemappingIn { count });
        self.call(request.bytes(mappings.as_bytes())).map(drop)
    }

    /// ACCESS, with the mask of `access(2)`.
    pub fn access(&self, node: NodeId, mask: u32) -> Result<()> {
        let arg = AccessIn { mask, padding: 0 };
        self.with(Opcode::Access, node, &arg).map(drop)
    }

    /// POLL: returns the ready events.
    pub fn poll(&self, node: NodeId, arg: &PollIn) -> Result<u32> {
        let out: PollOut = structure(&self.with(Opcode::Poll, node, arg)?)?;
        Ok(out.revents)
    }

    /// IOCTL on a file: returns its result and output.
    pub fn ioctl(
        &self,
        node: NodeId,
        handle: FileHandle,
        command: u32,
        input: &[u8],
        output_bytes: u32,
    ) -> Result<(i32, Vec<u8>)> {
        let arg = IoctlIn {
            fh: handle.0,
            cmd: command,
            in_size: input.len() as u32,
            out_size: output_bytes,
            ..IoctlIn::default()
        };
        let body = self.call(self.request(Opcode::Ioctl, node).arg(&arg).bytes(input))?;
        let out: IoctlOut = structure(&body)?;
        let output = body.get(size_of::<IoctlOut>()..).unwrap_or_default();
        Ok((out.result, output.to_vec()))
    }
}
