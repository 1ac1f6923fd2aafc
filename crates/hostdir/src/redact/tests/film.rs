//! MP4 and MOV: telephones, action cameras, drones, dashboard cameras.

use super::make::*;
use super::*;
use nom_exif::{MediaParser, MediaSource, TrackInfoTag};

/// The film of a telephone plays and says who made it, but not where.
pub fn assert_phone_film(film: &[u8]) {
    let source = MediaSource::seekable(Cursor::new(film.to_vec())).unwrap();
    let track = MediaParser::new().parse_track(source).unwrap();
    let text = |tag| track.get(tag).and_then(|value| value.as_str());
    assert_eq!(text(TrackInfoTag::Make), Some("Apple"));
    assert_eq!(text(TrackInfoTag::Model), Some("iPhone"));
    assert!(track.gps_info().is_none());
    assert!(holds(film, b"picture data"));
}

#[test]
fn films_of_a_phone() {
    let film = phone_film();
    assert_secret(&film);
    let source = MediaSource::seekable(Cursor::new(film.clone())).unwrap();
    let before = MediaParser::new().parse_track(source).unwrap();
    assert!(before.gps_info().is_some(), "the test's film has a place");
    let seen = redacted(&film);
    assert_no_secret(&seen);
    assert!(!holds(&seen, b"4.7"));
    assert_phone_film(&seen);
}

#[test]
fn user_data() {
    let text = |value: &str| {
        [
            &(value.len() as u16).to_be_bytes(),
            &[0x15, 0xc7],
            value.as_bytes(),
        ]
        .concat()
    };
    let film = film(b"isom", b"picture data", |start| {
        let user = [
            a_box(b"\xa9mak", &[&text("Maker")]),
            a_box(b"\xa9xyz", &[&text(POSITION)]),
            full_box(b"loci", 0, &[&[0x15, 0xc7], PLACE.as_bytes(), &[0; 14]]),
            a_box(b"\xa9cmt", &[&text(&format!("taken at {POSITION}"))]),
            a_box(b"GPMF", &[b"GPS5", POSITION.as_bytes()]),
        ];
        let user = a_box(b"udta", &[&user.concat(), &[0; 4]]);
        [
            movie_header(),
            track(b"vide", b"avc1", &[(start, 12)]),
            user,
        ]
        .concat()
    });
    assert_secret(&film);
    let seen = redacted(&film);
    assert_no_secret(&seen);
    assert!(holds(&seen, b"Maker") && holds(&seen, b"picture data"));
}

#[test]
fn boxes_with_xmp_and_of_no_known_type() {
    let xmp = b"\xbe\x7a\xcf\xcb\x97\xa9\x42\xe8\x9c\x71\x99\x94\x91\xe3\xaf\xac";
    let own = b"0123456789abcdef";
    let mut film = phone_film();
    film.extend(a_box(b"uuid", &[xmp, drone_packet().as_bytes()]));
    film.extend(a_box(b"uuid", &[own, POSITION.as_bytes()]));
    film.extend(a_box(b"skip", &[POSITION.as_bytes()]));
    film.extend(a_box(b"what", &[POSITION.as_bytes()]));
    film.extend(POSITION.as_bytes());
    let seen = redacted(&film);
    assert_no_secret(&seen);
    assert_phone_film(&seen);
    assert!(holds(&seen, xmp) && holds(&seen, b"<rdf:RDF"));
}

/// A film with a second track, of two samples with something between them.
fn second_track(medium: &[u8; 4], format: &[u8; 4], samples: [&str; 2]) -> Vec<u8> {
    let data = [
        b"pictures",
        samples[0].as_bytes(),
        b"sound",
        samples[1].as_bytes(),
    ]
    .concat();
    let (first, second) = (samples[0].len() as u32, samples[1].len() as u32);
    film(b"mp41", &data, |start| {
        let chunks = [(start + 8, first), (start + 13 + first, second)];
        let tracks = [
            track(b"vide", b"avc1", &[(start, 8)]),
            track(medium, format, &chunks),
        ];
        [movie_header(), tracks.concat()].concat()
    })
}

#[test]
fn tracks_of_measurements() {
    for (medium, format) in [
        (b"meta", b"gpmd"),
        (b"meta", b"camm"),
        (b"meta", b"rtmd"),
        (b"meta", b"djmd"),
        (b"vide", b"gpmd"),
        (b"what", b"what"),
    ] {
        let film = second_track(medium, format, [POSITION, PLACE]);
        assert_secret(&film);
        let seen = redacted(&film);
        assert_no_secret(&seen);
        assert!(holds(&seen, b"pictures") && holds(&seen, b"sound"));
    }
}

#[test]
fn captions() {
    let log = second_track(
        b"text",
        b"tx3g",
        ["F/2.8, SS 60, GPS (11.57, 48.13, 15)", "D 9m"],
    );
    let seen = redacted(&log);
    assert!(!holds(&seen, b"11.57") && !holds(&seen, b"D 9m"));
    let film = second_track(
        b"text",
        b"tx3g",
        ["My GPS says we are lost.", "Where are we?"],
    );
    assert!(planned(&film).is_empty());
}

