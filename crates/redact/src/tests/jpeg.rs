//! JPEG: cameras, telephones, drones.

use super::make::*;
use super::*;
use crate::source::SCAN_PIECE_BYTES;
use image::ImageFormat;

#[test]
fn cameras_of_either_byte_order() {
    for little in [false, true] {
        let photograph = jpeg_with(&[exif_segment(&exif_block(little))]);
        let seen = cleaned(&photograph);
        assert_exif_without_gps(&photograph, &seen);
        assert_same_picture(&photograph, &seen);
    }
}

#[test]
fn photographs_without_a_place_have_an_empty_plan() {
    let photograph = jpeg_with(&[
        exif_segment(&exif_without_gps(true)),
        xmp_segment(&packet(
            "xmlns:GPano=\"g\" GPano:PoseHeadingDegrees=\"7\"",
            "",
        )),
    ]);
    assert!(planned(&photograph).is_empty());
    assert!(planned(&picture(ImageFormat::Jpeg)).is_empty());
}

#[test]
fn several_exif_segments() {
    let photograph = jpeg_with(&[
        exif_segment(&exif_without_gps(true)),
        exif_segment(&exif_block(true)),
        exif_segment(&exif_block(false)),
    ]);
    cleaned(&photograph);
}

#[test]
fn gps_only_block_keeps_a_valid_directory() {
    let photograph = jpeg_with(&[exif_segment(&exif_with(gps_fields(), true, None))]);
    let seen = cleaned(&photograph);
    let exif = exif_of(&seen).unwrap();
    let tags: Vec<u16> = exif.fields().map(|field| field.tag.number()).collect();
    assert_eq!(tags, [0xea1c]);
}

#[test]
fn drone_xmp_is_redacted() {
    let elements = "<exif:GPSLatitude>48,8.22925N</exif:GPSLatitude>";
    for packet in [drone_packet(), packet("xmlns:exif=\"e\"", elements)] {
        let photograph = jpeg_with(&[exif_segment(&exif_without_gps(true)), xmp_segment(&packet)]);
        let seen = cleaned(&photograph);
        assert_same_picture(&photograph, &seen);
        assert!(holds(
            &seen,
            b"<x:xmpmeta xmlns:x=\"adobe:ns:meta/\"><rdf:RDF"
        ));
    }
}

#[test]
fn xmp_in_other_encodings() {
    // Two bytes per character, without a byte order mark; and an unknown encoding.
    let text = drone_packet().replace('\u{feff}', "");
    let wide = |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_be_bytes).collect() };
    let strange = |text: &str| -> Vec<u8> { text.bytes().map(|byte| byte ^ 0x80).collect() };
    let encodings: [fn(&str) -> Vec<u8>; 2] = [wide, strange];
    for encode in encodings {
        let mut segment = xmp_segment("");
        segment.1.extend(encode(&text));
        let photograph = jpeg_with(&[segment]);
        let secret = encode("48.137154");
        assert!(holds(&photograph, &secret));
        assert!(!holds(&redacted(&photograph), &secret));
    }
}

#[test]
fn images_in_xmp() {
    // "Exif" and two zeros in base 64, behind none, one and two other bytes.
    for image in ["/+1RXhpZgAASUkq", "/+V4aWYAAElJKgAI", "/+oFeGlmAABNTQAq"] {
        let attributes = format!("xmlns:GImage=\"g\" GImage:Data=\"{image}\"");
        let photograph = jpeg_with(&[xmp_segment(&packet(&attributes, ""))]);
        assert!(!holds(&redacted(&photograph), image.as_bytes()));
    }
}

#[test]
fn extended_xmp_in_pieces() {
    // One word, once.
    let long = packet("xmlns:a=\"a\" a:Wgs84=\"48.137154\"", "");
    let word = long.find("Wgs84").unwrap();
    let main = packet(
        "xmpNote:HasExtendedXMP=\"0123456789ABCDEF0123456789ABCDEF\"",
        "",
    );
    // Between two pieces, within the word; and in the wrong order.
    for at in [word + 2, word + 5, 40] {
        let (first, second) = long.as_bytes().split_at(at);
        let mut segments = vec![
            xmp_segment(&main),
            extended_segment(long.len(), 0, first),
            extended_segment(long.len(), at, second),
        ];
        for swapped in [false, true] {
            if swapped {
                segments.swap(1, 2);
            }
            let photograph = jpeg_with(&segments);
            cleaned(&photograph);
        }
    }
    let harmless = packet("xmlns:GDepth=\"g\" GDepth:Data=\"AAAA\"", "");
    let photograph = jpeg_with(&[
        xmp_segment(&main),
        extended_segment(harmless.len(), 0, harmless.as_bytes()),
    ]);
    assert!(planned(&photograph).is_empty());
}

