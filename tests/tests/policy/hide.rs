//! What a reload hides is absent at once, whatever the kernel has cached.

use crate::served::{NOTHING, errno, names, put, with_policy};
use rustix::fs::Dir;
use thrufs_tests::prelude::*;

const POLICY: &str = "[[rule]]\npath = ['secret', '**/.*', '**/hidden']\naction = 'hide'\n";

fn fill(source: &Path) {
    for name in [
        "secret/file",
        "secret/sub/file",
        "open/file",
        "open/.dot",
        "empty/hidden",
    ] {
        put(source, name, b"content");
    }
    fs::hard_link(source.join("open/file"), source.join("open/hidden")).unwrap();
}

#[test]
fn cached_names_do_not_outlive_a_reload() {
    with_policy("cache=always", NOTHING, fill, |served| {
        for _ in 0..3 {
            assert_eq!(names(&served.at("open")), [".dot", "file", "hidden"]);
            assert_eq!(fs::read(served.at("open/.dot")).unwrap(), b"content");
            served.reload(POLICY);
            for hidden in ["open/.dot", "open/hidden", "secret/file", "secret/sub/file"] {
                assert_eq!(errno(fs::metadata(served.at(hidden))), libc::ENOENT);
            }
            assert_eq!(names(served.ground().mnt()), ["empty", "open"]);
            assert_eq!(names(&served.at("open")), ["file"]);
            assert_eq!(fs::read(served.at("open/file")).unwrap(), b"content");
            served.reload(NOTHING);
        }
    });
}

/// Mounts on directories of the mount survive a reload, unless it hides them.
#[test]
fn mounts_on_the_mount_outlive_a_reload() {
    for options in ["cache=never", "cache=auto", "cache=always"] {
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
                served.reload(NOTHING);
                assert!(is_there(&above), "neither is this");
                assert_eq!(fs::read(served.at("secret/file")).unwrap(), b"content");
            }
            assert!(!is_there(&hidden), "a hidden directory is no place for it");
        });
    }
}

/// It fills the kernel's cache.
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
