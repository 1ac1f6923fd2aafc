//! Set-id bits, by caller and kind of change.

use super::{Root, Served, config, id_range, is_root, mode, one_owner, serve, set, set_mode};
use thrufs::Result;
use thrufs_abi::layout::{CopyFileRangeIn, FallocateIn, SetattrIn};
use thrufs_abi::{SetattrValid, WriteFlags};
use thrufs_hostdir::{CacheMode, Config, IdMap};
use thrufs_tests::fence::seccomp::take_away;
use thrufs_tests::prelude::*;

const NOBODY: u32 = u32::MAX;
const OWNER: u32 = 1001;
const STRANGER: u32 = 1002;

/// A file with this owner and mode, which is set through the server: this thread may have served a request
/// that left it without CAP_FSETID.
fn with_mode(served: &Served, mode: u32) -> NodeId {
    let path = served.path("file");
    fs::write(&path, b"0123456789").unwrap();
    chown(&path, Some(OWNER), Some(OWNER)).unwrap();
    let root = served.root();
    let node = root.walk("file").unwrap();
    root.setattr(node, &set_mode(mode)).unwrap();
    node
}

/// FALLOCATE of 20 bytes.
fn fallocate(by: &Root<'_>, node: NodeId, fh: u64) -> Result<()> {
    let all = FallocateIn {
        fh,
        length: 20,
        ..FallocateIn::default()
    };
    by.fallocate(node, &all)
}

/// COPY_FILE_RANGE within the file.
fn copy(by: &Root<'_>, node: NodeId, fh: u64) -> Result<()> {
    let some = CopyFileRangeIn {
        fh_in: fh,
        nodeid_out: node.0,
        fh_out: fh,
        off_out: 5,
        len: 5,
        ..CopyFileRangeIn::default()
    };
    by.copy_file_range(node, &some).map(drop)
}

#[test]
fn a_writer_knows_the_mode_that_was_set_beneath() {
    skip_if!(!is_root());
    let served = serve(config(|it| it.cache = CacheMode::Never));
    let root = served.root();
    let node = with_mode(&served, 0o644);
    fs::set_permissions(served.path("file"), fs::Permissions::from_mode(0o6764)).unwrap();
    let fh = root.open(node, libc::O_WRONLY).unwrap().fh;
    let kill = WriteFlags::KILL_SUIDGID.bits();
    root.write(node, fh, 0, b"x", kill).unwrap();
    assert_eq!(mode(&served.path("file")), 0o2764);
}

/// The order to drop them, and chown(2) of -1 and -1: by callers uid may write, and uid could set the bits.
/// Content written by others never runs with them.
#[test]
fn privileges_fall_before_the_content_changes() {
    skip_if!(!is_root());
    let served = serve(Config::default());
    for (before, after) in [(0o6706, 0o2706), (0o6777, 0o6777)] {
        let node = with_mode(&served, before);
        let stranger = served.user(STRANGER, STRANGER);
        let fh = stranger.open(node, libc::O_RDWR).unwrap().fh;
        let written = thread::scope(|scope| {
            let write = || {
                take_away(&[libc::SYS_pwrite64, libc::SYS_pwritev2]).unwrap();
                stranger.write(node, fh, 0, b"x", WriteFlags::KILL_SUIDGID.bits())
            };
            scope.spawn(write).join().unwrap()
        });
        assert_eq!(written.map(drop), Err(Errno::ENOSYS));
        // The others fall in the write itself.
        assert_eq!(mode(&served.path("file")), after, "{before:o}");
        fs::remove_file(served.path("file")).unwrap();
    }
}

