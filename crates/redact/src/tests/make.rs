//! Makes test files.

use exif::experimental::Writer;
use exif::{Field, In, Rational, Tag, Value};
use image::{DynamicImage, ImageFormat, Rgb, RgbImage};
use std::io::Cursor;

/// Latitude and longitude, as degrees, minutes and seconds that occur nowhere else.
const LATITUDE: [(u32, u32); 3] = [(4_813_715, 100_003), (3_712_341, 100_019), (5_917, 103)];
const LONGITUDE: [(u32, u32); 3] = [(1_157_549, 100_043), (2_934_117, 100_049), (4_723, 107)];
pub const POSITION: &str = "+48.137154+011.575490+519.000/";
pub const PLACE: &str = "NETWORK-SECRET";

/// What must not occur in a redacted file.
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

/// A place that no word shows.
pub fn place_in_binary() -> Vec<u8> {
    let little = |(number, by): (u32, u32)| [number.to_le_bytes(), by.to_le_bytes()].concat();
    LATITUDE
        .into_iter()
        .chain(LONGITUDE)
        .flat_map(little)
        .collect()
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

/// A film of this brand that names a place, as phones write it.
pub fn film(brand: &[u8; 4]) -> Vec<u8> {
    let position = a_box(b"\xa9xyz", &[&[0, 30, 0x15, 0xc7], POSITION.as_bytes()]);
    film_with(brand, &a_box(b"udta", &[&position]))
}

pub fn plain_film(brand: &[u8; 4]) -> Vec<u8> {
    film_with(brand, b"")
}

fn film_with(brand: &[u8; 4], description: &[u8]) -> Vec<u8> {
    let header = full_box(b"mvhd", 0, &[&[0; 96]]);
    [
        a_box(b"ftyp", &[brand, &[0; 4], brand]),
        a_box(b"mdat", &[b"moving pictures"]),
        a_box(b"moov", &[&header, description]),
    ]
    .concat()
}

/// The photograph of a phone with its film behind it, as the packet says.
pub fn motion_photo(still: &[(u8, Vec<u8>)], film: &[u8]) -> Vec<u8> {
    let attributes = format!(
        "xmlns:GCamera=\"g\" GCamera:MotionPhoto=\"1\" GCamera:MotionPhotoOffset=\"{}\"",
        film.len()
    );
    let segments = [still, &[xmp_segment(&packet(&attributes, ""))]].concat();
    [&jpeg_with(&segments), film].concat()
}

/// One item of a HEIF file: its type, content type, pieces; and whether they are in `idat`.
pub struct Item {
    pub kind: [u8; 4],
    pub content: &'static str,
    pub pieces: Vec<Vec<u8>>,
    pub inside: bool,
}

/// A HEIF file with these items, numbered from 1.
pub fn heif(items: &[Item]) -> Vec<u8> {
    heif_with(items, b"")
}

/// The same with another box in `meta`.
pub fn heif_with(items: &[Item], another: &[u8]) -> Vec<u8> {
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
            another.to_vec(),
        ];
        (full_box(b"meta", 0, &[&children.concat()]), data)
    };
    let start = (head.len() + build(0).0.len() + 8) as u32;
    let (meta, data) = build(start);
    [head, meta, a_box(b"mdat", &[&data])].concat()
}

/// An EXIF item: four bytes are the offset of the TIFF header.
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

/// A photograph of each kind, for tests that damage them.
pub fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let motion = motion_photo(&[exif_segment(&exif_block(true))], &film(b"isom"));
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
    ]
}
