//! Hostile EXIF blocks, and plans by themselves.

use super::make::*;
use super::*;
use crate::plan::{Content, Edits};
use proptest::prelude::*;

/// A directory of little-endian entries: tag, type, count, value.
fn directory(entries: &[(u16, u16, u32, u32)], next: u32) -> Vec<u8> {
    let mut bytes = (entries.len() as u16).to_le_bytes().to_vec();
    for (tag, kind, count, value) in entries {
        bytes.extend([tag.to_le_bytes(), kind.to_le_bytes()].concat());
        bytes.extend([count.to_le_bytes(), value.to_le_bytes()].concat());
    }
    bytes.extend(next.to_le_bytes());
    bytes
}

fn photograph(parts: &[&[u8]]) -> Vec<u8> {
    let block = [b"II*\0\x08\0\0\0", parts.concat().as_slice()].concat();
    jpeg_with(&[exif_segment(&block)])
}

const POINTER: u16 = 0x8825;
const WIDTH: (u16, u16, u32, u32) = (0x0100, 3, 1, 16);

#[test]
fn directories_in_a_loop() {
    let once = photograph(&[&directory(&[WIDTH], 8)]);
    assert!(planned(&once).is_empty());
    let gps_is_main = photograph(&[&directory(&[WIDTH, (POINTER, 4, 1, 8)], 0)]);
    assert!(is_refused(&gps_is_main));
}

#[test]
fn two_pointers_to_gps() {
    let main = directory(&[(POINTER, 4, 1, 38), (POINTER, 4, 1, 38)], 0);
    let gps = directory(&[(1, 2, 2, 0x4e)], 0);
    let seen = redacted(&photograph(&[&main, &gps]));
    let exif = exif_of(&seen).unwrap();
    assert!(
        exif.fields()
            .all(|field| field.tag.context() != Context::Gps)
    );
}

#[test]
fn values_that_are_shared_or_outside() {
    let main = |offset| directory(&[(0x010f, 2, 12, offset), (POINTER, 4, 1, 38)], 0);
    let gps = |offset| directory(&[(29, 2, 12, offset)], 0);
    let values = b"value numberanother one!";
    let separate = photograph(&[&main(56), &gps(68), values]);
    assert!(!holds(&redacted(&separate), b"another one!"));
    for (first, second) in [(56, 56), (56, 60), (56, 8), (56, 0), (56, 30), (38, 56)] {
        let shared = photograph(&[&main(first), &gps(second), values]);
        assert!(is_refused(&shared), "{first} and {second}");
    }
    for outside in [70, 1 << 20, u32::MAX - 3] {
        let cut_off = photograph(&[&main(56), &gps(outside), values]);
        assert!(is_refused(&cut_off), "{outside}");
    }
}

#[test]
fn invalid_pointers() {
    for pointer in [
        (POINTER, 4, 2, 26),
        (POINTER, 2, 1, 26),
        (POINTER, 4, 1, 1 << 30),
    ] {
        assert!(is_refused(&photograph(&[
            &directory(&[pointer], 0),
            &directory(&[], 0)
        ])));
    }
    let nowhere = photograph(&[&directory(&[WIDTH, (POINTER, 4, 1, 0)], 0)]);
    assert_eq!(planned(&nowhere).ranges().count(), 1);
    let many = [vec![0xff; 2], vec![0; 12 * 0xffff + 4]].concat();
    let large = [b"II*\0\x08\0\0\0".as_slice(), &many].concat();
    assert!(is_refused(&png_with(&[(*b"eXIf", large)])));
}

#[test]
fn gps_tags_in_other_directories() {
    // The EXIF directory points to it; so does the second of the chain.
    let gps = directory(&[(29, 2, 11, 74)], 0);
    let date = b"2024:06:07\0";
    let main = directory(&[(0x8769, 4, 1, 26)], 0);
    let sub = directory(&[WIDTH, (POINTER, 4, 1, 56)], 0);
    let by_exif = photograph(&[&main, &sub, &gps, date]);
    let chained = photograph(&[&directory(&[WIDTH], 26), &sub, &gps, date]);
    for photograph in [by_exif, chained] {
        assert!(!holds(&redacted(&photograph), date));
    }
}

#[test]
fn geotiff_is_redacted() {
    let main = directory(&[WIDTH, (0x8482, 12, 6, 38)], 0);
    let seen = redacted(&photograph(&[&main, &[7; 48]]));
    assert!(!holds(&seen, &[7; 8]));
}

/// An EXIF segment without the usual prefix, and with its first directory elsewhere than usual.
fn unusual_segment() -> (u8, Vec<u8>) {
    let gps = directory(&[(29, 2, PLACE.len() as u32, 46)], 0);
    let parts = [
        b"Exif\0\x01II*\0\x0a\0\0\0\0\0",
        &directory(&[(POINTER, 4, 1, 28)], 0)[..],
        &gps,
        PLACE.as_bytes(),
    ];
    (0xe1, parts.concat())
}

#[test]
fn images_in_other_files_are_parsed() {
    let inner = jpeg_with(&[unusual_segment()]);
    cleaned(&inner);
    let with = |image: &[u8]| {
        let make = (Tag::Make, Value::Ascii(vec![b"Maker".to_vec()]));
        jpeg_with(&[exif_segment(&exif_with(vec![make], true, Some(image)))])
    };
    cleaned(&with(&inner));
    // One that cannot be parsed is emptied, but not without metadata.
    cleaned(&with(&inner[..inner.len() / 2]));
    cleaned(&with(&[&jpeg_with(&[])[..], &inner].concat()));
    assert!(planned(&with(&jpeg_with(&[]))).is_empty());
    let item = |image: &[u8]| Item {
        kind: *b"jpeg",
        content: "",
        pieces: vec![image.to_vec()],
        inside: false,
    };
    cleaned(&heif(&[item(&inner)]));
    assert!(is_refused(&heif(&[item(&inner[2..])])));
    assert!(planned(&heif(&[item(b"tables are among the properties")])).is_empty());
}

