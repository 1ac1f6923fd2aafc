//! `mount -o remount`, for which mount(8) calls the helper: the kernel changes flags of the mount, and what the server
//! would have to change is refused.
//!
//! mount(8) passes the options of fstab or, where it has none, those that the mount table shows. So most of them say
//! what is so already; the server is asked for its options by the control socket.

use crate::config::MountConfig;
use crate::control::client::ask;
use crate::control::finding::Located;
use crate::control::protocol::Command;
use crate::control::query_error::QueryError;
use crate::error::StartupError;
use crate::launch::MountArguments;
use crate::lookup;
use crate::mount_table;
use crate::mounting;
use crate::options::{self, OptionError, Setting};
use rustix::fs::{Mode, OFlags, StatVfsMountFlags, fstatvfs};
use rustix::mount::MountAttrFlags;
use std::path::PathBuf;
use thrufs::MountError;

/// What the mount table shows of a FUSE mount, and the server sets by itself.
const SHOWN_ALONE: [&str; 4] = ["user_id", "group_id", "rootmode", "blksize"];

#[derive(Debug, thiserror::Error)]
pub(crate) enum RemountError {
    #[error("{0} is not a mount point: mount it without remount")]
    NotMounted(PathBuf),
    #[error(
        "option `{0}` cannot be changed by a remount, because the server would have to change: unmount, and mount \
         again with it"
    )]
    Server(Setting),
    #[error(
        "cannot compare the options with those of the server: {0} (`mount -i -o remount,…` changes flags of the \
         mount without asking it)"
    )]
    Unknown(#[from] QueryError),
    #[error(transparent)]
    Option(#[from] OptionError),
    #[error(transparent)]
    Startup(#[from] StartupError),
    #[error(transparent)]
    Mount(#[from] MountError),
}

/// Takes what concerns a remount alone out of a list after `-o`. Returns the rest, and whether it asks for a remount.
pub(crate) fn separate(list: &str) -> (String, bool) {
    let items = || list.split(',');
    if !items().any(|item| item == "remount") {
        return (list.to_owned(), false);
    }
    let is_ours = |item: &&str| {
        let name = item.split('=').next().unwrap_or(item);
        name != "remount" && !SHOWN_ALONE.contains(&name)
    };
    let ours: Vec<&str> = items().filter(is_ours).collect();
    (ours.join(","), true)
}

/// Remounts what is on the mount point, unless asked only to check.
pub(crate) fn run(arguments: MountArguments, fake: bool) -> Result<(), RemountError> {
    let MountArguments {
        mountpoint,
        settings,
        ..
    } = arguments;
    let mut wanted = options::resolve_mount(&settings)?;
    let unusable = mounting::unusable(&mountpoint);
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let place = lookup::open(&mountpoint, flags, Mode::empty()).map_err(&unusable)?;
    let path = lookup::path_of(&place).map_err(&unusable)?;
    let mounts = mount_table::all().map_err(&unusable)?;
    let mount = mount_table::on_top_at(&mounts, &path).cloned();
    let located = Located {
        mount: mount.ok_or_else(|| RemountError::NotMounted(mountpoint.clone()))?,
        components: Vec::new(),
    };
    let running = ask(&path, &located, None, &Command::Options)?;
    let running: MountConfig =
        serde_json::from_value(running).map_err(QueryError::query(&mountpoint))?;
    if let Some(setting) = options::asked_of_server(&settings, &running)? {
        return Err(RemountError::Server(setting));
    }
    let shown = fstatvfs(&place)
        .map_err(|errno| unusable(errno.into()))?
        .f_flag;
    // What mount(8) does not pass stays as it is: that it is to be `suid` or `dev`.
    for (key, flag, is_set) in [
        (
            "nosuid",
            MountAttrFlags::MOUNT_ATTR_NOSUID,
            StatVfsMountFlags::NOSUID,
        ),
        (
            "nodev",
            MountAttrFlags::MOUNT_ATTR_NODEV,
            StatVfsMountFlags::NODEV,
        ),
    ] {
        if !settings.iter().any(|setting| setting.option.key() == key) {
            wanted.attributes.set(flag, shown.contains(is_set));
        }
    }
    wanted.mountpoint = path;
    match fake {
        true => Ok(()),
        false => Ok(mounting::remount(&wanted, place)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_mount_table_shows_is_left_out_of_a_remount() {
        let list = "ro,remount,user_id=0,group_id=0,allow_other,fsname=a\\,b";
        assert_eq!(
            separate(list),
            ("ro,allow_other,fsname=a\\,b".to_owned(), true)
        );
        let others = "user_id=0,comment=remount";
        assert_eq!(separate(others), (others.to_owned(), false));
    }
}
