//! The settings of the POSIX case list, and its report.

use std::env;
use std::process::ExitCode;
use std::sync::Arc;

use thrufs_testing::{Need, Setup, Tree, posix};

use crate::guest::Share;
use crate::lower::{Ground, Lower};
use crate::mounted::Mounted;
use crate::relayed::{Queues, Relayed};
use crate::transport::Transport;

/// How a tree on the lower file system is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Native,
    Mount,
    /// By the shares of the guest that this runs in.
    Guest,
    /// By a share that a relay mounts here.
    Relay(Queues),
}

#[derive(Clone, Debug)]
pub struct Setting {
    pub lower: Lower,
    pub way: Way,
    /// Those of the mount or share.
    pub options: &'static str,
}

impl Setting {
    /// That of the guest in which this runs, as the host has prepared it: `LOWER` is its file system,
    /// `OPTIONS` those of the share under test.
    pub fn of_guest() -> Result<Setting, String> {
        let variable = |name: &str| env::var(name).map_err(|error| format!("{name}: {error}"));
        let lower = variable("LOWER")?;
        let lower = [Lower::Tmpfs, Lower::Ext4, Lower::Xfs, Lower::Btrfs]
            .into_iter()
            .find(|known| known.name() == lower)
            .ok_or_else(|| format!("LOWER: no such file system: {lower}"))?;
        // Settings are constants everywhere else.
        let options: &'static str = variable("OPTIONS")?.leak();
        Ok(Setting {
            lower,
            way: Way::Guest,
            options,
        })
    }

    fn is_share(&self) -> bool {
        matches!(self.way, Way::Guest | Way::Relay(_))
    }

    /// Whether the mount uses passthrough.
    fn passes_through(&self) -> bool {
        let off = ["nopassthrough", "writeback", "opens=local"];
        let is_off = off.iter().any(|option| self.has_option(option));
        self.way == Way::Mount && !is_off
    }

    fn shares_locks(&self) -> bool {
        let is_relay = matches!(self.way, Way::Relay(_));
        let local = ["locks=local", "opens=local"];
        let is_default = !is_relay && !local.iter().any(|option| self.has_option(option));
        is_default || self.has_option("locks=shared")
    }

    fn maps_are_private(&self) -> bool {
        let uncached = ["cache=never", "cache=metadata"];
        uncached.iter().any(|option| self.has_option(option)) && !self.has_option("allow_mmap")
    }

    fn has_option(&self, wanted: &str) -> bool {
        self.options.split(',').any(|option| option == wanted)
    }
}

impl Setup for Setting {
    fn name(&self) -> String {
        let way = match self.way {
            Way::Native => "native".to_owned(),
            Way::Mount => "mount".to_owned(),
            Way::Guest => "guest".to_owned(),
            Way::Relay(queues) => format!("relay{}", queues.name()),
        };
        let name = format!("{way} {} {}", self.lower.name(), self.options);
        name.trim_end().to_owned()
    }

    fn start(&self) -> Result<Arc<dyn Tree>, String> {
        let (lower, options) = (self.lower, self.options);
        Ok(match self.way {
            Way::Native => Arc::new(Ground::prepare(lower)?),
            Way::Mount => Arc::new(Mounted::start_on(lower, options)?),
            Way::Guest => Arc::new(Share),
            Way::Relay(queues) => Arc::new(Relayed::start_on(lower, options, queues)?),
        })
    }

