//! Words that show that text may name a place.
//!
//! They only decide whether something is removed as a whole. A word too many costs a caption, a word too
//! few a secret: so there are many.

use memchr::memmem;

/// In XMP and other structured text, in lower case.
const TEXT: [&[u8]; 24] = [
    b"gps",
    b"latitude",
    b"longitude",
    b"longtitude",
    b"altitude",
    b"location",
    b"geotag",
    b"geo:",
    b"geocode",
    b"wgs84",
    b"iso6709",
    b"coordinates",
    b"placename",
    b"sublocation",
    b":city",
    b":state",
    b":country",
    b"<city",
    b"<state",
    b"<country",
    b":province",
    b"<province",
    b"provincestate",
    b"locality",
];

/// In blocks of unknown kind, where short words occur by chance.
const OPAQUE: [&[u8]; 10] = [
    b"latitude",
    b"longitude",
    b"longtitude",
    b"gpsinfo",
    b"gpslat",
    b"gpslon",
    b"gpscoord",
    b"gpsdata",
    b"geotag",
    b"iso6709",
];

/// Signatures of metadata inside another block; the last three are records of Photoshop with EXIF and XMP.
const SIGNATURES: [&[u8]; 5] = [
    b"Exif\0\0",
    b"http://ns.adobe.com/xap/1.0/",
    b"8BIM\x04\x22",
    b"8BIM\x04\x23",
    b"8BIM\x04\x24",
];
/// The beginning of an EXIF block without a signature.
const TIFF_HEADERS: [&[u8]; 2] = [b"II*\0", b"MM\0*"];

/// `Exif` and two zeros in base 64, at any offset in a group of three bytes: packets carry whole images
/// this way.
const IMAGE_IN_TEXT: [&[u8]; 3] = [b"RXhpZgAA", b"V4aWYAA", b"FeGlmAA"];

/// Whether structured text may name a place.
pub(super) fn text_names_place(bytes: &[u8]) -> bool {
    let lower = bytes.to_ascii_lowercase();
    // Text of two or four bytes a character would hide the words.
    bytes.contains(&0)
        || contains_any(&lower, &TEXT)
        || contains_any(bytes, &IMAGE_IN_TEXT)
        || holds_iso6709(bytes)
}

/// Whether a block of unknown kind may name a place.
pub(super) fn opaque_names_place(bytes: &[u8]) -> bool {
    holds_words(bytes) || holds_metadata(bytes)
}

/// Whether a value in an EXIF block may name a place: a text of one or two bytes a character, or a maker's note.
/// Nikon's have a TIFF header, and directories of their own behind it.
pub(super) fn note_names_place(bytes: &[u8]) -> bool {
    let text: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0).collect();
    holds_words(&text) || contains_any(bytes, &SIGNATURES)
}

/// Whether there are words for a place, or a position, among other bytes.
pub(super) fn holds_words(bytes: &[u8]) -> bool {
    contains_any(&bytes.to_ascii_lowercase(), &OPAQUE) || holds_iso6709(bytes)
}

/// Whether a block holds metadata of its own.
pub(super) fn holds_metadata(bytes: &[u8]) -> bool {
    contains_any(bytes, &SIGNATURES) || contains_any(bytes, &TIFF_HEADERS)
}

/// Whether there is a position in ISO 6709: `+27.1281+100.2508`.
fn holds_iso6709(bytes: &[u8]) -> bool {
    let signs = memchr::memchr2_iter(b'+', b'-', bytes);
    signs.into_iter().any(|at| {
        let after_latitude = coordinate(&bytes[at..], 2);
        let rest = &bytes[at + after_latitude..];
        after_latitude > 0 && coordinate(rest, 3) > 0
    })
}

/// The length of a sign, at least `digits` digits, a point and a digit; 0 if there is none.
fn coordinate(bytes: &[u8], digits: usize) -> usize {
    if !matches!(bytes.first(), Some(b'+' | b'-')) {
        return 0;
    }
    let number = &bytes[1..];
    let is_digit = |byte: &&u8| byte.is_ascii_digit();
    // Degrees, minutes and seconds have seven digits at most.
    let whole = number.iter().take(8).take_while(is_digit).count();
    if whole < digits || number.get(whole) != Some(&b'.') {
        return 0;
    }
    let fraction = number[whole + 1..].iter().take(32).take_while(is_digit);
    match fraction.count() {
        0 => 0,
        count => 1 + whole + 1 + count,
    }
}

fn contains_any(bytes: &[u8], words: &[&[u8]]) -> bool {
    words.iter().any(|word| memmem::find(bytes, word).is_some())
}
