//! Makes the files.

use exif::experimental::Writer;
use exif::{Field, In, Rational, Tag, Value};
use image::{DynamicImage, ImageFormat, Rgb, RgbImage};
use std::io::Cursor;

/// Latitude and longitude, as degrees, minutes and seconds that turn up nowhere else.
const LATITUDE: [(u32, u32); 3] = [(4_813_715, 100_003), (3_712_341, 100_019), (5_917, 103)];
const LONGITUDE: [(u32, u32); 3] = [(1_157_549, 100_043), (2_934_117, 100_049), (4_723, 107)];
pub const POSITION: &str = "+48.137154+011.575490+519.000/";
pub const PLACE: &str = "NETWORK-SECRET";

/// What must be nowhere in a redacted file.
pub fn secrets() -> Vec<Vec<u8>> {
    let mut secrets: Vec<Vec<u8>> = [POSITION, PLACE, "48.137154", "11.575490", "48,8.22925N"]
        .iter()
        .map(|text| text.as_bytes().to_vec())
        .collect();
    for (numerator, denominator) in LATITUDE.into_iter().chain(LONGITUDE) {
        let big = [numerator.to_be_bytes(), denominator.to_be_bytes()];
        let little = [numerator.to_le_bytes(), denominator.to_le_bytes()];
        secrets.extend([big.concat(), little.concat()]);
    }
    secrets
}

fn rationals(values: &[(u32, u32)]) -> Value {
    let rational = |&(num, denom)| Rational { num, denom };
    Value::Rational(values.iter().map(rational).collect())
}

fn ascii(text: &str) -> Value {
    Value::Ascii(vec![text.into()])
}

fn method() -> Value {
    Value::Undefined(format!("ASCII\0\0\0{PLACE}").into_bytes(), 0)
}

pub fn gps_fields() -> Vec<(Tag, Value)> {
    vec![
        (Tag::GPSVersionID, Value::Byte(vec![2, 3, 0, 0])),
        (Tag::GPSLatitudeRef, ascii("N")),
        (Tag::GPSLatitude, rationals(&LATITUDE)),
        (Tag::GPSLongitudeRef, ascii("E")),
        (Tag::GPSLongitude, rationals(&LONGITUDE)),
        (Tag::GPSAltitude, rationals(&[(519_001, 1_009)])),
        (Tag::GPSTimeStamp, rationals(&[(12, 1), (34, 1), (56, 1)])),
        (Tag::GPSDestLatitude, rationals(&LATITUDE)),
        (Tag::GPSDestLongitude, rationals(&LONGITUDE)),
        (Tag::GPSProcessingMethod, method()),
        (Tag::GPSAreaInformation, method()),
        (Tag::GPSDateStamp, ascii("2024:06:07")),
    ]
}

fn camera_fields() -> Vec<(Tag, Value)> {
    vec![
        (Tag::Make, ascii("Maker")),
        (Tag::Model, ascii("Model 7 with a long name")),
        (Tag::Orientation, Value::Short(vec![1])),
        (Tag::DateTimeOriginal, ascii("2024:06:07 12:34:56")),
        (Tag::ExposureTime, rationals(&[(1, 250)])),
        (
            Tag::MakerNote,
            Value::Undefined(b"Maker\0binary note".to_vec(), 0),
        ),
        (Tag::InteroperabilityIndex, ascii("R98")),
    ]
}

/// An EXIF block from its TIFF header on.
pub fn exif_with(fields: Vec<(Tag, Value)>, little: bool, thumbnail: Option<&[u8]>) -> Vec<u8> {
    let field = |(tag, value)| Field {
        tag,
        ifd_num: In::PRIMARY,
        value,
    };
    let fields: Vec<Field> = fields.into_iter().map(field).collect();
    let mut writer = Writer::new();
    fields.iter().for_each(|field| writer.push_field(field));
    if let Some(jpeg) = thumbnail {
        writer.set_jpeg(jpeg, In::THUMBNAIL);
    }
    let mut block = Cursor::new(Vec::new());
    writer.write(&mut block, little).unwrap();
    block.into_inner()
}

