//! Every operation there and back: what a kernel sends, in one piece and in three, is what comes
//! out.

use crate::samples::{self, LATEST, sample};
use thrufs_abi::layout::{InHeader, InitIn};
use thrufs_abi::{
    Dialect, InitFlags, NodeId, Opcode, Operation, Payload, Request, RequestBuilder, Unique,
    op_struct_size,
};
use zerocopy::IntoBytes;

/// What comes out of each operation's sample, a line each.
const RECORDED: &str = include_str!("operations.recorded");

/// Holds an operation against what [`sample`] put in.
fn check(opcode: Opcode, operation: Operation<'_>) {
    let operation = match operation {
        Operation::BatchForget { forgets } => format!("{:?}", Vec::from_iter(forgets.iter())),
        Operation::RemoveMapping { mappings } => format!("{:?}", Vec::from_iter(mappings.iter())),
        other => format!("{other:?}"),
    };
    let line = format!("{}: {operation}", opcode.name());
    assert!(RECORDED.lines().any(|recorded| recorded == line), "{line}");
}

fn check_header(opcode: Opcode, request: &Request<'_>) {
    let header = request.header;
    assert_eq!(header.opcode, opcode);
    let (unique, node) = (header.unique, header.nodeid);
    assert_eq!((unique, node), (samples::UNIQUE, samples::NODE));
    assert_eq!((header.uid, header.gid, header.pid), samples::IDS);
}

#[test]
fn every_operation_in_one_piece() {
    for &opcode in Opcode::ALL {
        let bytes = sample(opcode).finish();
        let request = Request::parse(&bytes, LATEST, Payload::Inline).unwrap();
        check_header(opcode, &request);
        check(opcode, request.operation);
    }
}

#[test]
fn every_operation_in_three_pieces() {
    for &opcode in Opcode::ALL {
        // INIT never travels over the ring: there is none before it.
        if opcode == Opcode::Init {
            continue;
        }
        let split = sample(opcode).finish_split();
        let length = split.structure.len();
        assert_eq!(length, op_struct_size(opcode, LATEST), "{opcode:?}");
        // Both areas of a ring entry have 128 bytes, with what was there before behind what counts.
        let (mut header, mut structure) = (split.header, split.structure);
        header.resize(128, 0xee);
        structure.resize(128, 0xee);
        let request =
            Request::parse_split(&header, &structure, &split.rest, LATEST, Payload::Inline);
        let request = request.unwrap();
        check_header(opcode, &request);
        check(opcode, request.operation);
    }
}

#[test]
fn bytes_need_not_be_aligned() {
    for &opcode in Opcode::ALL {
        let bytes = sample(opcode).finish();
        for shift in 1..8 {
            let moved = [vec![0xee; shift], bytes.clone()].concat();
            let request = Request::parse(&moved[shift..], LATEST, Payload::Inline).unwrap();
            check(opcode, request.operation);
        }
    }
}

#[test]
fn flags_decide_whether_a_handle_is_valid() {
    let no_handle = thrufs_abi::layout::GetattrIn {
        getattr_flags: 0,
        dummy: 0,
        fh: 9,
    };
    let bytes = RequestBuilder::new(Opcode::Getattr, Unique(2), NodeId(1))
        .arg(&no_handle)
        .finish();
    let request = Request::parse(&bytes, LATEST, Payload::Inline).unwrap();
    assert!(matches!(request.operation, Operation::Getattr { fh: None }));
}

#[test]
fn setxattr_before_the_long_form() {
    let short = Dialect {
        minor: 32,
        setxattr_ext: false,
    };
    // Size and flags only, then the name: the form before Linux 5.12.
    let request = RequestBuilder::new(Opcode::Setxattr, Unique(2), NodeId(1))
        .arg(&[5_u32, 1])
        .name(b"user.x")
        .bytes(b"value");
    let bytes = request.clone().finish();
    let parsed = Request::parse(&bytes, short, Payload::Inline).unwrap();
    let whole = format!("{:?}", parsed.operation);
    let expected = Operation::Setxattr {
        name: c"user.x",
        value: b"value",
        flags: 1,
        setxattr_flags: 0,
    };
    assert_eq!(whole, format!("{expected:?}"));
    // The same bytes are invalid in the long form.
    assert!(Request::parse(&bytes, LATEST, Payload::Inline).is_err());
    let split = request.finish_split();
    let (structure, rest) = (&split.structure, &split.rest);
    let request = Request::parse_split(&split.header, structure, rest, short, Payload::Inline);
    assert_eq!(format!("{:?}", request.unwrap().operation), whole);
    assert_eq!(op_struct_size(Opcode::Setxattr, Dialect::INITIAL), 8);
}

