//! Each operation: the call that it becomes, the answer, and the error.

#[path = "../../../../abi/tests/wire/samples.rs"]
mod samples;

use super::recording_fs::{TIMEOUT, lower_file};
use super::*;
use std::fmt::Debug;
use thrufs_abi::layout::{
    AttrOut, BmapOut, CopyFileRangeOut, EntryOut, FileLock, GetxattrOut, IoctlIn, IoctlOut, LkIn,
    LkOut, LseekOut, OpenOut, PollIn, PollOut, ReadIn, SetattrIn, StatfsOut, StatxOut, WriteIn,
    WriteOut,
};
use thrufs_abi::opcode::Repeat;
use thrufs_abi::reply::DirectoryEntries;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What becomes of each operation's sample, a line each: the call, and the reply or what is none.
const RECORDED: &str = include_str!("every_opcode.recorded");

fn shown<T: FromBytes + Debug>(body: &[u8]) -> String {
    T::read_from_bytes(body).map_or("of another size".to_owned(), |out| format!("{out:?}"))
}

fn body(opcode: Opcode, body: &[u8]) -> String {
    match opcode {
        _ if body.is_empty() => "done".to_owned(),
        Opcode::Lookup | Opcode::Mknod | Opcode::Mkdir | Opcode::Symlink | Opcode::Link => {
            shown::<EntryOut>(body)
        }
        Opcode::Create | Opcode::Tmpfile => {
            let (entry, opened) = body.split_at(size_of::<EntryOut>());
            shown::<EntryOut>(entry) + " " + &shown::<OpenOut>(opened)
        }
        Opcode::Getattr | Opcode::Setattr => shown::<AttrOut>(body),
        Opcode::Statx => shown::<StatxOut>(body),
        Opcode::Statfs => shown::<StatfsOut>(body),
        Opcode::Open | Opcode::Opendir => shown::<OpenOut>(body),
        Opcode::Write | Opcode::CopyFileRange => shown::<WriteOut>(body),
        Opcode::CopyFileRange64 => shown::<CopyFileRangeOut>(body),
        Opcode::Lseek => shown::<LseekOut>(body),
        Opcode::Bmap => shown::<BmapOut>(body),
        Opcode::Poll => shown::<PollOut>(body),
        Opcode::Getlk => shown::<LkOut>(body),
        _ => body.escape_ascii().to_string(),
    }
}

#[test]
fn each_sample_request_calls_its_method_and_is_answered() {
    assert_eq!(lines(false, |fs| fs), RECORDED);
}

#[test]
fn an_answer_that_comes_later_is_the_same() {
    assert_eq!(lines(true, |fs| fs), RECORDED);
}

#[test]
fn a_file_system_behind_a_pointer_is_the_same() {
    let boxed = |fs| -> Box<dyn FileSystem> { Box::new(fs) };
    assert_eq!(lines(false, boxed), RECORDED);
}

fn lines<F: FileSystem>(later: bool, serve: impl Fn(Arc<RecordingFs>) -> F) -> String {
    let mut lines = String::new();
    for &opcode in Opcode::ALL {
        let fs = Arc::new(RecordingFs::with(|fs| fs.later = later));
        let dispatcher = Dispatcher::new(Arc::new(serve(Arc::clone(&fs))));
        ask(&dispatcher, &init_request(45, offered())).unwrap();
        fs.clear();
        let reply = ask(&dispatcher, &samples::sample(opcode).finish());
        let answer = reply.map_or("no reply".to_owned(), |reply| {
            assert_eq!(reply.unique, samples::UNIQUE);
            match reply.error {
                0 => body(opcode, &reply.body),
                error => format!("{:?}", Errno::from_raw(-error)),
            }
        });
        let calls = fs.calls().join(", ");
        lines += &format!("{}: {calls} -> {answer}\n", opcode.name());
    }
    lines
}

/// Errors of the file system are replied to requests that have a reply.
#[test]
fn each_error_of_a_method_is_replied() {
    let failing = connected(RecordingFs::with(|fs| fs.fail = Some(Errno::EDQUOT)));
    for &opcode in Opcode::ALL {
        let before = failing.file_system().calls().len();
        let reply = ask(&failing, &samples::sample(opcode).finish());
        let is_asked = failing.file_system().calls().len() > before;
        let may_fail = !matches!(opcode, Opcode::Release | Opcode::Releasedir);
        for reply in reply.iter().filter(|_| is_asked) {
            assert_eq!(reply.error == -libc::EDQUOT, may_fail, "{opcode:?}");
        }
    }
}

/// A second RELEASE fails, whatever was before.
#[test]
fn what_was_before_is_looked_at_where_the_begin_is_noted() {
    for &opcode in Opcode::ALL {
        let dispatcher = connected(RecordingFs::default());
        dispatcher.file_system().clear();
        dispatcher.look_before(&samples::sample(opcode).finish(), true);
        let is_noted = opcode.row().repeat == Repeat::Noted;
        let looks = is_noted && !matches!(opcode, Opcode::Release | Opcode::Releasedir);
        assert_eq!(
            !dispatcher.file_system().calls().is_empty(),
            looks,
            "{opcode:?}"
        );
    }
}

