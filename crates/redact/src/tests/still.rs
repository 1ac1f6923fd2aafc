//! PNG, WebP, HEIF.

use super::make::*;
use super::*;
use image::ImageFormat;

#[test]
fn png_with_exif() {
    for prefix in [&b""[..], b"Exif\0\0"] {
        let block = [prefix, &exif_block(false)].concat();
        let photograph = png_with(&[(*b"eXIf", block)]);
        let seen = cleaned(&photograph);
        // The library that reads it checks the sums.
        img_parts::png::Png::from_bytes(seen.clone().into()).unwrap();
        assert_same_picture(&photograph, &seen);
        if prefix.is_empty() {
            assert_exif_without_gps(&photograph, &seen);
        }
    }
}

fn assert_sums(png: &[u8]) {
    let mut at = 8;
    while at < png.len() {
        let length = u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
        let sum = png[at + 8 + length..][..4].to_vec();
        let mut value = u32::MAX;
        for byte in &png[at + 4..at + 8 + length] {
            value ^= u32::from(*byte);
            for _ in 0..8 {
                value = if value & 1 == 1 {
                    0xedb8_8320 ^ (value >> 1)
                } else {
                    value >> 1
                };
            }
        }
        assert_eq!((!value).to_be_bytes().to_vec(), sum, "chunk at {at}");
        at += 12 + length;
    }
}

#[test]
fn png_with_text() {
    let xmp = [
        b"XML:com.adobe.xmp\0\0\0\0\0".as_slice(),
        drone_packet().as_bytes(),
    ]
    .concat();
    let profile = b"Raw profile type exif\0\nexif\n 12\n4578696600004d4d".to_vec();
    let magick = [b"exif:GPSLatitude\0".as_slice(), POSITION.as_bytes()].concat();
    let compressed = b"Raw profile type APP1\0\0compressed".to_vec();
    let sealed = b"XML:com.adobe.xmp\0\x01\0\0\0compressed".to_vec();
    let chunks = [
        (*b"iTXt", xmp),
        (*b"tEXt", profile),
        (*b"tEXt", magick),
        (*b"zTXt", compressed),
        (*b"iTXt", sealed),
        (*b"eXIf", exif_block(true)),
    ];
    for count in 1..=chunks.len() {
        let photograph = png_with(&chunks[..count]);
        let seen = cleaned(&photograph);
        assert!(!holds(&seen, b"compressed") && !holds(&seen, b"45786966"));
        assert_sums(&seen);
        assert_same_picture(&photograph, &seen);
    }
    let harmless = png_with(&[
        (*b"tEXt", b"Software\0Editor 3".to_vec()),
        (*b"iTXt", b"Comment\0\0\0\0\0a picture".to_vec()),
        (*b"eXIf", exif_without_gps(false)),
    ]);
    assert!(planned(&harmless).is_empty());
}

#[test]
fn png_chunks_of_unknown_kind_are_emptied_or_refused() {
    let with = |kind: &[u8; 4], data: &[u8]| png_with(&[(*kind, data.to_vec())]);
    for kind in [
        b"caBX", b"gIFx", b"pCAL", b"sCAL", b"dSIG", b"exIf", b"zxIf", b"iDOT", b"prVW", b"wxYz",
        b"zTXt", b"reDa",
    ] {
        let photograph = with(kind, &place_in_binary());
        let seen = cleaned(&photograph);
        assert_sums(&seen);
        assert_same_picture(&photograph, &seen);
    }
    for kind in [b"WxYz", b"MEND", b"JHDR", b"EXIF"] {
        assert!(is_refused(&with(kind, &place_in_binary())));
    }
    for kind in [
        b"cHRM", b"gAMA", b"sBIT", b"hIST", b"pHYs", b"tIME", b"cICP", b"mDCV", b"cLLI", b"oFFs",
        b"sTER",
    ] {
        assert!(planned(&with(kind, &[7; 9])).is_empty());
    }
}

