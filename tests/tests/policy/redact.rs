//! Readers and writers of redacted files, by every kind of I/O.

use crate::samples;
use crate::served::{
    REDACT, REDACT_IMAGES, Served, held, is_redacted, open, put, whole, with_policy,
};
use thrufs_tests::prelude::*;

fn fill(source: &Path) {
    for (kind, bytes) in samples::all() {
        put(source, format!("photos/{kind}"), &bytes);
    }
    put(source, "photos/large", &samples::photograph());
    put(source, "photos/clean", &samples::plain_photograph());
    put(source, "photos/empty", b"");
}

fn kinds() -> Vec<(String, Vec<u8>)> {
    let all = samples::all().into_iter();
    let mut all: Vec<_> = all.map(|(kind, bytes)| (kind.to_owned(), bytes)).collect();
    all.push(("large".to_owned(), samples::photograph()));
    all
}

fn sequential(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}

fn direct(path: &Path) -> Vec<u8> {
    let file = open(path, libc::O_RDONLY | libc::O_DIRECT).unwrap();
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read_at(&mut buffer, bytes.len() as u64).unwrap();
        bytes.extend_from_slice(&buffer[..count]);
        if count == 0 {
            return bytes;
        }
    }
}

fn mapped(path: &Path, sharing: Sharing) -> Vec<u8> {
    let file = File::open(path).unwrap();
    let length = file.metadata().unwrap().len() as usize;
    Mapping::new(&file, length, sharing)
        .unwrap()
        .load(0, length)
}

fn copy(from: &Path, to: &Path) {
    let (from, to) = (File::open(from).unwrap(), File::create(to).unwrap());
    while rustix::fs::copy_file_range(&from, None, &to, None, 1 << 20).unwrap() > 0 {}
}

/// By the server, if it were allowed.
fn copied(path: &Path) -> Vec<u8> {
    let target = path.parent().unwrap().parent().unwrap().join("copy");
    copy(path, &target);
    let bytes = fs::read(&target).unwrap();
    fs::remove_file(target).unwrap();
    bytes
}

fn reopened(path: &Path) -> Vec<u8> {
    fs::read(held(path).1).unwrap()
}

