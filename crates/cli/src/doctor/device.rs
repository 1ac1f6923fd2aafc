//! /dev/fuse, and how this user mounts.

use super::finding::Finding;
use super::kernel;
use crate::mounting;
use crate::run::user::Account;
use rustix::fs::{FileType, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::mount::{FsOpenFlags, fsopen};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use thrufs_sys::fuse_dev;

/// The number of `/dev/fuse` (`Documentation/admin-guide/devices.txt` of Linux).
const DEVICE: (u32, u32) = (10, 229);

const SET_USER_ID: u32 = 0o4000;

pub(super) fn mounting() -> Vec<Finding> {
    if mounting::is_privileged() {
        return vec![mounting_as_root().called("mounting").needed()];
    }
    let by_helper = mounting_by_helper().called("mounting").needed();
    vec![by_helper, allow_other().called("allow_other")]
}

pub(super) fn device() -> Finding {
    let make = "as root: rm -f /dev/fuse && mknod -m 666 /dev/fuse c 10 229";
    match fuse_dev::open() {
        Ok(device) if is_the_device(&device) => Finding::good("this user may open it"),
        Ok(_) => Finding::bad("it is not the device 10:229", make),
        Err(errno @ Errno::ACCESS) => {
            Finding::bad(errno.to_string(), "as root: chmod 666 /dev/fuse")
        }
        Err(errno) => Finding::bad(
            errno.to_string(),
            thrufs::mount::device_advice(&errno.into()),
        ),
    }
}

fn is_the_device(device: impl std::os::fd::AsFd) -> bool {
    rustix::fs::fstat(device).is_ok_and(|stat| {
        let number = stat.st_rdev;
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
            && (rustix::fs::major(number), rustix::fs::minor(number)) == DEVICE
    })
}

fn mounting_as_root() -> Finding {
    match fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC) {
        Err(Errno::NODEV) => Finding::bad(
            "there is no FUSE in this kernel",
            "as root: modprobe fuse; else use a kernel built with CONFIG_FUSE_FS",
        ),
        _ if !kernel::is_admin() => Finding::bad(
            "this root has no CAP_SYS_ADMIN",
            "add it to the container (docker run --cap-add SYS_ADMIN), or mount outside",
        ),
        _ => Finding::good("as root"),
    }
}

fn mounting_by_helper() -> Finding {
    let Ok(helper) = thrufs::mount::unprivileged_helper() else {
        return Finding::bad(
            "fusermount3 was not found",
            "install the package fuse3, or mount as root",
        );
    };
    let shown = helper.display();
    if rustix::thread::no_new_privs() == Ok(true) {
        return Finding::bad(
            "this process may not gain privileges (no_new_privs), as fusermount3 has to",
            "start it outside of the sandbox or unit that sets NoNewPrivileges",
        );
    }
    let uid = rustix::process::getuid().as_raw();
    if !has_account(uid) {
        return Finding::bad(
            format!("user {uid} has no account, which {shown} requires"),
            format!("as root: useradd --uid {uid} NAME; or mount as root"),
        );
    }
    if !is_set_user_id(&helper) {
        let detail = format!("{shown} is not set-user-id root");
        let remedy = format!("as root: chown root {shown} && chmod u+s {shown}");
        return Finding::bad(detail, remedy);
    }
    if rustix::fs::statvfs(&helper).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::NOSUID)) {
        return Finding::bad(
            format!("{shown} is on a mount with nosuid"),
            "as root: mount -o remount,suid there, or install fuse3 elsewhere",
        );
    }
    Finding::good(format!("by {shown}"))
}

/// In `/etc/passwd`, or another source of nsswitch.conf(5), which getent(1) asks.
fn has_account(uid: u32) -> bool {
    let is_known_elsewhere = || {
        let asked = Command::new("getent")
            .args(["passwd", &uid.to_string()])
            .output();
        asked.is_ok_and(|output| output.status.success())
    };
    Account::of(uid).is_some() || is_known_elsewhere()
}

fn is_set_user_id(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| {
        metadata.uid() == 0 && metadata.permissions().mode() & SET_USER_ID != 0
    })
}

fn allow_other() -> Finding {
    let text = std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    if text.lines().any(|line| line.trim() == "user_allow_other") {
        Finding::good("/etc/fuse.conf permits allow_other to ordinary users")
    } else {
        Finding::bad(
            "only root may use allow_other",
            "as root: add the line user_allow_other to /etc/fuse.conf",
        )
    }
}
