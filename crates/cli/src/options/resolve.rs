//! From settings to a configuration: what they imply, which contradict each other, and what follows from
//! several.

use super::error::OptionError;
use super::value::{Target, Use};
use super::{Setting, find};
use crate::config::{MountConfig, ShareConfig};
use rustix::mount::MountAttrFlags;
use thrufs_hostdir::{CacheMode, Config, FileHandles, IdMap, Locks, MigrationMode, OpenMode};

/// The configuration of a mount, without its paths.
pub(crate) fn resolve_mount(settings: &[Setting]) -> Result<MountConfig, OptionError> {
    let mut config = MountConfig::default();
    let effective = in_force(settings)?;
    for setting in &effective {
        if !setting.option.used().includes(Use::Mount) {
            return Err(setting.not_for("mount"));
        }
        setting.apply(&mut Target::Mount(&mut config))?;
    }
    settle(&mut config.serving);
    let read_only = config.serving.read_only;
    settle_locks(&mut config.serving, given(&effective, "locks").is_some());
    config
        .attributes
        .set(MountAttrFlags::MOUNT_ATTR_RDONLY, read_only);
    Ok(config)
}

/// The first of the settings that asks for something else than the `running` server does, and than the kernel can change
/// at a remount.
pub(crate) fn asked_of_server(
    settings: &[Setting],
    running: &MountConfig,
) -> Result<Option<Setting>, OptionError> {
    let effective = in_force(settings)?;
    if !asks_of_server(&effective, running)? {
        return Ok(None);
    }
    for setting in &effective {
        if asks_of_server(std::slice::from_ref(setting), running)? {
            return Ok(Some(setting.clone()));
        }
    }
    Ok(effective.into_iter().next())
}

fn asks_of_server(effective: &[Setting], running: &MountConfig) -> Result<bool, OptionError> {
    const ATIME: MountAttrFlags = MountAttrFlags::MOUNT_ATTR__ATIME;
    let mut wanted = running.clone();
    // What is added to what is there.
    for setting in effective {
        match setting.option.key() {
            "uidmap" => wanted.serving.uid_map = IdMap::default(),
            "gidmap" => wanted.serving.gid_map = IdMap::default(),
            "atime" => wanted.attributes -= ATIME,
            _ => {}
        }
    }
    for setting in effective {
        setting.apply(&mut Target::Mount(&mut wanted))?;
    }
    // The source is read by the rules for times of access that it was mounted with.
    let read_by = ATIME | MountAttrFlags::MOUNT_ATTR_NODIRATIME;
    wanted.attributes = (wanted.attributes & read_by) | (running.attributes - read_by);
    wanted.sets_atime = running.sets_atime;
    wanted.synchronous = running.synchronous;
    // A server that may write does for a mount that is read-only.
    wanted.serving.read_only &= running.serving.read_only;
    Ok(format!("{wanted:?}") != format!("{running:?}"))
}

/// The configuration of a share, without its paths.
pub(crate) fn resolve_share(settings: &[Setting]) -> Result<ShareConfig, OptionError> {
    let mut config = ShareConfig::default();
    let effective = in_force(settings)?;
    for setting in &effective {
        if !setting.option.used().includes(Use::Share) {
            return Err(setting.not_for("share"));
        }
        setting.apply(&mut Target::Share(&mut config))?;
    }
    settle(&mut config.serving);
    check_queue_size(&config, &effective)?;
    check_window(&config, &effective)?;
    check_namespace(&effective)?;
    check_handles(&mut config.serving, &effective)?;
    Ok(config)
}

/// An explicit `acl` would have been a contradiction.
fn settle(serving: &mut Config) {
    serving.acl &= serving.xattr && serving.default_permissions;
}

/// Locks are local by default if the kernel is to open files, or where it may since nothing changes.
fn settle_locks(serving: &mut Config, are_given: bool) {
    let never_changes = serving.read_only && serving.cache == CacheMode::Always;
    let is_local = match serving.opens {
        OpenMode::Local => true,
        OpenMode::Auto => never_changes,
        OpenMode::Server => false,
    };
    if is_local && !are_given {
        serving.locks = Locks::Local;
    }
}

