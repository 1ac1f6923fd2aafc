//! Readers and writers of redacted files, by every kind of I/O.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::pipe::SpliceFlags;
use thrufs_testing::fence::mapping::{Mapping, Sharing};
use thrufs_tests::lower::Lower;
use thrufs_tests::transport::over_each;
use thrufs_tests::wait_until;

use crate::samples;
use crate::served::{NOTHING, REDACT, REDACT_IMAGES, Served, errno, open, put, with_policy};
use thrufs_tests::guard::StopAll;

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

/// In odd pieces, in an odd order.
fn random(path: &Path) -> Vec<u8> {
    let file = File::open(path).unwrap();
    let length = file.metadata().unwrap().len() as usize;
    let mut bytes = vec![0; length];
    let piece = 977;
    let mut pieces: Vec<usize> = (0..length.div_ceil(piece)).collect();
    pieces.sort_by_key(|at| at * 7919 % 1009);
    for at in pieces {
        let end = length.min((at + 1) * piece);
        file.read_exact_at(&mut bytes[at * piece..end], (at * piece) as u64)
            .unwrap();
    }
    bytes
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

fn sent(path: &Path) -> Vec<u8> {
    let file = File::open(path).unwrap();
    let mut target = tempfile::tempfile().unwrap();
    while rustix::fs::sendfile(&target, &file, None, 1 << 20).unwrap() > 0 {}
    rewound(&mut target)
}

fn rewound(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn spliced(path: &Path) -> Vec<u8> {
    let file = File::open(path).unwrap();
    let (mut reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map(|(r, w)| (File::from(r), w))
        .unwrap();
    let mut bytes = Vec::new();
    loop {
        let none = SpliceFlags::empty();
        let count = rustix::pipe::splice(&file, None, &writer, None, 4096, none).unwrap();
        let start = bytes.len();
        bytes.resize(start + count, 0);
        reader.read_exact(&mut bytes[start..]).unwrap();
        if count == 0 {
            return bytes;
        }
    }
}

/// By the server, if it were allowed.
fn copied(path: &Path) -> Vec<u8> {
    let target = path.parent().unwrap().parent().unwrap().join("copy");
    let (file, mut copy) = (
        File::open(path).unwrap(),
        File::create_new(&target).unwrap(),
    );
    let copy_some = || rustix::fs::copy_file_range(&file, None, &copy, None, 1 << 20);
    while copy_some().unwrap() > 0 {}
    copy = File::open(&target).unwrap();
    let bytes = rewound(&mut copy);
    fs::remove_file(target).unwrap();
    bytes
}

fn reopened(path: &Path) -> Vec<u8> {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).unwrap();
    fs::read(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
}

fn by_a_program(path: &Path) -> Vec<u8> {
    Command::new("cat").arg(path).output().unwrap().stdout
}

/// Which a file can have that is not read through the page cache.
type Way = (&'static str, fn(&Path) -> Vec<u8>);

const WAYS: [Way; 10] = [
    ("sequential", sequential),
    ("random", random),
    ("direct", direct),
    ("private map", |path| mapped(path, Sharing::Private)),
    ("shared map", |path| mapped(path, Sharing::SharedRead)),
    ("sendfile", sent),
    ("splice", spliced),
    ("copy_file_range", copied),
    ("reopened", reopened),
    ("another program", by_a_program),
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
        let served = Served::start_on(Lower::Ext4, transport, "", REDACT_IMAGES, fill);
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
            let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
            let _pin = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
            for turn in 0..3 {
                assert!(
                    !samples::is_clean(&sequential(&path)),
                    "{options}, turn {turn}"
                );
                assert!(!samples::is_clean(&mapped(&path, Sharing::SharedRead)));
                served.reload(REDACT);
                crate::busy::until_free(&path);
                for (way, read) in WAYS {
                    let what = format!("{way}, {options}, turn {turn}");
                    is_as_it_should_be(&what, &samples::photograph(), &read(&path));
                }
                served.reload(cached);
                wait_until("what is not redacted", || {
                    !samples::is_clean(&sequential(&path))
                });
            }
        });
    }
}

#[test]
fn unparsable_files_are_denied() {
    let fill = |source: &Path| {
        put(source, "photos/broken", &samples::broken_photograph());
        put(source, "photos/text", b"words");
        let [film, plain_film] = samples::films();
        put(source, "photos/film", &film);
        put(source, "photos/plain_film", &plain_film);
    };
    let names = ["broken", "text", "film", "plain_film"].map(|name| format!("photos/{name}"));
    for options in ["cache=auto", "cache=never"] {
        let policy = format!("{REDACT}errno = 'ENODATA'\n");
        with_policy(options, &policy, fill, |served| {
            for name in &names {
                assert_eq!(errno(File::open(served.at(name))), libc::ENODATA, "{name}");
                // Nor for writing, unless it is truncated; and a writer sees no more.
                assert_eq!(errno(open(&served.at(name), libc::O_RDWR)), libc::ENODATA);
                let both = open(&served.at(name), libc::O_RDWR | libc::O_TRUNC).unwrap();
                both.write_all_at(b"words", 0).unwrap();
                assert_eq!(errno(both.read_at(&mut [0; 10], 0)), libc::ENODATA);
                assert_eq!(errno(Mapping::new(&both, 5, Sharing::Shared)), libc::ENODEV);
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
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .open(&path)
                .unwrap();
            for piece in original.chunks(7001) {
                file.write_all(piece).unwrap();
            }
            is_as_it_should_be(options, &original, &rewound(&mut file));
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
        is_as_it_should_be(
            "beneath",
            &samples::photograph(),
            &fs::read(served.beneath("photos/target")).unwrap(),
        );
        put(served.ground().source(), "free", &samples::photograph());
        let (free, target) = (
            File::open(served.at("free")).unwrap(),
            File::create(&to).unwrap(),
        );
        while rustix::fs::copy_file_range(&free, None, &target, None, 1 << 20).unwrap() > 0 {}
        drop(target);
        assert_eq!(
            fs::read(served.beneath("photos/target")).unwrap(),
            samples::photograph()
        );
        assert!(samples::is_clean(&sequential(&to)));
    });
}

/// Readers of a file that is replaced and rewritten beneath see one version or the other, redacted.
#[test]
fn changes_beneath_show_no_place() {
    const DURATION: Duration = Duration::from_millis(600);
    const PATIENCE: Duration = Duration::from_secs(60);
    for options in ["cache=never", "cache=auto"] {
        with_policy(options, REDACT, fill, |served| {
            let (path, beneath) = (served.at("photos/large"), served.beneath("photos/large"));
            let (other, new) = (
                samples::all().remove(0).1,
                served.ground().source().join("new"),
            );
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let _end = StopAll(&over);
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        // The second is shorter and has its place elsewhere.
                        for bytes in [&other, &samples::photograph()] {
                            fs::write(&new, bytes).unwrap();
                            fs::rename(&new, &beneath).unwrap();
                            std::thread::sleep(Duration::from_millis(3));
                            fs::write(&beneath, bytes).unwrap();
                        }
                    }
                });
                let start = Instant::now();
                let mut reads = 0;
                while start.elapsed() < DURATION || reads <= 2 {
                    assert!(start.elapsed() < PATIENCE, "{reads} reads");
                    let seen = File::open(&path).and_then(|mut file| {
                        let mut bytes = Vec::new();
                        file.read_to_end(&mut bytes).map(|_| bytes)
                    });
                    if let Ok(bytes) = seen {
                        assert!(samples::is_clean(&bytes), "{options}");
                        reads += 1;
                    }
                }
            });
        });
    }
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
            let served = Served::start(transport, options, REDACT, fill);
            for (kind, _) in kinds() {
                drop(sequential(&served.at(format!("photos/{kind}"))));
            }
            drop(File::open(served.at("photos/broken")));
            let log = served.log_text();
            let later = log.lines().skip_while(|line| !line.contains(" mounted "));
            let said: Vec<&str> = later.skip(1).collect();
            let about_files = |line: &&&str| {
                // Without the time, which may have any digits.
                let text = line.split_once(' ').map_or(**line, |(_, text)| text);
                [
                    "exif", "Exif", "GPS", "iso6709", "TIFF", "48.13", "panicked",
                ]
                .iter()
                .any(|word| text.contains(word))
            };
            assert_eq!(said.iter().find(about_files), None, "{options}");
            assert!(samples::is_clean(log.as_bytes()));
            served.stop();
        }
    });
}