#[test]
fn a_setattr_without_attributes_drops_no_privileges_for_a_stranger() {
    skip_if!(!is_root());
    let served = serve(Config::default());
    let refused = Err(Errno::EPERM);
    let (none, chown) = (SetattrValid::empty(), SetattrValid::CTIME);
    for (uid, bits, is_written, valid, expected) in [
        (STRANGER, 0o6775, false, none, refused),
        (STRANGER, 0o6775, true, chown, refused),
        (STRANGER, 0o6775, true, none, Ok(0o775)),
        (STRANGER, 0o755, false, none, Ok(0o755)),
        (OWNER, 0o6775, false, none, Ok(0o775)),
        (0, 0o6775, false, none, Ok(0o775)),
        (0, 0o6764, false, none, Ok(0o2764)),
        (NOBODY, 0o6775, false, none, Ok(0o775)),
    ] {
        let node = with_mode(&served, bits);
        let access = [libc::O_RDONLY, libc::O_RDWR][usize::from(is_written)];
        let fh = served.root().open(node, access).unwrap().fh;
        let answer = served.user(uid, uid).setattr(node, &set(valid));
        let left = answer.map(|attributes| attributes.attr.mode & 0o7777);
        assert_eq!(left, expected, "{uid} {bits:o} {is_written} {valid:?}");
        assert_eq!(mode(&served.path("file")), expected.unwrap_or(bits));
        served.root().release(node, fh).unwrap();
    }
}

const CAPABILITY: &str = "security.capability";

