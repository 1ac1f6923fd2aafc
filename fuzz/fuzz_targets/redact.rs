//! Redaction of untrusted files: there is a plan or a refusal, never a panic; readers see the same however
//! they read; and another parser finds no place.
#![no_main]

use exif::{Context, Reader};
use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use thrufs_redact::{Outcome, RedactError, plan};

/// Bytes of one read, odd on purpose.
const PIECE_BYTES: usize = 7;

fuzz_target!(|bytes: &[u8]| {
    let reader = |buffer: &mut [u8], offset: u64| {
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    };
    let plan = match plan(&reader, bytes.len() as u64) {
        Ok(Outcome::Plan(plan)) => plan,
        Ok(Outcome::NotApplicable) | Err(RedactError::Unparsable(_)) => return,
        Err(RedactError::Read(error)) => panic!("the reader never fails: {error}"),
    };
    let mut at = 0;
    for (range, _) in plan.ranges() {
        assert!(at <= range.start && range.start < range.end);
        at = range.end;
    }
    assert!(at <= bytes.len() as u64);
    let mut whole = bytes.to_vec();
    plan.apply(0, &mut whole);
    let mut pieces = bytes.to_vec();
    for (index, piece) in pieces.chunks_mut(PIECE_BYTES).enumerate() {
        plan.apply((index * PIECE_BYTES) as u64, piece);
    }
    assert_eq!(whole, pieces);
    if let Ok(exif) = Reader::new().read_from_container(&mut Cursor::new(&whole)) {
        assert!(
            exif.fields()
                .all(|field| field.tag.context() != Context::Gps)
        );
    }
});
