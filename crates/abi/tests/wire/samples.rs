//! One valid request for each operation, as Linux sends it, with numbers that are all different so
//! that a field taken for another shows.
#![allow(dead_code, reason = "each test takes what it needs")]

use thrufs_abi::layout::{
    AccessIn, BatchForgetIn, BmapIn, CopyFileRangeIn, CreateIn, CuseInitIn, FallocateIn, FileLock,
    FlushIn, ForgetIn, ForgetOne, FsyncIn, GetattrIn, GetxattrIn, InitIn, InterruptIn, IoctlIn,
    LinkIn, LkIn, LseekIn, MkdirIn, MknodIn, NotifyRetrieveIn, OpenIn, PollIn, ReadIn, ReleaseIn,
    RemovemappingIn, RemovemappingOne, Rename2In, RenameIn, SetattrIn, SetupmappingIn, SetxattrIn,
    StatxIn, SyncfsIn, WriteIn,
};
use thrufs_abi::{Dialect, NodeId, Opcode, RequestBuilder, Unique};

pub const UNIQUE: Unique = Unique(0x1122_3344_5566_7788);
pub const NODE: NodeId = NodeId(0x99aa_bbcc_ddee_ff01);
pub const IDS: (u32, u32, u32) = (1001, 1002, 1003);

/// With the long form of SETXATTR, which every kernel since 5.12 offers.
pub const LATEST: Dialect = Dialect {
    minor: 45,
    setxattr_ext: true,
};

