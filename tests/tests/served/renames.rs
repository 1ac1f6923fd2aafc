//! RENAME requests that no kernel sends: a kernel looks up the new name first, and checks both types and
//! the flags. Here the server is alone.

use super::rules::with;
use super::{ROOT, Served, beneath, is_root, serve, serve_in};
use std::os::unix::fs::FileTypeExt;
use thrufs_hostdir::{Config, Resources};
use thrufs_tests::prelude::*;

const NOREPLACE: u32 = libc::RENAME_NOREPLACE;
const EXCHANGE: u32 = libc::RENAME_EXCHANGE;
const WHITEOUT: u32 = libc::RENAME_WHITEOUT;

/// Serves `a`, `b` and directories: plainly, under a policy, and on an overlay, without file handles.
fn on_each(test: impl Fn(&Served)) {
    let fill = |served: &Served| {
        served.write("a", b"of a");
        served.write("b", b"of b");
        fs::create_dir_all(served.path("dir/sub")).unwrap();
        served.write("dir/inner", b"inner");
        fs::create_dir(served.path("empty")).unwrap();
    };
    // Under a policy, renames take another path.
    let policy = with("[[rule]]\npath = 'denied'\naction = 'deny'\n");
    for resources in [Resources::default(), policy] {
        let served = serve(resources);
        fill(&served);
        test(&served);
    }
    beneath::on_overlay(Config::default(), |served| {
        fill(served);
        test(served);
    });
}

/// The tree beneath, with its content.
fn picture(served: &Served) -> Vec<(String, Vec<u8>)> {
    let mut picture = Vec::new();
    for directory in ["", "dir", "dir/sub", "empty"] {
        let Ok(entries) = fs::read_dir(served.path(directory)) else {
            continue;
        };
        for entry in entries.map(Result::unwrap) {
            let path = entry.path();
            let content = fs::read(&path).unwrap_or_default();
            picture.push((path.display().to_string(), content));
        }
    }
    picture.sort();
    picture
}

#[test]
fn what_is_there_is_not_replaced() {
    on_each(|served| {
        let root = served.root();
        let dir = root.walk("dir").unwrap();
        let before = picture(served);
        for (from, to) in [
            ((ROOT, &b"a"[..]), (ROOT, &b"b"[..])),
            ((ROOT, b"a"), (dir, b"inner")),
            ((ROOT, b"a"), (ROOT, b"empty")),
            ((ROOT, b"empty"), (dir, b"sub")),
            ((ROOT, b"empty"), (ROOT, b"a")),
            ((ROOT, b"a"), (ROOT, b"a")),
        ] {
            let refused = root.rename(from, to, NOREPLACE);
            assert_eq!(refused, Err(Errno::EEXIST), "{from:?} {to:?}");
            assert_eq!(picture(served), before, "{from:?} {to:?}");
        }
        root.rename((ROOT, b"a"), (dir, b"new"), NOREPLACE).unwrap();
        assert_eq!(fs::read(served.path("dir/new")).unwrap(), b"of a");
        assert!(!served.path("a").exists());
    });
}

