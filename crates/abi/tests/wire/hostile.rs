//! Bytes that no kernel would send: there is always an answer, never a panic, and what does come
//! out is what the bytes say.

use crate::samples::{self, LATEST, sample};
use proptest::prelude::{ProptestConfig, any, prop, proptest};
use proptest::sample::select;
use proptest::{prop_assert, prop_assert_eq};
use thrufs_abi::layout::{BatchForgetIn, EntryOut, ForgetOne, GetxattrIn, InHeader, SetxattrIn};
use thrufs_abi::reply::{
    DirectoryEntries, Reply, dirent_size, direntplus_size, encode_dirent, encode_direntplus,
};
use thrufs_abi::{
    Dialect, NodeId, Opcode, Operation, ParseError, ParseErrorKind, Payload, Request,
    RequestBuilder, Unique,
};
use zerocopy::IntoBytes;

const HEADER: usize = size_of::<InHeader>();

fn parse(bytes: &[u8]) -> Result<Request<'_>, ParseError> {
    Request::parse(bytes, LATEST, Payload::Inline)
}

fn kind(bytes: &[u8]) -> Option<ParseErrorKind> {
    parse(bytes).err().map(|error| error.kind)
}

fn new(opcode: Opcode) -> RequestBuilder {
    RequestBuilder::new(opcode, samples::UNIQUE, NodeId(1))
}

/// Makes the header's length that of the bytes.
fn with_length(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes
}

/// All that a request borrows lies within its bytes and is well-formed. Debug output walks all of it.
fn is_sane(bytes: &[u8], request: &Request<'_>) {
    let range = bytes.as_ptr_range();
    let within = |part: &[u8]| {
        let part_range = part.as_ptr_range();
        part.is_empty() || (range.start <= part_range.start && part_range.end <= range.end)
    };
    let is_name = |name: &[u8]| within(name) && !name.is_empty() && !name.contains(&b'/');
    let ok = match request.operation {
        Operation::Lookup { name }
        | Operation::Unlink { name }
        | Operation::Rmdir { name }
        | Operation::Mknod { name, .. }
        | Operation::Mkdir { name, .. }
        | Operation::Link { name, .. }
        | Operation::Create { name, .. } => is_name(name.as_bytes()),
        Operation::Rename { name, new_name, .. } => {
            is_name(name.as_bytes()) && is_name(new_name.as_bytes())
        }
        Operation::Symlink { name, target } => {
            is_name(name.as_bytes()) && within(target.to_bytes())
        }
        Operation::Write { arg, data } => within(data) && data.len() == arg.size as usize,
        Operation::NotifyReply { arg, data } => within(data) && data.len() == arg.size as usize,
        Operation::Ioctl { arg, data } => within(data) && data.len() == arg.in_size as usize,
        Operation::Setxattr { name, value, .. } => within(name.to_bytes()) && within(value),
        Operation::BatchForget { forgets } => forgets.iter().count() * 16 <= bytes.len(),
        Operation::RemoveMapping { mappings } => mappings.iter().count() * 16 <= bytes.len(),
        _ => true,
    };
    assert!(ok, "{request:?}");
    assert!(!format!("{request:?}").is_empty());
}

/// All ways to parse any bytes give a request or an error with a message.
fn parses_or_fails(bytes: &[u8]) {
    for dialect in [LATEST, Dialect::INITIAL] {
        for payload in [Payload::Inline, Payload::External] {
            match Request::parse(bytes, dialect, payload) {
                Ok(request) if payload == Payload::Inline => is_sane(bytes, &request),
                Ok(request) => assert!(!format!("{request:?}").is_empty()),
                Err(error) => {
                    assert!(error.errno() > 0);
                    assert!(!error.to_string().is_empty());
                }
            }
        }
        let (header, body) = bytes.split_at(bytes.len().min(HEADER));
        for at in [0, 8, 16, 40, body.len()] {
            let (structure, rest) = body.split_at(at.min(body.len()));
            let request = Request::parse_split(header, structure, rest, dialect, Payload::Inline);
            assert!(!format!("{request:?}").is_empty());
        }
    }
}

