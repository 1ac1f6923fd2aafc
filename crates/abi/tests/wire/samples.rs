//! One valid request for each operation, as Linux sends it, with numbers that are all different so
//! that a field taken for another shows.
#![allow(dead_code, reason = "each test takes what it needs")]

use thrufs_abi::layout::{
    AccessIn, BatchForgetIn, BmapIn, CopyFileRangeIn, CreateIn, FallocateIn, FlushIn, ForgetIn,
    ForgetOne, FsyncIn, GetattrIn, GetxattrIn, InitIn, InterruptIn, IoctlIn, LinkIn, LkIn, LseekIn,
    MkdirIn, MknodIn, NotifyRetrieveIn, OpenIn, PollIn, ReadIn, ReleaseIn, RemovemappingIn,
    RemovemappingOne, Rename2In, RenameIn, SetattrIn, SetupmappingIn, SetxattrIn, StatxIn,
    SyncfsIn, WriteIn,
};
use thrufs_abi::{Dialect, NodeId, Opcode, RequestBuilder, Unique};
use zerocopy::{FromBytes, IntoBytes};

pub const UNIQUE: Unique = Unique(0x1122_3344_5566_7788);
pub const NODE: NodeId = NodeId(0x99aa_bbcc_ddee_ff01);
pub const IDS: (u32, u32, u32) = (1001, 1002, 1003);

/// With the long form of SETXATTR, which every kernel since 5.12 offers.
pub const LATEST: Dialect = Dialect {
    minor: 45,
    setxattr_ext: true,
};

pub const WRITE: WriteIn = WriteIn {
    fh: 1,
    offset: 2,
    size: 5,
    write_flags: 4,
    lock_owner: 6,
    flags: 7,
    padding: 0,
};
pub const MKDIR: MkdirIn = MkdirIn {
    mode: 0o755,
    umask: 0o22,
};
pub const IOCTL: IoctlIn = IoctlIn {
    fh: 1,
    flags: 2,
    cmd: 0x4008_6602,
    arg: 3,
    in_size: 4,
    out_size: 8,
};
pub const RETRIEVED: NotifyRetrieveIn = NotifyRetrieveIn {
    dummy1: 0,
    offset: 4096,
    size: 6,
    dummy2: 0,
    dummy3: 0,
    dummy4: 0,
};
pub const FORGETS: [(u64, u64); 3] = [(2, 20), (3, 30), (4, 40)];
pub const UNMAPPED: [RemovemappingOne; 2] = [
    RemovemappingOne {
        moffset: 0,
        len: 0x20_0000,
    },
    RemovemappingOne {
        moffset: 0x40_0000,
        len: 0x20_0001,
    },
];

/// What 6.18 offers on `/dev/fuse`.
pub fn init() -> InitIn {
    InitIn {
        major: 7,
        minor: 45,
        max_readahead: 131_072,
        flags: 0x73ff_fffb,
        flags2: 0x7fd,
        ..InitIn::default()
    }
}

/// A struct of the numbers from 1 on, 32 bits each.
fn numbered<T: FromBytes>() -> T {
    let numbers: Vec<u32> = (1..).take(size_of::<T>() / 4).collect();
    T::read_from_bytes(&words(&numbers)).unwrap()
}

