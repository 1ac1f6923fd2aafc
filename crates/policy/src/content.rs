//! Content types by a file's first bytes: `content`.
//!
//! A small table of our own, with the types that rules are written for, each with the magic bytes of its
//! specification. A content has one type; names of one format that are used for each other are one type
//! (`image/heic` is `image/heif`), so that a rule cannot miss half of them.

use super::error::Problem;
use super::nearest;

/// How many bytes of a file decide its type.
pub const HEAD_BYTES: usize = 512;

/// The content type of a file, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentType(u8);

/// Bytes at offsets, all of which must match.
type Mark = &'static [(usize, &'static [u8])];

/// Types with their marks: `OFFSET => BYTES`, those in brackets together.
macro_rules! types {
    ($($name:literal $(: $([$($place:literal => $bytes:literal),*])*)?,)*) => {
        &[$(($name, &[$($(&[$(($place, $bytes)),*]),*)?])),*]
    };
}

/// The known types, each with alternative marks.
const TYPES: &[(&str, &[Mark])] = types! {
    // Types without marks: see `ContentType::of`.
    "application/octet-stream",
    "inode/x-empty",
    "text/plain",
    "image/heif",
    "image/avif",
    "image/x-canon-cr3",
    "video/mp4",
    "video/3gpp",
    "video/webm",
    "video/x-matroska",
    "audio/mp4",
    "video/quicktime":
        [4 => b"moov"] [4 => b"mdat"] [4 => b"wide"] [4 => b"free"] [4 => b"skip"] [4 => b"pnot"],
    "image/jpeg": [0 => b"\xff\xd8\xff"],
    "image/png": [0 => b"\x89PNG\r\n\x1a\n"],
    "image/webp": [0 => b"RIFF", 8 => b"WEBP"],
    "image/gif": [0 => b"GIF87a"] [0 => b"GIF89a"],
    "image/tiff": [0 => b"II*\0"] [0 => b"MM\0*"] [0 => b"II+\0"] [0 => b"MM\0+"],
    "image/bmp": [0 => b"BM", 6 => b"\0\0\0\0"],
    "image/x-icon": [0 => b"\0\0\x01\0"],
    "image/jxl": [0 => b"\xff\x0a"] [0 => b"\0\0\0\x0cJXL \r\n\x87\n"],
    "image/jp2": [0 => b"\0\0\0\x0cjP  \r\n\x87\n"],
    "image/vnd.adobe.photoshop": [0 => b"8BPS"],
    "video/x-msvideo": [0 => b"RIFF", 8 => b"AVI "],
    "video/mpeg": [0 => b"\0\0\x01\xba"] [0 => b"\0\0\x01\xb3"],
    "video/mp2t": [0 => b"G", 188 => b"G", 376 => b"G"],
    "video/x-flv": [0 => b"FLV\x01"],
    "video/x-ms-asf": [0 => b"\x30\x26\xb2\x75\x8e\x66\xcf\x11"],
    "audio/mpeg":
        [0 => b"ID3"] [0 => b"\xff\xfb"] [0 => b"\xff\xf3"] [0 => b"\xff\xf2"] [0 => b"\xff\xfa"],
    "audio/flac": [0 => b"fLaC"],
    "audio/wav": [0 => b"RIFF", 8 => b"WAVE"],
    "audio/midi": [0 => b"MThd"],
    "audio/aiff": [0 => b"FORM", 8 => b"AIFF"],
    "application/ogg": [0 => b"OggS"],
    "application/pdf": [0 => b"%PDF-"],
    "application/postscript": [0 => b"%!PS"],
    "application/rtf": [0 => b"{\\rtf"],
    "application/x-ole-storage": [0 => b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"],
    "application/zip": [0 => b"PK\x03\x04"] [0 => b"PK\x05\x06"] [0 => b"PK\x07\x08"],
    "application/gzip": [0 => b"\x1f\x8b"],
    "application/x-bzip2": [0 => b"BZh"],
    "application/x-xz": [0 => b"\xfd7zXZ\0"],
    "application/zstd": [0 => b"\x28\xb5\x2f\xfd"],
    "application/x-lz4": [0 => b"\x04\x22\x4d\x18"],
    "application/x-7z-compressed": [0 => b"7z\xbc\xaf\x27\x1c"],
    "application/vnd.rar": [0 => b"Rar!\x1a\x07"],
    "application/x-tar": [257 => b"ustar"],
    "application/vnd.debian.binary-package": [0 => b"!<arch>\ndebian"],
    "application/x-rpm": [0 => b"\xed\xab\xee\xdb"],
    "application/x-elf": [0 => b"\x7fELF"],
    "application/wasm": [0 => b"\0asm"],
    "application/vnd.microsoft.portable-executable": [0 => b"MZ"],
    "application/java-vm": [0 => b"\xca\xfe\xba\xbe"],
    "application/vnd.sqlite3": [0 => b"SQLite format 3\0"],
    "text/x-script": [0 => b"#!"],
    "text/xml": [0 => b"<?xml"],
};

// A set is the bits of a word.
const _: () = assert!(TYPES.len() <= 64);

/// Other names of these types.
const ALIASES: &[(&str, &str)] = &[
    ("image/heic", "image/heif"),
    ("image/heic-sequence", "image/heif"),
    ("image/heif-sequence", "image/heif"),
    ("image/jpg", "image/jpeg"),
    ("image/apng", "image/png"),
    ("image/vnd.microsoft.icon", "image/x-icon"),
    ("video/3gpp2", "video/3gpp"),
    ("video/matroska", "video/x-matroska"),
    ("audio/x-m4a", "audio/mp4"),
    ("audio/x-wav", "audio/wav"),
    ("audio/vnd.wave", "audio/wav"),
    ("audio/ogg", "application/ogg"),
    ("video/ogg", "application/ogg"),
    ("application/x-executable", "application/x-elf"),
    ("application/x-sharedlib", "application/x-elf"),
    ("application/x-gzip", "application/gzip"),
    ("application/x-rar", "application/vnd.rar"),
    ("application/x-sqlite3", "application/vnd.sqlite3"),
    ("application/xml", "text/xml"),
];

pub(super) fn type_names() -> impl Iterator<Item = &'static str> {
    TYPES.iter().map(|(name, _)| *name)
}