#[test]
fn every_prefix_is_refused() {
    for &opcode in Opcode::ALL {
        let whole = sample(opcode).finish();
        for length in 0..whole.len() {
            let prefix = &whole[..length];
            parses_or_fails(prefix);
            let error = parse(prefix).unwrap_err();
            if length < HEADER {
                let (need, got) = (HEADER, length);
                assert_eq!(error.kind, ParseErrorKind::TooShort { need, got });
            } else {
                let mismatch = ParseErrorKind::LengthMismatch {
                    header: whole.len() as u32,
                    got: length,
                };
                assert_eq!(error.kind, mismatch);
                assert_eq!(error.unique, Some(samples::UNIQUE));
                assert_eq!(error.opcode, Some(opcode.number()));
            }
        }
    }
}

#[test]
fn every_prefix_with_a_length_to_match_is_refused_or_shorter() {
    for &opcode in Opcode::ALL {
        let whole = sample(opcode).finish();
        for length in HEADER..whole.len() {
            let prefix = with_length(whole[..length].to_vec());
            parses_or_fails(&prefix);
            // INIT has shorter forms; TMPFILE's name means nothing, so that none of it is missed.
            if !matches!(opcode, Opcode::Init | Opcode::Tmpfile) {
                assert!(parse(&prefix).is_err(), "{opcode:?} cut to {length} bytes");
            }
        }
    }
}

#[test]
fn every_change_of_a_byte_gives_a_request_or_an_error() {
    for &opcode in Opcode::ALL {
        let whole = sample(opcode)
            .extension(&samples::security_context(b"security.x", b"label"))
            .extension(&samples::group(7))
            .finish();
        for at in 0..whole.len() {
            for value in 0..=255 {
                let mut bytes = whole.clone();
                bytes[at] = value;
                match parse(&bytes) {
                    Ok(request) => is_sane(&bytes, &request),
                    Err(error) => assert!(error.errno() > 0),
                }
                // The other ways cost more; the values that matter are those at the edges.
                if matches!(value, 0 | 1 | 0x2f | 0x7f | 0x80 | 0xff) {
                    parses_or_fails(&bytes);
                }
            }
        }
    }
}

#[test]
fn bytes_at_the_end_are_refused() {
    for &opcode in Opcode::ALL {
        // Later versions make INIT longer; what follows TMPFILE's struct means nothing.
        let tolerated = matches!(opcode, Opcode::Init | Opcode::Tmpfile);
        for more in 1..=8 {
            let longer = sample(opcode).bytes(&[0; 8][..more]).finish();
            assert_eq!(parse(&longer).is_ok(), tolerated, "{opcode:?} and {more}");
        }
        // The same with the length of the shorter message.
        let whole = [sample(opcode).finish(), vec![0]].concat();
        let mismatch = matches!(kind(&whole), Some(ParseErrorKind::LengthMismatch { .. }));
        assert!(mismatch, "{opcode:?}");
    }
}

#[test]
fn unknown_operations_are_reported_by_number() {
    for number in [0, 7, 19, 54, 4095, 4097, 1 << 20, 436_207_616, u32::MAX] {
        let bytes = RequestBuilder::from_number(number, Unique(8), NodeId(1))
            .name(b"x")
            .finish();
        let error = parse(&bytes).unwrap_err();
        assert_eq!(error.kind, ParseErrorKind::UnknownOpcode(number));
        let request = (error.unique, error.opcode);
        assert_eq!(request, (Some(Unique(8)), Some(number)));
        // ENOSYS: the kernel then stops asking.
        assert_eq!(error.errno(), 38);
    }
}

