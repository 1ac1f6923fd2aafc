//! Mounting where a filter of system calls, as in a container, refuses the mount API.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use rustix::io::Errno;
use rustix::mount::{FsOpenFlags, fsopen};
use thrufs_testing::Tree;
use thrufs_tests::fence::seccomp;
use thrufs_tests::prelude::*;

/// Everything since Linux 5.2.
const MOUNT_API: [libc::c_long; 7] = [
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
];

#[test]
fn without_the_mount_api_it_mounts_by_the_old_call() {
    skip_if!(must_skip());
    // A thread of its own, because the filter stays.
    thread::spawn(|| {
        seccomp::take_away(&MOUNT_API).unwrap();
        let refused = fsopen("fuse", FsOpenFlags::empty()).unwrap_err();
        assert_eq!(refused, Errno::NOSYS);
        let options = "noexec,noatime,sync,fsname=a\\,b,subtype=sub";
        let mut mounted = Mounted::start_on(Lower::Default, options).unwrap();
        fs::write(mounted.root().join("file"), "through").unwrap();
        let beneath = fs::read_to_string(mounted.beneath().join("file")).unwrap();
        assert_eq!(beneath, "through");
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let place = format!(" {} ", mounted.root().display());
        let line = table.lines().find(|line| line.contains(&place)).unwrap();
        for part in [
            "nosuid,nodev,noexec,noatime",
            "fuse.sub a,b rw,sync,",
            "default_permissions,allow_other",
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
        mounted.stop().unwrap();
    })
    .join()
    .unwrap();
}