#[test]
fn measurements_of_apple_stay_unless_they_are_places() {
    let film = |key: &str| {
        film(b"qt  ", POSITION.as_bytes(), |start| {
            let name = a_box(b"mdta", &[key.as_bytes()]);
            let keys = a_box(
                b"keys",
                &[&a_box(&[0, 0, 0, 1], &[&a_box(b"keyd", &[&name])])],
            );
            let samples = [(start, POSITION.len() as u32)];
            let track = track_with(b"meta", b"mebx", &keys, &samples);
            [movie_header(), track].concat()
        })
    };
    assert!(planned(&film("com.apple.quicktime.detected-face")).is_empty());
    assert_no_secret(&redacted(&film("com.apple.quicktime.location.ISO6709")));
}

#[test]
fn logs_of_dashboard_cameras() {
    let piece = a_box(b"free", &[b"GPS ", POSITION.as_bytes()]);
    let data = [b"pictures".as_slice(), &piece].concat();
    let camera = |shift: u32| {
        film(b"isom", &data, |start| {
            let place = [start + 8 + shift, piece.len() as u32]
                .map(u32::to_be_bytes)
                .concat();
            let index = a_box(b"gps ", &[&[0, 0, 1, 1, 0, 0, 0, 1], &place]);
            [
                movie_header(),
                track(b"vide", b"avc1", &[(start, 8)]),
                index,
            ]
            .concat()
        })
    };
    let film = camera(0);
    assert_secret(&film);
    assert_no_secret(&redacted(&film));
    assert!(is_refused(&camera(1)));
}

#[test]
fn sony_writes_xml() {
    let xml =
        format!("<Group name=\"ExifGPS\"><Item name=\"Latitude\" value=\"{POSITION}\"/></Group>");
    let meta = full_box(
        b"meta",
        0,
        &[&handler(b"nrtm"), &a_box(b"xml ", &[xml.as_bytes()])],
    );
    let film = [phone_film(), meta].concat();
    assert_no_secret(&redacted(&film));
}

#[test]
fn itunes_values() {
    let value = |text: &str| a_box(b"data", &[&[0, 0, 0, 1, 0, 0, 0, 0], text.as_bytes()]);
    let values = [
        a_box(b"\xa9too", &[&value("Encoder")]),
        a_box(b"\xa9xyz", &[&value(PLACE)]),
        a_box(b"\xa9cmt", &[&value(POSITION)]),
    ];
    let meta = full_box(
        b"meta",
        0,
        &[&handler(b"mdir"), &a_box(b"ilst", &[&values.concat()])],
    );
    let film = film(b"M4V ", b"picture data", |_| {
        [movie_header(), a_box(b"udta", &[&meta])].concat()
    });
    assert_secret(&film);
    let seen = redacted(&film);
    assert_no_secret(&seen);
    assert!(holds(&seen, b"Encoder"));
}

#[test]
fn what_is_not_understood_is_refused() {
    let compressed = film(b"qt  ", b"", |_| a_box(b"cmov", &[b"deflated"]));
    assert!(is_refused(&compressed));
    let raw = film(b"crx ", b"", |_| movie_header());
    assert!(is_refused(&raw));
    let data_alone = [
        a_box(b"ftyp", &[b"isom", &[0; 4]]),
        a_box(b"mdat", &[b"data"]),
    ]
    .concat();
    assert!(is_refused(&data_alone));
    let mut fragments = second_track(b"meta", b"gpmd", ["", ""]);
    assert!(!is_refused(&fragments));
    fragments.extend(a_box(b"moof", &[&full_box(b"mfhd", 0, &[&[0; 4]])]));
    assert!(is_refused(&fragments));
    let outside = film(b"isom", b"", |_| track(b"meta", b"gpmd", &[(4, 8)]));
    assert!(is_refused(&outside));
    let behind = film(b"isom", b"", |_| track(b"meta", b"gpmd", &[(u32::MAX, 8)]));
    assert!(is_refused(&behind));
}

/// Padding is not looked through at length, and a film of a terabyte is hopped over.
#[test]
fn a_film_of_a_terabyte_costs_a_few_reads() {
    let head = a_box(b"ftyp", &[b"isom", &[0; 4]]);
    let size = 1_u64 << 40;
    let big = [
        &1_u32.to_be_bytes(),
        b"mdat".as_slice(),
        &size.to_be_bytes(),
    ]
    .concat();
    let movie = a_box(
        b"moov",
        &[
            &movie_header(),
            &a_box(b"udta", &[&a_box(b"\xa9xyz", &[POSITION.as_bytes()])]),
        ],
    );
    let before = [head.clone(), big].concat();
    let moov_at = head.len() as u64 + size;
    let length = moov_at + movie.len() as u64;
    let read = std::cell::Cell::new(0_u64);
    let reader = |buffer: &mut [u8], offset: u64| {
        let part = match offset {
            at if at >= moov_at => &movie[(at - moov_at) as usize..],
            at => before
                .get(at as usize..)
                .filter(|rest| !rest.is_empty())
                .unwrap_or(&[0; 64]),
        };
        let count = part.len().min(buffer.len());
        buffer[..count].copy_from_slice(&part[..count]);
        read.set(read.get() + count as u64);
        Ok(count)
    };
    let Ok(Outcome::Plan(plan)) = plan(&reader, length) else {
        panic!("no plan");
    };
    assert_eq!(plan.len(), 2);
    assert!(plan.ranges().all(|(range, _)| range.start > moov_at));
    assert!(read.get() < 1 << 20, "{} bytes read", read.get());
}