/// Names of profiles and palettes, keywords of packets, chunks that are longer than they should be.
#[test]
fn places_in_what_says_how_to_show_the_picture() {
    let place = POSITION.as_bytes();
    let translated = [b"XML:com.adobe.xmp\0\0\0\0", place, b"\0<x:xmpmeta/>"].concat();
    for (kind, data) in [
        (*b"iCCP", [place, b"\0\0compressed"].concat()),
        (*b"sPLT", [place, b"\0\x08"].concat()),
        (*b"gAMA", place.to_vec()),
        (*b"tEXt", format!("City\0{PLACE}").into_bytes()),
        (*b"iTXt", translated),
    ] {
        assert_sums(&cleaned(&png_with(&[(kind, data)])));
    }
    let profile = b"a profile\0\0compressed".to_vec();
    assert!(planned(&png_with(&[(*b"iCCP", profile)])).is_empty());
    for (kind, kept) in [(b"VP8X", 10), (b"ANIM", 6), (b"ICCP", 0)] {
        let chunk = chunk(kind, &[&vec![7; kept][..], place].concat());
        let seen = cleaned(&riff(&chunk));
        assert!(holds(&seen, &chunk[..8 + kept]), "{kind:?}");
    }
    for kind in [b"iref", b"dinf", b"ipro", b"grpl", b"hdlr"] {
        let photograph = heif_with(&[], &a_box(kind, &[&[0; 24], place]));
        assert!(is_refused(&photograph), "{kind:?}");
    }
    let named = Item {
        kind: *b"mime",
        content: POSITION,
        pieces: vec![vec![7; 9]],
        inside: false,
    };
    assert!(is_refused(&heif(&[named])));
}

#[test]
fn exif_item_may_have_a_prefix_that_it_does_not_count() {
    let item = Item {
        kind: *b"Exif",
        content: "",
        pieces: vec![[&[0; 4], &b"Exif\0\0"[..], &exif_block(true)].concat()],
        inside: false,
    };
    cleaned(&heif(&[item]));
}

#[test]
fn what_an_exif_item_skips_is_emptied() {
    let skipped = [&30_u32.to_be_bytes(), POSITION.as_bytes()].concat();
    assert_eq!(skipped.len(), 34);
    let block = exif_without_gps(true);
    for pieces in [
        vec![[&skipped[..], &block].concat()],
        vec![skipped.clone(), block.clone()],
    ] {
        let item = Item {
            kind: *b"Exif",
            content: "",
            pieces,
            inside: false,
        };
        let seen = cleaned(&heif(&[item]));
        assert!(holds(&seen, &block));
    }
}

#[test]
fn bytes_behind_a_png_are_emptied() {
    let photograph = [picture(ImageFormat::Png), POSITION.into()].concat();
    let seen = cleaned(&photograph);
    assert_same_picture(&photograph, &seen);
}

#[test]
fn webp_with_exif_and_xmp() {
    let photograph = webp_with(&[(*b"XMP ", drone_packet().into_bytes())]);
    let seen = cleaned(&photograph);
    assert_exif_without_gps(&photograph, &seen);
    assert_same_picture(&photograph, &seen);
    assert!(planned(&picture(ImageFormat::WebP)).is_empty());
    for kind in [b"LIST", b"JUNK", b"C2PA", b"vp8 "] {
        cleaned(&animation(&chunk(kind, &place_in_binary())));
    }
    for kind in [b"VP8 ", b"VP8L", b"ALPH", b"ICCP"] {
        assert!(planned(&animation(&chunk(kind, &[7; 9]))).is_empty());
    }
}

/// A chunk of a RIFF file.
fn chunk(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let size = (body.len() as u32).to_le_bytes();
    let padding = &[0][..body.len() % 2];
    [kind, &size[..], body, padding].concat()
}

fn riff(chunks: &[u8]) -> Vec<u8> {
    chunk(b"RIFF", &[b"WEBP", chunks].concat())
}

fn animation(chunks: &[u8]) -> Vec<u8> {
    let start = [chunk(b"VP8X", &[2; 10]), chunk(b"ANIM", &[0; 6])].concat();
    riff(&[&start, chunks].concat())
}

/// A frame of an animation has chunks of its own.
#[test]
fn webp_frames_are_searched() {
    let header = b"place and delay.";
    let frame = |chunks: &[u8]| chunk(b"ANMF", &[header, chunks].concat());
    let picture = chunk(b"VP8L", b"coded picture");
    let exif = chunk(b"EXIF", &exif_block(false));
    let xmp = chunk(b"XMP ", drone_packet().as_bytes());
    let unknown = chunk(b"what", &place_in_binary());
    for metadata in [&exif, &xmp, &unknown] {
        let inner = frame(&[picture.as_slice(), metadata].concat());
        for frames in [inner.clone(), frame(&inner), [&inner[..], &inner].concat()] {
            let seen = cleaned(&animation(&frames));
            for kept in [header.as_slice(), &picture, &metadata[..8]] {
                let found = memchr::memmem::find_iter(&seen, kept).count();
                let before = memchr::memmem::find_iter(&frames, kept).count();
                assert_eq!(found, before, "{:?}", String::from_utf8_lossy(kept));
            }
        }
    }
    assert!(planned(&animation(&frame(&picture))).is_empty());
    assert!(is_refused(&animation(&chunk(b"ANMF", &header[1..]))));
    let deep = (0..100).fold(xmp, |inner, _| frame(&inner));
    assert!(is_refused(&animation(&deep)));
}

