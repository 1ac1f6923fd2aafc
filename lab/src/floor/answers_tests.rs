use super::{Answer, DIALECT, DIRECTORY_MODE, FILE_BYTES, FILE_MODE, WANTED, answer};
use rustix::io::Errno;
use thrufs::layout::{
    AttrOut, CreateIn, EntryOut, GetattrIn, GetxattrIn, InitIn, InitOut, MkdirIn, OpenIn, OpenOut,
    ReadIn, WriteIn, WriteOut,
};
use thrufs_abi::{
    InitFlags, NodeId, Opcode, OpenReplyFlags, Payload, Request, RequestBuilder, Unique,
};
use thrufs_bench::row::{self, Work};
use zerocopy::FromBytes;

/// The answer, and the body.
fn asked(request: RequestBuilder, wanted: InitFlags) -> (Answer, Vec<u8>) {
    let bytes = request.finish();
    let request = Request::parse(&bytes, DIALECT, Payload::Inline).unwrap();
    let mut out = vec![0; 8192];
    let answer = answer(&request, wanted, &mut out);
    let length = if let Answer::Body(length) = answer {
        length
    } else {
        0
    };
    out.truncate(length);
    (answer, out)
}

fn body<T: FromBytes>(request: RequestBuilder) -> T {
    let (answer, body) = asked(request, WANTED);
    assert_eq!(answer, Answer::Body(size_of::<T>()));
    T::read_from_bytes(&body).unwrap()
}

fn request(opcode: Opcode, node: u64) -> RequestBuilder {
    RequestBuilder::new(opcode, Unique(2), NodeId(node))
}

fn lookup(parent: u64, name: &str) -> EntryOut {
    body(request(Opcode::Lookup, parent).name(name.as_bytes()))
}

#[test]
fn a_name_decides_the_kind_of_a_node() {
    let directory = lookup(1, "create-1-0-0");
    assert_eq!(directory.attr.mode, DIRECTORY_MODE);
    for file in ["file", "file-000001"] {
        let entry = lookup(directory.nodeid, file);
        assert_eq!((entry.attr.mode, entry.attr.size), (FILE_MODE, FILE_BYTES));
    }
    for missing in ["made-000001", "new", "file-000001.renamed"] {
        let entry = lookup(directory.nodeid, missing);
        assert_eq!(entry.nodeid, 0, "{missing}");
        assert!(
            entry.entry_valid > 0,
            "{missing}: the kernel shall remember"
        );
    }
}

#[test]
fn each_name_in_each_directory_is_an_inode_and_stays_one() {
    let (one, other) = (lookup(1, "one").nodeid, lookup(1, "other").nodeid);
    let file = lookup(one, "file-000001").nodeid;
    assert_eq!(lookup(one, "file-000001").nodeid, file);
    assert_ne!(lookup(one, "file-000002").nodeid, file);
    assert_ne!(lookup(other, "file-000001").nodeid, file);
}

#[test]
fn a_node_keeps_its_kind() {
    let create = request(Opcode::Create, 1)
        .arg(&CreateIn::default())
        .name(b"made-000001");
    let (answer, made) = asked(create, WANTED);
    assert_eq!(
        answer,
        Answer::Body(size_of::<EntryOut>() + size_of::<OpenOut>())
    );
    let (file, opened) = EntryOut::read_from_prefix(&made).unwrap();
    let opened = OpenOut::read_from_bytes(opened).unwrap();
    let flags = OpenReplyFlags::from_bits_retain(opened.open_flags);
    assert_eq!(flags, OpenReplyFlags::KEEP_CACHE | OpenReplyFlags::NOFLUSH);
    let mkdir = request(Opcode::Mkdir, 1)
        .arg(&MkdirIn::default())
        .name(b"made-000001");
    let directory: EntryOut = body(mkdir);
    for (node, mode) in [
        (file.nodeid, FILE_MODE),
        (directory.nodeid, DIRECTORY_MODE),
        (1, DIRECTORY_MODE),
    ] {
        let out: AttrOut = body(request(Opcode::Getattr, node).arg(&GetattrIn::default()));
        assert_eq!((out.attr.mode, out.attr.ino), (mode, node));
    }
}

#[test]
fn data_are_as_many_as_were_asked_for() {
    let size = 4096;
    let read = ReadIn {
        size,
        ..ReadIn::default()
    };
    let (answer, _) = asked(request(Opcode::Read, 2).arg(&read), WANTED);
    assert_eq!(answer, Answer::Body(4096));
    let write = WriteIn {
        size,
        ..WriteIn::default()
    };
    let written: WriteOut = body(request(Opcode::Write, 2).arg(&write).bytes(&[1; 4096]));
    assert_eq!(written.size, 4096);
}

#[test]
fn init_asks_for_what_is_offered_and_wanted() {
    let offered = InitFlags::all() - InitFlags::CACHE_SYMLINKS;
    let arg = InitIn {
        major: 7,
        minor: 99,
        flags: offered.bits() as u32,
        flags2: (offered.bits() >> 32) as u32,
        ..InitIn::default()
    };
    let wanted = WANTED | InitFlags::OVER_IO_URING;
    let (_, bytes) = asked(request(Opcode::Init, 0).arg(&arg), wanted);
    let out = InitOut::read_from_bytes(&bytes).unwrap();
    assert_eq!(out.minor, DIALECT.minor);
    assert_eq!((out.max_write, out.max_pages), (1 << 20, 256));
    let flags = u64::from(out.flags) | u64::from(out.flags2) << 32;
    assert_eq!(flags, (wanted - InitFlags::CACHE_SYMLINKS).bits());
}

#[test]
fn missing_names_and_attributes_get_their_errors() {
    let attribute = request(Opcode::Getxattr, 2)
        .arg(&GetxattrIn::default())
        .name(b"security.capability");
    assert_eq!(asked(attribute, WANTED).0, Answer::Failed(Errno::NODATA));
    let opened: OpenOut = body(request(Opcode::Opendir, 1).arg(&OpenIn::default()));
    assert_ne!(opened.open_flags, 0);
    for listing in [Opcode::Readdir, Opcode::Readdirplus] {
        let listing = request(listing, 1).arg(&ReadIn::default());
        assert_eq!(asked(listing, WANTED).0, Answer::Body(0));
    }
}

#[test]
fn no_row_reads_past_the_end() {
    thrufs_bench::extend(&crate::LAB);
    for row in row::listed("transports").unwrap() {
        match &row.work {
            Work::Loop(_) => {}
            Work::Data(job) => assert!(job.file_bytes(100) <= FILE_BYTES, "{}", row.name),
            Work::Other(_) => panic!("{}: its files keep nothing", row.name),
        }
    }
}