#[test]
fn malformed_requests_are_invalid() {
    let error = parse(&new(Opcode::Lookup).finish()).unwrap_err();
    let what = (error.kind, error.errno());
    assert_eq!(what, (ParseErrorKind::NoTerminator, 22));
    assert!(error.to_string().contains("LOOKUP"), "{error}");
}

#[test]
fn names_are_one_component() {
    for bad in [&b""[..], b"/", b"a/b", b"/a", b"a/", b"../a", &[b'x'; 4096]] {
        for opcode in [Opcode::Lookup, Opcode::Unlink, Opcode::Rmdir] {
            let bytes = new(opcode).name(bad).finish();
            assert_eq!(kind(&bytes), Some(ParseErrorKind::BadName), "{opcode:?}");
        }
        let bytes = new(Opcode::Mkdir).arg(&samples::MKDIR).name(bad).finish();
        assert_eq!(kind(&bytes), Some(ParseErrorKind::BadName));
        let bytes = new(Opcode::Symlink).name(bad).name(b"target").finish();
        assert_eq!(kind(&bytes), Some(ParseErrorKind::BadName));
        for (old, new_name) in [(bad, &b"fine"[..]), (b"fine", bad)] {
            let bytes = new(Opcode::Rename)
                .arg(&9_u64)
                .name(old)
                .name(new_name)
                .finish();
            assert_eq!(kind(&bytes), Some(ParseErrorKind::BadName));
        }
    }
    // One NUL, at the end.
    let bytes = new(Opcode::Lookup).bytes(b"name").finish();
    assert_eq!(kind(&bytes), Some(ParseErrorKind::NoTerminator));
    let bytes = new(Opcode::Lookup).bytes(b"na\0me\0").finish();
    assert_eq!(kind(&bytes), Some(ParseErrorKind::TrailingBytes(3)));
    // The longest that is one, and bytes that are no text.
    for good in [&[b'x'; 4095][..], b"\x01\xff\xfe\n", b".", b".."] {
        let bytes = new(Opcode::Lookup).name(good).finish();
        let request = parse(&bytes).unwrap();
        assert!(matches!(request.operation, Operation::Lookup { name } if name.as_bytes() == good));
    }
}

/// Refuses a struct with sizes or counts that differ from the bytes that follow.
fn announced(opcode: Opcode, structure: &(impl IntoBytes + zerocopy::Immutable), rest: &[u8]) {
    let bytes = new(opcode).arg(structure).bytes(rest).finish();
    let length = rest.len();
    assert!(parse(&bytes).is_err(), "{opcode:?} with {length} bytes");
    parses_or_fails(&bytes);
}

#[test]
fn sizes_and_counts_that_contradict_the_bytes_are_refused() {
    let most = u32::MAX;
    for (size, there) in [(0, 1), (1, 0), (5, 4), (5, 6), (most, 5), (most - 39, 5)] {
        let rest = vec![7; there];
        let (mut write, mut ioctl) = (samples::WRITE, samples::IOCTL);
        let mut retrieved = samples::RETRIEVED;
        (write.size, ioctl.in_size, retrieved.size) = (size, size, size);
        announced(Opcode::Write, &write, &rest);
        announced(Opcode::Ioctl, &ioctl, &rest);
        announced(Opcode::NotifyReply, &retrieved, &rest);
        let named = [&b"user.x\0"[..], &rest].concat();
        announced(Opcode::Setxattr, &[size, 0, 0, 0], &named);
        for less in [0, 1, 15] {
            let rest = vec![1; there * 16 + less];
            if less == 0 && size as usize == there {
                continue;
            }
            announced(Opcode::BatchForget, &[size, 0], &rest);
            announced(Opcode::RemoveMapping, &size, &rest);
        }
    }
    // 2^28 items of 16 bytes are 0 bytes modulo 2^32.
    announced(Opcode::BatchForget, &[1_u32 << 28, 0], &[]);
    announced(Opcode::RemoveMapping, &(1_u32 << 28), &[]);
}