/// Asks once of a file system that does and once of one that fails: the call, and the answer.
fn both(request: RequestBuilder) -> (String, Owned) {
    let request = request.finish();
    let failing = connected(RecordingFs::with(|fs| fs.fail = Some(Errno::EDQUOT)));
    assert_eq!(ask(&failing, &request).unwrap().error, -libc::EDQUOT);
    let dispatcher = connected(RecordingFs::default());
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

/// A dispatcher whose reads and writes are those of a file.
fn on_lower(file: &Arc<LowerFile>) -> Dispatcher<RecordingFs> {
    connected(RecordingFs::with(|fs| fs.lower = Some(Arc::clone(file))))
}

fn arg(opcode: Opcode, structure: &(impl IntoBytes + Immutable)) -> RequestBuilder {
    request(opcode).arg(structure)
}

#[test]
fn a_negative_entry_has_no_node_and_a_timeout() {
    let dispatcher = connected(RecordingFs::default());
    let reply = reply_to(&dispatcher, request(Opcode::Lookup).name(b"absent"));
    let out: EntryOut = reply.structure();
    assert_eq!((out.nodeid, out.entry_valid), (0, TIMEOUT.as_secs()));
}

#[test]
fn flags_decide_which_fields_are_passed() {
    let open = arg(Opcode::Open, &[0x8001_u32, 1]);
    assert_eq!(both(open).0, "open 7 0x8001 true");
    let size_and_kill = SetattrIn {
        valid: 1 << 3 | 1 << 11,
        size: 5,
        ..SetattrIn::default()
    };
    let set = arg(Opcode::Setattr, &size_and_kill);
    assert_eq!(both(set).0, "setattr 7 Some(5) true");
    let poll = PollIn {
        kh: 6,
        ..PollIn::default()
    };
    assert_eq!(both(arg(Opcode::Poll, &poll)).0, "poll 7 0 0 None");
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
    let dispatcher = on_lower(&lower_file(b"0123456789"));
    let reply = reply_to(&dispatcher, arg(Opcode::Read, &read(4)));
    assert_eq!(reply.body, b"3456");
    let reply = reply_to(&dispatcher, arg(Opcode::Read, &read(100)));
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
    let dispatcher = on_lower(&lower);
    reply_to(&dispatcher, arg(Opcode::Write, &write).bytes(b"data"));
    let mut bytes = [0; 20];
    let length = lower.read_at(&mut bytes, 0, true).unwrap();
    assert_eq!(&bytes[..length], b"012345data");
    let counts = dispatcher.metrics().snapshot();
    assert_eq!(counts.operation(Opcode::Write).unwrap().bytes, 4);
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
    let dispatcher = connected(RecordingFs::default());
    let request = arg(Opcode::Readdirplus, &read(4096, 500)).finish();
    let reply = ask(&dispatcher, &request).unwrap();
    assert_eq!(reply.error, 0);
    assert_eq!(DirectoryEntries::new(&reply.body, true).count(), 1);
    // Not agreed on, not served.
    let dispatcher = Dispatcher::new(Arc::new(RecordingFs::default()));
    ask(
        &dispatcher,
        &init_request(45, offered() - InitFlags::DO_READDIRPLUS),
    )
    .unwrap();
    assert_eq!(ask(&dispatcher, &request).unwrap().error, -libc::ENOSYS);
}

#[test]
fn extended_attributes() {
    let request_of = |opcode, size: u32| arg(opcode, &[size, 0]);
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
    let dispatcher = connected(RecordingFs::default());
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
    let call = both(arg(Opcode::Setlk, &endless)).0;
    assert_eq!(call, format!("setlk 7 8 true 5..{end} 1 false"));
    let reversed = LkIn {
        lk: FileLock { end: 4, ..lk },
        lk_flags: 0,
        ..lock
    };
    let dispatcher = connected(RecordingFs::default());
    let reply = reply_to(&dispatcher, arg(Opcode::Setlk, &reversed));
    assert_eq!(reply.error, -libc::EINVAL);
}

#[test]
fn ioctl() {
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
    let dispatcher = connected(RecordingFs::default());
    let wild = IoctlIn { flags: 2, ..ioctl };
    let reply = reply_to(&dispatcher, arg(Opcode::Ioctl, &wild).bytes(b"abc"));
    assert_eq!(reply.error, -libc::ENOTTY);
    let huge = IoctlIn {
        out_size: u32::MAX,
        ..ioctl
    };
    let reply = reply_to(&dispatcher, arg(Opcode::Ioctl, &huge).bytes(b"abc"));
    assert_eq!(reply.error, -libc::EINVAL);
}