#[test]
fn second_images_behind_the_first() {
    let first = jpeg_with(&[
        exif_segment(&exif_block(false)),
        (0xe2, [b"MPF\0", &exif_without_gps(true)[..]].concat()),
    ]);
    let second = jpeg_with(&[
        exif_segment(&exif_block(true)),
        xmp_segment(&drone_packet()),
    ]);
    let photograph = [first.clone(), vec![0; 100], second.clone(), second.clone()].concat();
    let seen = cleaned(&photograph);
    assert_same_picture(&photograph, &seen);
    assert_exif_without_gps(&photograph, &seen);
    let second_seen = &seen[first.len() + 100..][..second.len()];
    assert_same_picture(&second, second_seen);
    assert_exif_without_gps(&second, second_seen);
}

/// Readers see the picture, and only zeros of the bytes behind it.
fn shows_picture_alone(still: &[u8], behind: &[u8]) -> Vec<u8> {
    let photograph = [still, behind].concat();
    let seen = redacted(&photograph);
    assert!(seen[..still.len()] == redacted(still)[..]);
    assert!(seen[still.len()..].iter().all(|byte| *byte == 0));
    assert_same_picture(&photograph, &seen);
    seen
}

#[test]
fn motion_photo_shows_its_picture() {
    let still = jpeg_with(&[exif_segment(&exif_block(true))]);
    let frame = jpeg_with(&[exif_segment(&exif_without_gps(true))]);
    let of_frames = [
        a_box(b"ftyp", &[b"qt  ", &[0; 4]]),
        a_box(b"mdat", &[&frame, &frame]),
    ]
    .concat();
    // Google puts the film directly behind the image, Samsung puts records before and after it.
    let records = [
        b"\0\0\x30\x0a\x1a\0\0\0NETWORK-SECRET",
        &film(b"mp42")[..],
        b"SEFH....+48.137154SEFT",
    ]
    .concat();
    let no_film = [7; 300];
    for behind in [
        &film(b"isom")[..],
        &plain_film(b"3gp4"),
        &of_frames,
        &records,
        &film(b"isom")[4..],
        b"ftyp",
        &no_film,
        &[0xff, 0xd8, 0xff, 0xe1, 0xff],
    ] {
        let seen = shows_picture_alone(&still, behind);
        assert_no_secret(&seen);
        assert_exif_without_gps(&still, &seen);
        // Only the film is to be removed.
        let plain = jpeg_with(&[exif_segment(&exif_without_gps(true))]);
        let seen = shows_picture_alone(&plain, behind);
        assert!(seen.starts_with(&plain));
    }
}

/// Without an end marker, what follows a JPEG looks like coded data.
#[test]
fn film_behind_a_truncated_photograph() {
    let still = jpeg_with(&[exif_segment(&exif_block(true))]);
    let cut_off = still.strip_suffix(&[0xff, 0xd9]).unwrap();
    assert_no_secret(&redacted(cut_off));
    let film = film(b"isom");
    assert!(!film.contains(&0xff), "nothing in it looks like a marker");
    // Also with the film's beginning in two pieces that are read.
    for more in [0, SCAN_PIECE_BYTES - cut_off.len() - 3] {
        let padded = [cut_off, &vec![0x55; more], &film].concat();
        assert!(is_refused(&padded), "{more}");
    }
}

#[test]
fn film_behind_second_images() {
    let photograph = jpeg_with(&[exif_segment(&exif_without_gps(true))]);
    let images = [photograph.clone(), photograph].concat();
    let seen = shows_picture_alone(&images, &film(b"isom"));
    assert!(seen.starts_with(&images));
    // Larger than one piece of a scan, and where two pieces meet.
    for gap in [255 << 10, (256 << 10) - 6, (256 << 10) + 1, 1 << 20] {
        let behind = [vec![1; gap], film(b"isom"), images.clone()].concat();
        shows_picture_alone(&images, &behind);
    }
}

/// If the walkers missed films, the second parser would refuse the file.
#[test]
fn second_parser_finds_a_film_behind_a_photograph() {
    use crate::{detect::Container, verify};
    let judged = |photograph: &[u8], plan: &RedactionPlan| {
        let length = photograph.len() as u64;
        verify::no_place_left(&reader(photograph), length, Container::Jpeg, plan)
    };
    let blind = RedactionPlan::default();
    let photograph = motion_photo(&[], &film(b"isom"));
    assert!(judged(&photograph, &blind).is_err());
    judged(&photograph, &planned(&photograph)).unwrap();
    judged(&motion_photo(&[], &plain_film(b"isom")), &blind).unwrap();
}

