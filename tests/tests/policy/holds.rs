//! No reader sees what a redacting rule takes out, whatever is done to the file: a test for each hole that
//! there was, and a random writer while all that is readable is searched.
//!
//! `THRUFS_SEED` gives the sequence, `THRUFS_HOLD_STEPS` its length.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, copy_file_range, fallocate,
};
use thrufs_testing::fence::mapping::{Mapping, Sharing};
use thrufs_testing::fence::truncate::truncate;

use crate::samples;
use crate::served::{NOTHING, REDACT, Served, errno, names, open, put, raw, with_policy};
use thrufs_tests::guard::{Detach, StopAll};
use thrufs_tests::property::timestamps;

/// The first example of the reference, as it is printed.
pub fn printed() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/policies.md");
    let page = fs::read_to_string(path).unwrap();
    let example = page.split("```toml\n").nth(1).unwrap();
    example.split("```").next().unwrap().to_owned()
}

/// A rule by name alone.
pub const BY_NAME: &str = "[[rule]]\npath = '**/*.jpg'\naction = 'redact'\nredact = 'gps'\n";

pub fn fill(source: &Path) {
    put(source, "photos/a.jpg", &samples::photograph());
    put(source, "photos/b.jpg", &samples::photograph());
    put(source, "other/free", b"words");
}

