//! POSIX access control lists, in the form of their extended attributes.

use rustix::fs::XattrFlags;

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    named_user_gets_in [Acl],
    mask_limits_a_named_user [Acl],
    named_group_counts [Acl],
    chmod_moves_the_mask [Acl],
    group_bits_show_the_mask [Acl],
    default_list_is_inherited [Acl],
    default_list_replaces_the_umask [Acl],
    removed_list_shuts_out [Acl],
    only_the_owner_sets_a_list [Acl],
    malformed_list_is_einval [Acl],
};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;

/// The form of `acl(5)` lists in attributes: version 2, then tag, permissions, id.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Owner all, one more entry, group and others nothing, and the mask.
fn with_entry(tag: u16, id: u32, permissions: u16, mask: u16) -> Vec<u8> {
    let extra = (tag, permissions, id);
    let mut entries = vec![(USER_OBJ, 7, NO_ID)];
    if tag == USER {
        entries.extend([extra, (GROUP_OBJ, 0, NO_ID)]);
    } else {
        entries.extend([(GROUP_OBJ, 0, NO_ID), extra]);
    }
    entries.extend([(MASK, mask, NO_ID), (OTHER, 0, NO_ID)]);
    list(&entries)
}

fn set(path: &Path, name: &str, value: &[u8]) -> rustix::io::Result<()> {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty())
}

fn get(path: &Path, name: &str) -> Vec<u8> {
    let mut value = vec![0; 1024];
    let len = rustix::fs::getxattr(path, name, &mut value[..]).unwrap();
    value.truncate(len);
    value
}

fn named_user_gets_in(env: &Env) {
    let path = env.file("file", "x");
    env.chmod("file", 0o600);
    ALICE.run(|| fails(open(&path, OFlags::RDONLY), Errno::ACCESS));
    let acl = with_entry(USER, ALICE.uid, 4, 7);
    set(&path, ACCESS, &acl).unwrap();
    ALICE.run(|| {
        drop(open(&path, OFlags::RDONLY).unwrap());
        fails(open(&path, OFlags::WRONLY), Errno::ACCESS);
    });
    BOB.run(|| fails(open(&path, OFlags::RDONLY), Errno::ACCESS));
    assert_eq!(get(&path, ACCESS), acl);
    assert_eq!(get(&env.beneath("file"), ACCESS), acl);
    env.agree("file");
}

fn mask_limits_a_named_user(env: &Env) {
    let path = env.file("file", "x");
    set(&path, ACCESS, &with_entry(USER, ALICE.uid, 6, 4)).unwrap();
    ALICE.run(|| {
        drop(open(&path, OFlags::RDONLY).unwrap());
        fails(open(&path, OFlags::RDWR), Errno::ACCESS);
    });
}

fn named_group_counts(env: &Env) {
    let path = env.file("file", "x");
    set(&path, ACCESS, &with_entry(GROUP, TEAM, 6, 7)).unwrap();
    MEMBER.run(|| drop(open(&path, OFlags::RDWR).unwrap()));
    BOB.run(|| fails(open(&path, OFlags::RDONLY), Errno::ACCESS));
}

fn chmod_moves_the_mask(env: &Env) {
    let path = env.file("file", "x");
    set(&path, ACCESS, &with_entry(USER, ALICE.uid, 6, 6)).unwrap();
    ALICE.run(|| drop(open(&path, OFlags::RDWR).unwrap()));
    env.chmod("file", 0o700);
    ALICE.run(|| fails(open(&path, OFlags::RDONLY), Errno::ACCESS));
    assert_eq!(get(&path, ACCESS), with_entry(USER, ALICE.uid, 6, 0));
    assert_eq!(
        get(&env.beneath("file"), ACCESS),
        with_entry(USER, ALICE.uid, 6, 0)
    );
}

fn group_bits_show_the_mask(env: &Env) {
    let path = env.file("file", "x");
    env.chmod("file", 0o600);
    set(&path, ACCESS, &with_entry(USER, ALICE.uid, 6, 5)).unwrap();
    assert_eq!(env.mode("file"), 0o750);
    env.agree("file");
}

fn default_list_is_inherited(env: &Env) {
    let dir = env.dir("dir");
    let acl = with_entry(USER, ALICE.uid, 7, 7);
    set(&dir, DEFAULT, &acl).unwrap();
    env.dir("dir/sub");
    let file = env.file("dir/file", "x");
    assert_eq!(get(&env.path("dir/sub"), DEFAULT), acl);
    // Created with 0666: the mask loses the execution.
    let expected = list(&[
        (USER_OBJ, 6, NO_ID),
        (USER, 7, ALICE.uid),
        (GROUP_OBJ, 0, NO_ID),
        (MASK, 6, NO_ID),
        (OTHER, 0, NO_ID),
    ]);
    assert_eq!(get(&file, ACCESS), expected);
    assert_eq!(get(&env.beneath("dir/file"), ACCESS), expected);
    env.agree("dir/file");
    env.agree("dir/sub");
}

fn default_list_replaces_the_umask(env: &Env) {
    let dir = env.dir("dir");
    let entries = [
        (USER_OBJ, 7, NO_ID),
        (GROUP_OBJ, 7, NO_ID),
        (OTHER, 6, NO_ID),
    ];
    set(&dir, DEFAULT, &list(&entries)).unwrap();
    rustix::process::umask(Mode::from_raw_mode(0o077));
    drop(open_mode(&dir.join("file"), OFlags::CREATE, 0o666).unwrap());
    mkdir(&dir.join("sub"), 0o777).unwrap();
    assert_eq!(env.mode("dir/file"), 0o666);
    assert_eq!(env.mode("dir/sub"), 0o776);
    env.agree("dir/file");
    env.agree("dir/sub");
}

fn removed_list_shuts_out(env: &Env) {
    let path = env.file("file", "x");
    env.chmod("file", 0o600);
    set(&path, ACCESS, &with_entry(USER, ALICE.uid, 4, 4)).unwrap();
    ALICE.run(|| drop(open(&path, OFlags::RDONLY).unwrap()));
    rustix::fs::removexattr(&path, ACCESS).unwrap();
    ALICE.run(|| fails(open(&path, OFlags::RDONLY), Errno::ACCESS));
    let mut value = [0; 64];
    fails(
        rustix::fs::getxattr(&path, ACCESS, &mut value[..]),
        Errno::NODATA,
    );
}

fn only_the_owner_sets_a_list(env: &Env) {
    let path = env.file("file", "x");
    env.chmod("file", 0o666);
    let acl = with_entry(USER, BOB.uid, 7, 7);
    ALICE.run(|| fails(set(&path, ACCESS, &acl), Errno::PERM));
    env.chown("file", ALICE.uid, ALICE.gid);
    ALICE.run(|| set(&path, ACCESS, &acl).unwrap());
    BOB.run(|| drop(open(&path, OFlags::RDWR).unwrap()));
}

fn malformed_list_is_einval(env: &Env) {
    let path = env.file("file", "x");
    // A named user without a mask.
    let no_mask = [
        (USER_OBJ, 7, NO_ID),
        (USER, 7, ALICE.uid),
        (GROUP_OBJ, 7, NO_ID),
        (OTHER, 0, NO_ID),
    ];
    fails(set(&path, ACCESS, &list(&no_mask)), Errno::INVAL);
    fails(set(&path, ACCESS, b"\x02\0\0\0half"), Errno::INVAL);
    // Only directories have a default.
    fails(
        set(&path, DEFAULT, &with_entry(USER, ALICE.uid, 7, 7)),
        Errno::ACCESS,
    );
}
