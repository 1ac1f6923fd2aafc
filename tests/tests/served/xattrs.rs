//! Extended attributes, by their names above and on the host.

use super::rules::with;
use super::{Served, Setup, config, id_range, is_root, one_owner, serve};
use thrufs::Result;
use thrufs_abi::layout::{GetxattrIn, GetxattrOut};
use thrufs_hostdir::Config;
use thrufs_tests::prelude::*;
use zerocopy::IntoBytes;

#[test]
fn trusted_attributes_are_shown_to_root_alone() {
    skip_if!(!is_root());
    let served = serve(Config::default());
    served.write("file", b"");
    let root = served.root();
    let node = root.walk("file").unwrap();
    root.setxattr(node, b"trusted.thrufs", b"t", 0).unwrap();
    root.setxattr(node, b"user.thrufs", b"u", 0).unwrap();
    let has = |names: Result<Vec<Vec<u8>>>, name: &[u8]| names.unwrap().contains(&name.to_vec());
    assert!(has(root.listxattr(node), b"trusted.thrufs"));
    let user = served.user(1001, 1001);
    assert!(!has(user.listxattr(node), b"trusted.thrufs"));
    assert!(has(user.listxattr(node), b"user.thrufs"));
    assert_eq!(root.getxattr(node, b"user.thrufs").unwrap(), b"u");
    // An open file takes another path, which once answered 0 for every size.
    let fh = root.open(node, libc::O_RDONLY).unwrap().fh;
    assert_eq!(root.getxattr(node, b"user.thrufs").unwrap(), b"u");
    root.release(node, fh).unwrap();
    root.removexattr(node, b"user.thrufs").unwrap();
    assert_eq!(root.getxattr(node, b"user.thrufs"), Err(Errno::ENODATA));
}

/// Attributes that stay in each filtered list.
const LISTED: &[u8] = b"user.one\0user.two\0";

/// A list from which names are left out is given whole, or not at all (ERANGE).
#[test]
fn no_list_of_attributes_is_cut_off() {
    skip_if!(!is_root());
    let mapped = |map: &str| config(|it| it.xattr_map = Some(map.parse().unwrap()));
    let without_acl = config(|it| it.acl = false);
    for (what, config, uid, hidden) in [
        ("not filtered", Config::default(), 0, None),
        ("of a user", Config::default(), 1001, Some("trusted.x")),
        ("without ACLs", without_acl, 0, None),
        ("mapped", mapped(":map::user.v.:"), 0, Some("user.x")),
    ] {
        let served = serve(config);
        served.write("file", b"");
        let prefix = if what == "mapped" { "user.v." } else { "" };
        let names = ["user.one", "user.two"].map(|name| format!("{prefix}{name}"));
        for name in names.iter().map(String::as_str).chain(hidden) {
            rustix::fs::setxattr(served.path("file"), name, b"x", XattrFlags::empty()).unwrap();
        }
        let node = served.root().walk("file").unwrap();
        let caller = served.user(uid, uid);
        let list = |size: usize| {
            let size = u32::try_from(size).unwrap();
            let arg = GetxattrIn { size, padding: 0 };
            caller.call(caller.request(Opcode::Listxattr, node).arg(&arg))
        };
        let needed = GetxattrOut {
            size: LISTED.len() as u32,
            padding: 0,
        };
        assert_eq!(list(0).as_deref(), Ok(needed.as_bytes()), "{what}");
        for size in 1..LISTED.len() {
            assert_eq!(list(size), Err(Errno::ERANGE), "{what}: {size}");
        }
        for size in [LISTED.len(), LISTED.len() + 1, 65_536] {
            assert_eq!(list(size).as_deref(), Ok(LISTED), "{what}: {size}");
        }
    }
}

const OWNER: u32 = 1001;
const ACL: &[u8] = b"system.posix_acl_access";

/// Serves an empty file of a user, with mapped names of its attributes.
fn serve_mapped(map: &str, policy: Option<&str>) -> (Served, NodeId) {
    let served = serve(Setup {
        config: config(|it| it.xattr_map = Some(map.parse().unwrap())),
        resources: policy.map(with).unwrap_or_default(),
    });
    served.write("file", b"");
    chown(served.path("file"), Some(OWNER), Some(OWNER)).unwrap();
    let node = served.root().walk("file").unwrap();
    (served, node)
}