#[test]
fn thumbnails_with_blocks_of_their_own() {
    let inner = jpeg_with(&[exif_segment(&exif_block(true))]);
    let outer = exif_with(
        vec![(Tag::Make, Value::Ascii(vec![b"Maker".to_vec()]))],
        false,
        Some(&inner),
    );
    let photograph = jpeg_with(&[exif_segment(&outer)]);
    let seen = cleaned(&photograph);
    let start = memchr::memmem::rfind(&photograph, &inner).unwrap();
    assert_same_picture(&inner, &seen[start..][..inner.len()]);
}

#[test]
fn segments_of_unknown_kind_are_emptied() {
    let place = place_in_binary();
    for name in [
        "GoPro\0DEVC",
        "META\0\0II",
        "RMETA\0",
        "FPXR\0",
        "JP\0\x01jumbc2pa",
        "QVCI\0",
        "Q\0",
        "SPIFF\0",
        "",
    ] {
        for marker in 0xe0..=0xef {
            let photograph = jpeg_with(&[(marker, [name.as_bytes(), &place].concat())]);
            let seen = cleaned(&photograph);
            assert_same_picture(&photograph, &seen);
        }
    }
    // Of a known kind, only with a place.
    for (marker, name) in [
        (0xe0, "JFXX\0\x10"),
        (0xe2, "ICC_PROFILE\0\x01\x01"),
        (0xec, "Ducky"),
        (0xed, "Photoshop 3.0\0"),
        (0xee, "Adobe"),
        (0xfe, ""),
    ] {
        let with = |content: &[u8]| jpeg_with(&[(marker, [name.as_bytes(), content].concat())]);
        for carrier in [
            "latitude ",
            " Exif\0\0",
            "II*\0\x08\0\0\0",
            "8BIM\x04\x22\0\0",
            "8BIM\x04\x23\0\0",
        ] {
            let seen = redacted(&with(&[carrier.as_bytes(), &place].concat()));
            assert!(!holds(&seen, &place), "{name:?} {carrier:?}");
        }
        assert!(planned(&with(b"made by hand")).is_empty(), "{name:?}");
    }
    cleaned(&jpeg_with(&[(0xfe, format!("at {POSITION}").into())]));
    // The directory of images, also with a place in it.
    let images = |block: &[u8]| jpeg_with(&[(0xe2, [b"MPF\0", block].concat())]);
    assert!(planned(&images(&exif_without_gps(true))).is_empty());
    cleaned(&images(&exif_block(true)));
}

/// A record of Photoshop, a word, a position that begin in one segment and end in the next.
#[test]
fn segments_that_continue_each_other_are_one() {
    let place = place_in_binary();
    let record = [b"8BIM\x04\x22\0\0", &place[..]].concat();
    let words = format!("latitude {POSITION}").into_bytes();
    let profile =
        |number: u8, half: &[u8]| (0xe2, [b"ICC_PROFILE\0", &[number, 2][..], half].concat());
    let seen = redacted(&jpeg_with(&[
        profile(1, b"lati"),
        profile(2, format!("tude {PLACE}").as_bytes()),
    ]));
    assert_no_secret(&seen);
    for (marker, name) in [
        (0xed, "Photoshop 3.0\0"),
        (0xe2, "ICC_PROFILE\0\x01\x02"),
        (0xfe, ""),
    ] {
        for content in [&record, &words] {
            for at in 1..content.len() {
                let half = |half: &[u8]| (marker, [name.as_bytes(), half].concat());
                let (first, second) = content.split_at(at);
                let photograph = jpeg_with(&[half(first), half(second)]);
                let seen = redacted(&photograph);
                assert!(!holds(&seen, first) || at < 8, "{name:?} {at}");
                assert!(
                    !holds(&seen, second) || content.len() - at < 8,
                    "{name:?} {at}"
                );
            }
        }
    }
}

#[test]
fn places_in_xmp_without_a_prefix_or_in_records_of_photoshop() {
    let city = format!("<City xmlns=\"p\">{PLACE}</City>");
    for element in [
        &city,
        &format!("<Iptc4xmpExt:ProvinceState>{PLACE}"),
        &format!("<my:Province>{PLACE}</my:Province>"),
    ] {
        let packet = packet("", element);
        cleaned(&jpeg_with(&[xmp_segment(&packet)]));
        let record = format!("Photoshop 3.0\08BIM\x04\x24\0\0{packet}");
        cleaned(&jpeg_with(&[(0xed, record.into_bytes())]));
    }
}

