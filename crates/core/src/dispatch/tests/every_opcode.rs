//! Each operation: the call that it becomes, the answer, and the error.

use super::rote::{TIMEOUT, lower_file};
use super::*;
use thrufs_abi::layout::{
    AttrOut, BmapIn, BmapOut, CopyFileRangeIn, CopyFileRangeOut, CreateIn, EntryOut, FallocateIn,
    FileLock, FlushIn, FsyncIn, GetxattrOut, IoctlIn, IoctlOut, LkIn, LkOut, LseekIn, LseekOut,
    MkdirIn, MknodIn, NotifyRetrieveIn, OpenIn, OpenOut, PollIn, PollOut, ReadIn, ReleaseIn,
    Rename2In, SetattrIn, SetxattrIn, StatfsOut, StatxIn, StatxOut, WriteIn, WriteOut,
};
use thrufs_abi::reply::DirectoryEntries;
use zerocopy::{Immutable, IntoBytes};

/// Asks once of a file system that does and once of one that fails: the call, and the answer.
fn both(request: RequestBuilder) -> (String, Owned) {
    let request = request.finish();
    let failing = connected(Rote {
        fail: Some(Errno::EDQUOT),
        ..Rote::default()
    });
    assert_eq!(ask(&failing, &request).unwrap().error, -libc::EDQUOT);
    let dispatcher = connected(Rote::default());
    let reply = ask(&dispatcher, &request).unwrap();
    assert_eq!((reply.unique, reply.error), (Unique(100), 0));
    let snapshot = dispatcher.metrics().snapshot();
    assert_eq!(snapshot.requests(), 2, "INIT and this one are counted");
    (dispatcher.file_system().last(), reply)
}

#[track_caller]
fn check_empty(request: RequestBuilder, call: &str) {
    let (called, reply) = both(request);
    assert_eq!(called, call);
    assert_eq!(reply.body, []);
}

#[track_caller]
fn check_entry(request: RequestBuilder, call: &str) {
    let (called, reply) = both(request);
    assert_eq!(called, call);
    assert_eq!(reply.body.len(), size_of::<EntryOut>());
    let out: EntryOut = reply.structure();
    assert_eq!((out.nodeid, out.generation, out.attr.ino), (42, 3, 4200));
    assert_eq!(
        (out.entry_valid, out.entry_valid_nsec),
        (TIMEOUT.as_secs(), 500)
    );
    assert_eq!((out.attr_valid, out.attr_valid_nsec), (1, 0));
}

fn arg(opcode: Opcode, structure: &(impl IntoBytes + Immutable)) -> RequestBuilder {
    request(opcode).arg(structure)
}

#[test]
fn names() {
    check_entry(
        request(Opcode::Lookup).name(b"x"),
        "lookup 7 x Some(1000) Some(1001) 4242",
    );
    let mknod = MknodIn {
        mode: 0o020_666,
        rdev: 259,
        umask: 0o22,
        padding: 0,
    };
    check_entry(
        arg(Opcode::Mknod, &mknod).name(b"x"),
        "mknod 7 x 20666 22 259",
    );
    let mkdir = MkdirIn {
        mode: 0o755,
        umask: 0o77,
    };
    check_entry(arg(Opcode::Mkdir, &mkdir).name(b"x"), "mkdir 7 x 40755 77");
    check_entry(
        request(Opcode::Symlink).name(b"x").name(b"a/b"),
        "symlink 7 x a/b",
    );
    check_entry(arg(Opcode::Link, &9_u64).name(b"x"), "link 9 7 x");
    check_empty(request(Opcode::Unlink).name(b"x"), "unlink 7 x");
    check_empty(request(Opcode::Rmdir).name(b"x"), "rmdir 7 x");
    let rename = arg(Opcode::Rename, &9_u64).name(b"x").name(b"y");
    check_empty(rename, "rename 7 x 9 y 0");
    let rename = Rename2In {
        newdir: 9,
        flags: 2,
        padding: 0,
    };
    check_empty(
        arg(Opcode::Rename2, &rename).name(b"x").name(b"y"),
        "rename 7 x 9 y 2",
    );
}

#[test]
fn an_absent_name_has_no_node_and_a_timeout() {
    let dispatcher = connected(Rote::default());
    let reply = ask(
        &dispatcher,
        &request(Opcode::Lookup).name(b"absent").finish(),
    )
    .unwrap();
    let out: EntryOut = reply.structure();
    assert_eq!((out.nodeid, out.entry_valid), (0, TIMEOUT.as_secs()));
}

