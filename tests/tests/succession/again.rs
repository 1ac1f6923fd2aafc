//! A request that a dead server may have carried out is replayed: the caller gets the answer that the dead
//! one would have given.

use crate::ground::{Server, Way, config_for, mounted};
use std::fs::Permissions;
use thrufs_abi::layout::{CreateIn, LinkIn, MkdirIn, MknodIn, Rename2In, SetxattrIn};
use thrufs_abi::{Reply, RequestBuilder};
use thrufs_testing::Caller;
use thrufs_tests::prelude::*;

type Disturb = fn(&Path);

/// What there is: `dir`, `file` with an extended attribute, and `link` that leads to it.
fn filled(source: &Path) {
    fs::create_dir(source.join("dir")).unwrap();
    fs::write(source.join("file"), "content").unwrap();
    symlink("file", source.join("link")).unwrap();
}

/// Each of these changes its change time, as any user may.
fn touch_dir(source: &Path) {
    fs::write(source.join("dir/other"), "").unwrap();
}

fn touch_file(source: &Path) {
    fs::set_permissions(source.join("file"), Permissions::from_mode(0o640)).unwrap();
}

fn touch_link(source: &Path) {
    fs::hard_link(source.join("link"), source.join("link-too")).unwrap();
}

fn touch_root(source: &Path) {
    fs::write(source.join("other"), "").unwrap();
}

/// A request in the root, or about an attribute of `file`.
fn request(root: &Caller<'_, &Server>, words: &str) -> RequestBuilder {
    let file = root.walk("file").unwrap();
    let in_root = |opcode| root.request(opcode, NodeId::ROOT);
    let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
    match words[..] {
        [b"mkdir", name] => in_root(Opcode::Mkdir)
            .arg(&MkdirIn {
                mode: 0o755,
                umask: 0,
            })
            .name(name),
        [b"mknod", name] => in_root(Opcode::Mknod)
            .arg(&MknodIn {
                mode: libc::S_IFREG | 0o600,
                ..MknodIn::default()
            })
            .name(name),
        [b"create", name] => in_root(Opcode::Create)
            .arg(&CreateIn {
                flags: (libc::O_RDWR | libc::O_CREAT | libc::O_EXCL) as u32,
                mode: libc::S_IFREG | 0o600,
                ..CreateIn::default()
            })
            .name(name),
        [b"symlink", name] => in_root(Opcode::Symlink).name(name).name(b"file"),
        [b"link", name] => in_root(Opcode::Link)
            .arg(&LinkIn { oldnodeid: file.0 })
            .name(name),
        [b"unlink", name] => in_root(Opcode::Unlink).name(name),
        [b"rmdir", name] => in_root(Opcode::Rmdir).name(name),
        [b"rename", old, new] => in_root(Opcode::Rename2)
            .arg(&Rename2In {
                newdir: NodeId::ROOT.0,
                ..Rename2In::default()
            })
            .name(old)
            .name(new),
        [b"setxattr", name] => root
            .request(Opcode::Setxattr, file)
            .arg(&SetxattrIn {
                size: 5,
                // XATTR_CREATE
                flags: 1,
                ..SetxattrIn::default()
            })
            .name(name)
            .bytes(b"value"),
        [b"removexattr", name] => root.request(Opcode::Removexattr, file).name(name),
        _ => panic!("no such request"),
    }
}

/// The errors of the first server and of the next one, with changes by others in between; the first may die
/// before it does anything.
fn asked_twice(words: &str, disturb: Disturb, is_done: bool) -> (i32, i32) {
    let ground = Ground::prepare(Lower::Default).unwrap();
    let source = ground.source();
    filled(source);
    let server = Server::new(source, config_for(Way::Death));
    let client = mounted(&server);
    let root = client.root();
    let file = root.walk("file").unwrap();
    root.setxattr(file, b"user.old", b"value", 0).unwrap();
    let error = |reply: &[u8]| -Reply::parse(reply).unwrap().error;
    let request = request(&root, words).finish();
    let begun = server.begin(&request);
    let first = is_done.then(|| error(&client.transact(&request).unwrap()));
    disturb(source);
    server.died();
    let second = error(&server.answer_again(&request, begun));
    (first.unwrap_or(second), second)
}

#[test]
fn replayed_requests_fail_as_before_whatever_changed() {
    let cases: [(&str, Disturb, Errno); 10] = [
        ("mkdir dir", touch_dir, Errno::EEXIST),
        ("mknod file", touch_file, Errno::EEXIST),
        ("symlink link", touch_link, Errno::EEXIST),
        ("link file", touch_file, Errno::EEXIST),
        ("create file", touch_file, Errno::EEXIST),
        ("unlink no", touch_root, Errno::ENOENT),
        ("rmdir no", touch_root, Errno::ENOENT),
        ("rename no dir", touch_dir, Errno::ENOENT),
        ("setxattr user.old", touch_file, Errno::EEXIST),
        ("removexattr user.no", touch_file, Errno::ENODATA),
    ];
    for (words, disturb, errno) in cases {
        let answers = asked_twice(words, disturb, true);
        assert_eq!(answers, (errno.raw(), errno.raw()), "{words}");
    }
}

#[test]
fn replayed_requests_that_were_done_succeed() {
    let cases: [(&str, Disturb); 10] = [
        ("mkdir new", |source| {
            fs::write(source.join("new/other"), "").unwrap();
        }),
        ("mknod new", touch_root),
        ("symlink new", touch_root),
        ("link new", touch_root),
        ("create new", touch_root),
        ("unlink file", touch_root),
        ("rmdir dir", |source| assert!(!source.join("dir").exists())),
        ("rename dir new", touch_root),
        ("setxattr user.new", touch_file),
        ("removexattr user.old", touch_file),
    ];
    for (words, disturb) in cases {
        assert_eq!(asked_twice(words, disturb, true), (0, 0), "{words}");
    }
}

/// The file with the new name was changed since, and is not the renamed one.
#[test]
fn a_replayed_rename_that_became_impossible_fails() {
    let moved_elsewhere: Disturb = |source| {
        fs::rename(source.join("file"), source.join("elsewhere")).unwrap();
        touch_link(source);
    };
    let answers = asked_twice("rename file link", moved_elsewhere, false);
    assert_eq!(answers.1, Errno::ENOENT.raw());
}