#[test]
fn exchanged_files_are_each_under_the_name_of_the_other() {
    on_each(|served| {
        let root = served.root();
        let (a, b) = (root.walk("a").unwrap(), root.walk("b").unwrap());
        let dir = root.walk("dir").unwrap();
        root.rename((ROOT, b"a"), (ROOT, b"b"), EXCHANGE).unwrap();
        assert_eq!(fs::read(served.path("a")).unwrap(), b"of b");
        assert_eq!(fs::read(served.path("b")).unwrap(), b"of a");
        let of = |name: &str| NodeId(root.lookup(ROOT, name.as_bytes()).unwrap().nodeid);
        assert_eq!((of("a"), of("b")), (b, a));
        // A file with a directory; each node leads to what it was.
        root.rename((ROOT, b"a"), (ROOT, b"dir"), EXCHANGE).unwrap();
        assert_eq!((of("a"), of("dir")), (dir, b));
        assert_eq!(root.getattr(b).unwrap().attr.size, 4);
        assert_eq!(fs::read(served.path("a/inner")).unwrap(), b"inner");
        assert!(root.lookup(dir, b"inner").is_ok());
        // Both must be there, and one must not lie in the other.
        let before = picture(served);
        let sub = root.walk("a/sub").unwrap();
        for (from, to, errno) in [
            ((ROOT, &b"a"[..]), (ROOT, &b"none"[..]), Errno::ENOENT),
            ((ROOT, b"none"), (ROOT, b"a"), Errno::ENOENT),
            ((ROOT, b"a"), (dir, b"sub"), Errno::EINVAL),
            ((dir, b"sub"), (ROOT, b"a"), Errno::EINVAL),
            ((ROOT, b"a"), (sub, b"x"), Errno::ENOENT),
        ] {
            let refused = root.rename(from, to, EXCHANGE).unwrap_err();
            // The lower file system chooses between two errors.
            assert!([errno, Errno::EINVAL].contains(&refused), "{refused}");
            assert_eq!(picture(served), before);
        }
    });
}

#[test]
fn flags_that_make_no_sense_together_change_nothing() {
    on_each(|served| {
        let root = served.root();
        let before = picture(served);
        let unknown = (3..32).map(|bit| 1 << bit);
        let three = NOREPLACE | EXCHANGE | WHITEOUT;
        let together = [NOREPLACE | EXCHANGE, WHITEOUT | EXCHANGE, three, u32::MAX];
        for flags in unknown.chain(together) {
            for to in [&b"b"[..], b"new", b"a"] {
                let refused = root.rename((ROOT, b"a"), (ROOT, to), flags);
                assert_eq!(refused, Err(Errno::EINVAL), "{flags:#x}");
            }
            assert_eq!(picture(served), before, "{flags:#x}");
        }
    });
}

#[test]
fn a_whiteout_is_left_behind_and_is_the_callers() {
    skip_if!(!is_root());
    let directory = tempfile::tempdir().unwrap();
    let tmpfs = beneath::tmpfs(directory.path());
    let served = serve_in(directory, Config::default());
    served.write("a", b"of a");
    let user = served.user(1001, 1002);
    user.rename((ROOT, b"a"), (ROOT, b"b"), WHITEOUT).unwrap();
    assert_eq!(fs::read(served.path("b")).unwrap(), b"of a");
    let left = fs::symlink_metadata(served.path("a")).unwrap();
    assert!(left.file_type().is_char_device() && left.rdev() == 0);
    assert_eq!((left.uid(), left.gid()), (1001, 1002));
    drop((served.client, tmpfs));
}

#[test]
fn a_rename_onto_itself_does_nothing() {
    on_each(|served| {
        let root = served.root();
        let before = picture(served);
        for (name, flags) in [(&b"a"[..], 0), (b"dir", 0), (b"a", EXCHANGE)] {
            root.rename((ROOT, name), (ROOT, name), flags).unwrap();
            assert_eq!(picture(served), before);
        }
        // Two names of one file: both stay.
        fs::hard_link(served.path("a"), served.path("link")).unwrap();
        let before = picture(served);
        root.rename((ROOT, b"a"), (ROOT, b"link"), 0).unwrap();
        assert_eq!(picture(served), before);
    });
}