pub const READ: ReadIn = ReadIn {
    fh: 1,
    offset: 2,
    size: 3,
    read_flags: 4,
    lock_owner: 5,
    flags: 6,
    padding: 0,
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
pub const SETATTR: SetattrIn = SetattrIn {
    valid: 1,
    padding: 0,
    fh: 2,
    size: 3,
    lock_owner: 4,
    atime: 5,
    mtime: 6,
    ctime: 7,
    atimensec: 8,
    mtimensec: 9,
    ctimensec: 10,
    mode: 11,
    unused4: 0,
    uid: 12,
    gid: 13,
    unused5: 0,
};
pub const LOCK: LkIn = LkIn {
    fh: 1,
    owner: 2,
    lk: FileLock {
        start: 3,
        end: 4,
        kind: 5,
        pid: 6,
    },
    lk_flags: 1,
    padding: 0,
};
pub const RELEASE: ReleaseIn = ReleaseIn {
    fh: 1,
    flags: 2,
    release_flags: 3,
    lock_owner: 4,
};
pub const FSYNC: FsyncIn = FsyncIn {
    fh: 1,
    fsync_flags: 1,
    padding: 0,
};
pub const OPEN: OpenIn = OpenIn {
    flags: 0x8002,
    open_flags: 1,
};
pub const CREATE: CreateIn = CreateIn {
    flags: 0x8042,
    mode: 0o10_0644,
    umask: 0o22,
    open_flags: 1,
};
pub const MKNOD: MknodIn = MknodIn {
    mode: 0o2_0600,
    rdev: 0x103,
    umask: 0o27,
    padding: 0,
};
pub const MKDIR: MkdirIn = MkdirIn {
    mode: 0o755,
    umask: 0o22,
};
pub const BMAP: BmapIn = BmapIn {
    block: 1,
    blocksize: 512,
    padding: 0,
};
pub const IOCTL: IoctlIn = IoctlIn {
    fh: 1,
    flags: 2,
    cmd: 0x4008_6602,
    arg: 3,
    in_size: 4,
    out_size: 8,
};
pub const POLL: PollIn = PollIn {
    fh: 1,
    kh: 2,
    flags: 1,
    events: 4,
};
pub const FALLOCATE: FallocateIn = FallocateIn {
    fh: 1,
    offset: 2,
    length: 3,
    mode: 4,
    padding: 0,
};
pub const LSEEK: LseekIn = LseekIn {
    fh: 1,
    offset: 2,
    whence: 3,
    padding: 0,
};
pub const COPY: CopyFileRangeIn = CopyFileRangeIn {
    fh_in: 1,
    off_in: 2,
    nodeid_out: 3,
    fh_out: 4,
    off_out: 5,
    len: 6,
    flags: 7,
};
pub const SETUP: SetupmappingIn = SetupmappingIn {
    fh: 1,
    foffset: 2,
    len: 3,
    flags: 4,
    moffset: 5,
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

fn start(opcode: Opcode) -> RequestBuilder {
    RequestBuilder::new(opcode, UNIQUE, NODE).ids(IDS.0, IDS.1, IDS.2)
}

/// A valid request of this operation, in the dialect [`LATEST`].
pub fn sample(opcode: Opcode) -> RequestBuilder {
    let request = start(opcode);
    match opcode {
        Opcode::Lookup | Opcode::Unlink | Opcode::Rmdir => request.name(b"name"),
        Opcode::Forget => request.arg(&ForgetIn { nlookup: 17 }),
        Opcode::Getattr => request.arg(&GetattrIn {
            getattr_flags: 1,
            dummy: 0,
            fh: 18,
        }),
        Opcode::Setattr => request.arg(&SETATTR),
        Opcode::Readlink | Opcode::Statfs | Opcode::Destroy => request,
        Opcode::Symlink => request.name(b"name").name(b"/some/where"),
        Opcode::Mknod => request.arg(&MKNOD).name(b"name"),
        Opcode::Mkdir => request.arg(&MKDIR).name(b"name"),
        Opcode::Rename => request
            .arg(&RenameIn { newdir: 19 })
            .name(b"old")
            .name(b"new"),
        Opcode::Rename2 => request
            .arg(&Rename2In {
                newdir: 19,
                flags: 2,
                padding: 0,
            })
            .name(b"old")
            .name(b"new"),
        Opcode::Link => request.arg(&LinkIn { oldnodeid: 20 }).name(b"name"),
        Opcode::Open | Opcode::Opendir => request.arg(&OPEN),
        Opcode::Read | Opcode::Readdir | Opcode::Readdirplus => request.arg(&READ),
        Opcode::Write => request.arg(&WRITE).bytes(b"bytes"),
        Opcode::Release | Opcode::Releasedir => request.arg(&RELEASE),
        Opcode::Fsync | Opcode::Fsyncdir => request.arg(&FSYNC),
        Opcode::Setxattr => request
            .arg(&SetxattrIn {
                size: 5,
                flags: 1,
                setxattr_flags: 1,
                padding: 0,
            })
            .name(b"user.x")
            .bytes(b"va\0ue"),
        Opcode::Getxattr => request
            .arg(&GetxattrIn {
                size: 21,
                padding: 0,
            })
            .name(b"user.x"),
        Opcode::Listxattr => request.arg(&GetxattrIn {
            size: 22,
            padding: 0,
        }),
        Opcode::Removexattr => request.name(b"user.x"),
        Opcode::Flush => request.arg(&FlushIn {
            fh: 23,
            unused: 0,
            padding: 0,
            lock_owner: 24,
        }),
        Opcode::Init => request.arg(&init()),
        Opcode::Getlk | Opcode::Setlk | Opcode::Setlkw => request.arg(&LOCK),
        Opcode::Access => request.arg(&AccessIn {
            mask: 5,
            padding: 0,
        }),
        Opcode::Create => request.arg(&CREATE).name(b"name"),
        Opcode::Interrupt => request.arg(&InterruptIn { unique: 26 }),
        Opcode::Bmap => request.arg(&BMAP),
        Opcode::Ioctl => request.arg(&IOCTL).bytes(b"four"),
        Opcode::Poll => request.arg(&POLL),
        Opcode::NotifyReply => request.arg(&RETRIEVED).bytes(b"stored"),
        Opcode::BatchForget => FORGETS.iter().fold(
            request.arg(&BatchForgetIn { count: 3, dummy: 0 }),
            |request, &(nodeid, nlookup)| {
                let one = ForgetOne { nodeid, nlookup };
                request.bytes(zerocopy::IntoBytes::as_bytes(&one))
            },
        ),
        Opcode::Fallocate => request.arg(&FALLOCATE),
        Opcode::Lseek => request.arg(&LSEEK),
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => request.arg(&COPY),
        Opcode::SetupMapping => request.arg(&SETUP),
        Opcode::RemoveMapping => request
            .arg(&RemovemappingIn { count: 2 })
            .bytes(zerocopy::IntoBytes::as_bytes(&UNMAPPED)),
        Opcode::Syncfs => request.arg(&SyncfsIn { padding: 0 }),
        // The name is that of the kernel's own directory entry and means nothing.
        Opcode::Tmpfile => request.arg(&CREATE).name(b"/"),
        Opcode::Statx => request.arg(&StatxIn {
            getattr_flags: 1,
            reserved: 0,
            fh: 27,
            sx_flags: 28,
            sx_mask: 0xfff,
        }),
        Opcode::CuseInit => request.arg(&CuseInitIn {
            major: 7,
            minor: 45,
            unused: 0,
            flags: 1,
        }),
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