#[test]
fn heif_of_a_phone() {
    let photograph = phone_photograph();
    let seen = cleaned(&photograph);
    assert_exif_without_gps(&photograph, &seen);
    assert!(holds(&seen, b"coded picture"));
}

#[test]
fn heif_items_in_pieces_and_inside() {
    let exif = exif_item(&exif_block(true));
    for cut in [10, exif.len() / 2, exif.len() - 30] {
        let pieces = vec![exif[..cut].to_vec(), exif[cut..].to_vec()];
        for inside in [false, true] {
            let photograph = heif(&[
                Item {
                    kind: *b"hvc1",
                    content: "",
                    pieces: vec![vec![7; 9]],
                    inside: false,
                },
                Item {
                    kind: *b"Exif",
                    content: "",
                    pieces: pieces.clone(),
                    inside,
                },
            ]);
            let seen = redacted(&photograph);
            let gone = secrets();
            assert!(gone.iter().all(|secret| !holds(&seen, secret)));
            assert_eq!(memchr::memmem::find_iter(&seen, b"-between-").count(), 3);
        }
    }
}

#[test]
fn heif_with_a_jpeg_inside() {
    let jpeg = jpeg_with(&[exif_segment(&exif_block(true))]);
    let item = |kind, content| Item {
        kind,
        content,
        pieces: vec![jpeg.clone()],
        inside: false,
    };
    for item in [item(*b"jpeg", ""), item(*b"mime", "image/jpeg")] {
        let photograph = heif(&[item]);
        cleaned(&photograph);
    }
}

/// Google puts the film of a motion photo into a box, others put it behind the photograph.
#[test]
fn heif_with_a_film_behind_it() {
    let photograph = phone_photograph();
    let alone = redacted(&photograph);
    for film in [film(b"mp42"), plain_film(b"isom")] {
        let boxed = a_box(b"mpvd", &[&film]);
        for (behind, header) in [(boxed, 8), (film.clone(), 0), (film[..40].to_vec(), 0)] {
            let seen = redacted(&[&photograph[..], &behind].concat());
            assert!(seen.starts_with(&alone));
            let film = &seen[photograph.len() + header..];
            assert!(film.iter().all(|byte| *byte == 0));
        }
    }
}

#[test]
fn heif_with_boxes_that_it_does_not_need() {
    let own = b"0123456789abcdef";
    let xmp = b"\xbe\x7a\xcf\xcb\x97\xa9\x42\xe8\x9c\x71\x99\x94\x91\xe3\xaf\xac";
    let mut photograph = phone_photograph();
    photograph.extend(a_box(b"uuid", &[xmp, drone_packet().as_bytes()]));
    photograph.extend(a_box(b"uuid", &[own, POSITION.as_bytes()]));
    photograph.extend(a_box(b"skip", &[POSITION.as_bytes()]));
    photograph.extend(a_box(b"what", &[POSITION.as_bytes()]));
    photograph.extend(POSITION.as_bytes());
    let seen = cleaned(&photograph);
    assert_exif_without_gps(&photograph, &seen);
    assert!(holds(&seen, xmp) && holds(&seen, b"<rdf:RDF") && holds(&seen, b"coded picture"));
}

#[test]
fn heif_keeps_what_says_how_to_show_the_picture() {
    for (kind, stays) in [
        (b"iref", true),
        (b"dinf", true),
        (b"ipro", true),
        (b"grpl", true),
        (b"xml ", false),
        (b"udta", false),
        (b"free", false),
        (b"what", false),
    ] {
        let photograph = heif_with(&[], &a_box(kind, &[b"what the box says"]));
        let seen = redacted(&photograph);
        assert_eq!(holds(&seen, b"what the box says"), stays, "{kind:?}");
    }
    for place in [
        b"GPSLatitude 48.13".as_slice(),
        b"Exif\0\0",
        b"II*\0\x08\0\0\0",
        b"http://ns.adobe.com/xap/1.0/",
    ] {
        let photograph = heif_with_property(&a_box(b"colr", &[b"prof", place]));
        assert!(is_refused(&photograph), "{place:?}");
    }
}

fn heif_with_property(property: &[u8]) -> Vec<u8> {
    let list = a_box(b"ipco", &[property, &a_box(b"ispe", &[&[7; 12]])]);
    let whose = full_box(b"ipma", 0, &[&[7; 8]]);
    heif_with(&[], &a_box(b"iprp", &[&list, &whose]))
}