#[test]
fn directories_and_files_do_not_replace_each_other() {
    on_each(|served| {
        let root = served.root();
        let (dir, sub) = (root.walk("dir").unwrap(), root.walk("dir/sub").unwrap());
        let before = picture(served);
        for (from, to, errno) in [
            ((ROOT, &b"a"[..]), (ROOT, &b"empty"[..]), Errno::EISDIR),
            ((ROOT, b"empty"), (ROOT, b"a"), Errno::ENOTDIR),
            ((ROOT, b"empty"), (ROOT, b"dir"), Errno::ENOTEMPTY),
            // Into what lies beneath, and onto what lies above.
            ((ROOT, b"dir"), (dir, b"x"), Errno::EINVAL),
            ((ROOT, b"dir"), (sub, b"x"), Errno::EINVAL),
            ((ROOT, b"dir"), (dir, b"sub"), Errno::EINVAL),
            ((dir, b"sub"), (ROOT, b"dir"), Errno::ENOTEMPTY),
            ((ROOT, b"none"), (ROOT, b"b"), Errno::ENOENT),
        ] {
            let refused = root.rename(from, to, 0);
            assert_eq!(refused, Err(errno), "{from:?} {to:?}");
            assert_eq!(picture(served), before);
        }
        root.rename((dir, b"sub"), (ROOT, b"empty"), 0).unwrap();
        assert!(!served.path("dir/sub").exists() && served.path("empty").exists());
    });
}

#[test]
fn parents_that_are_none() {
    on_each(|served| {
        let root = served.root();
        let (a, dir) = (root.walk("a").unwrap(), root.walk("empty").unwrap());
        fs::remove_dir(served.path("empty")).unwrap();
        root.forget(dir, 1);
        let before = picture(served);
        for flags in [0, NOREPLACE, EXCHANGE] {
            for (parent, errno) in [
                (a, Errno::ENOTDIR),
                (dir, Errno::ESTALE),
                (NodeId(0), Errno::ESTALE),
                (NodeId(u64::MAX), Errno::ESTALE),
            ] {
                let there = root.rename((ROOT, b"b"), (parent, b"x"), flags);
                assert_eq!(there, Err(errno), "{parent:?}");
                let back = root.rename((parent, b"x"), (ROOT, b"b"), flags);
                assert_eq!(back, Err(errno), "{parent:?}");
            }
        }
        assert_eq!(picture(served), before);
    });
}

#[test]
fn nothing_is_renamed_across_mounts() {
    skip_if!(!is_root());
    let served = serve(Config::default());
    for name in ["on", "dir"] {
        fs::create_dir(served.path(name)).unwrap();
    }
    served.write("a", b"of a");
    let mounted = beneath::tmpfs(&served.path("on"));
    served.write("on/b", b"of b");
    let root = served.root();
    let on = root.walk("on").unwrap();
    for flags in [0, NOREPLACE, EXCHANGE] {
        let crossing = root.rename((ROOT, b"a"), (on, b"b"), flags);
        assert_eq!(crossing, Err(Errno::EXDEV));
        let crossing = root.rename((on, b"b"), (ROOT, b"a"), flags);
        assert_eq!(crossing, Err(Errno::EXDEV));
    }
    let linked = root.link(root.walk("a").unwrap(), on, b"l").map(drop);
    assert_eq!(linked, Err(Errno::EXDEV));
    // Mount points stay where they are.
    let busy = [
        root.rename((ROOT, b"on"), (ROOT, b"x"), 0),
        root.rename((ROOT, b"dir"), (ROOT, b"on"), 0),
        root.rename((ROOT, b"dir"), (ROOT, b"on"), EXCHANGE),
        root.rmdir(ROOT, b"on"),
    ];
    assert_eq!(busy, [Err(Errno::EBUSY); 4]);
    assert_eq!(fs::read(served.path("a")).unwrap(), b"of a");
    assert_eq!(fs::read(served.path("on/b")).unwrap(), b"of b");
    drop((served.client, mounted));
}

#[test]
fn a_replaced_file_can_still_be_opened_by_its_node() {
    on_each(|served| {
        let root = served.root();
        let b = root.walk("b").unwrap();
        root.rename((ROOT, b"a"), (ROOT, b"b"), 0).unwrap();
        let fh = root.open(b, libc::O_RDONLY).unwrap().fh;
        assert_eq!(root.read(b, fh, 0, 10).unwrap(), b"of b");
        root.release(b, fh).unwrap();
    });
}
