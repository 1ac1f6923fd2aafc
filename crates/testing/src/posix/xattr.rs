//! Extended attributes.

use std::collections::BTreeMap;

use rustix::fs::XattrFlags;

use super::prelude::*;
use crate::xattrs;

pub(super) const CASES: &[Case] = cases! {
    set_get_list_remove,
    create_and_replace,
    value_with_any_bytes,
    empty_value,
    short_buffer_is_erange,
    size_query_returns_the_length,
    missing_is_enodata,
    by_descriptor,
    of_a_directory,
    needs_the_permissions_of_the_file,
    trusted_is_for_root [TrustedAttributes],
    user_attributes_not_on_links,
    ctime_moves,
    two_names_share_them,
};

const NONE: XattrFlags = XattrFlags::empty();

fn get(path: &Path, name: &str) -> rustix::io::Result<Vec<u8>> {
    let mut value = vec![0; 8192];
    let len = rustix::fs::lgetxattr(path, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

#[track_caller]
fn same_beneath(env: &Env, name: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let user = |path: &Path| {
        let mut found = xattrs(path).unwrap();
        found.retain(|name, _| name.starts_with(b"user."));
        found
    };
    let found = user(&env.path(name));
    assert_eq!(found, user(&env.beneath(name)));
    found
}

fn set_get_list_remove(env: &Env) {
    let path = env.file("file", "");
    rustix::fs::setxattr(&path, "user.one", b"first", NONE).unwrap();
    rustix::fs::setxattr(&path, "user.two", b"second", NONE).unwrap();
    assert_eq!(get(&path, "user.one").unwrap(), b"first");
    assert_eq!(get(&path, "user.two").unwrap(), b"second");
    assert_eq!(same_beneath(env, "file").len(), 2);
    rustix::fs::removexattr(&path, "user.one").unwrap();
    fails(get(&path, "user.one"), Errno::NODATA);
    assert_eq!(same_beneath(env, "file").len(), 1);
}

fn create_and_replace(env: &Env) {
    let path = env.file("file", "");
    let set = |value: &[u8], flags| rustix::fs::setxattr(&path, "user.it", value, flags);
    fails(set(b"x", XattrFlags::REPLACE), Errno::NODATA);
    set(b"first", XattrFlags::CREATE).unwrap();
    fails(set(b"x", XattrFlags::CREATE), Errno::EXIST);
    assert_eq!(get(&path, "user.it").unwrap(), b"first");
    set(b"second, longer", XattrFlags::REPLACE).unwrap();
    assert_eq!(get(&path, "user.it").unwrap(), b"second, longer");
    same_beneath(env, "file");
}

fn value_with_any_bytes(env: &Env) {
    let path = env.file("file", "");
    let value: Vec<u8> = (0..2000u32).map(|at| at as u8).collect();
    rustix::fs::setxattr(&path, "user.bytes", &value, NONE).unwrap();
    assert_eq!(get(&path, "user.bytes").unwrap(), value);
    same_beneath(env, "file");
}

fn empty_value(env: &Env) {
    let path = env.file("file", "");
    rustix::fs::setxattr(&path, "user.empty", b"", NONE).unwrap();
    assert_eq!(get(&path, "user.empty").unwrap(), b"");
    assert_eq!(same_beneath(env, "file").len(), 1);
}

fn short_buffer_is_erange(env: &Env) {
    let path = env.file("file", "");
    rustix::fs::setxattr(&path, "user.it", b"0123456789", NONE).unwrap();
    let mut short = [0; 4];
    fails(
        rustix::fs::getxattr(&path, "user.it", &mut short[..]),
        Errno::RANGE,
    );
    fails(rustix::fs::listxattr(&path, &mut short[..]), Errno::RANGE);
}

fn size_query_returns_the_length(env: &Env) {
    let path = env.file("file", "");
    rustix::fs::setxattr(&path, "user.it", b"0123456789", NONE).unwrap();
    assert_eq!(rustix::fs::getxattr_query(&path, "user.it").unwrap(), 10);
    let open = File::open(&path).unwrap();
    assert_eq!(rustix::fs::fgetxattr_query(&open, "user.it").unwrap(), 10);
    let length = rustix::fs::listxattr_query(&path).unwrap();
    let mut list = vec![0; 4096];
    assert_eq!(rustix::fs::listxattr(&path, &mut list[..]).unwrap(), length);
    assert!(
        list[..length]
            .split(|byte| *byte == 0)
            .any(|name| name == b"user.it")
    );
}

fn missing_is_enodata(env: &Env) {
    let path = env.file("file", "");
    fails(get(&path, "user.none"), Errno::NODATA);
    fails(rustix::fs::removexattr(&path, "user.none"), Errno::NODATA);
    fails(get(&env.path("missing"), "user.none"), Errno::NOENT);
    fails(
        rustix::fs::setxattr(&path, "nonsense.name", b"x", NONE),
        Errno::OPNOTSUPP,
    );
}

fn by_descriptor(env: &Env) {
    let file = env.create("file");
    rustix::fs::fsetxattr(&file, "user.it", b"open", NONE).unwrap();
    assert_eq!(get(&env.path("file"), "user.it").unwrap(), b"open");
    let mut value = [0; 16];
    assert_eq!(
        rustix::fs::fgetxattr(&file, "user.it", &mut value[..]).unwrap(),
        4
    );
    rustix::fs::fremovexattr(&file, "user.it").unwrap();
    fails(get(&env.path("file"), "user.it"), Errno::NODATA);
}

fn of_a_directory(env: &Env) {
    let path = env.dir("dir");
    rustix::fs::setxattr(&path, "user.it", b"dir", NONE).unwrap();
    assert_eq!(get(&path, "user.it").unwrap(), b"dir");
    assert_eq!(same_beneath(env, "dir").len(), 1);
}

fn needs_the_permissions_of_the_file(env: &Env) {
    let path = env.file("file", "");
    rustix::fs::setxattr(&path, "user.it", b"kept", NONE).unwrap();
    ALICE.run(|| {
        assert_eq!(get(&path, "user.it").unwrap(), b"kept");
        fails(
            rustix::fs::setxattr(&path, "user.it", b"x", NONE),
            Errno::ACCESS,
        );
        fails(rustix::fs::removexattr(&path, "user.it"), Errno::ACCESS);
    });
    env.chmod("file", 0o602);
    ALICE.run(|| {
        fails(get(&path, "user.it"), Errno::ACCESS);
        rustix::fs::setxattr(&path, "user.it", b"changed", NONE).unwrap();
    });
    assert_eq!(get(&path, "user.it").unwrap(), b"changed");
    same_beneath(env, "file");
}

fn trusted_is_for_root(env: &Env) {
    let path = env.file("file", "");
    env.chmod("file", 0o666);
    rustix::fs::setxattr(&path, "trusted.it", b"secret", NONE).unwrap();
    assert_eq!(get(&path, "trusted.it").unwrap(), b"secret");
    ALICE.run(|| {
        fails(get(&path, "trusted.it"), Errno::NODATA);
        fails(
            rustix::fs::setxattr(&path, "trusted.it", b"x", NONE),
            Errno::PERM,
        );
    });
    assert_eq!(get(&path, "trusted.it").unwrap(), b"secret");
}

fn user_attributes_not_on_links(env: &Env) {
    let path = env.file("file", "");
    rustix::fs::symlink("file", env.path("link")).unwrap();
    let link = env.path("link");
    fails(
        rustix::fs::lsetxattr(&link, "user.it", b"x", NONE),
        Errno::PERM,
    );
    rustix::fs::setxattr(&link, "user.it", b"through", NONE).unwrap();
    assert_eq!(get(&path, "user.it").unwrap(), b"through");
}

fn ctime_moves(env: &Env) {
    let path = env.file("file", "");
    env.stamp("file");
    let before = env.stat("file");
    tick();
    rustix::fs::setxattr(&path, "user.it", b"x", NONE).unwrap();
    let after = env.stat("file");
    assert!((after.st_ctime, after.st_ctime_nsec) > (before.st_ctime, before.st_ctime_nsec));
    assert_eq!(after.st_mtime_nsec, before.st_mtime_nsec);
}

fn two_names_share_them(env: &Env) {
    let path = env.file("file", "");
    rustix::fs::link(&path, env.path("link")).unwrap();
    rustix::fs::setxattr(&path, "user.it", b"shared", NONE).unwrap();
    assert_eq!(get(&env.path("link"), "user.it").unwrap(), b"shared");
    rustix::fs::removexattr(env.path("link"), "user.it").unwrap();
    fails(get(&path, "user.it"), Errno::NODATA);
}
