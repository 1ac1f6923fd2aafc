//! Changes reserved for the owner, by callers whom the kernel above let through.

use super::{Served, connect, id_range, is_root, mode, one_owner, serve, set};
use tempfile::TempDir;
use thrufs::Result;
use thrufs_abi::SetattrValid;
use thrufs_abi::layout::SetattrIn;
use thrufs_hostdir::Config;
use thrufs_tests::prelude::*;

const OWNER: u32 = 1001;
const OTHER: u32 = 1002;
/// Neither owner: has CAP_FOWNER, as the kernel above has checked.
const CAPABLE: u32 = 1003;

/// A file whose owner is `uid` for the kernel above.
fn file_of(served: &Served, uid: u32) -> NodeId {
    let path = served.path("file");
    let _ = fs::remove_file(&path);
    fs::write(&path, "").unwrap();
    give(served, uid);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    served.root().walk("file").unwrap()
}

fn give(served: &Served, uid: u32) {
    chown(served.path("file"), Some(uid), Some(uid)).unwrap();
}

fn set_mode(served: &Served, node: NodeId, caller: u32, mode: u32) -> Result<()> {
    let caller = served.user(caller, caller);
    caller.setattr(node, &super::set_mode(mode)).map(drop)
}

fn set_mtime(served: &Served, caller: u32, node: NodeId, valid: SetattrValid) -> Result<()> {
    let caller = served.user(caller, caller);
    caller.setattr(node, &set(valid)).map(drop)
}

#[test]
fn a_caller_with_cap_fowner_changes_a_mode() {
    skip_if!(!is_root());
    let served = serve(Config::default());
    let node = file_of(&served, OWNER);
    for (caller, bits) in [(OWNER, 0o4711), (CAPABLE, 0o2755), (0, 0o644)] {
        assert_eq!(set_mode(&served, node, caller, bits), Ok(()), "{caller}");
        assert_eq!(mode(&served.path("file")), bits, "{caller}");
    }
    // A change of owner by a request is known above.
    let give = |uid| SetattrIn {
        uid,
        gid: uid,
        ..set(SetattrValid::UID | SetattrValid::GID)
    };
    served.root().setattr(node, &give(OWNER)).unwrap();
    let capable = served.user(CAPABLE, CAPABLE);
    let given = capable.setattr(node, &give(OTHER)).unwrap().attr;
    assert_eq!((given.uid, given.gid), (OTHER, OTHER));
    for (caller, bits) in [(OTHER, 0o4711), (CAPABLE, 0o755)] {
        assert_eq!(set_mode(&served, node, caller, bits), Ok(()), "{caller}");
        assert_eq!(mode(&served.path("file")), bits, "{caller}");
    }
}

/// The kernel above may have let it through by a cached name.
#[test]
fn in_a_sticky_directory_only_owners_remove_names() {
    skip_if!(!is_root());
    let served = serve(Config::default());
    let stale: Result<()> = Err(Errno::ESTALE);
    for (bits, caller, expected) in [
        (0o1777, OTHER, stale),
        (0o1777, OWNER, Ok(())),
        (0o1777, 0, Ok(())),
        (0o777, OTHER, Ok(())),
    ] {
        let directory = served.path("directory");
        fs::create_dir_all(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(bits)).unwrap();
        for name in ["removed", "renamed", "replaced", "exchanged"] {
            fs::write(directory.join(name), "").unwrap();
            chown(directory.join(name), Some(OWNER), Some(OWNER)).unwrap();
        }
        fs::create_dir(directory.join("directory")).unwrap();
        chown(directory.join("directory"), Some(OWNER), Some(OWNER)).unwrap();
        for name in ["own", "own-as-well"] {
            fs::write(directory.join(name), "").unwrap();
            chown(directory.join(name), Some(caller), Some(caller)).unwrap();
        }
        let node = served.root().walk("directory").unwrap();
        let user = served.user(caller, caller);
        let renamed = |from: &[u8], to: &[u8], flags| user.rename((node, from), (node, to), flags);
        let outcomes = [
            user.unlink(node, b"removed"),
            user.rmdir(node, b"directory"),
            renamed(b"renamed", b"new", 0),
            renamed(b"own", b"replaced", 0),
            renamed(b"exchanged", b"own-as-well", libc::RENAME_EXCHANGE),
        ];
        assert_eq!(outcomes, [expected; 5], "{bits:o} {caller}");
        fs::remove_dir_all(&directory).unwrap();
    }
}