pub fn seen(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[track_caller]
fn is_redacted(path: &Path) -> bool {
    samples::is_clean(&seen(path).unwrap())
}

fn is_clean(path: &Path) {
    if let Ok(bytes) = seen(path) {
        assert!(samples::is_clean(&bytes), "{}", path.display());
    }
}

const MODES: [&str; 3] = ["cache=auto", "cache=never", "cache=auto,writeback"];

/// One byte made a photograph something that the rule did not match; another made the block with the place
/// part of the picture.
#[test]
fn a_byte_in_the_right_place_does_not_undo_a_rule() {
    let policies = [printed(), printed(), REDACT.to_owned()];
    for (policy, options) in policies.iter().zip(MODES) {
        with_policy(options, policy, fill, |served| {
            let path = served.at("photos/a.jpg");
            let length = samples::photograph().len() as u64;
            let appending = libc::O_WRONLY | libc::O_APPEND;
            for access in [libc::O_WRONLY, libc::O_RDWR, appending] {
                let opened = open(&path, access);
                if let Ok(file) = &opened {
                    // From the marker of the EXIF segment to that of a scan, and then its first.
                    for (at, byte) in [(3, 0xda), (0, 0)] {
                        let _ = file.write_all_at(&[byte], at);
                        is_clean(&path);
                    }
                    let _ = file.set_len(length - 100);
                    is_clean(&path);
                }
                assert_eq!(errno(opened), libc::EACCES, "{access:#o}");
            }
            for size in [1, 1000, length - 1, length + 1] {
                assert_eq!(errno(truncate(&path, size as i64)), libc::EACCES, "{size}");
            }
            is_clean(&path);
            let beneath = fs::read(served.beneath("photos/a.jpg")).unwrap();
            assert_eq!(beneath, samples::photograph());
            // It can be made anew, and removed.
            fs::write(&path, samples::photograph()).unwrap();
            assert!(is_redacted(&path));
            truncate(&path, 0).unwrap();
            fs::remove_file(&path).unwrap();
        });
    }
}

#[test]
fn a_writer_that_came_first_does_not_change_what_others_write() {
    for options in MODES {
        with_policy(options, REDACT, fill, |served| {
            let path = served.at("photos/new.jpg");
            let early = open(&path, libc::O_RDWR | libc::O_CREAT).unwrap();
            let mut camera = open(&path, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC).unwrap();
            camera.write_all(&samples::photograph()).unwrap();
            let length = samples::photograph().len() as u64;
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let free = File::open(served.at("other/free")).unwrap();
            let results = [
                ("write", errno(early.write_at(&[0], 0))),
                ("size", errno(early.set_len(length - 50))),
                ("longer", errno(early.set_len(length + 50))),
                ("punch", raw(fallocate(&early, punch, 0, 4096))),
                (
                    "copy",
                    raw(copy_file_range(&free, None, &early, Some(&mut 0), 5)),
                ),
            ];
            for (how, got) in results {
                assert_eq!(got, libc::EACCES, "{how}");
            }
            camera.write_all(b"behind").unwrap();
            drop(camera);
            assert_eq!(errno(early.write_at(&[0], 0)), libc::EACCES);
            is_clean(&path);
            let mut bytes = Vec::new();
            (&early).rewind().unwrap();
            (&early).read_to_end(&mut bytes).unwrap();
            assert!(samples::is_clean(&bytes) && !bytes.is_empty());
            let beneath = fs::read(served.beneath("photos/new.jpg")).unwrap();
            assert!(beneath == [samples::photograph(), b"behind".to_vec()].concat());
            // Others write beneath as well.
            let late = open(&served.at("photos/late.jpg"), libc::O_RDWR | libc::O_CREAT).unwrap();
            fs::write(served.beneath("photos/late.jpg"), samples::photograph()).unwrap();
            assert_eq!(errno(late.write_at(&[0], 0)), libc::EACCES);
            is_clean(&served.at("photos/late.jpg"));
            // In place, with the same size.
            let same = open(&served.at("photos/same.jpg"), libc::O_RDWR | libc::O_CREAT).unwrap();
            same.write_all_at(&vec![0; length as usize], 0).unwrap();
            let mut beneath = open(&served.beneath("photos/same.jpg"), libc::O_WRONLY).unwrap();
            beneath.write_all(&samples::photograph()).unwrap();
            assert_eq!(errno(same.write_at(&[0], 3)), libc::EACCES);
            is_clean(&served.at("photos/same.jpg"));
        });
    }
}

/// Attributes have a time of change as well: the writer is not taken for another.
#[test]
fn a_writer_may_change_attributes_meanwhile() {
    for options in MODES {
        with_policy(options, REDACT, fill, |served| {
            let path = served.at("photos/new.jpg");
            let photograph = samples::photograph();
            let mut camera = open(&path, libc::O_RDWR | libc::O_CREAT).unwrap();
            let mut write = |range| camera.write_all(&photograph[range]).unwrap();
            write(0..1000);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
            write(1000..2000);
            let times = timestamps(1_000_000, 0);
            rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
            write(2000..3000);
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&path, "user.by", b"me", flags).unwrap();
            write(3000..4000);
            rustix::fs::removexattr(&path, "user.by").unwrap();
            write(4000..photograph.len());
            drop(camera);
            let beneath = fs::read(served.beneath("photos/new.jpg")).unwrap();
            assert_eq!(beneath, photograph);
            is_clean(&path);
        });
    }
}