    fn lacks(&self, need: Need) -> Option<&'static str> {
        let mounted = self.way != Way::Native;
        match need {
            Need::Acl if mounted && !self.has_option("acl") => {
                Some("ACLs are enforced on mounts with the option acl only")
            }
            Need::ZeroRange if !self.lower.has_zero_range() => {
                Some("the file system beneath has no ZERO_RANGE")
            }
            Need::ShiftRange if mounted => {
                Some("the kernel's FUSE client refuses COLLAPSE_RANGE and INSERT_RANGE itself")
            }
            Need::ShiftRange if !self.lower.has_shift_range() => {
                Some("this file system has no COLLAPSE_RANGE and INSERT_RANGE")
            }
            Need::NoShiftRange if !mounted && self.lower.has_shift_range() => {
                Some("this file system has COLLAPSE_RANGE and INSERT_RANGE")
            }
            Need::SharedLocks | Need::SharedRanges if mounted && !self.shares_locks() => {
                Some("locks stay in the mount with locks=local")
            }
            Need::SharedRanges if mounted && !self.passes_through() => {
                Some("without passthrough, the mount locks the file for a range of it")
            }
            Need::NotXfs if self.lower == Lower::Xfs => Some("XFS does it differently"),
            Need::NotBtrfs if self.lower == Lower::Btrfs => Some("btrfs does it differently"),
            Need::NotOverlay if self.lower == Lower::Overlay => {
                Some("overlayfs does it differently")
            }
            Need::TruncateToSameSize if matches!(self.lower, Lower::Xfs | Lower::Btrfs) => {
                Some("this file system leaves the times when the size stays")
            }
            Need::HostMaps if self.way == Way::Guest => {
                Some("the file system beneath is a share as well, with the guest's maps")
            }
            Need::SharedMaps if self.is_share() && self.maps_are_private() => {
                Some("data that are not cached are not mapped shared, without allow_mmap")
            }
            Need::TrustedAttributes
                if matches!(self.way, Way::Relay(_)) && !self.has_option("modcaps=+sys_admin") =>
            {
                Some("the worker of a share has no SYS_ADMIN unless an option keeps it")
            }
            Need::WriteThrough if self.has_option("writeback") => {
                Some("with writeback the kernel keeps written data until a flush")
            }
            Need::AppendSwitchedOff if mounted && self.passes_through() => {
                Some("the kernel keeps O_APPEND on a file beneath that it has opened with it")
            }
            Need::CloseToOpen | Need::AskedAtOpen if self.has_option("opens=local") => {
                Some("the kernel opens files without a look beneath")
            }
            Need::CloseToOpen if self.has_option("cache=always") => {
                Some("cache=always is for files without other writers")
            }
            Need::Notifications if self.is_share() && !self.has_option("cache=never") => {
                Some("a guest's kernel cannot be notified of a change")
            }
            Need::Notifications if self.has_option("writeback") => {
                Some("with writeback the kernel has times of its own")
            }
            Need::NoCache
                if mounted && !self.has_option("cache=never") && !self.passes_through() =>
            {
                Some("the kernel appends at the size that it has cached, unless cache=never")
            }
            _ => None,
        }
    }
}

/// Runs every case on every setting, as the arguments of this process say, or reports why nothing can run
/// here.
pub fn run(settings: Vec<Setting>, skip: Option<String>) -> ExitCode {
    let Some(reason) = skip else {
        return run_with(env::args(), settings);
    };
    let (cases, settings) = (posix::all().len(), settings.len());
    thrufs_test_report::skipped_in(&format!("all {cases} cases on {settings} grounds"), reason);
    ExitCode::SUCCESS
}

pub fn run_with(arguments: impl IntoIterator<Item = String>, settings: Vec<Setting>) -> ExitCode {
    let settings = settings.into_iter();
    thrufs_testing::suite::run(arguments, settings.map(|it| Arc::new(it) as Arc<dyn Setup>))
}

/// The file systems that are served with default options only.
const OTHERS: [Lower; 3] = [Lower::Xfs, Lower::Btrfs, Lower::Overlay];

pub fn setting(lower: Lower, way: Way, options: &'static str) -> Setting {
    Setting {
        lower,
        way,
        options,
    }
}

pub fn native_settings() -> Vec<Setting> {
    let lowers = [Lower::Tmpfs, Lower::Ext4].into_iter().chain(OTHERS);
    known(lowers.map(|lower| setting(lower, Way::Native, "")))
}

/// All settings of the mount run: `options` on tmpfs and on ext4, `tmpfs_options` on tmpfs alone, the
/// defaults on the others.
pub fn mount_settings(options: &[&'static str], tmpfs_options: &[&'static str]) -> Vec<Setting> {
    let on = |lower| move |options: &&'static str| setting(lower, Way::Mount, options);
    let tmpfs = options.iter().map(on(Lower::Tmpfs));
    let ext4 = options.iter().map(on(Lower::Ext4));
    let tmpfs_alone = tmpfs_options.iter().map(on(Lower::Tmpfs));
    let others = OTHERS.map(|lower| setting(lower, Way::Mount, ""));
    known(tmpfs.chain(ext4).chain(tmpfs_alone).chain(others))
}

/// The settings whose file system and transport this kernel has; reports the others as skipped.
pub fn known(settings: impl IntoIterator<Item = Setting>) -> Vec<Setting> {
    let mut known = Vec::new();
    for setting in settings {
        match is_missing(&setting) {
            Some(reason) => thrufs_test_report::skipped_in(&setting.name(), reason),
            None => known.push(setting),
        }
    }
    known
}

fn is_missing(setting: &Setting) -> Option<String> {
    if !setting.lower.is_known() {
        return Some("not in this kernel".to_owned());
    }
    Transport::of(setting.options).is_missing()
}