fn parse_init(bytes: &[u8]) -> Option<(InitIn, InitFlags)> {
    match Request::parse(bytes, Dialect::INITIAL, Payload::Inline)
        .ok()?
        .operation
    {
        Operation::Init { arg, flags } => Some((arg, flags)),
        _ => None,
    }
}

#[test]
fn init_of_every_length() {
    let init = || RequestBuilder::new(Opcode::Init, Unique(2), NodeId(0));
    // 7.31 to 7.35: 16 bytes.
    assert_eq!(op_struct_size(Opcode::Init, LATEST), 16);
    let (arg, flags) = parse_init(&init().arg(&[7_u32, 31, 0x2_0000, 0xb]).finish()).unwrap();
    assert_eq!(
        (arg.major, arg.minor, arg.max_readahead, arg.flags2),
        (7, 31, 0x2_0000, 0)
    );
    assert_eq!(flags.bits(), 0xb);
    // Without INIT_EXT, what stands where flags2 would be does not count.
    let (arg, flags) = parse_init(&init().arg(&[7_u32, 36, 0, 1, 0xffff_ffff]).finish()).unwrap();
    assert_eq!((arg.flags2, flags), (0, InitFlags::ASYNC_READ));
    // Later than ours: longer, unknown bits kept.
    let ext = InitFlags::INIT_EXT.bits() as u32;
    let mut longer = vec![7_u32, 60, 0, ext, 0x8000_0000];
    longer.resize(40, 0x5555_5555);
    let bytes = init().bytes(longer.as_bytes()).finish();
    let (arg, flags) = parse_init(&bytes).unwrap();
    assert_eq!((arg.minor, arg.flags2), (60, 0x8000_0000));
    assert_eq!(flags.bits(), 1 << 63 | u64::from(ext));
    // INIT_EXT without flags2 contradicts itself; 12 bytes are no INIT at all.
    assert_eq!(parse_init(&init().arg(&[7_u32, 36, 0, ext]).finish()), None);
    assert_eq!(parse_init(&init().arg(&[7_u32, 36, 0]).finish()), None);
}

#[test]
fn out_of_line_data() {
    for (opcode, structure) in [
        (Opcode::Write, samples::WRITE.as_bytes()),
        (Opcode::NotifyReply, samples::RETRIEVED.as_bytes()),
    ] {
        // The header counts the data, the bytes end before them.
        let whole = sample(opcode).finish();
        let here = &whole[..size_of::<InHeader>() + structure.len()];
        let request = Request::parse(here, LATEST, Payload::External).unwrap();
        let data = match request.operation {
            Operation::Write { arg, data } => {
                assert_eq!(arg, samples::WRITE);
                data
            }
            Operation::NotifyReply { arg, data } => {
                assert_eq!(arg, samples::RETRIEVED);
                data
            }
            other => panic!("{other:?}"),
        };
        assert!(data.is_empty());
        assert!(Request::parse(here, LATEST, Payload::Inline).is_err());
    }
    // What has no data is read the same way.
    let bytes = sample(Opcode::Lookup).finish();
    check(
        Opcode::Lookup,
        Request::parse(&bytes, LATEST, Payload::External)
            .unwrap()
            .operation,
    );
}

#[test]
fn creations_carry_extensions() {
    let label = samples::security_context(b"security.selinux", b"user_u:object_r\0");
    for opcode in [
        Opcode::Create,
        Opcode::Mkdir,
        Opcode::Mknod,
        Opcode::Symlink,
        Opcode::Tmpfile,
    ] {
        let build = || {
            sample(opcode)
                .extension(&label)
                .extension(&samples::group(1000))
        };
        let (bytes, split) = (build().finish(), build().finish_split());
        let (structure, rest) = (&split.structure, &split.rest);
        for request in [
            Request::parse(&bytes, LATEST, Payload::Inline).unwrap(),
            Request::parse_split(&split.header, structure, rest, LATEST, Payload::Inline).unwrap(),
        ] {
            check(opcode, request.operation);
            let label = (c"security.selinux", &b"user_u:object_r\0"[..]);
            let extensions = request.extensions;
            assert_eq!(extensions.security_context(), Some(label), "{opcode:?}");
            assert_eq!(extensions.supplementary_group(), Some(1000));
        }
        let bytes = sample(opcode).finish();
        let request = Request::parse(&bytes, LATEST, Payload::Inline).unwrap();
        assert_eq!(request.extensions.security_context(), None);
        assert_eq!(request.extensions.supplementary_group(), None);
    }
}

#[test]
fn empty_security_contexts() {
    // Linux sends a header with a count of zero.
    let bytes = sample(Opcode::Mkdir)
        .extension(&samples::words(&[8, 0]))
        .finish();
    let request = Request::parse(&bytes, LATEST, Payload::Inline).unwrap();
    assert_eq!(request.extensions.security_context(), None);
}
