//! Settings of the served directory, common to mounts and shares: fills in [`thrufs_hostdir::Config`] and
//! names the options that contradict each other in it.

use crate::options::{OptionError, OptionId, Setting};
use crate::options::{parse_bytes, parse_group, parse_range, parse_seconds, parse_user};
use thrufs_hostdir::{CacheMode, Config, ConfigError, FileHandles, IdMap, Locks};
use thrufs_hostdir::{MigrationMode, MigrationOnError};

/// Returns whether the setting was one of these.
pub(super) fn apply(serving: &mut Config, setting: &Setting) -> Result<bool, OptionError> {
    if apply_switch(serving, setting.option.id) {
        return Ok(true);
    }
    let seconds = || setting.read(parse_seconds).map(Some);
    let bytes = || setting.read(parse_bytes).map(Some);
    match setting.option.id {
        OptionId::Uid => serving.uid_map = IdMap::Squash(setting.read(parse_user)?),
        OptionId::Gid => serving.gid_map = IdMap::Squash(setting.read(parse_group)?),
        OptionId::UidMap => setting.read(|range| add_range(&mut serving.uid_map, range))?,
        OptionId::GidMap => setting.read(|range| add_range(&mut serving.gid_map, range))?,
        OptionId::Cache => {
            serving.cache = match setting.text() {
                "never" => CacheMode::Never,
                "metadata" => CacheMode::Metadata,
                "always" => CacheMode::Always,
                "auto" => CacheMode::Auto,
                word => unreachable!("`{word}` is no choice of the option table"),
            }
        }
        OptionId::EntryTimeout => serving.entry_timeout = seconds()?,
        OptionId::AttrTimeout => serving.attr_timeout = seconds()?,
        OptionId::NegativeTimeout => serving.negative_timeout = seconds()?,
        OptionId::Locks if setting.text() == "shared" => serving.locks = Locks::Shared,
        OptionId::Locks => serving.locks = Locks::Local,
        OptionId::FileHandles => {
            serving.file_handles = match setting.text() {
                "prefer" => FileHandles::Prefer,
                "mandatory" => FileHandles::Mandatory,
                _ => FileHandles::Never,
            }
        }
        OptionId::MigrationMode => {
            serving.migration.mode = match setting.text() {
                "file-handles" => MigrationMode::FileHandles,
                _ => MigrationMode::FindPaths,
            }
        }
        OptionId::MigrationOnError => {
            serving.migration.on_error = match setting.text() {
                "guest-error" => MigrationOnError::GuestError,
                _ => MigrationOnError::Abort,
            }
        }
        OptionId::MaxWrite => serving.max_write = bytes()?,
        OptionId::MaxBackground => serving.max_background = Some(setting.count()?),
        OptionId::MaxReadahead => serving.max_readahead = bytes()?,
        OptionId::Descriptors => serving.descriptor_budget = Some(setting.count()?),
        _ => return Ok(false),
    }
    Ok(true)
}

fn apply_switch(serving: &mut Config, id: OptionId) -> bool {
    match id {
        OptionId::Writeback(on) => serving.writeback = on,
        OptionId::Passthrough(on) => serving.passthrough = on,
        OptionId::Xattr(on) => serving.xattr = on,
        OptionId::Acl(on) => serving.acl = on,
        OptionId::Export(on) => serving.export = on,
        OptionId::MigrationVerifyHandles => serving.migration.verify_handles = true,
        OptionId::MigrationConfirmPaths => serving.migration.confirm_paths = true,
        OptionId::MigrationRefuseHandles => serving.migration.accept_handles = false,
        _ => return false,
    }
    true
}

/// Checks the combination. `effective` are the active settings, for messages.
pub(super) fn check(serving: &Config, effective: &[Setting]) -> Result<(), OptionError> {
    let Err(error) = serving.check() else {
        return Ok(());
    };
    let said = |id| effective.iter().find(|setting| setting.option.id == id);
    let shown = |id| said(id).map_or_else(|| "the default".to_owned(), ToString::to_string);
    let cache = || format!("cache={}", word(serving.cache));
    let policy = || shown(OptionId::Policy);
    let (first, second) = match error {
        ConfigError::UncheckedSharing => (
            shown(OptionId::AllowOther),
            shown(OptionId::DefaultPermissions(false)),
        ),
        ConfigError::WritebackWithoutCache => (shown(OptionId::Writeback(true)), cache()),
        ConfigError::AclWithoutXattr => (shown(OptionId::Acl(true)), shown(OptionId::Xattr(false))),
        ConfigError::CallersOfMappedIds => (policy(), shown(OptionId::UidMap)),
        ConfigError::PathsOfExported | ConfigError::NoPolicyToReplace => {
            (policy(), shown(OptionId::Export(true)))
        }
    };
    Err(OptionError::Contradiction {
        first,
        second,
        fix: error.to_string(),
    })
}

fn word(cache: CacheMode) -> &'static str {
    match cache {
        CacheMode::Never => "never",
        CacheMode::Metadata => "metadata",
        CacheMode::Auto => "auto",
        CacheMode::Always => "always",
    }
}

/// Adds a range, which must not overlap another on either side.
pub(super) fn add_range(map: &mut IdMap, value: &str) -> Result<(), String> {
    let new = parse_range(value)?;
    let mut ranges = match std::mem::take(map) {
        IdMap::Ranges(ranges) => ranges,
        _ => Vec::new(),
    };
    let meet = |a: u32, b: u32, count: u32| {
        let (a, b) = (u64::from(a), u64::from(b));
        a < b + u64::from(count) && b < a + u64::from(new.count)
    };
    let overlapping = ranges
        .iter()
        .any(|old| meet(new.client, old.client, old.count) || meet(new.host, old.host, old.count));
    if overlapping {
        return Err("it shares ids with another range".to_owned());
    }
    ranges.push(new);
    *map = IdMap::Ranges(ranges);
    Ok(())
}