impl ContentType {
    /// The type by the first bytes: as many of [`HEAD_BYTES`] as the file has.
    pub fn of(head: &[u8]) -> ContentType {
        let name = if head.is_empty() {
            "inode/x-empty"
        } else if let Some(name) = box_media(head).or_else(|| matroska(head)) {
            name
        } else if let Some(marked) = marked(head) {
            return marked;
        } else if is_text(head) {
            "text/plain"
        } else {
            "application/octet-stream"
        };
        ContentType::named(name).expect("every name that is found is in the table")
    }

    fn named(name: &str) -> Option<ContentType> {
        let index = TYPES.iter().position(|(known, _)| *known == name)?;
        u8::try_from(index).ok().map(ContentType)
    }

    /// Its name, such as `image/jpeg`.
    pub fn name(self) -> &'static str {
        TYPES[usize::from(self.0)].0
    }
}

fn marked(head: &[u8]) -> Option<ContentType> {
    let is_at = |(offset, mark): &(usize, &[u8])| {
        let tail = head.get(*offset..);
        tail.is_some_and(|tail| tail.starts_with(mark))
    };
    let index = TYPES
        .iter()
        .position(|(_, marks)| marks.iter().any(|all| all.iter().all(is_at)))?;
    u8::try_from(index).ok().map(ContentType)
}

/// ISO base media files (ISO/IEC 14496-12): a box `ftyp` with the brand.
fn box_media(head: &[u8]) -> Option<&'static str> {
    let brand = head.get(4..12)?.strip_prefix(b"ftyp")?;
    Some(match brand {
        b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" | b"hevm" | b"hevs" | b"mif1"
        | b"mif2" | b"msf1" | b"miaf" => "image/heif",
        b"avif" | b"avis" => "image/avif",
        b"crx " => "image/x-canon-cr3",
        b"qt  " => "video/quicktime",
        b"M4A " | b"M4B " | b"M4P " => "audio/mp4",
        [b'3', b'g', b'p' | b'2' | b'r' | b's' | b'e', _] => "video/3gpp",
        _ => "video/mp4",
    })
}

/// Matroska (RFC 9559) or WebM, its profile, by the document type.
fn matroska(head: &[u8]) -> Option<&'static str> {
    let header = head.strip_prefix(b"\x1a\x45\xdf\xa3")?;
    let is_webm = header.windows(4).take(64).any(|name| name == b"webm");
    Some(if is_webm {
        "video/webm"
    } else {
        "video/x-matroska"
    })
}

/// UTF-8 (the last character may be cut off) without control characters other than those of text.
fn is_text(head: &[u8]) -> bool {
    let is_utf8 = match std::str::from_utf8(head) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    };
    let is_of_text =
        |byte: &u8| *byte >= 0x20 || matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b);
    is_utf8 && head.iter().all(is_of_text)
}

/// A set of types, by their bits; all by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentSet(pub(super) u64);