/// Neither a name without a lookup nor a removed one takes a file out of a rule.
#[test]
fn other_names_of_a_file_show_nothing() {
    let fill = |source: &Path| {
        fill(source);
        put(source, "photos/c.jpg", &samples::photograph());
        for (old, new) in [("a.jpg", "a.bin"), ("b.jpg", "b.bin"), ("c.jpg", "c.bin")] {
            let [old, new] = [
                source.join("photos").join(old),
                source.join("other").join(new),
            ];
            fs::hard_link(old, new).unwrap();
        }
        put(source, "other/twin", b"words");
        fs::hard_link(source.join("other/twin"), source.join("other/other")).unwrap();
    };
    for policy in [REDACT, BY_NAME] {
        with_policy("", policy, fill, |served| {
            let (name, linked) = (served.at("photos/a.jpg"), served.at("other/a.bin"));
            assert!(is_redacted(&linked), "not looked up");
            assert_eq!(errno(open(&linked, libc::O_WRONLY)), libc::EACCES);
            let third = served.at("other/third");
            assert_eq!(errno(fs::hard_link(&linked, third)), libc::EXDEV);
            assert!(is_redacted(&name));
            // Both known, then one of them removed, in every way.
            assert_eq!(errno(fs::remove_file(&name)), libc::EACCES);
            let second = served.at("photos/b.jpg");
            assert_eq!(errno(fs::rename(&second, &name)), libc::EACCES);
            is_clean(&linked);
            fs::remove_file(&linked).unwrap();
            assert!(is_redacted(&name));
            fs::remove_file(&name).unwrap();

            // The known one is removed; the file has another.
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let held = rustix::fs::open(served.at("other/c.bin"), flags, Mode::empty()).unwrap();
            let known = format!("/proc/self/fd/{}", held.as_raw_fd());
            fs::remove_file(served.at("other/c.bin")).unwrap();
            is_clean(Path::new(&known));

            // A further name within the rule, which can go again.
            let (other, more) = (served.at("other/b.bin"), served.at("photos/more.jpg"));
            fs::hard_link(&second, &more).unwrap();
            fs::remove_file(&other).unwrap();
            fs::remove_file(&more).unwrap();
            assert!(is_redacted(&second));

            // Unrelated files are as before, once their names are known.
            assert_eq!(errno(File::open(served.at("other/twin"))), libc::EACCES);
            assert_eq!(fs::metadata(served.at("other/other")).unwrap().nlink(), 2);
            crate::busy::until_free(&served.at("other/twin"));
            assert_eq!(fs::read(served.at("other/twin")).unwrap(), b"words");
        });
    }
}

/// No changeable property excepts a file.
#[test]
fn no_attribute_and_no_content_excepts_a_file() {
    let policy = format!(
        "[[rule]]\npath = '**'\nmode = 'o-r'\naction = 'passthrough'\n\
         [[rule]]\npath = '**'\ncontent = '!image/*'\naction = 'passthrough'\n\
         [[rule]]\npath = '**'\nsize = '<1KiB'\naction = 'cached'\n{REDACT}"
    );
    with_policy("", &policy, fill, |served| {
        let path = served.at("photos/a.jpg");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(is_redacted(&path));
        // As an incomplete copy, beneath.
        let mut bytes = samples::photograph();
        bytes[0] = 0;
        fs::write(served.beneath("photos/a.jpg"), &bytes).unwrap();
        assert_eq!(errno(seen(&path)), libc::EACCES);
        assert_eq!(fs::read(served.at("other/free")).unwrap(), b"words");
    });
}

/// Programs keep thumbnails there, and copies of metadata.
#[test]
fn extended_attributes_of_redacted_files_are_not_shown() {
    with_policy("", REDACT, fill, |served| {
        for (name, kept) in [("photos/a.jpg", false), ("other/free", true)] {
            let path = served.at(name);
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&path, "user.place", b"48.137154", flags).unwrap();
            let mut buffer = [0_u8; 100];
            let value = raw(rustix::fs::getxattr(&path, "user.place", &mut buffer[..]));
            let listed = rustix::fs::listxattr(&path, &mut buffer[..]).unwrap();
            let expected = if kept { 0 } else { libc::ENODATA };
            assert_eq!((value, listed > 0), (expected, kept), "{name}");
        }
    });
}

/// Where names differ in case alone and are one, patterns could be evaded. A bind mount of one name on the
/// other stands in for such a file system, which not every kernel has.
#[test]
fn names_that_differ_in_case_alone_are_not_one() {
    let policy = "[[rule]]\npath = 'secret'\naction = 'hide'\n".to_owned() + BY_NAME;
    let fill = |source: &Path| {
        fill(source);
        put(source, "secret/a.jpg", &samples::photograph());
        put(source, "Secret/x", b"");
        put(source, "photos/a.jpG", b"");
        put(source, "photos/A.JPG", &samples::photograph());
        put(source, "photos/c.jpg", &samples::photograph());
        for (over, at) in [("secret", "Secret"), ("photos/c.jpg", "photos/C.jpg")] {
            if at != "Secret" {
                put(source, at, b"");
            }
            rustix::mount::mount_bind(source.join(over), source.join(at)).unwrap();
        }
    };
    with_policy("", &policy, fill, |served| {
        // Unmounts also when the test fails.
        let _mounts = ["Secret", "photos/C.jpg"].map(|at| Detach(served.beneath(at)));
        for name in ["Secret", "Secret/a.jpg", "photos/C.jpg", "photos/c.jpg"] {
            assert_eq!(errno(fs::metadata(served.at(name))), libc::EACCES, "{name}");
        }
        // Names that only look alike are two files.
        assert!(!is_redacted(&served.at("photos/A.JPG")));
        assert!(is_redacted(&served.at("photos/a.jpg")));
    });
}