#[test]
fn zero_is_a_valid_count() {
    let bytes = new(Opcode::BatchForget)
        .arg(&BatchForgetIn::default())
        .finish();
    let Operation::BatchForget { forgets } = parse(&bytes).unwrap().operation else {
        panic!()
    };
    assert_eq!(forgets.iter().count(), 0);
    let bytes = new(Opcode::Setxattr)
        .arg(&SetxattrIn::default())
        .name(b"user.x")
        .finish();
    assert!(matches!(
        parse(&bytes).unwrap().operation,
        Operation::Setxattr { value: b"", .. }
    ));
    let empty = new(Opcode::Getxattr)
        .arg(&GetxattrIn::default())
        .name(b"")
        .finish();
    assert_eq!(kind(&empty), Some(ParseErrorKind::BadName));
}

fn with_extensions(extensions: &[u8], units: u16) -> Vec<u8> {
    let mut bytes = sample(Opcode::Mkdir).bytes(extensions).finish();
    bytes[36..38].copy_from_slice(&units.to_ne_bytes());
    bytes
}

#[test]
fn malformed_extensions_are_refused() {
    let words = samples::words;
    let units = |bytes: &[u8]| (bytes.len() / 8) as u16;
    for (why, extensions) in [
        ("smaller than its head", words(&[0, 32])),
        ("smaller than its head, too", words(&[7, 32])),
        ("beyond the end", words(&[24, 32, 1, 1])),
        ("as long as can be", words(&[u32::MAX, 32, 1, 1])),
        ("not padded", words(&[12, 32, 0, 0])),
        ("more groups than bytes", words(&[16, 32, 2, 1])),
        ("groups without number", words(&[16, 32, u32::MAX, 1])),
        ("no room for a count", words(&[8, 32])),
        ("more contexts than bytes", words(&[8, 1])),
        ("a value beyond the end", words(&[24, 1, 7, 0, 0x41, 0])),
        (
            "a value as long as can be",
            words(&[24, 1, u32::MAX, 0, 0x41, 0]),
        ),
        (
            "a context name without end",
            words(&[24, 1, 0, 0, 0x4141_4141, 0x4141_4141]),
        ),
    ] {
        let bytes = with_extensions(&extensions, units(&extensions));
        assert_eq!(kind(&bytes), Some(ParseErrorKind::BadExtension), "{why}");
        parses_or_fails(&bytes);
    }
    // More of them announced than there are bytes.
    for units in [100, u16::MAX] {
        let bytes = with_extensions(&samples::group(1), units);
        assert_eq!(kind(&bytes), Some(ParseErrorKind::BadExtension));
    }
    // Types that a later version may add are passed over.
    let bytes = with_extensions(&[words(&[16, 99, 1, 2]), samples::group(5)].concat(), 4);
    let group = parse(&bytes).unwrap().extensions.supplementary_group();
    assert_eq!(group, Some(5));
}

