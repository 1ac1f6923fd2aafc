//! A stranger's request gets the same answer through the mount as beneath, and leaves the same.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use thrufs_tests::skip_if;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, SeekFrom, XattrFlags,
};
use rustix::io::Result;
use thrufs_testing::user::BOB;
use thrufs_tests::lower::{Ground, Lower};
use thrufs_tests::mount_point::must_skip;
use thrufs_tests::mounted::Mounted;
use thrufs_tests::relayed::{Queues, Relayed};
use thrufs_tests::transport::over_each;

type Act = fn(&Path) -> Result<u64>;

/// Names of each row of `docs/security/requests.md`.
const NAMES: &[&str] = &[
    "user.x",
    "trusted.x",
    "security.x",
    "security.capability",
    "system.x",
    "system.posix_acl_access",
    "system.posix_acl_default",
    "system.nfs4_acl",
    "btrfs.compression",
    "other.x",
    "user.",
    "x",
];

/// `root`, root's, which all may read; `all`, root's, which all may write; `own`, the caller's.
fn prepare(directory: &Path) {
    fs::create_dir(directory).unwrap();
    fs::set_permissions(directory, Permissions::from_mode(0o777)).unwrap();
    for (name, mode) in [
        ("root", 0o644),
        ("all", 0o666),
        ("own", 0o644),
        ("set-id", 0o6755),
    ] {
        let path = directory.join(name);
        fs::write(&path, [1; 8192]).unwrap();
        if name == "own" {
            chown(&path, Some(BOB.uid), Some(BOB.gid)).unwrap();
        }
        rustix::fs::setxattr(&path, "trusted.kept", b"", XattrFlags::empty()).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    let sticky = directory.join("sticky");
    fs::create_dir(&sticky).unwrap();
    fs::set_permissions(&sticky, Permissions::from_mode(0o1777)).unwrap();
}

/// The final state.
fn left(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let found = fs::symlink_metadata(&path).unwrap();
        let mut names = [0; 4096];
        let length = rustix::fs::llistxattr(&path, &mut names).unwrap();
        format!(
            "{:?} {:o} {} {} {} {} {}",
            path.file_name().unwrap(),
            found.mode(),
            found.uid(),
            found.gid(),
            found.rdev(),
            if found.is_file() { found.size() } else { 0 },
            String::from_utf8_lossy(&names[..length]),
        )
    });
    let mut left: Vec<_> = entries.collect();
    left.sort();
    left
}

fn value_of(name: &str) -> Vec<u8> {
    match name {
        // `VFS_CAP_REVISION_2` with CAP_CHOWN.
        "security.capability" => [0x0200_0000u32, 1, 0, 0, 0].map(u32::to_le_bytes).concat(),
        "system.posix_acl_access" | "system.posix_acl_default" => {
            thrufs_tests::acl::List::ALL.value_with(&[])
        }
        _ => b"value".to_vec(),
    }
}

/// Sets, reads and removes every kind of attribute.
fn attributes(directory: &Path) -> Vec<Result<usize>> {
    let mut answers = Vec::new();
    for file in ["root", "all", "own", "sticky"] {
        let path = directory.join(file);
        for name in NAMES {
            let mut value = [0; 256];
            for flags in [XattrFlags::REPLACE, XattrFlags::CREATE] {
                let set = rustix::fs::setxattr(&path, *name, &value_of(name), flags);
                answers.push(set.map(|()| 0));
            }
            answers.push(rustix::fs::getxattr(&path, *name, &mut value[..]));
            answers.push(rustix::fs::removexattr(&path, *name).map(|()| 0));
        }
        answers.push(rustix::fs::listxattr(&path, &mut [0; 256][..]));
    }
    answers
}

fn made(directory: &Path, file_type: FileType, mode: u32, device: u64) -> Result<u64> {
    let mode = Mode::from_raw_mode(mode);
    rustix::fs::mknodat(CWD, directory.join("made"), file_type, mode, device).map(|()| 0)
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))
}

fn named(file: OwnedFd, directory: &Path) -> Result<u64> {
    let file = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = AtFlags::SYMLINK_FOLLOW;
    rustix::fs::linkat(CWD, file, CWD, directory.join("named"), flags).map(|()| 0)
}