/// A reproducible sequence.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        // Small seeds have few bits, and the first numbers would be small as well.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }

    /// An offset in a photograph, more often near its blocks' beginnings.
    pub fn offset(&mut self) -> u64 {
        match self.below(4) {
            0 | 1 => *self.of(&[0, 2, 3, 4, 6, 12]),
            2 => self.below(1000),
            _ => self.below(samples::photograph().len() as u64 + 10),
        }
    }

    /// Bytes and where to write them: at times where they make a parser see something else.
    pub fn mark(&mut self) -> (u64, &'static [u8]) {
        match self.below(2) {
            0 => *self.of(&TURNS),
            _ => (self.offset(), *self.of::<&[u8]>(&MARKS)),
        }
    }

    pub fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
}

/// The seed of a sequence, and its steps: `steps` unless `THRUFS_HOLD_STEPS` is set.
pub fn seed_and_steps(steps: u64) -> (u64, u64) {
    let steps = thrufs_test_report::number("THRUFS_HOLD_STEPS", steps);
    (thrufs_test_report::seed(), steps)
}

/// Files that the writer has open at once.
const HELD_MAX: usize = 6;

const NAMES: [&str; 9] = [
    "photos/a.jpg",
    "photos/b.jpg",
    "photos/d/c.jpg",
    "photos/linked.jpg",
    "other/x.jpg",
    "other/y",
    "other/linked",
    "other/d/z",
    "top",
];
const DIRECTORIES: [&str; 5] = ["photos", "photos/d", "other", "other/d", "else"];

/// What may make a parser see something else.
const MARKS: [&[u8]; 9] = [
    b"\0",
    b"\xff\xd8\xff\xe0",
    b"\xff\xda",
    b"\xff\xd9",
    b"\x89PNG\r\n\x1a\n",
    b"RIFF\xff\0\0\0WEBP",
    b"\0\0\0\x18ftypmp42",
    b"II*\0\x08\0\0\0",
    b"words",
];

/// What makes the place part of the picture, and its block another one.
const TURNS: [(u64, &[u8]); 4] = [(2, b"\xff\xda"), (3, b"\xda"), (9, b"words"), (19, b"\xda")];

/// A permitted writer.
struct Writer<'a> {
    served: &'a Served,
    random: Random,
    held: Vec<File>,
}