/// The kernel above may have checked it before it heard of the new owner.
#[test]
fn a_change_that_races_a_new_owner_is_refused() {
    skip_if!(!is_root());
    let served = serve(Config::default());
    for new in [0, OTHER] {
        let node = file_of(&served, OWNER);
        give(&served, new);
        assert_eq!(set_mode(&served, node, OWNER, 0o4755), Err(Errno::EPERM));
        served.root().getattr(node).unwrap();
        for caller in [OWNER, CAPABLE] {
            let answer = set_mode(&served, node, caller, 0o4755);
            assert_eq!(answer, Err(Errno::EPERM), "{caller}");
        }
        assert_eq!(mode(&served.path("file")), 0o755);
        assert_eq!(set_mode(&served, node, new, 0o4755), Ok(()));
        assert_eq!(mode(&served.path("file")), 0o4755);
        served.root().forget(node, 1);
    }
}

/// For the group, the lower file system is asked by a member of the new one, and has no reason to take a
/// bit that is no privilege.
#[test]
fn an_owner_gives_a_file_to_another_of_its_groups() {
    skip_if!(!is_root());
    let served = serve(Config::default());
    let node = file_of(&served, OWNER);
    fs::set_permissions(served.path("file"), fs::Permissions::from_mode(0o2644)).unwrap();
    let set = SetattrIn {
        gid: OTHER,
        ..set(SetattrValid::GID)
    };
    let owner = served.user(OWNER, OWNER);
    let given = owner.setattr(node, &set).unwrap().attr;
    assert_eq!((given.uid, given.gid), (OWNER, OTHER));
    assert_eq!(given.mode & 0o7777, 0o2644);
}

/// The kernel above checks links and times by the owner and the mode that it has cached.
#[test]
fn links_and_times_are_checked_by_attributes_that_the_kernel_has() {
    skip_if!(!is_root());
    let served = serve(Config::default());
    type Act = fn(&Served, u32, NodeId) -> Result<()>;
    let ways: [Act; 3] = [
        |served, caller, node| set_mtime(served, caller, node, SetattrValid::MTIME),
        |served, caller, node| {
            let to_now = SetattrValid::MTIME | SetattrValid::MTIME_NOW;
            set_mtime(served, caller, node, to_now)
        },
        |served, caller, node| {
            let user = served.user(caller, caller);
            let linked = user.link(node, NodeId::ROOT, b"link").map(drop);
            let _ = fs::remove_file(served.path("link"));
            linked
        },
    ];
    let ok: Result<()> = Ok(());
    let [permission, access, stale] = [Errno::EPERM, Errno::EACCES, Errno::ESTALE].map(Err);
    let same: fn(&Served) = |_| ();
    let given: fn(&Served) = |served| give(served, CAPABLE);
    let shut: fn(&Served) = |served| {
        fs::set_permissions(served.path("file"), PermissionsExt::from_mode(0o700)).unwrap();
    };
    for (what, change, caller, expected) in [
        ("same", same, OWNER, [ok, ok, ok]),
        ("same", same, OTHER, [ok, ok, ok]),
        ("given", given, OWNER, [permission, access, permission]),
        ("given", given, OTHER, [permission, ok, permission]),
        ("given", given, 0, [ok, ok, ok]),
        ("shut", shut, OWNER, [ok, ok, ok]),
        ("shut", shut, OTHER, [ok, access, stale]),
    ] {
        let found = ways.map(|act| {
            let node = file_of(&served, OWNER);
            change(&served);
            act(&served, caller, node)
        });
        assert_eq!(found, expected, "{what}, by {caller}");
    }
}

/// A truncation sets the times as well, and under writeback the kernel writes back those that it kept: the
/// open permitted both.
#[test]
fn times_that_come_with_an_open_file_are_permitted_by_its_open() {
    skip_if!(!is_root());
    let served = serve(Config::default());
    let owner = served.user(OWNER, OWNER);
    let (size, mtime, ctime) = (SetattrValid::SIZE, SetattrValid::MTIME, SetattrValid::CTIME);
    for (valid, expected) in [
        (size | mtime, Ok(())),
        (mtime | ctime, Ok(())),
        (mtime, Err(Errno::EPERM)),
    ] {
        let node = file_of(&served, OWNER);
        let fh = owner.open(node, libc::O_RDWR).unwrap().fh;
        give(&served, CAPABLE);
        let set = SetattrIn {
            fh,
            ..set(valid | SetattrValid::FH)
        };
        let answer = owner.setattr(node, &set).map(drop);
        assert_eq!(answer, expected, "{valid:?}");
    }
}

