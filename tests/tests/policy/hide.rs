//! Hidden means absent.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use thrufs_tests::guard::Detach;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};

use crate::served::{NOTHING, errno, names, put, raw, with_policy};

const POLICY: &str = "[[rule]]\npath = ['secret', '**/.*', '**/hidden']\naction = 'hide'\n";

fn fill(source: &Path) {
    put(source, "secret/file", b"content");
    put(source, "secret/sub/file", b"content");
    put(source, "open/file", b"content");
    put(source, "open/.dot", b"content");
    put(source, "empty/hidden", b"content");
    fs::hard_link(source.join("open/file"), source.join("open/hidden")).unwrap();
}

const MODES: [&str; 3] = ["cache=never", "cache=auto", "cache=always"];

#[test]
fn hidden_names_are_not_found_and_not_listed() {
    for options in MODES {
        with_policy(options, POLICY, fill, |served| {
            for _ in 0..2 {
                for name in [
                    "secret",
                    "secret/file",
                    "secret/sub/file",
                    "open/.dot",
                    "open/hidden",
                ] {
                    let path = served.at(name);
                    assert_eq!(errno(fs::symlink_metadata(&path)), libc::ENOENT, "{name}");
                    assert_eq!(errno(File::open(&path)), libc::ENOENT, "{name}");
                    assert_eq!(errno(fs::remove_file(&path)), libc::ENOENT, "{name}");
                    assert_eq!(
                        errno(fs::rename(&path, served.at("new"))),
                        libc::ENOENT,
                        "{name}"
                    );
                }
                assert_eq!(names(served.ground().mnt()), ["empty", "open"]);
                assert_eq!(names(&served.at("open")), ["file"]);
                // READDIR alone as well, without attributes.
                let directory = File::open(served.at("open")).unwrap();
                let entries = Dir::read_from(&directory).unwrap();
                let listed: Vec<_> = entries
                    .map(|entry| entry.unwrap().file_name().to_owned())
                    .filter(|name| name.to_bytes() != b"." && name.to_bytes() != b"..")
                    .collect();
                assert_eq!(listed, [c"file"]);
            }
            // The other name still works.
            assert_eq!(fs::read(served.at("open/file")).unwrap(), b"content");
            fs::write(served.at("open/file"), b"changed").unwrap();
            assert_eq!(fs::read(served.beneath("open/hidden")).unwrap(), b"changed");
        });
    }
}

/// A process has its working directory hidden by a reload.
#[test]
fn a_working_directory_is_empty_once_hidden() {
    for options in MODES {
        with_policy(options, NOTHING, fill, |served| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let inside = rustix::fs::open(served.at("secret"), flags, Mode::empty()).unwrap();
            let listing = File::open(served.at("secret")).unwrap();
            let look = |name: &str| {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                raw(rustix::fs::statat(&inside, name, flags))
            };
            assert_eq!((look("file"), look("sub/file")), (0, 0));
            assert_eq!(names(&served.at("secret")), ["file", "sub"]);
            served.reload(POLICY);
            assert_eq!(
                (look("file"), look("sub/file")),
                (libc::ENOENT, libc::ENOENT)
            );
            assert_eq!(names(served.ground().mnt()), ["empty", "open"]);
            let at = |flags| rustix::fs::openat(&inside, "new", flags, Mode::from_raw_mode(0o600));
            let results = [
                raw(at(OFlags::CREATE | OFlags::RDWR)),
                raw(rustix::fs::openat(
                    &inside,
                    ".",
                    OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC,
                    Mode::RWXU,
                )),
                raw(rustix::fs::mkdirat(&inside, "new", Mode::RWXU)),
                raw(rustix::fs::symlinkat("x", &inside, "new")),
                raw(rustix::fs::linkat(
                    CWD,
                    served.at("open/file"),
                    &inside,
                    "new",
                    AtFlags::empty(),
                )),
                raw(rustix::fs::renameat(
                    CWD,
                    served.at("open/file"),
                    &inside,
                    "new",
                )),
                raw(rustix::fs::unlinkat(&inside, "file", AtFlags::empty())),
                raw(rustix::fs::unlinkat(&inside, "sub", AtFlags::REMOVEDIR)),
                raw(rustix::fs::renameat(&inside, "file", CWD, served.at("out"))),
                raw(rustix::fs::openat(
                    &inside,
                    ".",
                    OFlags::RDONLY,
                    Mode::empty(),
                )),
            ];
            assert_eq!(results, [libc::ENOENT; 10]);
            // A descriptor open for listing may show what the kernel has cached for all.
            if options != "cache=always" {
                let mut left = Dir::new(listing).unwrap();
                let is_dots = |name: &std::ffi::CStr| matches!(name.to_bytes(), b"." | b"..");
                let seen = left.find(|entry| !is_dots(entry.as_ref().unwrap().file_name()));
                assert!(seen.is_none(), "{seen:?}");
            }
            assert_eq!(names(&served.beneath("secret")), ["file", "sub"]);
            // And comes back.
            served.reload(NOTHING);
            assert_eq!((look("file"), look("sub/file")), (0, 0));
            assert_eq!(names(&served.at("secret")), ["file", "sub"]);
        });
    }
}