impl Writer<'_> {
    fn path(&mut self) -> PathBuf {
        self.served.at(self.random.of(&NAMES))
    }

    fn directory(&mut self) -> PathBuf {
        self.served.at(self.random.of(&DIRECTORIES))
    }

    fn offset(&mut self) -> u64 {
        self.random.offset()
    }

    fn hold(&mut self, file: File) {
        if self.held.len() == HELD_MAX {
            let at = self.random.below(HELD_MAX as u64) as usize;
            self.held.swap_remove(at);
        }
        self.held.push(file);
    }

    /// An open file, or one more.
    fn file(&mut self) -> io::Result<File> {
        if !self.held.is_empty() && self.random.below(2) == 0 {
            let at = self.random.below(self.held.len() as u64) as usize;
            return self.held[at].try_clone();
        }
        let path = self.path();
        let flags = [
            libc::O_RDWR,
            libc::O_WRONLY,
            libc::O_RDONLY,
            libc::O_RDWR | libc::O_TRUNC,
            libc::O_RDWR | libc::O_CREAT,
            libc::O_RDWR | libc::O_CREAT | libc::O_EXCL,
            libc::O_WRONLY | libc::O_APPEND,
            libc::O_RDWR | libc::O_DIRECT,
        ];
        let file = open(&path, *self.random.of(&flags))?;
        self.hold(file.try_clone()?);
        Ok(file)
    }

    /// One step; an error is a refusal.
    fn step(&mut self) -> io::Result<()> {
        match self.random.below(14) {
            0..=2 => {
                let (file, (at, mark)) = (self.file()?, self.random.mark());
                file.write_all_at(mark, at)
            }
            3 => {
                let (file, size) = (self.file()?, self.offset());
                file.set_len(size)
            }
            4 => {
                let (path, size) = (self.path(), self.offset());
                truncate(&path, size as i64)
            }
            5 => {
                let (file, at) = (self.file()?, self.offset());
                let modes = [
                    FallocateFlags::empty(),
                    FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    FallocateFlags::ZERO_RANGE,
                    FallocateFlags::COLLAPSE_RANGE,
                    FallocateFlags::INSERT_RANGE,
                ];
                let mode = *self.random.of(&modes);
                Ok(fallocate(file, mode, at & !4095, 4096)?)
            }
            6 => {
                let (from, to) = (self.file()?, self.file()?);
                let (mut at, mut target) = (self.offset(), self.offset());
                let (at, target) = (Some(&mut at), Some(&mut target));
                copy_file_range(from, at, to, target, 40_000)?;
                Ok(())
            }
            7 | 8 => {
                let (old, new) = (self.path(), self.path());
                let flags = [
                    RenameFlags::empty(),
                    RenameFlags::EXCHANGE,
                    RenameFlags::NOREPLACE,
                ];
                Ok(rustix::fs::renameat_with(
                    CWD,
                    old,
                    CWD,
                    new,
                    *self.random.of(&flags),
                )?)
            }
            9 => {
                let (old, new) = (self.directory(), self.directory());
                let flags = [RenameFlags::empty(), RenameFlags::EXCHANGE];
                let renamed =
                    rustix::fs::renameat_with(CWD, old, CWD, new, *self.random.of(&flags));
                for directory in DIRECTORIES {
                    let _ = fs::create_dir(self.served.at(directory));
                }
                Ok(renamed?)
            }
            10 => {
                let (old, new) = (self.path(), self.path());
                fs::hard_link(old, new)
            }
            11 => {
                let path = self.path();
                fs::remove_file(path)
            }
            12 => {
                let (directory, new) = (self.directory(), self.path());
                let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
                let file = File::from(rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?);
                let from = format!("/proc/self/fd/{}", file.as_raw_fd());
                let linked = rustix::fs::linkat(CWD, from, CWD, new, AtFlags::SYMLINK_FOLLOW);
                self.hold(file);
                Ok(linked?)
            }
            _ => {
                let file = self.file()?;
                let mut mapping = Mapping::new(&file, 4096, Sharing::Shared)?;
                if file.metadata()?.len() > 4096 {
                    mapping.store(
                        self.random.below(30) as usize,
                        &[self.random.below(256) as u8],
                    );
                }
                Ok(())
            }
        }
    }

    /// Another process makes photographs: through the mount, piece by piece and not always to the end, or
    /// beneath.
    fn camera(&mut self) -> io::Result<()> {
        let photographs = ["photos/a.jpg", "photos/b.jpg", "photos/d/c.jpg"];
        let name = *self.random.of(&photographs);
        let original = samples::photograph();
        if self.random.below(3) == 0 {
            // Not where that takes away the redacted one of two names, which only the host may.
            let (new, name) = (
                self.served.ground().outside().join("new"),
                self.served.beneath(name),
            );
            if fs::metadata(&name).is_ok_and(|old| old.nlink() > 1) {
                return Ok(());
            }
            fs::write(&new, &original)?;
            return fs::rename(&new, name);
        }
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
        let mut file = open(&self.served.at(name), flags)?;
        for piece in original.chunks(7001) {
            if self.random.below(3) == 0 {
                // Other steps in between.
                let _ = self.step();
            }
            if self.random.below(20) == 0 {
                break;
            }
            file.write_all(piece)?;
        }
        Ok(())
    }

    /// Searches all that can be read now, by name and by descriptor.
    fn search(&mut self, what: &str) {
        search_names(self.served, what);
        for mut file in &self.held {
            let mut bytes = Vec::new();
            let read = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
            assert!(
                read.is_err() || samples::is_clean(&bytes),
                "{what}: an open file"
            );
        }
    }
}