fn given<'s>(effective: &'s [Setting], name: &str) -> Option<&'s Setting> {
    effective.iter().find(|setting| setting.option.name == name)
}

fn check_queue_size(config: &ShareConfig, effective: &[Setting]) -> Result<(), OptionError> {
    match given(effective, "queue_size") {
        Some(size) if !config.queue_size_max.is_power_of_two() => {
            Err(size.bad("it must be a power of two"))
        }
        _ => Ok(()),
    }
}

/// QEMU ends itself at 512 regions of memory: a window of 512 MiB has 256.
const WINDOW_BYTES_MAX: u64 = 512 << 20;
/// Most that the device has.
const FORCED_WINDOW_BYTES_MAX: u64 = 64 << 30;

fn check_window(config: &ShareConfig, effective: &[Setting]) -> Result<(), OptionError> {
    let bytes = config.window_bytes;
    if let Some(window) = given(effective, "dax_window") {
        if bytes == 0 || !bytes.is_multiple_of(2 << 20) || bytes > FORCED_WINDOW_BYTES_MAX {
            return Err(window.bad("it must be a multiple of 2M, 64G at most"));
        }
        if bytes > WINDOW_BYTES_MAX && given(effective, "dax_window_force").is_none() {
            let problem = "QEMU ends itself when a guest maps more than about 512M; for another machine \
                           monitor, use dax_window_force";
            return Err(window.bad(problem));
        }
        return Ok(());
    }
    let names = ["dax", "dax_min_size", "dax_window_force"];
    match names.iter().find_map(|name| given(effective, name)) {
        Some(alone) => Err(alone.bad("it needs dax_window=SIZE")),
        None => Ok(()),
    }
}

/// A map of users without one of groups, or the reverse, is of no use.
fn check_namespace(effective: &[Setting]) -> Result<(), OptionError> {
    let uids = given(effective, "namespace_uidmap");
    let gids = given(effective, "namespace_gidmap");
    match uids.xor(gids) {
        Some(one) => {
            Err(one.bad("use both namespace_uidmap and namespace_gidmap, not one of them"))
        }
        None => Ok(()),
    }
}

/// Migration by file handles requires opening by handle.
fn check_handles(serving: &mut Config, effective: &[Setting]) -> Result<(), OptionError> {
    if serving.migration.mode != MigrationMode::FileHandles {
        return Ok(());
    }
    match given(effective, "inode_file_handles") {
        None => serving.file_handles = FileHandles::Prefer,
        Some(never) if serving.file_handles == FileHandles::Never => {
            let mode = "migration_mode=file-handles".to_owned();
            let fix = "migration by file handles requires files to be held by handle here; use \
                       inode_file_handles=prefer or migration_mode=find-paths";
            return Err(OptionError::Contradiction(mode, never.to_string(), fix));
        }
        Some(_) => {}
    }
    Ok(())
}

/// The effective settings: implied ones added, overridden ones dropped.
fn in_force(settings: &[Setting]) -> Result<Vec<Setting>, OptionError> {
    let mut all = Vec::new();
    for setting in settings {
        for implied in setting.option.implies {
            let option = find(implied).expect("the table names its own options");
            all.push(Setting {
                option,
                value: None,
            });
        }
        all.push(setting.clone());
    }
    let counts = |index: usize| {
        let option = all[index].option;
        let mut later = all[index + 1..].iter();
        option.adds_up || !later.any(|later| later.option.key() == option.key())
    };
    let kept: Vec<Setting> = (0..all.len())
        .filter(|index| counts(*index))
        .map(|index| all[index].clone())
        .collect();
    match contradiction(&kept) {
        Some(error) => Err(error),
        None => Ok(kept),
    }
}

fn contradiction(settings: &[Setting]) -> Option<OptionError> {
    for setting in settings {
        for (with, fix) in setting.option.conflicts {
            let is_it = |other: &&Setting| other.option.name == *with || other.to_string() == *with;
            let other = settings.iter().find(is_it);
            if let Some(other) = other {
                let (first, second) = (setting.to_string(), other.to_string());
                return Some(OptionError::Contradiction(first, second, fix));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests;
