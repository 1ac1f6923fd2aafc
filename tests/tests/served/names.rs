//! Names, in every operation that takes one.

use super::{ROOT, Served, serve};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use thrufs::Result;
use thrufs_hostdir::Config;
use thrufs_tests::prelude::*;

/// Every operation that takes the name of a file, with `name` in each of its places. `there` is the name
/// of a file in the root.
fn each(served: &Served, there: &[u8], name: &[u8]) -> Vec<(&'static str, Result<()>)> {
    let root = served.root();
    let node = NodeId(root.lookup(ROOT, there).unwrap().nodeid);
    let found = root
        .lookup(ROOT, name)
        .and_then(|entry| match entry.nodeid {
            0 => Err(Errno::ENOENT),
            _ => Ok(()),
        });
    vec![
        ("lookup", found),
        ("unlink", root.unlink(ROOT, name)),
        ("rmdir", root.rmdir(ROOT, name)),
        ("rename from", root.rename((ROOT, name), (ROOT, there), 0)),
        ("rename to", root.rename((ROOT, there), (ROOT, name), 0)),
        ("rename back", root.rename((ROOT, name), (ROOT, there), 0)),
        ("link", root.link(node, ROOT, name).map(drop)),
        ("unlink the link", root.unlink(ROOT, name)),
        ("mkdir", root.mkdir(ROOT, name, 0o755).map(drop)),
        ("rmdir the directory", root.rmdir(ROOT, name)),
        ("mknod", root.mknod(ROOT, name, libc::S_IFREG, 0).map(drop)),
        ("unlink the node", root.unlink(ROOT, name)),
        ("symlink", root.symlink(ROOT, name, b"target").map(drop)),
        ("unlink the symlink", root.unlink(ROOT, name)),
        ("create", root.create(ROOT, name, libc::O_RDWR, 0).map(drop)),
        ("unlink the file", root.unlink(ROOT, name)),
    ]
}

fn names(served: &Served) -> BTreeSet<Vec<u8>> {
    let entries = fs::read_dir(served.directory.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().as_bytes().to_vec());
    names.collect()
}

#[test]
fn invalid_names_are_refused_everywhere() {
    let served = serve(Config::default());
    for name in ["there", "x", "a"] {
        served.write(name, b"content");
    }
    fs::create_dir(served.path("dir")).unwrap();
    let before = names(&served);
    use Errno as E;
    let long = [b'x'; 4096];
    let bad: [(&[&[u8]], &[E]); 4] = [
        (
            &[b".", b"..", b"/", b"/x", b"x/", b"dir/x", b"../x"],
            &[E::EINVAL],
        ),
        // What a request cannot hold.
        (&[b"", b"a\0b", b"\0"], &[E::EINVAL, E::EIO]),
        (&[&long[..256], &long[..4095]], &[E::ENAMETOOLONG]),
        (&[&long], &[E::EINVAL, E::ENAMETOOLONG]),
    ];
    let named = bad
        .iter()
        .flat_map(|(names, errors)| names.iter().map(move |name| (*name, errors)));
    for (name, errors) in named {
        for (operation, answer) in each(&served, b"there", name) {
            let error = answer.expect_err(operation);
            let shown = name.escape_ascii();
            assert!(errors.contains(&error), "{operation} \"{shown}\": {error}");
            assert_eq!(names(&served), before, "{operation} \"{shown}\"");
        }
    }
    assert_eq!(fs::read(served.path("there")).unwrap(), b"content");
}

#[test]
fn every_other_name_is_as_good_as_another() {
    let served = serve(Config::default());
    served.write("there", b"content");
    let all: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
    let longest = [0xff; 255];
    let good: [&[u8]; 8] = [
        &all,
        &longest,
        b"...",
        b". ",
        b"..x",
        b"\xff\xfe",
        b"\\",
        b"\n",
    ];
    for name in good {
        for (operation, answer) in each(&served, b"there", name) {
            let expected = match operation {
                "lookup" | "unlink" | "rmdir" | "rename from" => Err(Errno::ENOENT),
                _ => Ok(()),
            };
            let shown = name.escape_ascii();
            assert_eq!(answer, expected, "{operation} \"{shown}\"");
        }
        let root = served.root();
        fs::write(served.directory.path().join(OsStr::from_bytes(name)), b"x").unwrap();
        assert_ne!(root.lookup(ROOT, name).unwrap().nodeid, 0);
        let listed = root.list(ROOT, true).unwrap();
        assert!(listed.iter().any(|entry| entry.name == name));
        root.unlink(ROOT, name).unwrap();
    }
}

#[test]
fn names_of_attributes() {
    let served = serve(Config::default());
    let (root, node) = (served.root(), served.file("file", b""));
    let long = [b"user.".as_slice(), &[b'x'; 251]].concat();
    let bad: [&[u8]; 6] = [b"", b"user.a\0b", b"user", b"user.", &long, &[b'x'; 4096]];
    for name in bad {
        let answers = [
            root.setxattr(node, name, b"value", 0),
            root.getxattr(node, name).map(drop),
            root.removexattr(node, name),
        ];
        assert!(
            answers.iter().all(Result::is_err),
            "{}",
            name.escape_ascii()
        );
    }
    assert_eq!(root.listxattr(node), Ok(Vec::new()));
    let longest = [b"user.".as_slice(), &[0xff; 250]].concat();
    root.setxattr(node, &longest, b"value", 0).unwrap();
    assert_eq!(root.getxattr(node, &longest).unwrap(), b"value");
    let huge = vec![0; 70_000];
    assert!(root.setxattr(node, b"user.a", &huge, 0).is_err());
    for (flags, expected) in [
        (libc::XATTR_CREATE as u32, Err(Errno::EEXIST)),
        (libc::XATTR_REPLACE as u32, Ok(())),
        (1 << 30, Err(Errno::EINVAL)),
        (u32::MAX, Err(Errno::EINVAL)),
    ] {
        let set = root.setxattr(node, &longest, b"value", flags);
        assert_eq!(set, expected, "{flags:#x}");
    }
    root.removexattr(node, &longest).unwrap();
}

#[test]
fn targets_of_links() {
    let served = serve(Config::default());
    let root = served.root();
    let long = [b'x'; 4096];
    for (target, errno) in [(&b""[..], Errno::ENOENT), (&long, Errno::ENAMETOOLONG)] {
        let made = root.symlink(ROOT, b"link", target).map(drop);
        assert_eq!(made, Err(errno));
        assert!(fs::symlink_metadata(served.path("link")).is_err());
    }
    let most: Vec<u8> = (1..=255).cycle().take(4095).collect();
    let node = NodeId(root.symlink(ROOT, b"link", &most).unwrap().nodeid);
    assert_eq!(root.readlink(node).unwrap(), most);
}