fn search_names(served: &Served, what: &str) {
    for directory in DIRECTORIES.iter().chain(&[""]) {
        let Ok(entries) = fs::read_dir(served.at(directory)) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let bytes = seen(&path).unwrap_or_default();
            assert!(samples::is_clean(&bytes), "{what}: {}", path.display());
        }
    }
}

fn mutate(served: &Served, seed: u64, steps: u64) {
    let writer = Writer {
        served,
        random: Random::new(seed),
        held: Vec::new(),
    };
    let over = AtomicBool::new(false);
    let searched = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let _end = StopAll(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                search_names(served, &format!("THRUFS_SEED={seed}, beside"));
                searched.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut writer = writer;
        let mut done = 0;
        for step in 0..steps {
            done += u32::from(match writer.random.below(6) {
                0 => writer.camera().is_ok(),
                _ => writer.step().is_ok(),
            });
            if step % 4 == 0 {
                writer.search(&format!("THRUFS_SEED={seed}, step {step}"));
            }
        }
        assert!(
            u64::from(done) > steps / 10,
            "{done} of {steps} did anything"
        );
    });
    assert!(searched.into_inner() > 0);
}

#[test]
fn no_reader_sees_redacted_content_whatever_is_written() {
    let (seed, steps) = seed_and_steps(150);
    let fill = |source: &Path| {
        fill(source);
        for directory in DIRECTORIES {
            fs::create_dir_all(source.join(directory)).unwrap();
        }
        put(source, "photos/linked.jpg", &samples::photograph());
        fs::hard_link(
            source.join("photos/linked.jpg"),
            source.join("other/linked"),
        )
        .unwrap();
    };
    for (policy, options) in [
        (printed(), "cache=auto"),
        (BY_NAME.to_owned(), "cache=always"),
    ] {
        with_policy(options, &policy, fill, |served| {
            mutate(served, seed, steps);
        });
    }
}

/// A file that was known before it was hidden shows nothing more.
#[test]
fn hidden_nodes_have_no_attributes() {
    let hide = "[[rule]]\npath = 'photos'\naction = 'hide'\n";
    let fill = |source: &Path| {
        fill(source);
        std::os::unix::fs::symlink("target", source.join("photos/link")).unwrap();
    };
    with_policy("cache=never", NOTHING, fill, |served| {
        let known = |name: &str| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::open(served.at(name), flags, Mode::empty()).unwrap()
        };
        let [file, link] = ["photos/a.jpg", "photos/link"].map(known);
        let held = File::open(served.at("photos/b.jpg")).unwrap();
        served.reload(hide);
        assert_eq!(raw(rustix::fs::fstat(&file)), libc::ENOENT);
        assert_eq!(raw(rustix::fs::fstat(&link)), libc::ENOENT);
        assert_eq!(
            raw(rustix::fs::readlinkat(&link, "", Vec::new())),
            libc::ENOENT
        );
        let xattr = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mut buffer = [0_u8; 100];
        assert_eq!(
            raw(rustix::fs::listxattr(xattr, &mut buffer[..])),
            libc::ENOENT
        );
        // What was granted stays granted.
        assert_eq!(
            held.metadata().unwrap().len(),
            samples::photograph().len() as u64
        );
        served.reload(NOTHING);
        assert_eq!(raw(rustix::fs::fstat(&file)), 0);
        assert_eq!(names(&served.at("photos")), ["a.jpg", "b.jpg", "link"]);
    });
}