#[test]
fn cached_names_do_not_outlive_a_reload() {
    with_policy("cache=always", NOTHING, fill, |served| {
        for _ in 0..3 {
            assert_eq!(names(&served.at("open")), [".dot", "file", "hidden"]);
            assert_eq!(fs::read(served.at("open/.dot")).unwrap(), b"content");
            served.reload(POLICY);
            assert_eq!(errno(fs::metadata(served.at("open/.dot"))), libc::ENOENT);
            assert_eq!(errno(fs::metadata(served.at("secret/file"))), libc::ENOENT);
            assert_eq!(names(&served.at("open")), ["file"]);
            served.reload(NOTHING);
        }
    });
}

/// Mounts on directories of the mount survive a reload, unless it hides them.
#[test]
fn mounts_on_the_mount_outlive_a_reload() {
    for options in MODES {
        with_policy(options, NOTHING, fill, |served| {
            let mount = |at| {
                let mounted = Detach::tmpfs(served.at(at));
                fs::write(mounted.0.join("above"), b"others").unwrap();
                mounted
            };
            let is_there = |mounted: &Detach<PathBuf>| {
                fs::read(mounted.0.join("above")).is_ok_and(|content| content == b"others")
            };
            let (above, hidden) = (mount("empty"), mount("secret/sub"));
            assert!(is_there(&above) && is_there(&hidden));
            for _ in 0..3 {
                served.reload(POLICY);
                assert!(is_there(&above), "it is of no concern to the rules");
                assert_eq!(errno(fs::metadata(served.at("secret"))), libc::ENOENT);
                assert_eq!(errno(fs::metadata(served.at("open/.dot"))), libc::ENOENT);
                served.reload(NOTHING);
                assert!(is_there(&above), "neither is this");
                assert_eq!(fs::read(served.at("open/.dot")).unwrap(), b"content");
                assert_eq!(fs::read(served.at("secret/file")).unwrap(), b"content");
            }
            assert!(!is_there(&hidden), "a hidden directory is no place for it");
        });
    }
}

/// Nor does a listing in progress, which fills the kernel's cache.
#[test]
fn a_listing_made_while_names_were_hidden_does_not_outlive_that() {
    with_policy("cache=always", NOTHING, fill, |served| {
        let listing = File::open(served.at("open")).unwrap();
        served.reload(POLICY);
        let count = Dir::new(listing.try_clone().unwrap()).unwrap().count();
        assert_eq!(count, 3, "a file, and the directory and the one above");
        served.reload(NOTHING);
        assert_eq!(names(&served.at("open")), [".dot", "file", "hidden"]);
        drop(listing);
    });
}

#[test]
fn an_open_file_can_be_read_when_its_name_is_hidden() {
    with_policy("", NOTHING, fill, |served| {
        let file = File::open(served.at("secret/file")).unwrap();
        served.reload(POLICY);
        assert_eq!(std::io::read_to_string(&file).unwrap(), "content");
        let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        assert_eq!(errno(File::open(again)), libc::ENOENT);
    });
}
