//! `.` and `..`, by which a client finds its way from a file handle. A kernel asks for them only where it
//! exports the mount, a hostile client anywhere.

use super::{ROOT, Served, beneath, config, is_root, serve};
use thrufs_hostdir::Config;
use thrufs_tests::prelude::*;

fn exported() -> Config {
    config(|it| it.export = true)
}

fn up(served: &Served, node: NodeId) -> thrufs::Result<NodeId> {
    let parent = served.root().lookup(node, b"..")?;
    Ok(NodeId(parent.nodeid))
}

#[test]
fn a_directory_that_left_the_tree_has_no_parents() {
    let served = serve(exported());
    let root = served.root();
    let outside = tempfile::tempdir_in(served.directory.path().parent().unwrap()).unwrap();
    for place in ["a/b/c", "a/x/y/z"] {
        fs::create_dir_all(served.path(place)).unwrap();
    }
    fs::create_dir_all(outside.path().join("deep/er")).unwrap();
    let (a, b) = (root.walk("a").unwrap(), root.walk("a/b").unwrap());
    let c = root.walk("a/b/c").unwrap();
    let inodes = || served.statistics().inodes;
    let known = inodes();
    let beside = served.directory.path().with_extension("beside");
    for away in [
        outside.path().join("gone"),
        outside.path().join("deep/er/gone"),
        beside,
    ] {
        fs::rename(served.path("a/b"), &away).unwrap();
        // Its own parent lies outside; its child's, itself, does too.
        assert_eq!(up(&served, b), Err(Errno::ESTALE), "{away:?}");
        assert_eq!(up(&served, c), Err(Errno::ESTALE), "{away:?}");
        fs::rename(&away, served.path("a/b")).unwrap();
        assert_eq!(up(&served, b), Ok(a));
        assert_eq!(up(&served, c), Ok(b));
    }
    assert_eq!(inodes(), known, "nothing outside has become known");
    // The present parent, at any depth.
    fs::rename(served.path("a/b"), served.path("b")).unwrap();
    assert_eq!(up(&served, b), Ok(ROOT));
    assert_eq!(up(&served, c), Ok(b));
    fs::rename(served.path("b"), served.path("a/x/y/z/b")).unwrap();
    let z = root.walk("a/x/y/z").unwrap();
    assert_eq!(up(&served, b), Ok(z));
}

#[test]
fn only_directories_have_parents() {
    let served = serve(exported());
    let root = served.root();
    let file = served.file("file", b"x");
    assert_eq!(up(&served, file), Err(Errno::ENOTDIR));
    assert_eq!(root.lookup(file, b".").unwrap().nodeid, file.0);
    for stale in [NodeId(0), NodeId(u64::MAX), NodeId(file.0 | 1 << 40)] {
        assert_eq!(up(&served, stale), Err(Errno::ESTALE));
        assert_eq!(root.lookup(stale, b".").map(drop), Err(Errno::ESTALE));
    }
    assert_eq!(up(&served, ROOT), Ok(ROOT));
    assert_eq!(root.lookup(ROOT, b".").unwrap().nodeid, ROOT.0);
}

/// The parent of a submount's root is on another mount: once it was stored under the submount's number,
/// where its handle means another file or none.
#[test]
fn the_parent_of_a_submount_is_its_mount_point_s() {
    skip_if!(!is_root());
    // So that every walk uses handles.
    let served = serve(config(|it| {
        it.export = true;
        it.descriptor_budget = Some(0);
    }));
    let root = served.root();
    fs::create_dir_all(served.path("above/on")).unwrap();
    served.write("above/file", b"above");
    let mounted = beneath::tmpfs(&served.path("above/on"));
    fs::create_dir_all(served.path("above/on/inner/on")).unwrap();
    let second = beneath::tmpfs(&served.path("above/on/inner/on"));
    fs::create_dir(served.path("above/on/inner/on/last")).unwrap();
    let nodes = [
        "",
        "above",
        "above/on",
        "above/on/inner",
        "above/on/inner/on",
        "above/on/inner/on/last",
    ]
    .map(|path| root.walk(path).unwrap());
    for pair in nodes.windows(2).rev() {
        let parent = root.lookup(pair[1], b"..").unwrap();
        assert_eq!(NodeId(parent.nodeid), pair[0]);
        let attributes = root.getattr(pair[0]).unwrap().attr;
        assert_eq!(parent.attr.ino, attributes.ino);
    }
    // Also one that was not known yet.
    for node in nodes[1..5].iter().rev() {
        root.forget(*node, u64::MAX);
    }
    let above = up(&served, nodes[2]).unwrap();
    assert_eq!(root.lookup(above, b"file").unwrap().attr.size, 5);
    root.create(above, b"new", libc::O_RDWR, 0o644).unwrap();
    assert!(served.path("above/new").exists());
    drop((second, mounted));
    drop(served.client);
}
