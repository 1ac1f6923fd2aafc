//! Set-id bits, by who changes a file and how.

use super::{Served, is_root, mode, serve};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use thrufs::{Errno, Result};
use thrufs_abi::layout::{CopyFileRangeIn, FallocateIn, OpenIn, SetattrIn};
use thrufs_abi::{NodeId, Opcode, OpenInFlags, SetattrValid, WriteFlags};
use thrufs_hostdir::{CacheMode, Config};

const NOBODY: u32 = u32::MAX;
const OWNER: u32 = 1001;
const STRANGER: u32 = 1002;

/// A file of somebody's with this mode, which is set through the server: this thread may have served a
/// request that left it without CAP_FSETID.
fn with_mode(served: &Served, mode: u32) -> NodeId {
    let path = served.path("file");
    fs::write(&path, b"0123456789").unwrap();
    chown(&path, Some(OWNER), Some(OWNER)).unwrap();
    let root = served.client.root();
    let node = root.walk("file").unwrap();
    let set = SetattrIn {
        valid: SetattrValid::MODE.bits(),
        mode,
        ..SetattrIn::default()
    };
    root.setattr(node, &set).unwrap();
    node
}

#[test]
fn who_changes_a_file_takes_its_privileges_away_and_root_leaves_them() {
    if !is_root() {
        return;
    }
    let served = serve(Config::default());
    const KILL: u32 = WriteFlags::KILL_SUIDGID.bits();
    let fallocate = |node, fh, who| {
        let all = FallocateIn {
            fh,
            length: 20,
            ..FallocateIn::default()
        };
        served.client.user(who, who).fallocate(node, &all)
    };
    let copy = |node: NodeId, fh, who| {
        let some = CopyFileRangeIn {
            fh_in: fh,
            nodeid_out: node.0,
            fh_out: fh,
            off_out: 5,
            len: 5,
            ..CopyFileRangeIn::default()
        };
        let copied = served.client.user(who, who).copy_file_range(node, &some);
        copied.map(drop)
    };
    let write = |node, fh, flags| {
        let written = served.client.root().write(node, fh, 0, b"x", flags);
        written.map(drop)
    };
    // Without execution by the group, set-group-id is none.
    for (bits, without) in [(0o6775, 0o775), (0o6764, 0o2764), (0o755, 0o755)] {
        type Change<'a> = &'a dyn Fn(NodeId, u64, u32) -> Result<()>;
        for (change, who, left) in [
            (&fallocate as Change<'_>, 0, bits),
            (&fallocate, NOBODY, bits),
            (&fallocate, STRANGER, without),
            (&copy, 0, bits),
            (&copy, NOBODY, bits),
            (&copy, STRANGER, without),
            (&write, 0, bits),
            (&write, KILL, without),
        ] {
            let node = with_mode(&served, bits);
            let fh = served.client.root().open(node, libc::O_RDWR).unwrap().fh;
            change(node, fh, who).unwrap();
            assert_eq!(mode(&served.path("file")), left, "{bits:o} {who}");
            served.client.root().release(node, fh).unwrap();
        }
    }
}

#[test]
fn an_open_that_truncates_takes_them_away_where_it_says_so() {
    if !is_root() {
        return;
    }
    let served = serve(Config::default());
    let root = served.client.root();
    const KILL: u32 = OpenInFlags::KILL_SUIDGID.bits();
    for (bits, without) in [(0o6775, 0o775), (0o6764, 0o2764), (0o755, 0o755)] {
        for (truncates, open_flags, left) in [
            (libc::O_TRUNC, 0, bits),
            (libc::O_TRUNC, KILL, without),
            (0, KILL, bits),
        ] {
            for access in [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR] {
                let node = with_mode(&served, bits);
                let arg = OpenIn {
                    flags: (access | truncates) as u32,
                    open_flags,
                };
                let answer = root.call(root.request(Opcode::Open, node).arg(&arg));
                let fh = u64::from_ne_bytes(answer.unwrap()[..8].try_into().unwrap());
                assert_eq!(mode(&served.path("file")), left, "{bits:o} {access}");
                let content = fs::read(served.path("file")).unwrap();
                assert_eq!(content.is_empty(), truncates != 0, "{access}");
                let written = root.write(node, fh, 0, b"x", 0);
                assert_eq!(written.is_ok(), access != libc::O_RDONLY, "{access}");
                let read = root.read(node, fh, 0, 1);
                assert_eq!(read.is_ok(), access != libc::O_WRONLY, "{access}");
                root.release(node, fh).unwrap();
            }
        }
    }
}

/// What was set beneath is seen at open.
#[test]
fn a_writer_knows_the_mode_that_was_set_beneath() {
    if !is_root() {
        return;
    }
    let served = serve(Config {
        cache: CacheMode::Never,
        ..Config::default()
    });
    let root = served.client.root();
    let node = with_mode(&served, 0o644);
    fs::set_permissions(served.path("file"), fs::Permissions::from_mode(0o6764)).unwrap();
    let fh = root.open(node, libc::O_WRONLY).unwrap().fh;
    let kill = WriteFlags::KILL_SUIDGID.bits();
    root.write(node, fh, 0, b"x", kill).unwrap();
    assert_eq!(mode(&served.path("file")), 0o2764);
}

/// The order to drop them, and chown(2) of nothing: who writes may, and who could set the bits.
#[test]
fn a_change_of_nothing_takes_privileges_away_from_no_stranger() {
    if !is_root() {
        return;
    }
    let served = serve(Config::default());
    let refused = Err(Errno::EPERM);
    let (none, chown) = (SetattrValid::empty(), SetattrValid::CTIME);
    for (who, bits, is_written, valid, expected) in [
        (STRANGER, 0o6775, false, none, refused),
        (STRANGER, 0o6775, true, chown, refused),
        (STRANGER, 0o6775, true, none, Ok(0o775)),
        (STRANGER, 0o755, false, none, Ok(0o755)),
        (OWNER, 0o6775, false, none, Ok(0o775)),
        (0, 0o6775, false, none, Ok(0o775)),
        (NOBODY, 0o6775, false, none, Ok(0o775)),
    ] {
        let node = with_mode(&served, bits);
        let access = if is_written {
            libc::O_RDWR
        } else {
            libc::O_RDONLY
        };
        let fh = served.client.root().open(node, access).unwrap().fh;
        let nothing = SetattrIn {
            valid: valid.bits(),
            ..SetattrIn::default()
        };
        let answer = served.client.user(who, who).setattr(node, &nothing);
        let left = answer.map(|attributes| attributes.attr.mode & 0o7777);
        assert_eq!(left, expected, "{who} {bits:o} {is_written} {valid:?}");
        assert_eq!(mode(&served.path("file")), expected.unwrap_or(bits));
        served.client.root().release(node, fh).unwrap();
    }
}