#[test]
fn values_of_unusual_type_or_that_are_cut_off() {
    let text = format!("latitude {PLACE}!");
    let with = |tag, kind, count, text: &str| {
        photograph(&[&directory(&[(tag, kind, count, 26)], 0), text.as_bytes()])
    };
    for tag in [0x010e, 0x9999] {
        for kind in 16..=18 {
            cleaned(&with(tag, kind, 3, &text));
        }
        for kind in [0, 14, 15, 19, 128, 0xffff] {
            assert!(is_refused(&with(tag, kind, 24, &text)), "{kind}");
            assert!(planned(&with(tag, kind, 24, "a harmless text of this size")).is_empty());
        }
        cleaned(&with(tag, 7, 1000, &text));
    }
}

#[test]
fn small_files_that_cost_much_are_refused() {
    // Values that all reach to the end of the block.
    let tags = 0x4000..0x4190;
    let entries: Vec<_> = tags.map(|tag| (tag, 7, u32::MAX, 20)).collect();
    assert!(is_refused(&photograph(&[&directory(&entries, 0)])));
    // Places of items that take no bytes.
    let item = |number: u16| [&number.to_be_bytes()[..], &[0, 0, 0xff, 0xff]].concat();
    let items: Vec<u8> = (0..400).flat_map(item).collect();
    let places = full_box(b"iloc", 0, &[&[0, 0], &400_u16.to_be_bytes(), &items]);
    let kind = a_box(b"ftyp", &[b"heic", &[0; 4]]);
    let photograph = [kind, full_box(b"meta", 0, &[&handler(b"pict"), &places])].concat();
    assert!(is_refused(&photograph));
}

#[test]
fn thumbnails_and_strips_of_odd_directories() {
    let two = [(0x0201, 4, 1, 60), (0x0202, 4, 1, 2), (0x0201, 4, 1, 62)];
    assert!(is_refused(&photograph(&[&directory(&two, 0), &[7; 9]])));
    // Stale strips, which reach over GPS.
    let strips = [
        (0x0111, 4, 1, 8),
        (0x0117, 4, 1, 36_000_000),
        (POINTER, 4, 1, 50),
    ];
    let gps = directory(&[(29, 2, 14, 68)], 0);
    cleaned(&photograph(&[
        &directory(&strips, 0),
        &gps,
        PLACE.as_bytes(),
    ]));
}

#[test]
fn contradictory_patches_are_refused() {
    let mut edits = Edits::default();
    edits.zero(10..20).unwrap();
    edits.zero(15..30).unwrap();
    edits.bytes(40, b"same").unwrap();
    edits.bytes(40, b"same").unwrap();
    edits.spaces(30..35).unwrap();
    let plan = edits.finish(100).unwrap();
    let ranges: Vec<_> = plan.ranges().map(|(range, _)| range).collect();
    assert_eq!(ranges, [10..30, 30..35, 40..44]);
    let mut edits = Edits::default();
    edits.zero(10..20).unwrap();
    edits.bytes(19, b"ab").unwrap();
    assert!(edits.finish(100).is_err());
    let mut edits = Edits::default();
    edits.zero(10..20).unwrap();
    assert!(edits.finish(19).is_err());
}

/// A plan: the bytes to keep before each patch, and the patch.
fn any_plan() -> impl Strategy<Value = (Vec<u8>, RedactionPlan)> {
    let patch = (0_u64..9, 1_usize..9, 0_u8..3);
    (prop::collection::vec(patch, 0..40), 0_u64..20).prop_map(|(patches, rest)| {
        let mut edits = Edits::default();
        let mut at = 0;
        for (gap, size, kind) in patches {
            let start = at + gap;
            at = start + size as u64;
            match kind {
                0 => edits.zero(start..at).unwrap(),
                1 => edits.spaces(start..at).unwrap(),
                _ => {
                    let bytes: Vec<u8> = (start..at).map(|at| (at * 7) as u8).collect();
                    edits.bytes(start, &bytes).unwrap();
                }
            }
        }
        let length = at + rest;
        let file = (0..length).map(|at| (at % 251) as u8 | 1).collect();
        (file, edits.finish(length).unwrap())
    })
}

proptest! {
    /// Readers see the same whichever way they read.
    #[test]
    fn apply_in_pieces_equals_apply_at_once(
        (file, plan) in any_plan(),
        reads in prop::collection::vec((0_usize..400, 0_usize..60), 0..40),
    ) {
        let mut whole = file.clone();
        for (range, content) in plan.ranges() {
            let range = range.start as usize..range.end as usize;
            match content {
                Content::Fill(byte) => whole[range].fill(*byte),
                Content::Bytes(bytes) => whole[range].copy_from_slice(bytes),
            }
        }
        let mut all = file.clone();
        plan.apply(0, &mut all);
        prop_assert_eq!(&all, &whole);
        for (start, size) in reads {
            let start = start.min(file.len());
            let end = (start + size).min(file.len());
            let mut piece = file[start..end].to_vec();
            plan.apply(start as u64, &mut piece);
            prop_assert_eq!(&piece[..], &whole[start..end]);
        }
    }
}