/// A valid request of this operation, in the dialect [`LATEST`].
pub fn sample(opcode: Opcode) -> RequestBuilder {
    let request = RequestBuilder::new(opcode, UNIQUE, NODE).ids(IDS.0, IDS.1, IDS.2);
    match opcode {
        Opcode::Lookup | Opcode::Unlink | Opcode::Rmdir => request.name(b"name"),
        Opcode::Forget => request.arg(&numbered::<ForgetIn>()),
        Opcode::Getattr => request.arg(&numbered::<GetattrIn>()),
        Opcode::Setattr => request.arg(&numbered::<SetattrIn>()),
        Opcode::Readlink | Opcode::Statfs | Opcode::Destroy => request,
        Opcode::Symlink => request.name(b"name").name(b"/some/where"),
        Opcode::Mknod => request.arg(&numbered::<MknodIn>()).name(b"name"),
        Opcode::Mkdir => request.arg(&MKDIR).name(b"name"),
        Opcode::Rename => request
            .arg(&numbered::<RenameIn>())
            .name(b"old")
            .name(b"new"),
        Opcode::Rename2 => request
            .arg(&numbered::<Rename2In>())
            .name(b"old")
            .name(b"new"),
        Opcode::Link => request.arg(&numbered::<LinkIn>()).name(b"name"),
        Opcode::Open | Opcode::Opendir => request.arg(&numbered::<OpenIn>()),
        Opcode::Read | Opcode::Readdir | Opcode::Readdirplus => request.arg(&numbered::<ReadIn>()),
        Opcode::Write => request.arg(&WRITE).bytes(b"bytes"),
        Opcode::Release | Opcode::Releasedir => request.arg(&numbered::<ReleaseIn>()),
        Opcode::Fsync | Opcode::Fsyncdir => request.arg(&numbered::<FsyncIn>()),
        Opcode::Setxattr => request
            .arg(&SetxattrIn {
                size: 5,
                flags: 1,
                setxattr_flags: 1,
                padding: 0,
            })
            .name(b"user.x")
            .bytes(b"va\0ue"),
        Opcode::Getxattr => request.arg(&numbered::<GetxattrIn>()).name(b"user.x"),
        Opcode::Listxattr => request.arg(&numbered::<GetxattrIn>()),
        Opcode::Removexattr => request.name(b"user.x"),
        Opcode::Flush => request.arg(&numbered::<FlushIn>()),
        Opcode::Init => request.arg(&init()),
        Opcode::Getlk | Opcode::Setlk | Opcode::Setlkw => request.arg(&numbered::<LkIn>()),
        Opcode::Access => request.arg(&numbered::<AccessIn>()),
        Opcode::Create => request.arg(&numbered::<CreateIn>()).name(b"name"),
        Opcode::Interrupt => request.arg(&numbered::<InterruptIn>()),
        Opcode::Bmap => request.arg(&numbered::<BmapIn>()),
        Opcode::Ioctl => request.arg(&IOCTL).bytes(b"four"),
        Opcode::Poll => request.arg(&numbered::<PollIn>()),
        Opcode::NotifyReply => request.arg(&RETRIEVED).bytes(b"stored"),
        Opcode::BatchForget => FORGETS.iter().fold(
            request.arg(&BatchForgetIn { count: 3, dummy: 0 }),
            |request, &(nodeid, nlookup)| {
                let one = ForgetOne { nodeid, nlookup };
                request.bytes(one.as_bytes())
            },
        ),
        Opcode::Fallocate => request.arg(&numbered::<FallocateIn>()),
        Opcode::Lseek => request.arg(&numbered::<LseekIn>()),
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => {
            request.arg(&numbered::<CopyFileRangeIn>())
        }
        Opcode::SetupMapping => request.arg(&numbered::<SetupmappingIn>()),
        Opcode::RemoveMapping => request
            .arg(&RemovemappingIn { count: 2 })
            .bytes(UNMAPPED.as_bytes()),
        Opcode::Syncfs => request.arg(&SyncfsIn { padding: 0 }),
        // The name is that of the kernel's own directory entry and means nothing.
        Opcode::Tmpfile => request.arg(&numbered::<CreateIn>()).name(b"/"),
        Opcode::Statx => request.arg(&numbered::<StatxIn>()),
    }
}

/// A security context as Linux encodes it: head, name, value, padding.
pub fn security_context(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut context = words(&[value.len() as u32, 0]);
    context.extend_from_slice(name);
    context.push(0);
    context.extend_from_slice(value);
    context.resize(context.len().next_multiple_of(8), 0);
    [words(&[8 + context.len() as u32, 1]), context].concat()
}

/// The one supplementary group that Linux sends.
pub fn group(gid: u32) -> Vec<u8> {
    words(&[16, 32, 1, gid])
}

pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
