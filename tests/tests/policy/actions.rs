//! Each action, by each kind of access.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, RenameFlags};

use crate::cases;
use crate::served::{Served, errno, open, put, raw, rename, with_policy};

fn chmod(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o640))
}

#[track_caller]
fn all_are(expected: i32, results: &[(&str, i32)]) {
    let others: Vec<_> = results.iter().filter(|(_, got)| *got != expected).collect();
    assert!(others.is_empty(), "not {expected}: {others:?}");
}

const MODES: [&str; 5] = [
    "cache=never",
    "cache=auto",
    "cache=always",
    "cache=auto,nopassthrough",
    "cache=auto,writeback",
];

#[test]
fn each_call_is_answered_by_the_rules() {
    for options in MODES {
        with_policy(options, cases::RULES, cases::fill, |served| {
            cases::all_are_answered(served.ground().source(), |case| {
                Some((cases::by_call(served.ground().mnt(), case), String::new()))
            });
            let stat = fs::metadata(served.at("shut/x")).unwrap();
            assert_eq!(stat.len(), 7, "{options}");
        });
    }
}

/// Actions that choose the data path change nothing else.
#[test]
fn data_paths_are_as_rules_say() {
    let rules = |names: &[&str]| -> String {
        let rule = |name: &&str| format!("[[rule]]\npath = '{name}'\naction = '{name}'\n");
        names.iter().map(rule).collect()
    };
    let all = ["passthrough", "cached", "direct"];
    let policy = rules(&all);
    let fill = |source: &Path| {
        for name in ["passthrough", "cached", "direct", "other"] {
            put(source, name, b"content");
        }
    };
    for (options, ways) in [
        ("cache=auto", all),
        ("cache=always", all),
        ("cache=never", ["passthrough", "direct", "direct"]),
        ("cache=auto,nopassthrough", ["cached", "cached", "direct"]),
    ] {
        with_policy(options, &policy, fill, |served| {
            assert_eq!(served.way("other"), ways[0], "{options}");
            for (name, way) in all.into_iter().zip(ways) {
                assert_eq!(served.way(name), way, "{options}");
                let file = open(&served.at(name), libc::O_RDWR).unwrap();
                assert_eq!(served.way(name), way, "{options}, open");
                io::Write::write_all(&mut &file, b"CON").unwrap();
                drop(file);
                assert_eq!(fs::read(served.beneath(name)).unwrap(), b"CONtent");
                assert_eq!(fs::read(served.at(name)).unwrap(), b"CONtent");
                let rule = served.explain(name)["rule"].to_string();
                assert!(rule.contains("rule "), "{rule}");
            }
            let default = format!("default = 'direct'\n{policy}");
            served.reload(&default);
            assert_eq!(served.way("other"), "direct", "{options}");
        });
    }
}

/// Rules on content hold for changes too.
#[test]
fn rules_on_content_apply_to_changes() {
    let policy = "[[rule]]\ncontent = 'image/png'\naction = 'deny'\n";
    let fill = |source: &Path| {
        put(source, "text", b"just words");
        put(source, "other", b"more words");
        put(source, "picture", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    };
    with_policy("", policy, fill, |served| {
        let text = served.at("text");
        chmod(&text).unwrap();
        fs::hard_link(&text, served.at("second")).unwrap();
        assert_eq!(rename(&text, &served.at("third"), RenameFlags::empty()), 0);
        assert_eq!(
            rename(
                &served.at("other"),
                &served.at("third"),
                RenameFlags::empty()
            ),
            0
        );
        fs::remove_file(served.at("third")).unwrap();
        fs::write(served.at("second"), b"again").unwrap();
        let picture = served.at("picture");
        let results = [
            ("open", errno(File::open(&picture))),
            ("chmod", errno(chmod(&picture))),
            ("link", errno(fs::hard_link(&picture, served.at("fourth")))),
            (
                "rename",
                rename(&picture, &served.at("fifth"), RenameFlags::empty()),
            ),
            (
                "rename onto",
                rename(&served.at("second"), &picture, RenameFlags::empty()),
            ),
            ("unlink", errno(fs::remove_file(&picture))),
        ];
        all_are(libc::EACCES, &results);
    });
}

/// Inode flags are attributes: a read-only file keeps them, although a descriptor for reading can set them.
#[test]
fn inode_flags_of_read_only_files_stay() {
    let policy = "[[rule]]\npath = 'kept/**'\naction = 'read-only'\n";
    thrufs_tests::transport::over_each(|transport| {
        let lower = thrufs_tests::lower::Lower::Ext4;
        let served = Served::start_on(lower, transport, "", policy, cases::fill);
        let set = |path: &str| {
            let file = File::open(served.at(path)).unwrap();
            // With those that it has: without extents, ext4 would have to convert it.
            let flags = rustix::fs::ioctl_getflags(&file).unwrap();
            let flags = flags | rustix::fs::IFlags::NODUMP;
            raw(rustix::fs::ioctl_setflags(&file, flags))
        };
        assert_eq!(set("kept/x"), libc::EROFS);
        assert_eq!(set("kept/sub"), libc::EROFS);
        assert_eq!(set("free/x"), 0);
        served.stop();
    });
}

fn with_umask<T: Send>(mask: u32, run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let ran = scope.spawn(|| {
            thrufs_testing::fence::umask::private_umask().unwrap();
            rustix::process::umask(Mode::from_raw_mode(mask));
            run()
        });
        ran.join().unwrap()
    })
}

/// A new file is judged by the owner and mode that it will have.
#[test]
fn new_files_are_judged_by_their_future_attributes() {
    let policy = "[[rule]]\ntype = 'file'\nmode = 'o+w'\naction = 'deny'\nerrno = 'EPERM'\n\
         [[rule]]\ngroup = 4242\naction = 'deny'\nerrno = 'EXDEV'\n"
        .replace("EXDEV", "EBUSY");
    let fill = |source: &Path| {
        fs::create_dir(source.join("given")).unwrap();
        let given = source.join("given");
        std::os::unix::fs::chown(&given, None, Some(4242)).unwrap();
        fs::set_permissions(&given, fs::Permissions::from_mode(0o2777)).unwrap();
    };
    with_policy("", &policy, fill, |served| {
        let make = |name: &str, mode: u32| {
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
            raw(rustix::fs::open(
                served.at(name),
                flags,
                Mode::from_raw_mode(mode),
            ))
        };
        // With the usual umask, only the owner may write it.
        let made = with_umask(0o022, || make("masked", 0o666));
        assert_eq!(made, 0);
        let made = with_umask(0, || make("open", 0o666));
        assert_eq!(made, libc::EPERM);
        assert_eq!(make("given/file", 0o600), libc::EBUSY);
    });
}
