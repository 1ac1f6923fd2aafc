//! Photographs in the layouts of real cameras, with a place in them.

// Shared with the unit tests of redaction.
#[allow(dead_code)]
#[path = "../../../crates/redact/src/tests/make.rs"]
mod make;

use std::io::Cursor;

/// One of each kind, with the ending of its name.
pub fn all() -> Vec<(&'static str, Vec<u8>)> {
    make::samples()
        .into_iter()
        .map(|(kind, bytes)| {
            assert!(!is_clean(&bytes), "the sample {kind} has no place in it");
            (kind, bytes)
        })
        .collect()
}

/// A photograph of many pages, in which the place comes early and again at the end.
pub fn photograph() -> Vec<u8> {
    let exif = make::exif_segment(&make::exif_block(false));
    let filler = (0xfe, vec![b'.'; 20_000]);
    let packet = make::xmp_segment(&make::drone_packet());
    make::jpeg_with(&[exif, filler.clone(), filler, packet])
}

/// One of less than a page, in which the place comes behind so many bytes of a comment.
pub fn small_photograph(before: usize) -> Vec<u8> {
    let exif = make::exif_segment(&make::exif_block(false));
    make::jpeg_with(&[(0xfe, vec![b'.'; before]), exif])
}

/// One without a place.
pub fn plain_photograph() -> Vec<u8> {
    make::jpeg_with(&[make::exif_segment(&make::exif_without_gps(false))])
}

/// Begins as a photograph and is none.
pub fn broken_photograph() -> Vec<u8> {
    let mut bytes = photograph();
    // The length of the first segment.
    bytes[4..6].copy_from_slice(&[0, 0]);
    bytes
}

/// Films, with a place in them and without.
pub fn films() -> [Vec<u8>; 2] {
    [make::film(b"isom"), make::plain_film(b"qt  ")]
}

/// Whether nothing of the place is left.
pub fn is_clean(bytes: &[u8]) -> bool {
    // In one pass: this runs for each file after every few steps.
    let secrets = make::secrets();
    let mut begins = [false; 256];
    for secret in &secrets {
        begins[usize::from(secret[0])] = true;
    }
    let is_secret = |(at, byte): (usize, &u8)| {
        begins[usize::from(*byte)] && secrets.iter().any(|it| bytes[at..].starts_with(it))
    };
    !bytes.iter().enumerate().any(is_secret)
}

/// Whether the place can be found by a decoder, where one reads this kind.
pub fn names_place(bytes: &[u8]) -> bool {
    let found = exif::Reader::new().read_from_container(&mut Cursor::new(bytes));
    found.is_ok_and(|exif| {
        exif.fields()
            .any(|field| field.tag.context() == exif::Context::Gps)
    })
}

/// The picture, where it is one.
pub fn picture(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(image::load_from_memory(bytes).ok()?.to_rgba8().into_raw())
}
