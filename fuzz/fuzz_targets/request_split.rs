//! Messages in three pieces. An accepted one is the same request as its contiguous bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thrufs_abi::layout::InHeader;
use thrufs_abi::{Dialect, Opcode, Payload, Request, op_struct_size};

fuzz_target!(|input: (&[u8], &[u8], &[u8], bool, bool)| {
    let (header, structure, rest, setxattr_ext, right_length) = input;
    let dialect = Dialect {
        setxattr_ext,
        ..Dialect::INITIAL
    };
    let mut header = header.to_vec();
    let number = header
        .get(4..8)
        .and_then(|field| field.try_into().ok())
        .map(u32::from_ne_bytes);
    let opcode = number.and_then(Opcode::from_u32);
    let need = opcode.map_or(0, |opcode| op_struct_size(opcode, dialect));
    let length = (size_of::<InHeader>() + need + rest.len()) as u32;
    // Mostly corrected, so that the rest is reached.
    if right_length && let Some(field) = header.get_mut(..4) {
        field.copy_from_slice(&length.to_ne_bytes());
    }
    let split = Request::parse_split(&header, structure, rest, dialect, Payload::Inline);
    let (Ok(split), true) = (split, right_length) else {
        return;
    };
    let whole = [&header[..size_of::<InHeader>()], &structure[..need], rest].concat();
    let one_piece = Request::parse(&whole, dialect, Payload::Inline)
        .expect("what is a request in three pieces is one in one piece");
    assert_eq!(format!("{split:?}"), format!("{one_piece:?}"));
});
