//! Each action, by each kind of access.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, XattrFlags};
use thrufs_testing::fence::truncate::truncate;
use thrufs_tests::property::timestamps;

use crate::served::{Served, errno, names, open, put, raw, rename, with_policy};

const SCRIPT: &[u8] = b"#!/bin/sh\nexit 0\n";

fn fill(source: &Path) {
    for directory in ["free", "held"] {
        put(source, format!("{directory}/file"), b"content");
        put(source, format!("{directory}/program"), SCRIPT);
        put(source, format!("{directory}/sub/inner"), b"inner");
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(source.join(directory).join("program"), executable).unwrap();
    }
}

fn chown(path: &Path) -> io::Result<()> {
    std::os::unix::fs::chown(path, Some(7), Some(7))
}

fn touch(path: &Path) -> io::Result<()> {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let times = timestamps(now.as_secs() as i64, 0);
    Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())?)
}

fn chmod(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o640))
}

const NAME: &CStr = c"user.thrufs";

fn set_attribute(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::setxattr(
        path,
        NAME,
        b"value",
        XattrFlags::empty(),
    )?)
}

fn remove_attribute(path: &Path) -> i32 {
    match raw(rustix::fs::removexattr(path, NAME)) {
        libc::ENODATA => 0,
        other => other,
    }
}

fn unnamed(directory: &Path) -> i32 {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    raw(rustix::fs::open(
        directory,
        flags,
        Mode::from_raw_mode(0o600),
    ))
}

/// The error of each way to open for reading.
fn reads(served: &Served) -> Vec<(&'static str, i32)> {
    let (file, program) = (served.at("held/file"), served.at("held/program"));
    let direct = libc::O_RDONLY | libc::O_DIRECT;
    vec![
        ("open", errno(open(&file, libc::O_RDONLY))),
        ("direct", errno(open(&file, direct))),
        ("exec", errno(Command::new(program).status())),
        ("inner", errno(open(&served.at("held/sub/inner"), 0))),
    ]
}

fn lists(served: &Served) -> Vec<(&'static str, i32)> {
    vec![
        ("opendir", errno(fs::read_dir(served.at("held")))),
        ("opendir below", errno(fs::read_dir(served.at("held/sub")))),
    ]
}

fn writes(served: &Served) -> Vec<(&'static str, i32)> {
    let file = served.at("held/file");
    let opened = |how, flags| (how, errno(open(&file, flags)));
    vec![
        opened("write", libc::O_WRONLY),
        opened("read and write", libc::O_RDWR),
        opened("append", libc::O_WRONLY | libc::O_APPEND),
        opened("truncating open", libc::O_WRONLY | libc::O_TRUNC),
        opened("opening creation", libc::O_WRONLY | libc::O_CREAT),
    ]
}

fn changes(served: &Served) -> Vec<(&'static str, i32)> {
    let file = served.at("held/file");
    let (free, away) = (served.at("free/file"), served.at("free/new"));
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let parent = File::open(served.ground().mnt()).unwrap();
    let below = served.at("held/sub");
    let none = RenameFlags::empty();
    assert!(rustix::fs::openat(parent.as_fd(), "free/file", flags, Mode::empty()).is_ok());
    vec![
        ("chmod", errno(chmod(&file))),
        ("chmod of a directory", errno(chmod(&below))),
        ("chown", errno(chown(&file))),
        ("utimes", errno(touch(&file))),
        ("truncate", errno(truncate(&file, 3))),
        ("setxattr", errno(set_attribute(&file))),
        ("removexattr", remove_attribute(&file)),
        ("setxattr of a directory", errno(set_attribute(&below))),
        ("rename away", rename(&file, &away, none)),
        ("rename within", rename(&file, &served.at("held/new"), none)),
        ("rename onto", rename(&free, &file, none)),
        ("exchange", rename(&free, &file, RenameFlags::EXCHANGE)),
        ("exchange back", rename(&file, &free, RenameFlags::EXCHANGE)),
        ("link away", errno(fs::hard_link(&file, &away))),
        ("unlink", errno(fs::remove_file(&file))),
        ("rmdir", errno(fs::remove_dir_all(&below))),
    ]
}