/// The block of a camera with GPS and a thumbnail.
pub fn exif_block(little: bool) -> Vec<u8> {
    let mut fields = camera_fields();
    fields.extend(gps_fields());
    exif_with(fields, little, Some(&picture(ImageFormat::Jpeg)))
}

pub fn exif_without_gps(little: bool) -> Vec<u8> {
    exif_with(camera_fields(), little, None)
}

/// A small picture.
pub fn picture(format: ImageFormat) -> Vec<u8> {
    let pixel = |x: u32, y: u32| Rgb([(x * 16) as u8, (y * 16) as u8, (x * y) as u8]);
    let picture = DynamicImage::from(RgbImage::from_fn(16, 16, pixel));
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// A JPEG with these segments behind its beginning.
pub fn jpeg_with(segments: &[(u8, Vec<u8>)]) -> Vec<u8> {
    use img_parts::jpeg::{Jpeg, JpegSegment};
    let mut jpeg = Jpeg::from_bytes(picture(ImageFormat::Jpeg).into()).unwrap();
    for (marker, contents) in segments.iter().rev() {
        let segment = JpegSegment::new_with_contents(*marker, contents.clone().into());
        jpeg.segments_mut().insert(0, segment);
    }
    jpeg.encoder().bytes().to_vec()
}

pub fn exif_segment(block: &[u8]) -> (u8, Vec<u8>) {
    (0xe1, [b"Exif\0\0", block].concat())
}

pub fn xmp_segment(packet: &str) -> (u8, Vec<u8>) {
    let name: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";
    (0xe1, [name, packet.as_bytes()].concat())
}

/// A piece of extended XMP.
pub fn extended_segment(whole: usize, offset: usize, piece: &[u8]) -> (u8, Vec<u8>) {
    let contents = [
        b"http://ns.adobe.com/xmp/extension/\0".as_slice(),
        b"0123456789ABCDEF0123456789ABCDEF",
        &(whole as u32).to_be_bytes(),
        &(offset as u32).to_be_bytes(),
        piece,
    ];
    (0xe1, contents.concat())
}

/// A packet with these attributes and elements.
pub fn packet(attributes: &str, elements: &str) -> String {
    format!(
        "<?xpacket begin=\"\u{feff}\" id=\"W5M0MpCehiHzreSzNTczkc9d\"?>\n\
         <x:xmpmeta xmlns:x=\"adobe:ns:meta/\">\n <rdf:RDF \
         xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\">\n  <rdf:Description \
         rdf:about=\"DJI Meta Data\" {attributes}>{elements}</rdf:Description>\n </rdf:RDF>\n\
         </x:xmpmeta>\n<?xpacket end=\"w\"?>"
    )
}

pub fn drone_packet() -> String {
    packet(
        "xmlns:drone-dji=\"http://www.dji.com/drone-dji/1.0/\" drone-dji:GpsLatitude=\"+48.137154\" \
         drone-dji:GpsLongitude=\"+11.575490\"",
        "",
    )
}

/// A box.
pub fn a_box(kind: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let size = (body.len() + 8) as u32;
    [size.to_be_bytes().as_slice(), kind, &body].concat()
}

/// A box with version and flags.
pub fn full_box(kind: &[u8; 4], version: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    a_box(kind, &[&[version, 0, 0, 0], &body])
}

pub fn handler(kind: &[u8; 4]) -> Vec<u8> {
    full_box(b"hdlr", 0, &[&[0; 4], kind, &[0; 12], b"\0"])
}

pub fn movie_header() -> Vec<u8> {
    let mut body = vec![0; 96];
    body[..12].copy_from_slice(&[0xe0, 0, 0, 0, 0xe0, 0, 0, 0, 0, 0, 3, 0xe8]);
    body[92..].copy_from_slice(&3_u32.to_be_bytes());
    full_box(b"mvhd", 0, &[&body])
}

/// A track whose samples lie in chunks of one sample each.
pub fn track(medium: &[u8; 4], format: &[u8; 4], chunks: &[(u32, u32)]) -> Vec<u8> {
    track_with(medium, format, &[], chunks)
}

/// The same, with more about the format.
pub fn track_with(
    medium: &[u8; 4],
    format: &[u8; 4],
    more: &[u8],
    chunks: &[(u32, u32)],
) -> Vec<u8> {
    let description = a_box(format, &[&[0; 6], &[0, 1], more]);
    let count = (chunks.len() as u32).to_be_bytes();
    let offsets: Vec<u8> = chunks.iter().flat_map(|c| c.0.to_be_bytes()).collect();
    let sizes: Vec<u8> = chunks.iter().flat_map(|c| c.1.to_be_bytes()).collect();
    let one = 1_u32.to_be_bytes();
    let table = [
        full_box(b"stsd", 0, &[&one, &description]),
        full_box(b"stts", 0, &[&[0; 4]]),
        full_box(b"stsc", 0, &[&one, &one, &one, &one]),
        full_box(b"stsz", 0, &[&[0; 4], &count, &sizes]),
        full_box(b"stco", 0, &[&count, &offsets]),
    ];
    let table = a_box(b"stbl", &[&table.concat()]);
    let headers = a_box(b"minf", &[&full_box(b"nmhd", 0, &[]), &table]);
    let media = a_box(
        b"mdia",
        &[
            &full_box(b"mdhd", 0, &[&[0; 20]]),
            &handler(medium),
            &headers,
        ],
    );
    a_box(b"trak", &[&full_box(b"tkhd", 0, &[&[0; 80]]), &media])
}

/// QuickTime's list of keys and values, as iPhones write it.
pub fn quick_time_meta(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut keys = (entries.len() as u32).to_be_bytes().to_vec();
    let mut values = Vec::new();
    for (index, (key, value)) in entries.iter().enumerate() {
        keys.extend(a_box(b"mdta", &[key.as_bytes()]));
        let data = a_box(b"data", &[&[0, 0, 0, 1, 0, 0, 0, 0], value.as_bytes()]);
        values.extend(a_box(&(index as u32 + 1).to_be_bytes(), &[&data]));
    }
    let children = [
        handler(b"mdta"),
        full_box(b"keys", 0, &[&keys]),
        a_box(b"ilst", &[&values]),
    ];
    a_box(b"meta", &[&children.concat()])
}

/// A film: type, data, and a description that is given where the data lie.
pub fn film(brand: &[u8; 4], data: &[u8], describe: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    let head = a_box(b"ftyp", &[brand, &[0; 4], brand]);
    let start = head.len() as u32 + 8;
    [
        head,
        a_box(b"mdat", &[data]),
        a_box(b"moov", &[&describe(start)]),
    ]
    .concat()
}

/// The film of an iPhone.
pub fn phone_film() -> Vec<u8> {
    film(b"qt  ", b"picture data", |start| {
        let meta = quick_time_meta(&[
            ("com.apple.quicktime.make", "Apple"),
            ("com.apple.quicktime.location.ISO6709", POSITION),
            ("com.apple.quicktime.location.accuracy.horizontal", "4.7"),
            ("com.apple.quicktime.model", "iPhone"),
        ]);
        [
            movie_header(),
            track(b"vide", b"hvc1", &[(start, 12)]),
            meta,
        ]
        .concat()
    })
}

/// One item of a HEIF file: its type, content type, pieces; and whether they lie in `idat`.
pub struct Item {
    pub kind: [u8; 4],
    pub content: &'static str,
    pub pieces: Vec<Vec<u8>>,
    pub inside: bool,
}

/// A HEIF file with these items, numbered from 1.
pub fn heif(items: &[Item]) -> Vec<u8> {
    let head = a_box(b"ftyp", &[b"heic", &[0; 4], b"mif1heic"]);
    let build = |data_start: u32| {
        let (mut infos, mut places) = (Vec::new(), Vec::new());
        let (mut data, mut inside) = (Vec::new(), Vec::new());
        for (index, item) in items.iter().enumerate() {
            let id = (index as u16 + 1).to_be_bytes();
            let content = [item.content.as_bytes(), b"\0"].concat();
            let content = if item.content.is_empty() {
                &[][..]
            } else {
                &content
            };
            infos.extend(full_box(
                b"infe",
                2,
                &[&id, &[0; 2], &item.kind, b"\0", content],
            ));
            places.extend([&id[..], &[0, u8::from(item.inside)], &[0; 2]].concat());
            places.extend((item.pieces.len() as u16).to_be_bytes());
            for piece in &item.pieces {
                let into = if item.inside { &mut inside } else { &mut data };
                let base = if item.inside { 0 } else { data_start };
                places.extend((base + into.len() as u32).to_be_bytes());
                places.extend((piece.len() as u32).to_be_bytes());
                into.extend_from_slice(piece);
                // Something between the pieces.
                into.extend_from_slice(b"-between-");
            }
        }
        let count = (items.len() as u16).to_be_bytes();
        let children = [
            handler(b"pict"),
            full_box(b"pitm", 0, &[&[0, 1]]),
            full_box(b"iinf", 0, &[&count, &infos]),
            full_box(b"iloc", 1, &[&[0x44, 0x00], &count, &places]),
            a_box(b"idat", &[&inside]),
        ];
        (full_box(b"meta", 0, &[&children.concat()]), data)
    };
    let start = (head.len() + build(0).0.len() + 8) as u32;
    let (meta, data) = build(start);
    [head, meta, a_box(b"mdat", &[&data])].concat()
}

/// An EXIF item: four bytes say how far the TIFF header is.
pub fn exif_item(block: &[u8]) -> Vec<u8> {
    [&6_u32.to_be_bytes(), b"Exif\0\0".as_slice(), block].concat()
}

/// The photograph of an iPhone: tiles, EXIF, XMP.
pub fn phone_photograph() -> Vec<u8> {
    let exif = exif_item(&exif_block(false));
    let item = |kind: &[u8; 4], content, pieces| Item {
        kind: *kind,
        content,
        pieces,
        inside: false,
    };
    heif(&[
        item(b"hvc1", "", vec![b"coded picture".to_vec()]),
        item(b"Exif", "", vec![exif]),
        item(
            b"mime",
            "application/rdf+xml",
            vec![drone_packet().into_bytes()],
        ),
    ])
}

/// A PNG with these chunks behind its header.
pub fn png_with(chunks: &[([u8; 4], Vec<u8>)]) -> Vec<u8> {
    use img_parts::png::{Png, PngChunk};
    let mut png = Png::from_bytes(picture(ImageFormat::Png).into()).unwrap();
    for (kind, contents) in chunks.iter().rev() {
        png.chunks_mut()
            .insert(1, PngChunk::new(*kind, contents.clone().into()));
    }
    png.encoder().bytes().to_vec()
}

/// A WebP with these chunks behind the picture.
pub fn webp_with(chunks: &[([u8; 4], Vec<u8>)]) -> Vec<u8> {
    use img_parts::riff::{RiffChunk, RiffContent};
    use img_parts::{ImageEXIF, webp::WebP};
    let mut webp = WebP::from_bytes(picture(ImageFormat::WebP).into()).unwrap();
    webp.set_exif(Some(exif_block(true).into()));
    for (kind, contents) in chunks {
        let content = RiffContent::Data(contents.clone().into());
        webp.chunks_mut().push(RiffChunk::new(*kind, content));
    }
    webp.encoder().bytes().to_vec()
}

/// One of each kind, for tests that damage them.
pub fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let motion = [jpeg_with(&[exif_segment(&exif_block(true))]), phone_film()].concat();
    vec![
        (
            "jpeg",
            jpeg_with(&[
                exif_segment(&exif_block(false)),
                xmp_segment(&drone_packet()),
            ]),
        ),
        ("motion", motion),
        ("png", png_with(&[(*b"eXIf", exif_block(true))])),
        (
            "webp",
            webp_with(&[(*b"XMP ", drone_packet().into_bytes())]),
        ),
        ("heif", phone_photograph()),
        ("film", phone_film()),
    ]
}