#[test]
fn heif_properties_of_unknown_kind_are_emptied() {
    let place = place_in_binary();
    for kind in [
        b"udes", b"altt", b"cmex", b"uuid", b"what", b"meta", b"free",
    ] {
        let seen = cleaned(&heif_with_property(&a_box(kind, &[&place])));
        // The next has the number that it had.
        let [emptied, next] =
            [b"free", b"ispe"].map(|kind| memchr::memmem::find(&seen, kind).unwrap());
        assert_eq!(next - emptied, place.len() + 8, "{kind:?}");
    }
    for kind in [
        b"hvcC", b"av1C", b"ispe", b"pixi", b"colr", b"irot", b"imir", b"auxC", b"clap", b"clli",
    ] {
        assert!(planned(&heif_with_property(&a_box(kind, &[b"how to show"]))).is_empty());
    }
    let beside = a_box(b"iprp", &[&a_box(b"what", &[&place])]);
    cleaned(&heif_with(&[], &beside));
    assert!(is_refused(&heif_with(
        &[],
        &a_box(b"iprp", &[b"no box in it"])
    )));
}

#[test]
fn heif_items_of_unknown_kind_are_emptied() {
    let place = place_in_binary();
    for (kind, content) in [
        (*b"uri ", "urn:x"),
        (*b"rgan", ""),
        (*b"what", ""),
        (*b"mime", "application/json"),
        (*b"mime", "text/plain"),
    ] {
        let item = Item {
            kind,
            content,
            pieces: vec![place[..9].to_vec(), place[9..].to_vec()],
            inside: false,
        };
        let seen = redacted(&heif(&[item]));
        assert!(
            !holds(&seen, &place[..9]) && !holds(&seen, &place[9..]),
            "{kind:?}"
        );
    }
}

#[test]
fn film_is_refused() {
    for brand in [
        b"isom",
        b"mp42",
        b"mp41",
        b"avc1",
        b"M4V ",
        b"M4A ",
        b"qt  ",
        b"3gp4",
        b"3g2a",
        b"crx ",
        b"msf1",
        b"hevc",
        b"hevx",
        b"avis",
        b"\0\0\0\0",
    ] {
        assert!(is_refused(&film(brand)), "{brand:?}");
        assert!(is_refused(&plain_film(brand)), "{brand:?}");
        // Also with the structure of a photograph.
        let mut sequence = phone_photograph();
        sequence[8..12].copy_from_slice(brand);
        assert!(is_refused(&sequence), "{brand:?}");
    }
    let without_type = &plain_film(b"qt  ")[20..];
    assert_eq!(&without_type[4..8], b"mdat");
    assert!(is_refused(without_type));
    for first in [b"moov", b"moof", b"wide", b"free", b"styp"] {
        assert!(is_refused(&a_box(first, &[&[0; 8]])), "{first:?}");
    }
}

/// A photograph's brand does not make a film a photograph.
#[test]
fn film_with_a_photograph_brand_is_refused() {
    assert!(is_refused(&film(b"heic")));
    let [moov, moof] = [b"moov", b"moof"].map(|kind| a_box(kind, &[&[0; 8]]));
    for description in [moov, moof] {
        assert!(is_refused(&[phone_photograph(), description].concat()));
    }
    let data_alone = [
        a_box(b"ftyp", &[b"heic", &[0; 4]]),
        a_box(b"mdat", &[b"data"]),
    ]
    .concat();
    assert!(is_refused(&data_alone));
}

#[test]
fn terabyte_photograph_costs_a_few_reads() {
    let photograph = phone_photograph();
    let size = 1_u64 << 40;
    let head = [
        &1_u32.to_be_bytes(),
        b"mdat".as_slice(),
        &size.to_be_bytes(),
    ]
    .concat();
    let before = [&photograph[..], &head].concat();
    let read = std::cell::Cell::new(0_u64);
    let reader = |buffer: &mut [u8], offset: u64| {
        let rest = before.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        buffer[count..].fill(0);
        read.set(read.get() + buffer.len() as u64);
        Ok(buffer.len())
    };
    let length = photograph.len() as u64 + size;
    let Ok(Outcome::Plan(plan)) = plan(&reader, length) else {
        panic!("no plan");
    };
    assert_eq!(plan, planned(&photograph));
    assert!(read.get() < 1 << 20, "{} bytes read", read.get());
}

#[test]
fn items_outside_the_data_are_refused() {
    let mut photograph = phone_photograph();
    let data = memchr::memmem::find(&photograph, b"mdat").unwrap();
    photograph[data..data + 4].copy_from_slice(b"sidx");
    assert!(is_refused(&photograph));
}

#[test]
fn other_files_are_not_applicable() {
    for bytes in [
        &b""[..],
        b"\xff",
        b"plain text, nothing else",
        b"II*\0\x08\0\0\0",
        b"RIFF....WAVE",
    ] {
        assert!(
            matches!(outcome(bytes), Ok(Outcome::NotApplicable)),
            "{bytes:?}"
        );
    }
}