fn makes(served: &Served) -> Vec<(&'static str, i32)> {
    let new = served.at("held/new");
    let free = served.at("free/file");
    let node = |kind| raw(rustix::fs::mknodat(CWD, &new, kind, 0o644.into(), 0));
    let create = libc::O_RDWR | libc::O_CREAT;
    let none = RenameFlags::empty();
    vec![
        ("create", errno(open(&new, create))),
        ("create anew", errno(open(&new, create | libc::O_EXCL))),
        ("unnamed", unnamed(&served.at("held"))),
        ("mkdir", errno(fs::create_dir(&new))),
        ("mknod", node(FileType::RegularFile)),
        ("mkfifo", node(FileType::Fifo)),
        ("symlink", errno(std::os::unix::fs::symlink("file", &new))),
        ("link", errno(fs::hard_link(&free, &new))),
        ("rename to", rename(&free, &new, none)),
        (
            "rename to none",
            rename(&free, &new, RenameFlags::NOREPLACE),
        ),
        (
            "rename a directory to",
            rename(&served.at("free/sub"), &new, none),
        ),
    ]
}

#[track_caller]
fn all_are(expected: i32, results: &[(&str, i32)]) {
    let others: Vec<_> = results.iter().filter(|(_, got)| *got != expected).collect();
    assert!(others.is_empty(), "not {expected}: {others:?}");
}

/// Asserts that the tree beneath is as it was made.
#[track_caller]
fn is_untouched(served: &Served) {
    for directory in ["free", "held"] {
        let at = served.beneath(directory);
        assert_eq!(names(&at), ["file", "program", "sub"]);
        assert_eq!(fs::read(at.join("file")).unwrap(), b"content");
        assert_eq!(fs::read(at.join("sub/inner")).unwrap(), b"inner");
    }
    let file = served.beneath("held/file");
    let mode = fs::metadata(&file).unwrap().permissions();
    assert_eq!(mode.mode() & 0o7777, 0o644);
    let listed = rustix::fs::listxattr(&file, &mut [0_u8; 256]).unwrap();
    assert_eq!(listed, 0);
}

const MODES: [&str; 5] = [
    "cache=never",
    "cache=auto",
    "cache=always",
    "cache=auto,nopassthrough",
    "cache=auto,writeback",
];

fn over_modes(policy: &str, run: impl Fn(&Served)) {
    for options in MODES {
        with_policy(options, policy, fill, &run);
    }
}

#[test]
fn denied_files_are_listed_and_refuse_all_access() {
    for (name, number) in [("EACCES", libc::EACCES), ("ENXIO", libc::ENXIO)] {
        let policy =
            format!("[[rule]]\npath = ['held', 'held/**']\naction = 'deny'\nerrno = '{name}'\n");
        over_modes(&policy, |served| {
            all_are(number, &reads(served));
            all_are(number, &lists(served));
            all_are(number, &writes(served));
            all_are(number, &changes(served));
            all_are(number, &makes(served));
            let stat = fs::metadata(served.at("held/file")).unwrap();
            assert_eq!(stat.len(), 7);
            assert_eq!(names(served.ground().mnt()), ["free", "held"]);
            is_untouched(served);
        });
    }
}

#[test]
fn read_only_files_refuse_every_change() {
    let policy = "[[rule]]\npath = 'held/**'\naction = 'read-only'\n";
    over_modes(policy, |served| {
        all_are(0, &reads(served));
        all_are(0, &lists(served));
        all_are(libc::EROFS, &writes(served));
        all_are(libc::EROFS, &changes(served));
        all_are(libc::EROFS, &makes(served));
        assert_eq!(fs::read(served.at("held/file")).unwrap(), b"content");
        is_untouched(served);
    });
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
    let policy = "[[rule]]\npath = 'held/**'\naction = 'read-only'\n";
    thrufs_tests::transport::over_each(|transport| {
        let lower = thrufs_tests::lower::Lower::Ext4;
        let served = Served::start_on(lower, transport, "", policy, fill);
        let set = |path: &str| {
            let file = File::open(served.at(path)).unwrap();
            // With those that it has: without extents, ext4 would have to convert it.
            let flags = rustix::fs::ioctl_getflags(&file).unwrap();
            let flags = flags | rustix::fs::IFlags::NODUMP;
            raw(rustix::fs::ioctl_setflags(&file, flags))
        };
        assert_eq!(set("held/file"), libc::EROFS);
        assert_eq!(set("held/sub"), libc::EROFS);
        assert_eq!(set("free/file"), 0);
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