type Way = (&'static str, fn(&Path) -> Vec<u8>);

const WAYS: [Way; 6] = [
    ("sequential", sequential),
    ("direct", direct),
    ("private map", |path| mapped(path, Sharing::Private)),
    ("shared map", |path| mapped(path, Sharing::SharedRead)),
    ("copy_file_range", copied),
    ("reopened", reopened),
];

#[track_caller]
fn is_as_it_should_be(what: &str, original: &[u8], seen: &[u8]) {
    assert!(samples::is_clean(seen), "{what}: the place is still there");
    assert!(
        !samples::names_place(seen),
        "{what}: a decoder finds a place"
    );
    assert_eq!(seen.len(), original.len(), "{what}");
    assert!(
        samples::picture(original) == samples::picture(seen),
        "{what}: another picture"
    );
}

const MODES: [&str; 5] = [
    "cache=never",
    "cache=auto",
    "cache=always",
    "cache=auto,nopassthrough",
    "cache=auto,writeback",
];

fn all_ways_are_redacted(served: &Served, options: &str) {
    for (kind, original) in kinds() {
        let path = served.at(format!("photos/{kind}"));
        let first = sequential(&path);
        for (way, read) in WAYS {
            // Without a page cache there are no shared maps.
            if options == "cache=never" && way == "shared map" {
                continue;
            }
            let seen = read(&path);
            is_as_it_should_be(&format!("{kind}, {way}, {options}"), &original, &seen);
            assert!(seen == first, "{kind}, {way}, {options}: as others see it");
        }
        assert!(fs::read(served.beneath(format!("photos/{kind}"))).unwrap() == original);
    }
    assert_eq!(
        fs::read(served.at("photos/clean")).unwrap(),
        samples::plain_photograph()
    );
    assert_eq!(fs::read(served.at("photos/empty")).unwrap(), b"");
}

#[test]
fn no_way_of_reading_shows_the_place() {
    for options in MODES {
        with_policy(options, REDACT, fill, |served| {
            all_ways_are_redacted(served, options);
        });
    }
    over_each(|transport| {
        let served = Served::start(Lower::Ext4, transport, "", REDACT_IMAGES, fill);
        all_ways_are_redacted(&served, "ext4");
        served.stop();
    });
}

#[test]
fn pages_of_an_earlier_policy_are_never_shown() {
    let cached = "[[rule]]\npath = '**'\naction = 'cached'\n";
    for options in ["cache=always", "cache=auto", "cache=always,writeback"] {
        with_policy(options, cached, fill, |served| {
            let path = served.at("photos/large");
            // The inode stays with its pages, though its name is looked up anew.
            let _pin = held(&path);
            for turn in 0..3 {
                assert!(!is_redacted(&path), "{options}, turn {turn}");
                assert!(!samples::is_clean(&mapped(&path, Sharing::SharedRead)));
                served.reload(REDACT);
                crate::busy::until_free(&path);
                for (way, read) in WAYS {
                    let what = format!("{way}, {options}, turn {turn}");
                    is_as_it_should_be(&what, &samples::photograph(), &read(&path));
                }
                served.reload(cached);
                wait_until("what is not redacted", || !is_redacted(&path));
            }
        });
    }
}

/// As a camera: make, write, look at what was written, close.
#[test]
fn writes_to_redacted_files_arrive_unchanged() {
    for options in MODES {
        with_policy(options, REDACT, fill, |served| {
            let path = served.at("photos/new");
            let beneath = served.beneath("photos/new");
            let original = samples::photograph();
            let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
            let mut file = open(&path, flags).unwrap();
            for piece in original.chunks(7001) {
                file.write_all(piece).unwrap();
            }
            is_as_it_should_be(options, &original, &whole(&file).unwrap());
            drop(file);
            assert!(fs::read(&beneath).unwrap() == original, "{options}");

            // Anew, and single bytes in the middle of pages, some of them redacted: the rest stays.
            let mut expected = original.clone();
            for access in [libc::O_WRONLY, libc::O_RDWR] {
                expected.truncate(original.len());
                let file = open(&path, access | libc::O_TRUNC).unwrap();
                file.write_all_at(&expected, 0).unwrap();
                for at in (100..expected.len()).step_by(5003) {
                    file.write_all_at(&expected[at..=at], at as u64).unwrap();
                }
                let end = expected.len() as u64;
                file.write_all_at(b"behind", end).unwrap();
                expected.extend_from_slice(b"behind");
                file.set_len(expected.len() as u64 + 3).unwrap();
                expected.extend_from_slice(&[0; 3]);
            }
            assert!(fs::read(&beneath).unwrap() == expected, "{options}");
            drop(open(&path, libc::O_WRONLY | libc::O_TRUNC).unwrap());
            assert_eq!(fs::metadata(&path).unwrap().len(), 0);
            assert!(fs::read(&beneath).unwrap().is_empty());
        });
    }
}

/// A copy within the mount has what its reader saw, one onto a redacted file what was written.
#[test]
fn copies_have_what_readers_see() {
    with_policy("", REDACT, fill, |served| {
        let (from, to) = (served.at("photos/large"), served.at("photos/target"));
        fs::copy(&from, &to).unwrap();
        let beneath = || fs::read(served.beneath("photos/target")).unwrap();
        is_as_it_should_be("beneath", &samples::photograph(), &beneath());
        put(served.ground().source(), "free", &samples::photograph());
        copy(&served.at("free"), &to);
        assert_eq!(beneath(), samples::photograph());
        assert!(is_redacted(&to));
    });
}

/// Messages of parsers would reveal content.
#[test]
fn the_log_reveals_no_content() {
    let fill = |source: &Path| {
        fill(source);
        put(source, "photos/broken", &samples::broken_photograph());
    };
    over_each(|transport| {
        for options in ["", "log=trace"] {
            let served = Served::start(Lower::Tmpfs, transport, options, REDACT, fill);
            for (kind, _) in kinds() {
                drop(sequential(&served.at(format!("photos/{kind}"))));
            }
            drop(File::open(served.at("photos/broken")));
            let log = served.log_text();
            let later = log.lines().skip_while(|line| !line.contains(" mounted "));
            let said: Vec<&str> = later.skip(1).collect();
            let words = [
                "exif", "Exif", "GPS", "iso6709", "TIFF", "48.13", "panicked",
            ];
            let about_files = |line: &&&str| {
                // Without the time, which may have any digits.
                let text = line.split_once(' ').map_or(**line, |(_, text)| text);
                words.iter().any(|word| text.contains(word))
            };
            assert_eq!(said.iter().find(about_files), None, "{options}");
            assert!(samples::is_clean(log.as_bytes()));
            served.stop();
        }
    });
}