#[test]
fn split_requests_without_a_piece_are_refused() {
    let split = sample(Opcode::Write).finish_split();
    let parse = |header: &[u8], structure: &[u8]| {
        Request::parse_split(header, structure, &split.rest, LATEST, Payload::Inline)
            .map(|_| ())
            .map_err(|error| error.kind)
    };
    assert_eq!(parse(&split.header, &split.structure), Ok(()));
    let short = |need, got| Err(ParseErrorKind::TooShort { need, got });
    assert_eq!(parse(&split.header, &split.structure[..39]), short(40, 39));
    assert_eq!(parse(&split.header[..39], &split.structure), short(40, 39));
    assert_eq!(parse(&[], &[]), short(40, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_body_behind_a_valid_header_gives_a_request_or_an_error(
        opcode in select(Opcode::ALL),
        body in prop::collection::vec(any::<u8>(), 0..300),
        units in 0_u16..8,
    ) {
        let mut bytes = new(opcode).bytes(&body).finish();
        bytes[36..38].copy_from_slice(&units.to_ne_bytes());
        parses_or_fails(&bytes);
    }

    #[test]
    fn any_name_and_value_round_trip(
        name in prop::collection::vec(1_u8.., 1..300),
        value in prop::collection::vec(any::<u8>(), 0..5000),
        setxattr_ext in any::<bool>(),
    ) {
        let size = value.len() as u32;
        let request = new(Opcode::Setxattr);
        let request = if setxattr_ext {
            request.arg(&SetxattrIn { size, flags: 2, setxattr_flags: 1, padding: 0 })
        } else {
            request.arg(&[size, 2])
        };
        let bytes = request.name(&name).bytes(&value).finish();
        let dialect = Dialect { minor: 45, setxattr_ext };
        let parsed = Request::parse(&bytes, dialect, Payload::Inline).unwrap();
        let Operation::Setxattr { name: n, value: v, flags, setxattr_flags } = parsed.operation
        else { panic!("{parsed:?}") };
        prop_assert_eq!((n.to_bytes(), v), (&name[..], &value[..]));
        prop_assert_eq!((flags, setxattr_flags), (2, u32::from(setxattr_ext)));
    }

    #[test]
    fn any_batch_round_trips(nodes in prop::collection::vec(any::<(u64, u64)>(), 0..64)) {
        let head = BatchForgetIn { count: nodes.len() as u32, dummy: 0 };
        let mut request = new(Opcode::BatchForget).arg(&head);
        for &(nodeid, nlookup) in &nodes {
            request = request.bytes(ForgetOne { nodeid, nlookup }.as_bytes());
        }
        let bytes = request.finish();
        let Operation::BatchForget { forgets } = parse(&bytes).unwrap().operation
        else { panic!() };
        let back: Vec<_> = forgets.iter().map(|(node, count)| (node.0, count)).collect();
        prop_assert_eq!(back, nodes);
    }

    #[test]
    fn any_listing_round_trips(
        entries in prop::collection::vec(
            (any::<u64>(), any::<u64>(), any::<u32>(), prop::collection::vec(any::<u8>(), 1..256)),
            0..20,
        ),
        plus in any::<bool>(),
        room in 0_usize..4096,
    ) {
        let out = |nodeid| EntryOut { nodeid, generation: !nodeid, ..EntryOut::default() };
        let mut buffer = vec![0xee; room];
        let (mut used, mut written) = (0, 0);
        for (ino, off, kind, name) in &entries {
            let free = &mut buffer[used..];
            let size = if plus { direntplus_size(name.len()) } else { dirent_size(name.len()) };
            let fits = size <= free.len();
            let took = if plus {
                encode_direntplus(free, &out(*ino), *ino, *off, *kind, name)
            } else {
                encode_dirent(free, *ino, *off, *kind, name)
            };
            prop_assert_eq!(took, fits.then_some(size));
            prop_assert_eq!(size % 8, 0);
            let Some(took) = took else { break };
            used += took;
            written += 1;
        }
        // Nothing behind what was written was touched.
        prop_assert!(buffer[used..].iter().all(|&byte| byte == 0xee));
        let back: Vec<_> = DirectoryEntries::new(&buffer[..used], plus).collect();
        prop_assert_eq!(back.len(), written);
        for (entry, (ino, off, kind, name)) in back.iter().zip(&entries) {
            prop_assert_eq!((entry.ino, entry.off, entry.kind), (*ino, *off, *kind));
            prop_assert_eq!(entry.name, &name[..]);
            prop_assert_eq!(entry.entry, plus.then_some(out(*ino)));
        }
    }

    #[test]
    fn any_bytes_give_a_reply_or_none(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Some(reply) = Reply::parse(&bytes) {
            prop_assert_eq!(reply.body.len(), bytes.len() - 16);
        }
        for plus in [false, true] {
            let least = if plus { 152 } else { 24 };
            prop_assert!(DirectoryEntries::new(&bytes, plus).count() <= bytes.len() / least);
        }
    }
}