impl Default for ContentSet {
    fn default() -> ContentSet {
        ContentSet(u64::MAX)
    }
}

impl ContentSet {
    /// Whether the type is among them.
    pub fn contains(self, content: ContentType) -> bool {
        self.0 & 1 << content.0 != 0
    }

    /// Whether all types are.
    pub fn is_all(self) -> bool {
        self == ContentSet::default()
    }

    pub(super) fn union(self, other: ContentSet) -> ContentSet {
        ContentSet(self.0 | other.0)
    }

    pub(super) fn intersection(self, other: ContentSet) -> ContentSet {
        ContentSet(self.0 & other.0)
    }
}

/// The bits of a type by name, or of `image/*`.
pub(super) fn types(item: &str) -> Result<u64, Problem> {
    let alias = ALIASES.iter().find(|(name, _)| *name == item);
    let name = alias.map_or(item, |(_, name)| name);
    let family = name
        .strip_suffix('*')
        .filter(|family| family.ends_with('/'));
    let mut found = 0;
    for (index, (known, _)) in TYPES.iter().enumerate() {
        if *known == name || family.is_some_and(|family| known.starts_with(family)) {
            found |= 1 << index;
        }
    }
    if found != 0 {
        return Ok(found);
    }
    let known = type_names().chain(ALIASES.iter().map(|(name, _)| *name));
    let how = "there are image/*, video/*, audio/*, text/*, application/* and those that \
               docs/policies.md lists";
    Err(nearest::unknown("content type", item, known, how))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn content_type_by_first_bytes() {
        for (head, name) in [
            (&b""[..], "inode/x-empty"),
            (b"\xff\xd8\xff\xe1\0\x10Exif", "image/jpeg"),
            (b"\xff\xd8", "application/octet-stream"),
            (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "image/png"),
            (b"RIFF\x24\0\0\0WEBPVP8 ", "image/webp"),
            (b"RIFF\x24\0\0\0WAVEfmt ", "audio/wav"),
            (b"RIFF\x24\0\0\0????", "application/octet-stream"),
            (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "image/heif"),
            (b"\0\0\0\x18ftypmif1\0\0\0\0", "image/heif"),
            (b"\0\0\0\x18ftypavif\0\0\0\0", "image/avif"),
            (b"\0\0\0\x14ftypqt  \0\0\0\0", "video/quicktime"),
            (b"\0\0\0\x20ftypisom\0\0\x02\0", "video/mp4"),
            (b"\0\0\0\x20ftypM4A \0\0\x02\0", "audio/mp4"),
            (b"\0\0\0\x20ftyp3gp5\0\0\x02\0", "video/3gpp"),
            (b"\0\0\x01\0moov\0\0", "video/quicktime"),
            (b"\x1a\x45\xdf\xa3\x9f\x42\x82\x84webm", "video/webm"),
            (
                b"\x1a\x45\xdf\xa3\x9f\x42\x82\x88matroska",
                "video/x-matroska",
            ),
            (b"PK\x03\x04", "application/zip"),
            (b"\x7fELF\x02", "application/x-elf"),
            (b"#!/bin/sh\n", "text/x-script"),
            ("schön\n".as_bytes(), "text/plain"),
            (b"cut off \xc3", "text/plain"),
            (b"not \xff text", "application/octet-stream"),
            (b"not\0text", "application/octet-stream"),
        ] {
            assert_eq!(ContentType::of(head).name(), name, "{head:?}");
        }
        let mut tar = vec![0; HEAD_BYTES];
        tar[257..262].copy_from_slice(b"ustar");
        assert_eq!(ContentType::of(&tar).name(), "application/x-tar");
    }

    #[test]
    fn types_and_aliases_are_unique() {
        let names: BTreeSet<&str> = TYPES.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), TYPES.len());
        for (alias, name) in ALIASES {
            assert!(names.contains(name) && !names.contains(alias), "{alias}");
        }
    }

    #[test]
    fn types_by_name_alias_and_family() {
        let has =
            |item: &str, head| ContentSet(types(item).unwrap()).contains(ContentType::of(head));
        let (jpeg, text) = (b"\xff\xd8\xff", b"text");
        assert!(has("image/*", jpeg) && has("image/jpg", jpeg) && has("text/plain", text));
        assert!(!has("image/png", jpeg) && !has("image/*", text));
        let error = types("image/jpge").unwrap_err();
        assert!(error.contains("`image/jpeg`"), "{error}");
        for item in ["", "*", "image", "image/", "imag*", "imag/*"] {
            assert!(types(item).is_err(), "{item}");
        }
    }
}