fn linked(directory: &Path, file: &str) -> Result<u64> {
    rustix::fs::link(directory.join(file), directory.join("linked")).map(|()| 0)
}

fn allocated(directory: &Path, file: &str, access: OFlags, mode: FallocateFlags) -> Result<u64> {
    let file = open(&directory.join(file), access)?;
    rustix::fs::fallocate(&file, mode, 4096, 8192).map(|()| 0)
}

fn copied(directory: &Path, (from, to): (&str, &str), access: OFlags) -> Result<u64> {
    let from = open(&directory.join(from), OFlags::RDONLY)?;
    let to = open(&directory.join(to), access)?;
    Ok(rustix::fs::copy_file_range(&from, None, &to, None, 100)? as u64)
}

const ACTS: &[(&str, Act)] = &[
    ("device", |at| {
        made(at, FileType::CharacterDevice, 0o666, 0x103)
    }),
    ("disk", |at| made(at, FileType::BlockDevice, 0o666, 0x700)),
    ("whiteout", |at| {
        made(at, FileType::CharacterDevice, 0o666, 0)
    }),
    ("fifo", |at| made(at, FileType::Fifo, 0o666, 0)),
    ("socket", |at| made(at, FileType::Socket, 0o666, 0)),
    ("set-id file", |at| {
        made(at, FileType::RegularFile, 0o6755, 0)
    }),
    ("rename leaving a whiteout", |at| {
        let flags = RenameFlags::WHITEOUT;
        rustix::fs::renameat_with(CWD, at.join("own"), CWD, at.join("moved"), flags).map(|()| 0)
    }),
    ("a name for what had none", |at| {
        named(open(at, OFlags::TMPFILE | OFlags::RDWR)?, at)
    }),
    ("a name for what is to have none", |at| {
        named(open(at, OFlags::TMPFILE | OFlags::RDWR | OFlags::EXCL)?, at)
    }),
    ("a name for what lost its last", |at| {
        let file = open(&at.join("made"), OFlags::CREATE | OFlags::RDWR)?;
        rustix::fs::unlink(at.join("made"))?;
        named(file, at)
    }),
    ("link to root's", |at| linked(at, "root")),
    ("link to what all may write", |at| linked(at, "all")),
    ("link to a set-id file", |at| linked(at, "set-id")),
    ("cut what cannot be written", |at| {
        open(&at.join("root"), OFlags::RDONLY | OFlags::TRUNC).map(|_| 0)
    }),
    ("without times", |at| {
        open(&at.join("all"), OFlags::NOATIME).map(|_| 0)
    }),
    ("without times, of its own", |at| {
        open(&at.join("own"), OFlags::NOATIME).map(|_| 0)
    }),
    ("sync everything", |at| {
        rustix::fs::syncfs(open(&at.join("all"), OFlags::RDONLY)?).map(|()| 0)
    }),
    ("allocate", |at| {
        allocated(at, "all", OFlags::RDWR, FallocateFlags::empty())
    }),
    ("allocate behind the end", |at| {
        allocated(at, "all", OFlags::RDWR, FallocateFlags::KEEP_SIZE)
    }),
    ("punch", |at| {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        allocated(at, "all", OFlags::RDWR, punch)
    }),
    ("allocate without writing", |at| {
        allocated(at, "all", OFlags::RDONLY, FallocateFlags::empty())
    }),
    ("allocate a directory", |at| {
        allocated(at, "sticky", OFlags::RDONLY, FallocateFlags::empty())
    }),
    ("copy", |at| copied(at, ("root", "all"), OFlags::WRONLY)),
    ("copy without writing", |at| {
        copied(at, ("root", "all"), OFlags::RDONLY)
    }),
    ("copy to the end", |at| {
        copied(at, ("root", "all"), OFlags::WRONLY | OFlags::APPEND)
    }),
    ("copy a directory", |at| {
        copied(at, ("sticky", "all"), OFlags::WRONLY)
    }),
    ("copy to a directory", |at| {
        copied(at, ("root", "sticky"), OFlags::RDONLY)
    }),
    ("data", |at| {
        rustix::fs::seek(&open(&at.join("all"), OFlags::RDONLY)?, SeekFrom::Data(10))
    }),
    ("hole", |at| {
        rustix::fs::seek(&open(&at.join("all"), OFlags::RDONLY)?, SeekFrom::Hole(10))
    }),
    ("data behind the end", |at| {
        rustix::fs::seek(
            &open(&at.join("all"), OFlags::RDONLY)?,
            SeekFrom::Data(9000),
        )
    }),
];

