//! A request that a dead server may have carried out is replayed: the caller gets the answer that the dead
//! one would have given.

use crate::ground::{Server, Way, config_for, mounted};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use thrufs::{Errno, NodeId, Opcode};
use thrufs_abi::layout::{CreateIn, LinkIn, MkdirIn, MknodIn, Rename2In, SetxattrIn};
use thrufs_abi::{Reply, RequestBuilder};
use thrufs_testing::Caller;
use thrufs_tests::lower::{Ground, Lower};

const XATTR_CREATE: u32 = 1;

type Root<'a> = Caller<'a, &'a Server>;
type Ask = fn(&Root<'_>) -> RequestBuilder;
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

fn mkdir(root: &Root<'_>, name: &[u8]) -> RequestBuilder {
    let arg = MkdirIn {
        mode: 0o755,
        umask: 0,
    };
    let request = root.request(Opcode::Mkdir, NodeId::ROOT);
    request.arg(&arg).name(name)
}

fn mknod(root: &Root<'_>, name: &[u8]) -> RequestBuilder {
    let arg = MknodIn {
        mode: libc::S_IFREG | 0o600,
        ..MknodIn::default()
    };
    let request = root.request(Opcode::Mknod, NodeId::ROOT);
    request.arg(&arg).name(name)
}

fn symlink_to_file(root: &Root<'_>, name: &[u8]) -> RequestBuilder {
    let request = root.request(Opcode::Symlink, NodeId::ROOT);
    request.name(name).name(b"file")
}

fn link_of_file(root: &Root<'_>, name: &[u8]) -> RequestBuilder {
    let oldnodeid = root.walk("file").unwrap().0;
    let request = root.request(Opcode::Link, NodeId::ROOT);
    request.arg(&LinkIn { oldnodeid }).name(name)
}

fn create(root: &Root<'_>, name: &[u8]) -> RequestBuilder {
    let arg = CreateIn {
        flags: (libc::O_RDWR | libc::O_CREAT | libc::O_EXCL) as u32,
        mode: libc::S_IFREG | 0o600,
        ..CreateIn::default()
    };
    let request = root.request(Opcode::Create, NodeId::ROOT);
    request.arg(&arg).name(name)
}

fn rename(root: &Root<'_>, old: &[u8], new: &[u8]) -> RequestBuilder {
    let arg = Rename2In {
        newdir: NodeId::ROOT.0,
        ..Rename2In::default()
    };
    let request = root.request(Opcode::Rename2, NodeId::ROOT);
    request.arg(&arg).name(old).name(new)
}

fn setxattr(root: &Root<'_>, name: &[u8]) -> RequestBuilder {
    let arg = SetxattrIn {
        size: 5,
        flags: XATTR_CREATE,
        ..SetxattrIn::default()
    };
    let request = root.request(Opcode::Setxattr, root.walk("file").unwrap());
    request.arg(&arg).name(name).bytes(b"value")
}

fn removexattr(root: &Root<'_>, name: &[u8]) -> RequestBuilder {
    let request = root.request(Opcode::Removexattr, root.walk("file").unwrap());
    request.name(name)
}

fn of_name(root: &Root<'_>, opcode: Opcode, name: &[u8]) -> RequestBuilder {
    root.request(opcode, NodeId::ROOT).name(name)
}

/// The errors of the first server and of the next one, with changes by others in between; the first may die
/// before it does anything.
fn asked_twice(ask: Ask, disturb: Disturb, is_done: bool) -> (i32, i32) {
    let ground = Ground::prepare(Lower::Default).unwrap();
    let source = ground.source();
    filled(source);
    let server = Server::new(source, config_for(Way::Death));
    let client = mounted(&server);
    let root = client.root();
    let file = root.walk("file").unwrap();
    root.setxattr(file, b"user.old", b"value", 0).unwrap();
    let error = |reply: &[u8]| -Reply::parse(reply).unwrap().error;
    let request = ask(&root).finish();
    let begun = server.begin(&request);
    let first = is_done.then(|| error(&client.transact(&request).unwrap()));
    disturb(source);
    server.died(source);
    let second = error(&server.answer_again(&request, begun));
    (first.unwrap_or(second), second)
}

#[test]
fn replayed_requests_fail_as_before_whatever_changed() {
    let exists = Errno::EEXIST.raw();
    let none = Errno::ENOENT.raw();
    let cases: [(Ask, Disturb, i32); 10] = [
        (|root| mkdir(root, b"dir"), touch_dir, exists),
        (|root| mknod(root, b"file"), touch_file, exists),
        (|root| symlink_to_file(root, b"link"), touch_link, exists),
        (|root| link_of_file(root, b"file"), touch_file, exists),
        (|root| create(root, b"file"), touch_file, exists),
        (
            |root| of_name(root, Opcode::Unlink, b"no"),
            touch_root,
            none,
        ),
        (|root| of_name(root, Opcode::Rmdir, b"no"), touch_root, none),
        (|root| rename(root, b"no", b"dir"), touch_dir, none),
        (|root| setxattr(root, b"user.old"), touch_file, exists),
        (
            |root| removexattr(root, b"user.no"),
            touch_file,
            Errno::ENODATA.raw(),
        ),
    ];
    for (at, (ask, disturb, errno)) in cases.into_iter().enumerate() {
        let answers = asked_twice(ask, disturb, true);
        assert_eq!(answers, (errno, errno), "the case {at}");
    }
}

#[test]
fn replayed_requests_that_were_done_succeed() {
    let cases: [(Ask, Disturb); 10] = [
        (
            |root| mkdir(root, b"new"),
            |source| fs::write(source.join("new/other"), "").unwrap(),
        ),
        (|root| mknod(root, b"new"), touch_root),
        (|root| symlink_to_file(root, b"new"), touch_root),
        (|root| link_of_file(root, b"new"), touch_root),
        (|root| create(root, b"new"), touch_root),
        (|root| of_name(root, Opcode::Unlink, b"file"), touch_root),
        (
            |root| of_name(root, Opcode::Rmdir, b"dir"),
            |source| assert!(!source.join("dir").exists()),
        ),
        (|root| rename(root, b"dir", b"new"), touch_root),
        (|root| setxattr(root, b"user.new"), touch_file),
        (|root| removexattr(root, b"user.old"), touch_file),
    ];
    for (at, (ask, disturb)) in cases.into_iter().enumerate() {
        assert_eq!(asked_twice(ask, disturb, true), (0, 0), "the case {at}");
    }
}

/// The file with the new name was changed since, and is not the renamed one.
#[test]
fn a_replayed_rename_that_became_impossible_fails() {
    let moved_elsewhere: Disturb = |source| {
        fs::rename(source.join("file"), source.join("elsewhere")).unwrap();
        touch_link(source);
    };
    let answers = asked_twice(
        |root| rename(root, b"file", b"link"),
        moved_elsewhere,
        false,
    );
    assert_eq!(answers.1, Errno::ENOENT.raw());
}