#[test]
fn segments_that_may_hold_anything_are_refused() {
    for marker in (0x02..=0xbf).chain([0xc8]).chain(0xf0..=0xfd) {
        let photograph = jpeg_with(&[(marker, place_in_binary())]);
        assert!(is_refused(&photograph), "{marker:02x}");
    }
}

/// Blocks with a pointer that is not one of EXIF, with text and records.
#[test]
fn places_anywhere_in_a_directory() {
    let pointer = |tag, kind: u16| {
        // A directory whose entry points to another, with the pointer to GPS, whose value follows.
        let entry = |tag: u16, kind: u16, count: u32, value: u32| {
            let parts = [
                &tag.to_le_bytes()[..],
                &kind.to_le_bytes(),
                &count.to_le_bytes(),
                &value.to_le_bytes(),
            ];
            [&[1, 0], &parts.concat()[..], &[0; 4]].concat()
        };
        let size = PLACE.len() as u32;
        let entries = [
            entry(tag, kind, 1, 26),
            entry(0x8825, 4, 1, 44),
            entry(0x1b, 7, size, 62),
        ];
        [
            b"II*\0\x08\0\0\0",
            entries.concat().as_slice(),
            PLACE.as_bytes(),
        ]
        .concat()
    };
    for (tag, kind) in [
        (0x014a, 4),
        (0x0190, 4),
        (0x8290, 4),
        (0x9999, 13),
        (0xfe00, 13),
    ] {
        cleaned(&jpeg_with(&[exif_segment(&pointer(tag, kind))]));
    }
    let text = |tag: u16, place: &[u8]| {
        let tag = Tag(Context::Tiff, tag);
        let value = Value::Undefined(place.to_vec(), 0);
        jpeg_with(&[exif_segment(&exif_with(vec![(tag, value)], true, None))])
    };
    let record = [b"8BIM\x04\x22\0\0", place_in_binary().as_slice()].concat();
    let wide: Vec<u8> = format!("GPSLatitude {PLACE}")
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let words = format!("latitude {POSITION}");
    for tag in [0x010e, 0x83bb, 0x8649, 0x9286, 0x9c9c, 0xc634] {
        cleaned(&text(tag, words.as_bytes()));
        cleaned(&text(tag, &record));
        assert!(!holds(&redacted(&text(tag, &wide)), &wide), "{tag:04x}");
        assert!(planned(&text(tag, b"a harmless text")).is_empty());
    }
    for words in ["geo:", "GPS: ", "Location=", "the coordinates "] {
        let words = format!("{words}{PLACE}");
        cleaned(&text(0x9286, words.as_bytes()));
        let description = Value::Ascii(vec![words.clone().into()]);
        let fields = vec![(Tag(Context::Tiff, 0x010e), description)];
        cleaned(&jpeg_with(&[exif_segment(&exif_with(fields, true, None))]));
        let wide: Vec<u8> = words.encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(!holds(&redacted(&text(0x9c9c, &wide)), &wide), "{words}");
    }
}

#[test]
fn maker_note_with_a_place() {
    let note = Value::Undefined(format!("Maker\0gpsLat={POSITION}").into_bytes(), 0);
    let block = exif_with(vec![(Tag::MakerNote, note)], true, None);
    let photograph = jpeg_with(&[exif_segment(&block)]);
    cleaned(&photograph);
}

#[test]
fn nikon_notes_stay() {
    let note = b"Nikon\0\x02\x10\0\0MM\0*\0\0\0\x08\0\0lens and focus".to_vec();
    let block = exif_with(
        vec![(Tag::MakerNote, Value::Undefined(note, 0))],
        false,
        None,
    );
    assert!(planned(&jpeg_with(&[exif_segment(&block)])).is_empty());
}

#[test]
fn metadata_behind_a_scan() {
    let photograph = picture(ImageFormat::Jpeg);
    let (head, end) = photograph.split_at(photograph.len() - 2);
    let (marker, contents) = exif_segment(&exif_block(true));
    let length = (contents.len() as u16 + 2).to_be_bytes();
    let photograph = [head, &[0xff, marker], &length, &contents, end].concat();
    cleaned(&photograph);
}

#[test]
fn broken_structure_is_refused() {
    let photograph = jpeg_with(&[exif_segment(&exif_block(true))]);
    for cut in [2, 3, 5, 20, 200, 900] {
        assert!(is_refused(&photograph[..cut]), "{cut} bytes");
    }
    let not_exif = jpeg_with(&[(0xe1, b"Exif\0\0 but no more".to_vec())]);
    assert!(is_refused(&not_exif));
    let thermal = jpeg_with(&[(0xe1, b"FLIR\0\x01\0\0".to_vec())]);
    assert!(is_refused(&thermal));
}