/// The kernel above does not know the attribute's name on the host, and checks none of these.
#[test]
fn attribute_names_that_the_kernel_above_does_not_check_are_roots() {
    skip_if!(!is_root());
    let (served, node) = serve_mapped(":map::user.mapped.:", None);
    for (uid, expected) in [(OWNER, Err(Errno::EOPNOTSUPP)), (0, Ok(()))] {
        let user = served.user(uid, uid);
        let name = b"system.nfs4_acl";
        assert_eq!(user.setxattr(node, name, b"x", 0), expected, "{uid}");
        assert_eq!(user.removexattr(node, name), expected, "{uid}");
        assert_eq!(user.setxattr(node, b"user.x", b"x", 0), Ok(()), "{uid}");
    }
}

#[test]
fn a_former_owner_sets_no_acl_under_a_mapped_name() {
    skip_if!(!is_root());
    let (served, node) = serve_mapped(":map::user.mapped.:", None);
    let owner = served.user(OWNER, OWNER);
    assert_eq!(owner.setxattr(node, ACL, b"x", 0), Ok(()));
    chown(served.path("file"), Some(0), Some(0)).unwrap();
    assert_eq!(owner.setxattr(node, ACL, b"x", 0), Err(Errno::EPERM));
    assert_eq!(owner.removexattr(node, ACL), Err(Errno::EPERM));
    assert_eq!(served.root().removexattr(node, ACL), Ok(()));
}

/// A caller whom the kernel above lets write sets any attribute but an ACL, of any owner's file.
#[test]
fn a_writer_sets_attributes_of_files_of_other_users() {
    skip_if!(!is_root());
    for map in [":map::user.mapped.:", ":ok:all:::"] {
        let (served, node) = serve_mapped(map, None);
        chown(served.path("file"), Some(0), Some(0)).unwrap();
        let owner = served.user(OWNER, OWNER);
        assert_eq!(owner.setxattr(node, b"user.x", b"x", 0), Ok(()), "{map}");
        assert_eq!(owner.removexattr(node, b"user.x"), Ok(()), "{map}");
    }
}

/// Named entries have ids of the host; the other entries have none.
#[test]
fn ids_in_an_acl_are_mapped_both_ways() {
    skip_if!(!is_root());
    let range = |host| id_range(0, host, 5_000);
    let served = serve(one_owner(range(50_000), range(60_000)));
    served.write("file", b"");
    chown(served.path("file"), Some(50_000), Some(60_000)).unwrap();
    let node = served.root().walk("file").unwrap();
    let acl = |user: u32, group: u32| {
        let list = acl::List {
            mask: Some(6),
            user: Some((user, 6)),
            other_group: Some((group, 6)),
            ..acl::List::ALL
        };
        list.value_with(&[])
    };
    let root = served.root();
    root.setxattr(node, ACL, &acl(7, 8), 0).unwrap();
    let mut beneath = [0; 100];
    let length = rustix::fs::getxattr(served.path("file"), acl::NAME, &mut beneath[..]).unwrap();
    assert_eq!(beneath[..length], acl(50_007, 60_008));
    assert_eq!(root.getxattr(node, ACL), Ok(acl(7, 8)));
}

#[test]
fn user_attributes_of_a_redacted_file_are_hidden_by_either_name() {
    skip_if!(!is_root());
    let rule = "[[rule]]\npath = 'file'\naction = 'redact'\nredact = 'gps'\n";
    // Here "user." above is another namespace on the host, and there the other way around.
    for (above, beneath) in [("user.", "trusted."), ("trusted.", "user.")] {
        let map = &format!(":map:{above}:{beneath}:");
        let name = &format!("{above}thumbnail");
        let on_host = &format!("{beneath}{name}");
        let seen = |policy: Option<&str>| {
            let (served, node) = serve_mapped(map, policy);
            let (path, flags) = (served.path("file"), XattrFlags::empty());
            rustix::fs::setxattr(path, &**on_host, b"place", flags).unwrap();
            let root = served.root();
            let listed = root.listxattr(node).unwrap();
            let value = root.getxattr(node, name.as_bytes());
            (listed.contains(&name.as_bytes().to_vec()), value)
        };
        assert_eq!(seen(None), (true, Ok(b"place".to_vec())), "{map}");
        assert_eq!(seen(Some(rule)), (false, Err(Errno::ENODATA)), "{map}");
    }
}