#[test]
fn explain_agrees_with_the_mount() {
    let policy = REDACT_IMAGES;
    let fill = |source: &Path| {
        fill(source);
        put(source, "photos/text", b"words");
        put(source, "free", b"words");
    };
    with_policy("", policy, fill, |served| {
        for (name, way) in [("photos/large", "filtered"), ("free", "passthrough")] {
            assert_eq!(served.way(name), way, "{name}");
            let file = File::open(served.at(name)).unwrap();
            let explained = served.explain(name);
            assert_eq!(explained["data_path"], way, "{name}, open");
            assert_eq!(explained["opens"]["total"], 1);
            drop(file);
        }
        assert_eq!(served.explain("photos/large")["rule"], "rule 1 (line 1)");
        assert!(served.explain("free")["rule"].is_null());
        assert_eq!(errno(File::open(served.at("photos/text"))), libc::EACCES);
        assert_eq!(served.way("photos/text"), "filtered");
        let held = File::open(served.at("free")).unwrap();
        served.reload("[[rule]]\npath = 'free'\naction = 'redact'\nredact = 'gps'\n");
        assert_eq!(served.way("free"), "passthrough");
        let reason = served.explain("free")["reason"].to_string();
        assert!(reason.contains("before the policy"), "{reason}");
        drop(held);
    });
}

/// Holes and sizes come from the file beneath, and reveal nothing.
#[test]
fn seeking_data_and_leases_show_nothing() {
    with_policy("", REDACT, fill, |served| {
        let mut file = File::open(served.at("photos/large")).unwrap();
        let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap();
        file.seek(SeekFrom::Start(data)).unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert!(samples::is_clean(&bytes));
        let copy = tempfile::tempfile_in("/tmp").unwrap();
        assert!(rustix::fs::ioctl_ficlone(copy.as_fd(), file.as_fd()).is_err());
        served.reload(NOTHING);
    });
}