/// A file with a mode and a capability, which are set beneath: a server that maps ids could not.
fn with_capability(served: &Served, uid: u32, gid: u32, mode: u32) -> NodeId {
    const NET_RAW: [u8; 20] = [
        1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    let path = served.path("file");
    fs::write(&path, b"0123456789").unwrap();
    chown(&path, Some(uid), Some(gid)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    rustix::fs::setxattr(&path, CAPABILITY, &NET_RAW, XattrFlags::empty()).unwrap();
    served.root().walk("file").unwrap()
}

fn has_capability(served: &Served) -> bool {
    rustix::fs::getxattr(served.path("file"), CAPABILITY, &mut [0u8; 64]).is_ok()
}

/// A store through a shared map takes nothing away: a caller mapped to root's files would leave a program
/// of root.
#[test]
fn an_open_for_writing_by_a_mapped_owner_drops_privileges() {
    skip_if!(!is_root());
    let user = || one_owner(IdMap::Squash(STRANGER), IdMap::Identity);
    let group = || one_owner(IdMap::Identity, IdMap::Squash(STRANGER));
    let range = || one_owner(id_range(STRANGER, OWNER, 1), IdMap::Identity);
    let guest = || Config {
        callers_are_local: false,
        ..user()
    };
    let (read, write, both) = (libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR);
    for (name, config, owner, caller, flags, falls) in [
        ("uid", user(), 0, STRANGER, write, true),
        ("uid", user(), 0, STRANGER, both, true),
        ("uid", user(), 0, STRANGER, read, false),
        ("uid", user(), OWNER, STRANGER, write, true),
        ("uid", user(), 0, NOBODY, write, true),
        ("uid, own", user(), STRANGER, STRANGER, write, false),
        ("uid, root", user(), 0, 0, write, false),
        ("gid", group(), 0, STRANGER, write, true),
        ("gid, own", group(), STRANGER, STRANGER, write, false),
        ("uidmap, inside", range(), OWNER, STRANGER, write, true),
        ("a guest's", guest(), STRANGER, STRANGER, write, true),
        ("a guest's root", guest(), 0, 0, write, true),
        ("not mapped", Config::default(), 0, STRANGER, write, false),
    ] {
        let served = serve(config);
        for (bits, without) in [(0o4755, 0o755), (0o6775, 0o775), (0o755, 0o755)] {
            let node = with_capability(&served, owner, 0, bits);
            let opened = served.user(caller, caller).open(node, flags);
            let left = if falls { without } else { bits };
            assert_eq!(mode(&served.path("file")), left, "{name} {owner} {flags}");
            assert_eq!(has_capability(&served), !falls, "{name} {owner} {flags}");
            let fh = opened.unwrap().fh;
            served.root().release(node, fh).unwrap();
        }
    }
    let served = serve(user());
    for flags in [read | libc::O_TRUNC, write | libc::O_TRUNC] {
        let node = with_capability(&served, 0, 0, 0o4755);
        served.user(STRANGER, 0).open(node, flags).unwrap();
        assert_eq!(mode(&served.path("file")), 0o755, "truncated, {flags}");
    }
}

/// A guest's kernel does not say that its root loses them; and they may be set beneath after the open.
#[test]
fn a_change_by_a_mapped_owner_drops_privileges() {
    skip_if!(!is_root());
    type Change = fn(&Root<'_>, NodeId, u64) -> Result<()>;
    let changes: [(&str, Change); 6] = [
        ("write", |by, node, fh| {
            by.write(node, fh, 0, b"x", 0).map(drop)
        }),
        ("truncate", |by, node, _| {
            by.setattr(node, &set(SetattrValid::SIZE)).map(drop)
        }),
        ("ftruncate", |by, node, fh| {
            let by_handle = SetattrIn {
                fh,
                ..set(SetattrValid::SIZE | SetattrValid::FH)
            };
            by.setattr(node, &by_handle).map(drop)
        }),
        ("fallocate", fallocate),
        ("copy", copy),
        ("without its ACL", |by, node, _| {
            by.removexattr(node, acl::NAME.as_bytes())
        }),
    ];
    let user = || one_owner(IdMap::Squash(STRANGER), IdMap::Identity);
    let lent = || one_owner(id_range(STRANGER, 0, 1), IdMap::Identity);
    let of_guests = |config| Config {
        callers_are_local: false,
        ..config
    };
    let own = one_owner(id_range(0, OWNER, 1), IdMap::Identity);
    for (name, config, owner, caller, falls) in [
        ("uid", user(), 0, STRANGER, true),
        ("uid, root", user(), 0, 0, false),
        ("uidmap", lent(), 0, STRANGER, true),
        ("a guest's", of_guests(user()), OWNER, STRANGER, true),
        ("a guest's root", of_guests(user()), 0, 0, true),
        ("a guest's own", of_guests(own), OWNER, 0, false),
    ] {
        let served = serve(config);
        for (change_name, change) in changes {
            let what = format!("{name}, {change_name}");
            let node = with_capability(&served, owner, 0, 0o644);
            let path = served.path("file");
            let by = served.user(caller, caller);
            let fh = by.open(node, libc::O_RDWR).unwrap().fh;
            let list = acl::List::ALL.value_with(&[]);
            rustix::fs::setxattr(&path, acl::NAME, &list, XattrFlags::empty()).unwrap();
            with_capability(&served, owner, 0, 0o4755);
            change(&by, node, fh).unwrap();
            let left = if falls { 0o755 } else { 0o4755 };
            assert_eq!(mode(&path), left, "{what}");
            served.root().release(node, fh).unwrap();
        }
    }
}

/// A caller with access by mode or ACL could open the file beneath, where nothing is taken away.
#[test]
fn a_mapped_owner_grants_no_write_access_to_privileged_files() {
    skip_if!(!is_root());
    let served = serve(one_owner(IdMap::Squash(STRANGER), IdMap::Identity));
    let stranger = served.user(STRANGER, STRANGER);
    let chmod = |node, mode| stranger.setattr(node, &set_mode(mode)).map(drop);
    for (before, wanted, answer, keeps_capability) in [
        (0o4755, 0o4777, Err(Errno::EPERM), true),
        (0o4755, 0o4775, Err(Errno::EPERM), true),
        (0o4755, 0o777, Ok(()), false),
        (0o755, 0o775, Ok(()), false),
        (0o4755, 0o4711, Ok(()), true),
        (0o755, 0o711, Ok(()), true),
    ] {
        let node = with_capability(&served, 0, 0, before);
        assert_eq!(chmod(node, wanted), answer, "{before:o} {wanted:o}");
        let left = if answer.is_ok() { wanted } else { before };
        assert_eq!(mode(&served.path("file")), left, "{before:o} {wanted:o}");
        assert_eq!(has_capability(&served), keeps_capability, "{wanted:o}");
    }
    let node = with_capability(&served, 0, 0, 0o4755);
    let acl = acl::List::ALL.value_with(&[]);
    let set_acl = |node| stranger.setxattr(node, acl::NAME.as_bytes(), &acl, 0);
    set_acl(node).unwrap();
    assert_eq!(mode(&served.path("file")), 0o777);
    assert!(!has_capability(&served));
    // The set-group-id bit of a directory is no privilege.
    let directory = served.path("directory");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o2755)).unwrap();
    let node = served.root().walk("directory").unwrap();
    set_acl(node).unwrap();
    assert_eq!(mode(&directory), 0o2777);
}
