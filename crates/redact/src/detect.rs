//! Detects the container of a file by its first bytes.

use super::error::Result;
use super::source::Source;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Container {
    Jpeg,
    Png,
    WebP,
    /// HEIC, AVIF.
    Heif,
    /// Boxes of other files than still pictures: MP4, MOV, 3GP, CR3, sequences of pictures.
    Film,
}

/// The brands of still pictures. Those of sequences (`hevc`, `msf1`, `avis`) are not among them.
const PICTURES: [&[u8; 4]; 8] = [
    b"heic", b"heix", b"heim", b"heis", b"mif1", b"mif2", b"miaf", b"avif",
];
/// What a film may begin with. Old QuickTime files have no `ftyp`.
const FIRST_BOXES: [&[u8; 4]; 10] = [
    b"ftyp", b"styp", b"moov", b"moof", b"mdat", b"wide", b"free", b"skip", b"pnot", b"uuid",
];

/// The container, or `None` for an unknown one.
pub(super) fn container(source: &mut Source<'_>) -> Result<Option<Container>> {
    let head = source.bytes(0..source.length().min(16))?;
    Ok(of_head(&head))
}

pub(super) fn of_head(head: &[u8]) -> Option<Container> {
    if head.starts_with(b"\xff\xd8\xff") || head == b"\xff\xd8" {
        return Some(Container::Jpeg);
    }
    if head.starts_with(b"\x89PNG\r\n\x1a\n") {
        return Some(Container::Png);
    }
    if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        return Some(Container::WebP);
    }
    let kind = head.get(4..8)?;
    let brand = head.get(8..12).unwrap_or_default();
    if kind == b"ftyp" && PICTURES.iter().any(|picture| *picture == brand) {
        return Some(Container::Heif);
    }
    FIRST_BOXES
        .iter()
        .any(|first| *first == kind)
        .then_some(Container::Film)
}
