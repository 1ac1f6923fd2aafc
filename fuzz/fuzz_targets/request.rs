//! Contiguous messages: any bytes are a request or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thrufs_abi::{Dialect, Operation, Payload, Request};

/// Corrects the length in the header, at which most inputs would be refused. Other targets and the tests
/// leave it wrong.
fn with_length(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let length = bytes.len() as u32;
    if let Some(field) = bytes.get_mut(..4) {
        field.copy_from_slice(&length.to_ne_bytes());
    }
    bytes
}

fn check(bytes: &[u8], request: &Request<'_>) {
    let range = bytes.as_ptr_range();
    let within = |part: &[u8]| {
        let part_range = part.as_ptr_range();
        part.is_empty() || (range.start <= part_range.start && part_range.end <= range.end)
    };
    // Debug output walks names, data and lists.
    assert!(!format!("{request:?}").is_empty());
    match request.operation {
        Operation::Lookup { name } | Operation::Create { name, .. } => {
            let name = name.as_bytes();
            assert!(within(name) && !name.is_empty() && !name.contains(&b'/'));
        }
        Operation::Write { arg, data } => {
            assert!(within(data) && data.len() == arg.size as usize);
        }
        Operation::Setxattr { name, value, .. } => {
            assert!(within(name.to_bytes()) && within(value));
        }
        Operation::BatchForget { forgets } => {
            assert!(forgets.iter().count() <= bytes.len() / 16);
        }
        _ => {}
    }
    if let Some((name, value)) = request.extensions.security_context() {
        assert!(within(name.to_bytes()) && within(value));
    }
}

fuzz_target!(|bytes: &[u8]| {
    for bytes in [bytes.to_vec(), with_length(bytes)] {
        for setxattr_ext in [false, true] {
            let dialect = Dialect {
                setxattr_ext,
                ..Dialect::INITIAL
            };
            match Request::parse(&bytes, dialect, Payload::Inline) {
                Ok(request) => check(&bytes, &request),
                Err(error) => assert!(error.errno() > 0 && !error.to_string().is_empty()),
            }
            let _ = Request::parse(&bytes, dialect, Payload::External);
        }
    }
});
