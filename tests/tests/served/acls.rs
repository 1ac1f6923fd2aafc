//! Files with ACLs beneath, where the kernel above knows none.

use super::{ROOT, Served, config, id_range, is_root, mode, one_owner, serve, set_mode};
use thrufs_abi::SetxattrFlags;
use thrufs_abi::layout::SetxattrIn;
use thrufs_hostdir::{Config, IdMap};
use thrufs_tests::acl::{List, NAME};
use thrufs_tests::prelude::*;

const USER: u32 = 1001;
const TEAM: u32 = 2000;

/// Shown as 0740, and 0764 beneath.
const LIST: List = List {
    group: 4,
    others: 4,
    mask: Some(6),
    user: Some((USER, 6)),
    other_group: Some((1002, 0)),
};

/// The kernel above checks permissions, with ACLs or without.
fn checked(acl: bool) -> Config {
    config(|it| {
        it.acl = acl;
        it.default_permissions = true;
    })
}

/// Serves a file and a directory with [`LIST`].
fn serve_lists(config: Config) -> (Served, [(PathBuf, NodeId); 2]) {
    let served = serve(config);
    served.write("file", b"");
    fs::create_dir(served.path("dir")).unwrap();
    let known = ["file", "dir"].map(|name| {
        let node = served.root().walk(name).unwrap();
        LIST.set(&served.path(name));
        (served.path(name), node)
    });
    (served, known)
}

/// The mode in the replies to GETATTR and STATX.
fn shown_mode(served: &Served, node: NodeId) -> u32 {
    let root = served.root();
    let attr = root.getattr(node).unwrap().attr;
    let statx = root.statx(node, libc::STATX_BASIC_STATS).unwrap().stat;
    let of_statx = (u32::from(statx.mode), statx.uid, statx.gid, statx.size);
    assert_eq!((attr.mode, attr.uid, attr.gid, attr.size), of_statx);
    attr.mode & 0o7777
}

#[test]
fn a_mode_grants_no_more_than_the_acl() {
    let (served, known) = serve_lists(checked(false));
    for (path, node) in &known {
        assert_eq!((shown_mode(&served, *node), mode(path)), (0o740, 0o764));
        // More entries than one read takes; what the last of them refuses counts.
        let mut more: Vec<_> = (1..200).map(|number| (USER + number, 6)).collect();
        let all = List {
            other_group: None,
            ..LIST
        };
        all.set_with(path, &more);
        assert_eq!(shown_mode(&served, *node), 0o744);
        more.push((USER + 200, 0));
        all.set_with(path, &more);
        assert_eq!(shown_mode(&served, *node), 0o700);
    }
    symlink("file", served.path("link")).unwrap();
    let link = served.root().lookup(ROOT, b"link").unwrap();
    assert_eq!(link.attr.mode & 0o7777, 0o777);
    let unchecked = Config {
        default_permissions: false,
        ..checked(false)
    };
    for config in [checked(true), unchecked] {
        let (served, known) = serve_lists(config);
        assert_eq!(shown_mode(&served, known[0].1), 0o764);
    }
}

#[test]
fn a_mode_leaves_the_classes_that_it_does_not_change() {
    // With ACLs above or without, what is asked for, and what it is beneath then.
    for (acl, asked, expected) in [
        (false, 0o740, 0o764),
        (false, 0o540, 0o564),
        (false, 0o4740, 0o4764),
        (false, 0o760, 0o764),
        (false, 0o700, 0o704),
        (false, 0o744, 0o764),
        (false, 0o741, 0o761),
        (false, 0o646, 0o666),
        (true, 0o740, 0o740),
    ] {
        let (served, known) = serve_lists(checked(acl));
        for (path, node) in known {
            shown_mode(&served, node);
            served.root().setattr(node, &set_mode(asked)).unwrap();
            assert_eq!(mode(&path), expected, "{asked:o}, acl: {acl}");
        }
    }
}

/// A caller outside the group gives it no program: one step takes the bit and sets the ACL, so the file is
/// never executable by the group with the bit.
#[test]
fn an_acl_set_from_outside_the_group_drops_the_set_group_id_bit() {
    skip_if!(!is_root());
    let mapped = one_owner(id_range(USER, USER, 1), IdMap::Identity);
    for config in [checked(true), mapped] {
        for (caller, kills, expected) in [
            ((USER, USER), true, 0o754),
            ((USER, TEAM), false, 0o2754),
            ((0, 0), true, 0o754),
            ((0, 0), false, 0o2754),
        ] {
            let served = serve(config.clone());
            let path = served.path("file");
            fs::write(&path, "").unwrap();
            chown(&path, Some(USER), Some(TEAM)).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o2744)).unwrap();
            let node = served.root().walk("file").unwrap();
            let value = List {
                mask: Some(5),
                other_group: None,
                ..LIST
            }
            .value_with(&[]);
            let arg = SetxattrIn {
                size: value.len() as u32,
                setxattr_flags: u32::from(kills) * SetxattrFlags::ACL_KILL_SGID.bits(),
                ..SetxattrIn::default()
            };
            let caller = served.user(caller.0, caller.1);
            let request = caller.request(Opcode::Setxattr, node).arg(&arg);
            let set = caller.call(request.name(NAME.as_bytes()).bytes(&value));
            assert_eq!(set.map(drop), Ok(()));
            assert_eq!(mode(&path), expected, "{kills}");
        }
    }
}

#[test]
fn a_file_without_an_acl_has_its_mode() {
    let served = serve(checked(false));
    let node = served.file("file", b"content");
    let _ = chown(served.path("file"), Some(USER), Some(1002));
    for mode in [0o764, 0o604, 0o640, 0o600] {
        fs::set_permissions(served.path("file"), PermissionsExt::from_mode(mode)).unwrap();
        assert_eq!(shown_mode(&served, node), mode);
    }
}
