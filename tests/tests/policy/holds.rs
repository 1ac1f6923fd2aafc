//! No reader sees what a redacting rule takes out, whatever is written and under whatever name: a test for each
//! hole that there was. `forged` has all requests at random.

use crate::busy::until_free;
use crate::samples::{is_clean, photograph};
use crate::served::{REDACT, errno, held, is_redacted, open, put, raw, with_policy};
use rustix::fs::AtFlags;
use std::os::fd::AsRawFd;
use thrufs_testing::fence::truncate::truncate;
use thrufs_tests::prelude::*;

/// The first example of the reference, as it is printed.
pub fn printed() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/policies.md");
    let page = fs::read_to_string(path).unwrap();
    let example = page.split("```toml\n").nth(1).unwrap();
    example.split("```").next().unwrap().to_owned()
}

/// A rule by name alone.
pub const BY_NAME: &str = "[[rule]]\npath = '**/*.jpg'\naction = 'redact'\nredact = 'gps'\n";

/// Photographs at these places, and words.
fn fill<'a>(places: &'a [&'a str]) -> impl Fn(&Path) + 'a {
    |source| {
        put(source, "other/free", b"words");
        places
            .iter()
            .for_each(|place| put(source, place, &photograph()));
    }
}

/// One byte made a photograph something that the rule did not match; another made the block with the place
/// part of the picture.
#[test]
fn a_byte_in_the_right_place_does_not_undo_a_rule() {
    for (policy, options) in [
        (printed(), "cache=auto"),
        (printed(), "cache=never"),
        (REDACT.to_owned(), "cache=auto,writeback"),
    ] {
        with_policy(options, &policy, fill(&["photos/a.jpg"]), |served| {
            let path = served.at("photos/a.jpg");
            let length = photograph().len() as u64;
            for access in [
                libc::O_WRONLY,
                libc::O_RDWR,
                libc::O_WRONLY | libc::O_APPEND,
            ] {
                assert_eq!(errno(open(&path, access)), libc::EACCES, "{access:#o}");
            }
            for size in [1, 1000, length - 1, length + 1] {
                assert_eq!(errno(truncate(&path, size as i64)), libc::EACCES, "{size}");
            }
            assert!(is_redacted(&path));
            let beneath = fs::read(served.beneath("photos/a.jpg")).unwrap();
            assert_eq!(beneath, photograph());
            // It can be made anew, and removed.
            fs::write(&path, photograph()).unwrap();
            assert!(is_redacted(&path));
            truncate(&path, 0).unwrap();
            fs::remove_file(&path).unwrap();
        });
    }
}

/// Neither a name without a lookup nor a removed one takes a file out of a rule.
#[test]
fn other_names_of_a_file_show_nothing() {
    let fill = |source: &Path| {
        put(source, "other/twin", b"words");
        for name in ["a", "b", "c"] {
            put(source, format!("photos/{name}.jpg"), &photograph());
            let [old, new] = ["photos/NAME.jpg", "other/NAME.bin"]
                .map(|place| source.join(place.replace("NAME", name)));
            fs::hard_link(old, new).unwrap();
        }
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
            assert!(is_redacted(&linked));
            fs::remove_file(&linked).unwrap();
            assert!(is_redacted(&name));
            fs::remove_file(&name).unwrap();

            // The known one is removed; the file has another.
            let (_held, known) = held(&served.at("other/c.bin"));
            fs::remove_file(served.at("other/c.bin")).unwrap();
            assert!(fs::read(known).is_ok_and(|bytes| is_clean(&bytes)));

            // A further name within the rule, which can go again.
            let (other, more) = (served.at("other/b.bin"), served.at("photos/more.jpg"));
            fs::hard_link(&second, &more).unwrap();
            fs::remove_file(&other).unwrap();
            fs::remove_file(&more).unwrap();
            assert!(is_redacted(&second));

            // Unrelated files are as before, once their names are known.
            assert_eq!(errno(File::open(served.at("other/twin"))), libc::EACCES);
            assert_eq!(fs::metadata(served.at("other/other")).unwrap().nlink(), 2);
            until_free(&served.at("other/twin"));
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
    with_policy("", &policy, fill(&["photos/a.jpg"]), |served| {
        let path = served.at("photos/a.jpg");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(is_redacted(&path));
        // As an incomplete copy, beneath.
        let mut bytes = photograph();
        bytes[0] = 0;
        fs::write(served.beneath("photos/a.jpg"), &bytes).unwrap();
        assert_eq!(errno(fs::read(&path)), libc::EACCES);
        assert_eq!(fs::read(served.at("other/free")).unwrap(), b"words");
    });
}

#[test]
fn what_moves_within_a_rule_that_redacts_and_into_it_is_redacted() {
    let places = [
        "photos/a.jpg",
        "photos/album/b.jpg",
        "other/c.jpg",
        "other/sub/d.jpg",
    ];
    for options in ["cache=never", "cache=always"] {
        with_policy(options, REDACT, fill(&places), |served| {
            for (old, new) in [
                ("photos/a.jpg", "photos/z.jpg"),
                ("photos/album", "photos/moved"),
                ("other/c.jpg", "photos/x.jpg"),
                ("other/sub", "photos/sub"),
            ] {
                fs::rename(served.at(old), served.at(new)).unwrap();
            }
            fs::hard_link(served.at("photos/z.jpg"), served.at("photos/moved/y.jpg")).unwrap();
            for name in ["z.jpg", "moved/b.jpg", "moved/y.jpg", "x.jpg", "sub/d.jpg"] {
                let name = format!("photos/{name}");
                assert!(is_redacted(&served.at(&name)), "{name}");
                assert_eq!(fs::read(served.beneath(&name)).unwrap(), photograph());
            }
        });
    }
}

#[test]
fn files_without_a_name_are_judged_by_where_they_are() {
    with_policy("", REDACT, fill(&["photos/a.jpg"]), |served| {
        let unnamed = |directory: &str| {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            let fd = rustix::fs::open(served.at(directory), flags, Mode::RUSR | Mode::WUSR);
            let mut file = File::from(fd.unwrap());
            file.write_all(&photograph()).unwrap();
            file
        };
        let link = |file: &File, name: &str| {
            let from = format!("/proc/self/fd/{}", file.as_raw_fd());
            let flags = AtFlags::SYMLINK_FOLLOW;
            raw(rustix::fs::linkat(CWD, from, CWD, served.at(name), flags))
        };
        let file = unnamed("photos");
        assert_eq!(link(&file, "other/out.jpg"), libc::EXDEV);
        assert_eq!(link(&file, "photos/in.jpg"), 0);
        drop(file);
        assert!(is_redacted(&served.at("photos/in.jpg")));
        let file = unnamed("other");
        assert_eq!(link(&file, "photos/late.jpg"), 0);
        drop(file);
        until_free(&served.at("photos/late.jpg"));
        assert!(is_redacted(&served.at("photos/late.jpg")));
    });
}

/// A caller with a file or directory open does not look up its name again.
#[test]
fn a_name_that_was_changed_beneath_does_not_take_a_file_out_of_a_rule() {
    let fill = |source: &Path| {
        fill(&["photos/a.jpg", "other/in/a.jpg", "other/b.jpg"])(source);
        put(source, "other/words", b"words");
    };
    with_policy("", REDACT, fill, |served| {
        let holder = held(&served.at("other/in"));
        let photographs = ["other/in/a.jpg", "other/b.jpg"].map(|name| {
            assert!(!is_redacted(&served.at(name)));
            held(&served.at(name))
        });
        let (_words, words) = held(&served.at("other/words"));
        for (old, new) in [
            ("other/in", "photos/in"),
            ("other/b.jpg", "photos/c.jpg"),
            ("other/words", "other/texts"),
        ] {
            fs::rename(served.beneath(old), served.beneath(new)).unwrap();
        }
        // Nor do the directories around it let it out.
        let out = served.at("other/out.jpg");
        let moved = rustix::fs::renameat(&holder.0, "a.jpg", CWD, &out);
        assert_eq!(raw(moved), libc::EXDEV);
        // What is to be found there otherwise leads back to it.
        symlink("../photos/in", served.beneath("other/in")).unwrap();
        for (_, path) in &photographs {
            until_free(path);
            assert!(is_redacted(path));
        }
        // It is unrelated, which shows once its name is looked up.
        assert_eq!(errno(File::open(&words)), libc::EACCES);
        assert_eq!(fs::read(served.at("other/texts")).unwrap(), b"words");
        assert_eq!(fs::read(&words).unwrap(), b"words");
    });
}

/// The name in a moved directory and the one in its replacement have one path.
#[test]
fn two_names_with_one_path_are_one() {
    let fill = |source: &Path| {
        put(source, "photos/a.jpg", &photograph());
        put(source, "other/x", b"");
        fs::create_dir(source.join("twin")).unwrap();
        fs::hard_link(source.join("other/x"), source.join("twin/x")).unwrap();
    };
    with_policy("cache=never", REDACT, fill, |served| {
        let _held = ["other", "other/x", "twin"].map(|name| held(&served.at(name)));
        fs::rename(served.beneath("other"), served.beneath("photos/a")).unwrap();
        fs::rename(served.beneath("twin"), served.beneath("other")).unwrap();
        fs::write(served.beneath("photos/a/x"), photograph()).unwrap();
        // Once the name that was unknown then is looked up.
        fs::metadata(served.at("other/x")).unwrap();
        assert!(is_redacted(&served.at("other/x")));
    });
}
