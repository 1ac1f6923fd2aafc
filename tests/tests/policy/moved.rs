//! Files that were moved beneath, away from known names.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};

use crate::holds::{fill, seen};
use crate::samples;
use crate::served::{REDACT, errno, put, raw, with_policy};

/// A caller with a file or directory open does not look up its name again.
#[test]
fn a_name_that_was_changed_beneath_does_not_take_a_file_out_of_a_rule() {
    let fill = |source: &Path| {
        fill(source);
        put(source, "other/in/a.jpg", &samples::photograph());
        put(source, "other/b.jpg", &samples::photograph());
        put(source, "other/words", b"words");
    };
    with_policy("", REDACT, fill, |served| {
        let hold = |name| {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let held = rustix::fs::open(served.at(name), flags, Mode::empty()).unwrap();
            assert!(!samples::is_clean(&seen(&served.at(name)).unwrap()) || name == "other/words");
            held
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let holder = rustix::fs::open(served.at("other/in"), flags, Mode::empty()).unwrap();
        let held = ["other/in/a.jpg", "other/b.jpg", "other/words"].map(hold);
        for (old, new) in [
            ("other/in", "photos/in"),
            ("other/b.jpg", "photos/c.jpg"),
            ("other/words", "other/texts"),
        ] {
            fs::rename(served.beneath(old), served.beneath(new)).unwrap();
        }
        // Nor do the directories around it let it out.
        let out = served.at("other/out.jpg");
        let moved = rustix::fs::renameat(&holder, "a.jpg", CWD, &out);
        assert_eq!(raw(moved), libc::EXDEV);
        // What is to be found there otherwise leads back to it.
        std::os::unix::fs::symlink("../photos/in", served.beneath("other/in")).unwrap();
        for held in &held[..2] {
            let path = format!("/proc/self/fd/{}", held.as_raw_fd());
            crate::busy::until_free(Path::new(&path));
            let bytes = seen(Path::new(&path));
            assert!(bytes.is_ok_and(|bytes| samples::is_clean(&bytes)));
        }
        // It is unrelated, which shows once its name is looked up.
        let path = format!("/proc/self/fd/{}", held[2].as_raw_fd());
        assert_eq!(errno(File::open(&path)), libc::EACCES);
        assert_eq!(fs::read(served.at("other/texts")).unwrap(), b"words");
        assert_eq!(fs::read(&path).unwrap(), b"words");
    });
}

/// The name in a moved directory and the one in its replacement have one path.
#[test]
fn two_names_with_one_path_are_one() {
    let fill = |source: &Path| {
        fill(source);
        put(source, "other/x", b"");
        fs::create_dir(source.join("twin")).unwrap();
        fs::hard_link(source.join("other/x"), source.join("twin/x")).unwrap();
    };
    with_policy("cache=never", REDACT, fill, |served| {
        let hold = |name| {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            rustix::fs::open(served.at(name), flags, Mode::empty()).unwrap()
        };
        let held = ["other", "other/x", "twin"].map(hold);
        fs::rename(served.beneath("other"), served.beneath("photos/a")).unwrap();
        fs::rename(served.beneath("twin"), served.beneath("other")).unwrap();
        fs::write(served.beneath("photos/a/x"), samples::photograph()).unwrap();
        // Once the name that was unknown then is looked up.
        fs::metadata(served.at("other/x")).unwrap();
        let seen = seen(&served.at("other/x"));
        assert!(seen.is_ok_and(|bytes| samples::is_clean(&bytes)));
        drop(held);
    });
}
