//! Damaged files: never a panic, and never a place that another parser still finds.

use super::make::*;
use super::reader as reader_of;
use super::*;
use crate::{detect, verify};

/// What readers see of a file that may be refused.
fn seen(bytes: &[u8]) -> Option<Vec<u8>> {
    match outcome(bytes) {
        Ok(Outcome::Plan(plan)) => {
            let mut seen = bytes.to_vec();
            plan.apply(0, &mut seen);
            Some(seen)
        }
        Ok(Outcome::NotApplicable) => Some(bytes.to_vec()),
        Err(RedactError::Unparsable(_)) => None,
        Err(RedactError::Read(error)) => panic!("{error}"),
    }
}

fn finds_gps(bytes: &[u8]) -> bool {
    exif_of(bytes).is_ok_and(|exif| exif.fields().any(|f| f.tag.context() == Context::Gps))
}

#[test]
fn truncated_files_are_safe() {
    for (name, bytes) in samples() {
        let mut plans = 0;
        for length in 0..bytes.len() {
            let Some(seen) = seen(&bytes[..length]) else {
                continue;
            };
            plans += 1;
            for secret in secrets() {
                assert!(!holds(&seen, &secret), "{name} cut off at {length}");
            }
        }
        assert!(plans > 0, "{name}");
    }
}

#[test]
fn files_with_a_changed_byte_are_safe() {
    for (name, bytes) in samples() {
        for at in 0..bytes.len() {
            for value in [0, 0xff, bytes[at] ^ 1, bytes[at].wrapping_add(8)] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                let finds = seen(&damaged).is_some_and(|seen| finds_gps(&seen));
                assert!(!finds, "{name}: byte {at} is {value}");
            }
        }
    }
}

/// If the walkers missed everything, the second parser would refuse the file.
#[test]
fn second_parser_finds_remaining_gps() {
    for (name, bytes) in samples() {
        let container = detect::of_head(&bytes[..16]).unwrap();
        let length = bytes.len() as u64;
        let blind = RedactionPlan::default();
        let judged = verify::no_place_left(&reader_of(&bytes), length, container, &blind);
        assert!(matches!(judged, Err(RedactError::Unparsable(_))), "{name}");
        let plan = planned(&bytes);
        verify::no_place_left(&reader_of(&bytes), length, container, &plan).unwrap();
    }
}

#[test]
fn read_errors_are_not_parse_errors() {
    let reader = |_: &mut [u8], _: u64| Err(io::ErrorKind::TimedOut.into());
    assert!(matches!(plan(&reader, 9), Err(RedactError::Read(_))));
    let bytes = phone_photograph();
    let shorter = plan(&reader_of(&bytes), bytes.len() as u64 + 9);
    assert!(matches!(shorter, Err(RedactError::Unparsable(_))));
}

/// Seeds for the fuzzer: one small file of each kind.
#[test]
#[ignore = "writes files into the source tree"]
fn write_fuzz_seeds() {
    let directory =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/redact");
    std::fs::create_dir_all(&directory).unwrap();
    for (name, bytes) in samples() {
        std::fs::write(directory.join(name), bytes).unwrap();
    }
}
