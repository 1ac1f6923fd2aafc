//! Names that come and go: into rules, out of them, and out of rules that redact.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use thrufs_tests::lower::Lower;

use crate::samples;
use crate::served::{NOTHING, REDACT, Served, errno, names, put, raw, rename, with_policy};

fn fill(source: &Path) {
    put(source, "photos/a.jpg", &samples::photograph());
    put(source, "photos/album/b.jpg", &samples::photograph());
    put(source, "other/c.jpg", &samples::photograph());
    put(source, "other/sub/d.jpg", &samples::photograph());
}

fn is_redacted(path: &Path) -> bool {
    samples::is_clean(&fs::read(path).unwrap())
}

#[test]
fn what_moves_within_a_rule_that_redacts_and_into_it_is_redacted() {
    for options in ["cache=never", "cache=always"] {
        with_policy(options, REDACT, fill, |served| {
            let (photo, other) = (served.at("photos/a.jpg"), served.at("other/c.jpg"));
            let (album, sub) = (served.at("photos/album"), served.at("other/sub"));
            assert_eq!(
                rename(&photo, &served.at("photos/z.jpg"), RenameFlags::empty()),
                0
            );
            assert_eq!(
                rename(&album, &served.at("photos/moved"), RenameFlags::empty()),
                0
            );
            fs::hard_link(served.at("photos/z.jpg"), served.at("photos/moved/y.jpg")).unwrap();
            assert_eq!(
                rename(&other, &served.at("photos/x.jpg"), RenameFlags::empty()),
                0
            );
            assert_eq!(
                rename(&sub, &served.at("photos/sub"), RenameFlags::empty()),
                0
            );
            for name in ["z.jpg", "moved/b.jpg", "moved/y.jpg", "x.jpg", "sub/d.jpg"] {
                assert!(is_redacted(&served.at("photos").join(name)), "{name}");
                let beneath = served.beneath("photos").join(name);
                assert_eq!(fs::read(beneath).unwrap(), samples::photograph(), "{name}");
            }
        });
    }
}

/// As soon as one redacted name was seen.
#[test]
fn all_names_of_a_file_count() {
    let fill = |source: &Path| {
        fill(source);
        fs::hard_link(source.join("photos/a.jpg"), source.join("other/a.jpg")).unwrap();
    };
    with_policy("", REDACT, fill, |served| {
        assert!(is_redacted(&served.at("photos/a.jpg")));
        assert!(is_redacted(&served.at("other/a.jpg")));
        assert_eq!(served.way("photos/a.jpg"), "filtered");
        // It does not lose that name before the other one.
        assert_eq!(
            errno(fs::remove_file(served.at("photos/a.jpg"))),
            libc::EACCES
        );
        fs::remove_file(served.at("other/a.jpg")).unwrap();
        fs::remove_file(served.at("photos/a.jpg")).unwrap();
    });
}

/// Without file handles beneath, names are tracked in another way.
#[test]
fn names_are_followed_without_file_handles() {
    thrufs_tests::transport::over_each(|transport| {
        let served = Served::start_on(Lower::Overlay, transport, "cache=always", REDACT, fill);
        let inside = served.at("photos/in.jpg");
        for _ in 0..3 {
            fs::write(served.at("moving.jpg"), samples::photograph()).unwrap();
            assert!(!is_redacted(&served.at("moving.jpg")));
            fs::rename(served.at("moving.jpg"), &inside).unwrap();
            crate::busy::until_free(&inside);
            assert!(is_redacted(&inside));
            fs::remove_file(&inside).unwrap();
        }
        served.stop();
    });
}

#[test]
fn files_without_a_name_are_judged_by_where_they_are() {
    with_policy("", REDACT, fill, |served| {
        let unnamed = |directory: &str| {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            let fd = rustix::fs::open(served.at(directory), flags, Mode::RUSR | Mode::WUSR);
            File::from(fd.unwrap())
        };
        let link = |file: &File, name: &str| {
            let from = format!("/proc/self/fd/{}", file.as_raw_fd());
            let flags = AtFlags::SYMLINK_FOLLOW;
            raw(rustix::fs::linkat(CWD, from, CWD, served.at(name), flags))
        };
        let file = unnamed("photos");
        std::io::Write::write_all(&mut &file, &samples::photograph()).unwrap();
        assert_eq!(link(&file, "other/out.jpg"), libc::EXDEV);
        assert_eq!(link(&file, "photos/in.jpg"), 0);
        drop(file);
        assert!(is_redacted(&served.at("photos/in.jpg")));
        let file = unnamed("other");
        std::io::Write::write_all(&mut &file, &samples::photograph()).unwrap();
        assert_eq!(link(&file, "photos/late.jpg"), 0);
        drop(file);
        crate::busy::until_free(&served.at("photos/late.jpg"));
        assert!(is_redacted(&served.at("photos/late.jpg")));
    });
}

/// `mv` copies what it may read.
#[test]
fn mv_leaves_hidden_files_where_they_are() {
    let policy = "[[rule]]\npath = 'free/**'\naction = 'passthrough'\n\
        [[rule]]\npath = '**/*.key'\naction = 'hide'\n";
    let fill = |source: &Path| {
        for name in ["dir/sub/a.key", "dir/sub/file", "free/b.key"] {
            put(source, name, b"content");
        }
    };
    with_policy("", policy, fill, |served| {
        let (dir, moved) = (served.at("dir"), served.at("free/dir"));
        assert_eq!(rename(&dir, &moved, RenameFlags::empty()), libc::EXDEV);
        let mv = std::process::Command::new("mv")
            .args([&dir, &moved])
            .output();
        assert!(!mv.unwrap().status.success(), "the hidden file is left");
        assert_eq!(names(&served.beneath("free/dir/sub")), ["file"]);
        assert_eq!(names(&served.beneath("dir/sub")), ["a.key"]);
        assert_eq!(names(&served.at("free")), ["b.key", "dir"]);
    });
}

#[test]
fn renaming_a_directory_changes_the_rules_of_what_is_in_it() {
    let policy = "[[rule]]\npath = 'kept/**'\naction = 'read-only'\n";
    with_policy("cache=always", policy, fill, |served| {
        let write = |name: &str| errno(crate::served::open(&served.at(name), libc::O_RDWR));
        assert_eq!(write("other/sub/d.jpg"), 0);
        fs::rename(served.at("other"), served.at("kept")).unwrap();
        assert_eq!(write("kept/sub/d.jpg"), libc::EROFS);
        assert_eq!(errno(fs::remove_file(served.at("kept/c.jpg"))), libc::EROFS);
        served.reload(NOTHING);
        assert_eq!(write("kept/sub/d.jpg"), 0);
    });
}