#[test]
fn creations() {
    let create = CreateIn {
        flags: 0x242,
        mode: 0o100_600,
        umask: 0o22,
        open_flags: 0,
    };
    for (request, call) in [
        (
            arg(Opcode::Create, &create).name(b"x"),
            "create 7 x 100600 0x242",
        ),
        (
            arg(Opcode::Tmpfile, &create).name(b"/"),
            "tmpfile 7 100600 0x242",
        ),
    ] {
        let (called, reply) = both(request);
        assert_eq!(called, call);
        assert_eq!(reply.body.len(), 128 + 16);
        let out: EntryOut = reply.structure();
        let open: OpenOut = zerocopy::FromBytes::read_from_bytes(&reply.body[128..]).unwrap();
        assert_eq!((out.nodeid, open.fh, open.backing_id), (42, 99, 5));
    }
}

#[test]
fn attributes() {
    let (call, reply) = both(arg(Opcode::Getattr, &[1_u64, 99]));
    assert_eq!(call, "getattr 7 Some(FileHandle(99))");
    let out: AttrOut = reply.structure();
    assert_eq!(
        (out.attr.ino, out.attr_valid, out.attr_valid_nsec),
        (4200, 5, 500)
    );
    let set = SetattrIn {
        valid: 1 << 3 | 1 << 11,
        size: 5,
        ..SetattrIn::default()
    };
    assert_eq!(both(arg(Opcode::Setattr, &set)).0, "setattr 7 Some(5) true");
    assert_eq!(
        both(arg(Opcode::Setattr, &SetattrIn::default())).0,
        "setattr 7 None false"
    );
    let statx = StatxIn {
        sx_flags: 1,
        sx_mask: 0xfff,
        ..StatxIn::default()
    };
    let (call, reply) = both(arg(Opcode::Statx, &statx));
    assert_eq!(call, "statx 7 None 1 4095");
    let out: StatxOut = reply.structure();
    assert_eq!(
        (out.stat.mask, out.stat.ino, out.attr_valid),
        (0xfff, 4200, 5)
    );
    let (call, reply) = both(request(Opcode::Readlink));
    assert_eq!(
        (call.as_str(), &reply.body[..]),
        ("readlink 7 4095", &b"target"[..])
    );
    let (call, reply) = both(request(Opcode::Statfs));
    assert_eq!(call, "statfs 7");
    assert_eq!(reply.structure::<StatfsOut>().st.blocks, 1234);
    check_empty(arg(Opcode::Access, &[4_u32, 0]), "access 7 4");
}

#[test]
fn opens_and_closes() {
    let open = OpenIn {
        flags: 0x8001,
        open_flags: 1,
    };
    let (call, reply) = both(arg(Opcode::Open, &open));
    assert_eq!(call, "open 7 0x8001 true");
    let out: OpenOut = reply.structure();
    assert_eq!((out.fh, out.open_flags, out.backing_id), (99, 2, 5));
    assert_eq!(both(arg(Opcode::Opendir, &open)).0, "opendir 7 0x8001");
    let flush = FlushIn {
        fh: 9,
        lock_owner: 8,
        ..FlushIn::default()
    };
    check_empty(arg(Opcode::Flush, &flush), "flush 7 9 8");
    let fsync = FsyncIn {
        fh: 9,
        fsync_flags: 1,
        padding: 0,
    };
    check_empty(arg(Opcode::Fsync, &fsync), "fsync 7 9 true");
    check_empty(arg(Opcode::Fsyncdir, &fsync), "fsyncdir 7 9 true");
    check_empty(arg(Opcode::Syncfs, &0_u64), "syncfs 7");
    // A release has no way to fail, and an empty reply.
    let release = ReleaseIn {
        fh: 9,
        ..ReleaseIn::default()
    };
    for (opcode, call) in [
        (Opcode::Release, "release 7 9"),
        (Opcode::Releasedir, "releasedir 7 9"),
    ] {
        let dispatcher = connected(Rote::default());
        let reply = ask(&dispatcher, &arg(opcode, &release).finish()).unwrap();
        assert_eq!((reply.error, reply.body.len()), (0, 0));
        assert_eq!(dispatcher.file_system().last(), call);
    }
}

