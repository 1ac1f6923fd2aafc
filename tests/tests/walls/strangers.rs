//! A stranger's request gets the same answer through the mount as beneath, and leaves the same.

use rustix::fs::FallocateFlags;
use rustix::io::Result;
use std::fs::Permissions;
use std::os::unix::fs::OpenOptionsExt;
use thrufs_testing::steps::Steps;
use thrufs_tests::prelude::*;
use thrufs_tests::relayed::{Queues, Relayed};

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
        "system.posix_acl_access" | "system.posix_acl_default" => acl::List::ALL.value_with(&[]),
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

/// Calls of [`Steps`], each after the one before it succeeded.
const ACTS: &str = "\
device: node made char 666 1 3
disk: node made block 666 7 0
whiteout: node made char 666
fifo: node made fifo 666
socket: node made socket 666
set-id file: node made file 6755
rename leaving a whiteout: rename2 whiteout own moved
a name for what had none: open @f . rw,tmpfile; linkfollow @f named
a name for what is to have none: open @f . rw,tmpfile,excl; linkfollow @f named
a name for what lost its last: open @f made rw,creat; unlink made; linkfollow @f named
link to root's: link root linked
link to what all may write: link all linked
link to a set-id file: link set-id linked
cut what cannot be written: open root r,trunc
without times: open all r,noatime
without times, of its own: open own r,noatime
sync everything: open @f all r; syncfs @f
allocate: open @f all rw; allocate @f 4096 8192
allocate behind the end: open @f all rw; allocate @f 4096 8192 keep
punch: open @f all rw; allocate @f 4096 8192 punch,keep
allocate without writing: open @f all r; allocate @f 4096 8192
allocate a directory: open @f sticky r; allocate @f 4096 8192
copy: open @a root r; open @b all w; copy @a 0 @b 0 100
copy without writing: open @a root r; open @b all r; copy @a 0 @b 0 100
copy to the end: open @a root r; open @b all w,append; copy @a 0 @b 0 100
copy a directory: open @a sticky r; open @b all w; copy @a 0 @b 0 100
copy to a directory: open @a root r; open @b sticky r; copy @a 0 @b 0 100
data: open @f all r; seekdata @f 10
hole: open @f all r; seekhole @f 10
data behind the end: open @f all r; seekdata @f 9000";

fn acted(directory: &Path, calls: &str) -> Result<Vec<Vec<u8>>> {
    let mut steps = Steps::new(directory.to_owned(), directory.to_owned());
    let calls = calls.split("; ");
    calls
        .map(|call| steps.call(&call.split(' ').collect::<Vec<_>>()))
        .collect()
}

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
    for (name, calls) in ACTS.lines().map(|act| act.split_once(": ").unwrap()) {
        compare(name, &|at| format!("{:?}", acted(at, calls)));
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
