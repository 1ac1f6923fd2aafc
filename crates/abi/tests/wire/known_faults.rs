//! Faults that the decoder once had, each with the behaviour that is right.

use crate::samples::{self, LATEST, sample};
use thrufs_abi::reply::{dirent_size, direntplus_size, encode_dirent};
use thrufs_abi::{Opcode, Operation, Payload, Request};
use zerocopy::IntoBytes;

/// Linux leaves the area of the operation's struct alone for NOTIFY_REPLY and REMOVEMAPPING
/// (`fuse_set_zero_arg0`): their struct leads the payload, and the area holds what some earlier
/// request left there. How much of the area counts follows from the header's length.
#[test]
fn ring_requests_with_their_struct_in_the_payload() {
    for opcode in [Opcode::NotifyReply, Opcode::RemoveMapping] {
        let split = sample(opcode).finish_split();
        let payload = [&split.structure[..], &split.rest].concat();
        let stale = [0xee; 128];
        let request =
            Request::parse_split(&split.header, &stale, &payload, LATEST, Payload::Inline);
        match request.unwrap().operation {
            Operation::NotifyReply { arg, data } => {
                assert_eq!((arg, data), (samples::RETRIEVED, &b"stored"[..]));
            }
            Operation::RemoveMapping { mappings } => {
                assert_eq!(mappings.iter().collect::<Vec<_>>(), samples::UNMAPPED);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The header's length is held against the pieces, as it is against a message in one piece.
#[test]
fn ring_requests_of_another_length_than_in_their_header() {
    let split = sample(Opcode::Write).finish_split();
    let length = u32::from_ne_bytes(split.header[..4].try_into().unwrap());
    for wrong in [0, 39, 40, length - 1, length + 1, u32::MAX] {
        let mut header = split.header.clone();
        header[..4].copy_from_slice(&wrong.to_ne_bytes());
        let request = Request::parse_split(
            &header,
            &split.structure,
            &split.rest,
            LATEST,
            Payload::Inline,
        );
        assert!(request.is_err(), "{wrong} said, {length} there");
    }
}

/// Extensions follow the arguments at once. Bytes between would be a second name to another parser.
#[test]
fn nothing_lies_between_arguments_and_extensions() {
    for opcode in [Opcode::Mkdir, Opcode::Lookup, Opcode::Getattr] {
        let smuggled = sample(opcode)
            .bytes(b"other\0")
            .extension(&samples::group(1))
            .finish();
        assert!(
            Request::parse(&smuggled, LATEST, Payload::Inline).is_err(),
            "{opcode:?}"
        );
    }
}

/// What is elsewhere is what the request says it is, and only data can be.
#[test]
fn out_of_line_data_have_the_size_of_the_header() {
    let whole = sample(Opcode::Write).finish();
    let mut here = whole[..40 + samples::WRITE.as_bytes().len()].to_vec();
    assert!(Request::parse(&here, LATEST, Payload::External).is_ok());
    for wrong in [
        here.len() as u32,
        whole.len() as u32 - 1,
        whole.len() as u32 + 1,
        u32::MAX,
    ] {
        here[..4].copy_from_slice(&wrong.to_ne_bytes());
        assert!(
            Request::parse(&here, LATEST, Payload::External).is_err(),
            "{wrong}"
        );
    }
    let mut lookup = sample(Opcode::Lookup).finish();
    let more = lookup.len() as u32 + 8;
    lookup[..4].copy_from_slice(&more.to_ne_bytes());
    assert!(Request::parse(&lookup, LATEST, Payload::External).is_err());
}

/// A size that no name can have is an answer, too: it fits nowhere.
#[test]
fn entry_sizes_do_not_overflow() {
    assert!(dirent_size(usize::MAX) > isize::MAX as usize);
    assert!(direntplus_size(usize::MAX - 3) > isize::MAX as usize);
    assert_eq!(encode_dirent(&mut [0; 8], 1, 2, 3, b"name"), None);
    assert_eq!(encode_dirent(&mut [0; 24], 1, 2, 3, b""), Some(24));
}