#[test]
fn reads_respect_the_size_that_was_asked_for() {
    let read = |size| ReadIn {
        fh: 9,
        offset: 3,
        size,
        ..ReadIn::default()
    };
    let (call, reply) = both(arg(Opcode::Read, &read(10)));
    assert_eq!(call, "read 7 9 3 10 0 None");
    assert_eq!(reply.body, b"rrrrrrrrrr");
    let (call, reply) = both(arg(Opcode::Read, &read(u32::MAX)));
    assert_eq!(
        call, "read 7 9 3 1048576 0 None",
        "no more than was agreed on"
    );
    assert_eq!(reply.body.len(), 1 << 20);
    // From a file, to its end.
    let lower = Some(lower_file(b"0123456789"));
    let dispatcher = connected(Rote {
        lower,
        ..Rote::default()
    });
    let reply = ask(&dispatcher, &arg(Opcode::Read, &read(4)).finish()).unwrap();
    assert_eq!(reply.body, b"3456");
    let reply = ask(&dispatcher, &arg(Opcode::Read, &read(100)).finish()).unwrap();
    assert_eq!(reply.body, b"3456789");
    let counts = dispatcher.metrics().snapshot();
    let counts = counts.operation(Opcode::Read).unwrap();
    assert_eq!((counts.requests(), counts.bytes), (2, 11));
    // Not without sleeping: that is for the transport to find out.
    let mut buffer = vec![0; 70_000];
    let request = arg(Opcode::Read, &read(100)).finish();
    match dispatcher.dispatch(&request, &mut buffer, false) {
        Outcome::File(reply) => {
            assert_eq!((reply.offset(), reply.length()), (3, 100));
            assert_eq!(reply.read_into(&mut buffer, false), Err(Errno::DEFER));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn writes() {
    let write = WriteIn {
        offset: 6,
        size: 4,
        write_flags: 5,
        ..WriteIn::default()
    };
    let (call, reply) = both(arg(Opcode::Write, &write).bytes(b"data"));
    assert_eq!(call, "write 7 6 4 true true None");
    assert_eq!(reply.structure::<WriteOut>().size, 4);
    assert_eq!(reply.body.len(), 8);
    let lower = lower_file(b"0123456789");
    let dispatcher = connected(Rote {
        lower: Some(Arc::clone(&lower)),
        ..Rote::default()
    });
    ask(
        &dispatcher,
        &arg(Opcode::Write, &write).bytes(b"data").finish(),
    )
    .unwrap();
    let mut bytes = [0; 20];
    let length = lower.read_at(&mut bytes, 0, true).unwrap();
    assert_eq!(&bytes[..length], b"012345data");
    assert_eq!(
        dispatcher
            .metrics()
            .snapshot()
            .operation(Opcode::Write)
            .unwrap()
            .bytes,
        4
    );
}

#[test]
fn listings_end_with_the_size_that_was_asked_for() {
    let read = |size, offset| ReadIn {
        fh: 9,
        offset,
        size,
        ..ReadIn::default()
    };
    let (call, reply) = both(arg(Opcode::Readdir, &read(4096, 0)));
    assert_eq!(call, "readdir 7 9 0 false");
    let names: Vec<_> = DirectoryEntries::new(&reply.body, false)
        .map(|e| e.name)
        .collect();
    assert_eq!(names, [&b"."[..], b"two", b"three"]);
    let (call, reply) = both(arg(Opcode::Readdirplus, &read(4096, 0)));
    assert_eq!(call, "readdir 7 9 0 true");
    let entries: Vec<_> = DirectoryEntries::new(&reply.body, true).collect();
    let nodes: Vec<_> = entries
        .iter()
        .map(|entry| entry.entry.unwrap().nodeid)
        .collect();
    assert_eq!(nodes, [0, 42, 42]);
    let (_, reply) = both(arg(Opcode::Readdirplus, &read(400, 0)));
    assert_eq!(DirectoryEntries::new(&reply.body, true).count(), 2);
    let (_, reply) = both(arg(Opcode::Readdir, &read(0, 0)));
    assert_eq!(reply.body, []);
    // An error does not lose what was counted before it.
    let dispatcher = connected(Rote::default());
    let request = arg(Opcode::Readdirplus, &read(4096, 500)).finish();
    let reply = ask(&dispatcher, &request).unwrap();
    assert_eq!(
        (
            reply.error,
            DirectoryEntries::new(&reply.body, true).count()
        ),
        (0, 1)
    );
    // Not agreed on, not served.
    let dispatcher = Dispatcher::new(Arc::new(Rote::default()));
    ask(
        &dispatcher,
        &init_request(45, offered() - InitFlags::DO_READDIRPLUS),
    )
    .unwrap();
    assert_eq!(ask(&dispatcher, &request).unwrap().error, -libc::ENOSYS);
}

#[test]
fn extended_attributes() {
    let set = SetxattrIn {
        size: 3,
        flags: 1,
        setxattr_flags: 1,
        padding: 0,
    };
    let request_of = |opcode, size: u32| arg(opcode, &[size, 0]);
    let setxattr = arg(Opcode::Setxattr, &set).name(b"user.a").bytes(b"abc");
    check_empty(setxattr, "setxattr 7 user.a abc 1 true");
    check_empty(
        request(Opcode::Removexattr).name(b"user.a"),
        "removexattr 7 user.a",
    );
    let (call, reply) = both(request_of(Opcode::Getxattr, 64).name(b"user.a"));
    assert_eq!(
        (call.as_str(), &reply.body[..]),
        ("getxattr 7 user.a 64", &b"value"[..])
    );
    let (call, reply) = both(request_of(Opcode::Getxattr, 0).name(b"user.a"));
    assert_eq!(call, "getxattr 7 user.a 0");
    assert_eq!(reply.structure::<GetxattrOut>().size, 5);
    assert_eq!(reply.body.len(), 8);
    let (_, reply) = both(request_of(Opcode::Listxattr, 0));
    assert_eq!(reply.structure::<GetxattrOut>().size, 14);
    let (_, reply) = both(request_of(Opcode::Listxattr, 14));
    assert_eq!(reply.body, b"user.a\0user.b\0");
    let dispatcher = connected(Rote::default());
    let short = ask(
        &dispatcher,
        &request_of(Opcode::Getxattr, 4).name(b"user.a").finish(),
    );
    assert_eq!(short.unwrap().error, -libc::ERANGE);
    let careless = ask(&dispatcher, &request_of(Opcode::Listxattr, 13).finish());
    assert_eq!(careless.unwrap().error, -libc::ERANGE);
}

#[test]
fn locks() {
    let end = i64::MAX as u64;
    let lk = FileLock {
        start: 5,
        end,
        kind: libc::F_WRLCK as u32,
        pid: 3,
    };
    let lock = LkIn {
        fh: 9,
        owner: 8,
        lk,
        lk_flags: 1,
        padding: 0,
    };
    check_empty(
        arg(Opcode::Setlk, &lock),
        &format!("setlk 7 8 true 5..{end} 1 false"),
    );
    check_empty(
        arg(Opcode::Setlkw, &lock),
        &format!("setlk 7 8 true 5..{end} 1 true"),
    );
    let (_, reply) = both(arg(Opcode::Getlk, &lock));
    let out: LkOut = reply.structure();
    assert_eq!(
        (out.lk.start, out.lk.end, out.lk.kind, out.lk.pid),
        (5, end, 1, 77)
    );
    let free = LkIn {
        lk: FileLock { start: 0, ..lk },
        ..lock
    };
    let (_, reply) = both(arg(Opcode::Getlk, &free));
    assert_eq!(reply.structure::<LkOut>().lk.kind, libc::F_UNLCK as u32);
    let endless = LkIn {
        lk: FileLock {
            end: u64::MAX,
            ..lk
        },
        ..lock
    };
    assert_eq!(
        both(arg(Opcode::Setlk, &endless)).0,
        format!("setlk 7 8 true 5..{end} 1 false")
    );
    let reversed = LkIn {
        lk: FileLock { end: 4, ..lk },
        lk_flags: 0,
        ..lock
    };
    let dispatcher = connected(Rote::default());
    let reply = ask(&dispatcher, &arg(Opcode::Setlk, &reversed).finish()).unwrap();
    assert_eq!(reply.error, -libc::EINVAL);
}

#[test]
fn ranges() {
    let fallocate = FallocateIn {
        fh: 9,
        offset: 1,
        length: 2,
        mode: 3,
        padding: 0,
    };
    check_empty(arg(Opcode::Fallocate, &fallocate), "fallocate 7 9 1 2 3");
    let lseek = LseekIn {
        fh: 9,
        offset: 1,
        whence: 4,
        padding: 0,
    };
    let (call, reply) = both(arg(Opcode::Lseek, &lseek));
    assert_eq!(call, "lseek 7 9 1 4");
    assert_eq!(reply.structure::<LseekOut>().offset, 8192);
    let copy = CopyFileRangeIn {
        nodeid_out: 8,
        len: 1 << 33,
        ..CopyFileRangeIn::default()
    };
    let (call, reply) = both(arg(Opcode::CopyFileRange64, &copy));
    assert_eq!(call, format!("copy_file_range 7 8 {}", 1_u64 << 33));
    assert_eq!(reply.structure::<CopyFileRangeOut>().bytes_copied, 1 << 33);
    let (_, reply) = both(arg(Opcode::CopyFileRange, &copy));
    assert_eq!(reply.structure::<WriteOut>().size, 0xffff_f000);
    let bmap = BmapIn {
        block: 3,
        blocksize: 512,
        padding: 0,
    };
    let (call, reply) = both(arg(Opcode::Bmap, &bmap));
    assert_eq!(call, "bmap 7 3 512");
    assert_eq!(reply.structure::<BmapOut>().block, 4);
}

#[test]
fn ioctl_and_poll() {
    let ioctl = IoctlIn {
        fh: 9,
        cmd: 77,
        in_size: 3,
        out_size: 5,
        ..IoctlIn::default()
    };
    let (call, reply) = both(arg(Opcode::Ioctl, &ioctl).bytes(b"abc"));
    assert_eq!(call, "ioctl 7 9 77 abc");
    assert_eq!(reply.structure::<IoctlOut>().result, 9);
    assert_eq!(&reply.body[16..], b"\0\0cba");
    let narrow = IoctlIn {
        out_size: 2,
        ..ioctl
    };
    let (_, reply) = both(arg(Opcode::Ioctl, &narrow).bytes(b"abc"));
    assert_eq!(&reply.body[16..], b"cb");
    let dispatcher = connected(Rote::default());
    let wild = IoctlIn { flags: 2, ..ioctl };
    let reply = ask(
        &dispatcher,
        &arg(Opcode::Ioctl, &wild).bytes(b"abc").finish(),
    )
    .unwrap();
    assert_eq!(reply.error, -libc::ENOTTY);
    let huge = IoctlIn {
        out_size: u32::MAX,
        ..ioctl
    };
    let reply = ask(
        &dispatcher,
        &arg(Opcode::Ioctl, &huge).bytes(b"abc").finish(),
    )
    .unwrap();
    assert_eq!(reply.error, -libc::EINVAL);
    let poll = PollIn {
        fh: 9,
        kh: 6,
        flags: 1,
        events: 5,
    };
    let (call, reply) = both(arg(Opcode::Poll, &poll));
    assert_eq!(call, "poll 7 9 5 Some(PollHandle(6))");
    assert_eq!(reply.structure::<PollOut>().revents, 1);
    assert_eq!(
        both(arg(Opcode::Poll, &PollIn { flags: 0, ..poll })).0,
        "poll 7 9 5 None"
    );
}

#[test]
fn what_nobody_waits_for_has_no_reply() {
    let dispatcher = connected(Rote::default());
    let rote = dispatcher.file_system();
    assert_eq!(
        ask(&dispatcher, &arg(Opcode::Forget, &3_u64).finish()),
        None
    );
    assert_eq!(rote.last(), "forget 7 3");
    rote.clear();
    let batch = arg(Opcode::BatchForget, &[2_u32, 0]);
    let batch = batch.bytes([5_u64, 1, 6, 2].as_bytes()).finish();
    assert_eq!(ask(&dispatcher, &batch), None);
    assert_eq!(rote.calls(), ["forget 5 1", "forget 6 2"]);
    let retrieved = NotifyRetrieveIn {
        offset: 10,
        size: 4,
        ..NotifyRetrieveIn::default()
    };
    let retrieved = arg(Opcode::NotifyReply, &retrieved).bytes(b"page").finish();
    assert_eq!(ask(&dispatcher, &retrieved), None);
    assert_eq!(rote.last(), "retrieved 7 100 10 page");
    assert_eq!(
        ask(&dispatcher, &arg(Opcode::Interrupt, &4_u64).finish()),
        None
    );
    // The end of the connection is acknowledged.
    let reply = ask(&dispatcher, &request(Opcode::Destroy).finish()).unwrap();
    assert_eq!((reply.error, reply.body.len()), (0, 0));
}
