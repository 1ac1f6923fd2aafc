//! Regression tests of faults of the parser.

use crate::samples::{self, LATEST, sample};
use thrufs_abi::reply::{dirent_size, direntplus_size, encode_dirent};
use thrufs_abi::{Opcode, Operation, Payload, Request};
use zerocopy::IntoBytes;

/// Linux does not write the operation's struct for NOTIFY_REPLY and REMOVEMAPPING (`fuse_set_zero_arg0`):
/// it leads the payload, and its usual place holds bytes of an earlier request.
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

/// The header's length is compared with the pieces, as with a message in one piece.
#[test]
fn ring_requests_of_another_length_than_in_their_header() {
    let split = sample(Opcode::Write).finish_split();
    let length = u32::from_ne_bytes(split.header[..4].try_into().unwrap());
    for wrong in [0, 39, 40, length - 1, length + 1, u32::MAX] {
        let mut header = split.header.clone();
        header[..4].copy_from_slice(&wrong.to_ne_bytes());
        let (structure, rest) = (&split.structure, &split.rest);
        let request = Request::parse_split(&header, structure, rest, LATEST, Payload::Inline);
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
        let request = Request::parse(&smuggled, LATEST, Payload::Inline);
        assert!(request.is_err(), "{opcode:?}");
    }
}

/// Out-of-line bytes are as many as the request says, and only data can be out of line.
#[test]
fn out_of_line_data_have_the_size_of_the_header() {
    let whole = sample(Opcode::Write).finish();
    let mut here = whole[..40 + samples::WRITE.as_bytes().len()].to_vec();
    assert!(Request::parse(&here, LATEST, Payload::External).is_ok());
    let length = whole.len() as u32;
    for wrong in [here.len() as u32, length - 1, length + 1, u32::MAX] {
        here[..4].copy_from_slice(&wrong.to_ne_bytes());
        let request = Request::parse(&here, LATEST, Payload::External);
        assert!(request.is_err(), "{wrong}");
    }
    let mut lookup = sample(Opcode::Lookup).finish();
    let more = lookup.len() as u32 + 8;
    lookup[..4].copy_from_slice(&more.to_ne_bytes());
    assert!(Request::parse(&lookup, LATEST, Payload::External).is_err());
}

/// The size for an impossible name is one that fits nowhere.
#[test]
fn entry_sizes_do_not_overflow() {
    assert!(dirent_size(usize::MAX) > isize::MAX as usize);
    assert!(direntplus_size(usize::MAX - 3) > isize::MAX as usize);
    assert_eq!(encode_dirent(&mut [0; 8], 1, 2, 3, b"name"), None);
    assert_eq!(encode_dirent(&mut [0; 24], 1, 2, 3, b""), Some(24));
}