/// The kernel above allows the set-group-ID bit by the group that it has cached for the directory.
#[test]
fn a_directory_that_got_another_group_gives_no_set_group_id_program() {
    skip_if!(!is_root());
    let served = serve(Config::default());
    let shared = served.path("shared");
    fs::create_dir(&shared).unwrap();
    chown(&shared, None, Some(OWNER)).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o2777)).unwrap();
    let user = served.user(OWNER, OWNER);
    let node = user.walk("shared").unwrap();
    for (group, name, expected) in [(OWNER, "own", 0o2755), (OTHER, "others", 0o755)] {
        chown(&shared, None, Some(group)).unwrap();
        user.create(node, name.as_bytes(), libc::O_RDWR, 0o2755)
            .unwrap();
        assert_eq!(mode(&shared.join(name)), expected, "{name}");
    }
}

#[test]
fn mapped_owners_are_compared() {
    skip_if!(!is_root());
    let range = || id_range(0, 50_000, 5_000);
    let served = serve(one_owner(range(), range()));
    let node = file_of(&served, 50_000 + OWNER);
    assert_eq!(set_mode(&served, node, OWNER, 0o711), Ok(()));
    let unmapped = Errno::EOVERFLOW;
    for (new, error) in [
        (50_000, Errno::EPERM),
        (50_000 + OTHER, Errno::EPERM),
        (0, unmapped),
    ] {
        give(&served, new);
        let before = mode(&served.path("file"));
        assert_eq!(set_mode(&served, node, OWNER, 0o755), Err(error));
        assert_eq!(mode(&served.path("file")), before, "{new}");
    }
    chown(served.path(""), Some(50_000), Some(50_000)).unwrap();
    // The last directory is no longer sticky beneath.
    let stale = Err(Errno::ESTALE);
    for (caller, bits, expected) in [
        (OTHER, 0o1777, stale),
        (OWNER, 0o1777, Ok(())),
        (OTHER, 0o777, Ok(())),
    ] {
        file_of(&served, 50_000 + OWNER);
        for bits in [0o1777, bits] {
            served.root().getattr(NodeId::ROOT).unwrap();
            fs::set_permissions(served.path(""), fs::Permissions::from_mode(bits)).unwrap();
        }
        let user = served.user(caller, caller);
        let removed = user.unlink(NodeId::ROOT, b"file");
        assert_eq!(removed, expected, "{bits:o} {caller}");
    }
}

/// As `thrufs run` lends a tree of root to another user.
#[test]
fn another_user_that_sees_files_of_root_as_its_own_makes_no_program_of_root() {
    skip_if!(!is_root());
    let lent = || id_range(OWNER, 0, 1);
    let served = serve(one_owner(lent(), lent()));
    let user = served.user(OWNER, OWNER);
    let node = file_of(&served, 0);
    for bits in [0o4755, 0o2755] {
        assert_eq!(set_mode(&served, node, OWNER, bits), Err(Errno::EPERM));
        let created = user.create(NodeId::ROOT, b"created", libc::O_RDWR, bits);
        assert_eq!(created.map(drop), Err(Errno::EPERM), "{bits:o}");
        assert!(!served.path("created").exists());
    }
    assert_eq!(set_mode(&served, node, OWNER, 0o711), Ok(()));
    assert_eq!(set_mode(&served, node, 0, 0o4711), Ok(()), "the host's");
    user.mkdir(NodeId::ROOT, b"directory", 0o755).unwrap();
    let directory = user.walk("directory").unwrap();
    assert_eq!(set_mode(&served, directory, OWNER, 0o2755), Ok(()));
}

/// What such a server makes is its user's, for any caller.
#[test]
fn a_server_without_privilege_makes_no_set_id_file_for_others() {
    skip_if!(!is_root());
    let directory = TempDir::new().unwrap();
    chown(directory.path(), Some(ALICE.uid), Some(ALICE.gid)).unwrap();
    ALICE.run(|| {
        let client = connect(directory.path(), Config::default());
        for (caller, allowed) in [(ALICE, Ok(())), (BOB, Err(Errno::EPERM))] {
            let user = client.user(caller.uid, caller.gid);
            let name = |kind: &str| format!("{kind} {}", caller.uid).into_bytes();
            let created = user.create(NodeId::ROOT, &name("create"), libc::O_RDWR, 0o4755);
            assert_eq!(created.map(drop), allowed);
            let mode = libc::S_IFREG | 0o2755;
            let made = user.mknod(NodeId::ROOT, &name("mknod"), mode, 0);
            assert_eq!(made.map(drop), allowed);
            user.mkdir(NodeId::ROOT, &name("mkdir"), 0o2755).unwrap();
        }
    });
}