fn gets_the_same_answers(ground: &Ground) {
    let compare = |name: &str, act: &(dyn Fn(&Path) -> String + Sync)| {
        let (beneath, native) = (ground.source().join(name), ground.outside().join(name));
        prepare(&beneath);
        prepare(&native);
        let above = ground.mnt().join(name);
        let through = BOB.run(|| act(&above));
        let natively = BOB.run(|| act(&native));
        assert_eq!(through, natively, "{name}");
        assert_eq!(left(&beneath), left(&native), "{name}");
    };
    for (name, act) in ACTS {
        compare(name, &|at| format!("{:?}", act(at)));
    }
    compare("attributes", &|at| format!("{:?}", attributes(at)));
}

#[test]
fn a_stranger_gets_the_same_answers() {
    over_each(|transport| {
        let mounted = Mounted::start_on(Lower::Ext4, &transport.with("")).unwrap();
        gets_the_same_answers(mounted.ground());
    });
}

/// Blocks for which no file is written.
const METADATA: u64 = 64;

/// Blocks reserved for root stay free.
fn leaves_root_its_blocks(ground: &Ground, about: &str) {
    fs::set_permissions(ground.source(), Permissions::from_mode(0o777)).unwrap();
    let free = || rustix::fs::statvfs(ground.source()).unwrap();
    let block = free().f_frsize;
    let most = File::create(ground.outside().join("most")).unwrap();
    let bytes = (free().f_bavail - 1024) * block;
    rustix::fs::fallocate(&most, FallocateFlags::empty(), 0, bytes).unwrap();
    let kept = free().f_bfree - free().f_bavail;

    let new = |name: &str| {
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o644);
        options.open(ground.mnt().join(name)).unwrap()
    };
    BOB.run(|| {
        let piece = [1; 1 << 20];
        let files = [new("written"), new("allocated"), new("copied")];
        let written = (0..32)
            .try_for_each(|turn| rustix::io::pwrite(&files[0], &piece, turn << 20).map(drop));
        assert_eq!(written, Err(rustix::io::Errno::NOSPC), "{about}");
        let flags = FallocateFlags::empty();
        let allocated = rustix::fs::fallocate(&files[1], flags, 0, 4 << 20);
        assert_eq!(allocated, Err(rustix::io::Errno::NOSPC), "{about}");
        let from = File::open(ground.mnt().join("written")).unwrap();
        let mut offset = 0;
        let copied =
            rustix::fs::copy_file_range(&from, Some(&mut 0), &files[2], Some(&mut offset), 1 << 20);
        assert_eq!(copied, Err(rustix::io::Errno::NOSPC), "{about}");
        let attributed = (0..64).try_for_each(|number| {
            let file = new(&format!("attributed-{number}"));
            rustix::fs::fsetxattr(&file, "user.x", &piece[..3000], XattrFlags::empty())
        });
        assert_eq!(attributed, Err(rustix::io::Errno::NOSPC), "{about}");
    });
    assert!(free().f_bfree + METADATA >= kept, "{about}");
}

#[test]
fn a_stranger_leaves_root_its_blocks() {
    over_each(|transport| {
        for options in ["passthrough", "nopassthrough"] {
            let mounted = Mounted::start_on(Lower::Ext4, &transport.with(options)).unwrap();
            leaves_root_its_blocks(mounted.ground(), options);
        }
    });
}

#[test]
fn a_guest_s_stranger_gets_the_same_and_leaves_root_its_blocks() {
    skip_if!(must_skip());
    let relayed = Relayed::start_on(Lower::Ext4, "modcaps=+sys_admin", Queues::USUAL).unwrap();
    gets_the_same_answers(relayed.ground());
    leaves_root_its_blocks(relayed.ground(), "share");
}
