//! What a mount shall be: the raw settings, resolved once and checked.

use crate::control::place::Control;
use crate::options::{self, OptionError, OptionId, Setting};
use crate::options::{parse_bytes, parse_count, parse_range, parse_seconds};
use std::ffi::OsString;
use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;
use thrufs::{RingConfig, Transport};
use thrufs_hostdir::{CacheMode, Config, ConfigError, IdMap, Locks};

/// How long users of a mount have to leave when the server is asked to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How times of access are kept on the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Atime {
    /// As the kernel does when nothing is said.
    #[default]
    Default,
    Never,
    Relative,
    Strict,
}

/// What the kernel is told about the mount itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MountAttributes {
    pub(crate) read_only: bool,
    pub(crate) suid: bool,
    pub(crate) dev: bool,
    pub(crate) exec: bool,
    pub(crate) follow_symlinks: bool,
    pub(crate) atime: Atime,
    pub(crate) directory_atime: bool,
    pub(crate) synchronous: bool,
}

impl Default for MountAttributes {
    fn default() -> MountAttributes {
        MountAttributes {
            read_only: false,
            suid: false,
            dev: false,
            exec: true,
            follow_symlinks: true,
            atime: Atime::Default,
            directory_atime: true,
            synchronous: false,
        }
    }
}

/// Everything about one mount.
#[derive(Clone, Debug)]
pub(crate) struct MountConfig {
    /// The directory to serve, absolute.
    pub(crate) source: PathBuf,
    /// Where to mount it, absolute and without symbolic links.
    pub(crate) mountpoint: PathBuf,
    pub(crate) attributes: MountAttributes,
    pub(crate) allow_other: bool,
    pub(crate) default_permissions: bool,
    /// What the mount shows as its source.
    pub(crate) fsname: OsString,
    /// What the mount shows as its type, after "fuse.".
    pub(crate) subtype: String,
    /// How the directory is served.
    pub(crate) serving: Config,
    pub(crate) transport: Transport,
    pub(crate) ring: RingConfig,
    pub(crate) threads: Option<usize>,
    /// Whether a reader may be paired with its only caller.
    pub(crate) pairing: bool,
    pub(crate) foreground: bool,
    pub(crate) stop_timeout: Duration,
    /// Directives for the log; the environment decides when there are none.
    pub(crate) log: Option<String>,
    pub(crate) log_file: Option<PathBuf>,
    /// The rules to serve by.
    pub(crate) policy: Option<PathBuf>,
    pub(crate) control: Control,
    /// The settings that this was made of: what the supervisor and the worker are handed.
    pub(crate) settings: Vec<Setting>,
}

impl MountConfig {
    /// Whether a hangup ends the server: when it runs on a terminal, which has gone away. Otherwise
    /// it is how a server is told to read its policy again.
    pub(crate) fn ends_on_hangup(&self) -> bool {
        self.foreground && (self.policy.is_none() || rustix::termios::isatty(std::io::stdin()))
    }

    /// Resolves `settings`, in their order.
    ///
    /// # Errors
    ///
    /// Two of them that contradict each other.
    pub(crate) fn resolve(
        source: PathBuf,
        mountpoint: PathBuf,
        settings: &[Setting],
    ) -> Result<MountConfig, OptionError> {
        let effective = options::in_force(settings)?;
        let mut config = MountConfig {
            fsname: source.clone().into_os_string(),
            source,
            mountpoint,
            attributes: MountAttributes::default(),
            allow_other: false,
            default_permissions: true,
            subtype: "thrufs".to_owned(),
            serving: Config::default(),
            transport: Transport::Auto,
            ring: RingConfig::default(),
            threads: None,
            pairing: true,
            foreground: false,
            stop_timeout: STOP_TIMEOUT,
            log: None,
            log_file: None,
            policy: None,
            control: Control::Usual,
            settings: settings.to_vec(),
        };
        for setting in &effective {
            config.apply(setting)?;
        }
        config.settle(&effective)?;
        Ok(config)
    }

    fn apply(&mut self, setting: &Setting) -> Result<(), OptionError> {
        let bad = |problem: String| OptionError::BadValue {
            name: setting.option.name,
            value: setting.value.clone().unwrap_or_default(),
            problem,
        };
        let value = setting.value.as_deref().unwrap_or_default();
        if self.apply_attribute(setting.option.id) {
            return Ok(());
        }
        let count = |value| parse_count(value).map_err(|()| bad("it is no number".to_owned()));
        let user = |value| options::parse_user(value).map_err(bad);
        let group = |value| options::parse_group(value).map_err(bad);
        match setting.option.id {
            OptionId::AllowOther => self.allow_other = true,
            OptionId::DefaultPermissions => self.default_permissions = true,
            OptionId::NoDefaultPermissions => self.default_permissions = false,
            OptionId::Uid => self.serving.uid_map = IdMap::Squash(user(value)?),
            OptionId::Gid => self.serving.gid_map = IdMap::Squash(group(value)?),
            OptionId::UidMap => add_range(&mut self.serving.uid_map, value).map_err(bad)?,
            OptionId::GidMap => add_range(&mut self.serving.gid_map, value).map_err(bad)?,
            OptionId::FsName => self.fsname = value.into(),
            OptionId::Subtype => value.clone_into(&mut self.subtype),
            OptionId::Cache => {
                self.serving.cache = match value {
                    "never" => CacheMode::Never,
                    "always" => CacheMode::Always,
                    _ => CacheMode::Auto,
                }
            }
            OptionId::EntryTimeout => {
                self.serving.entry_timeout = Some(parse_seconds(value).map_err(bad)?);
            }
            OptionId::AttrTimeout => {
                self.serving.attr_timeout = Some(parse_seconds(value).map_err(bad)?);
            }
            OptionId::NegativeTimeout => {
                self.serving.negative_timeout = Some(parse_seconds(value).map_err(bad)?);
            }
            OptionId::Writeback => self.serving.writeback = true,
            OptionId::NoWriteback => self.serving.writeback = false,
            OptionId::Passthrough => self.serving.passthrough = true,
            OptionId::NoPassthrough => self.serving.passthrough = false,
            OptionId::Xattr => self.serving.xattr = true,
            OptionId::NoXattr => self.serving.xattr = false,
            OptionId::Acl => self.serving.acl = true,
            OptionId::NoAcl => self.serving.acl = false,
            OptionId::Locks if value == "shared" => self.serving.locks = Locks::Shared,
            OptionId::Locks => self.serving.locks = Locks::Local,
            OptionId::Export => self.serving.export = true,
            OptionId::NoExport => self.serving.export = false,
            OptionId::Pairing => self.pairing = true,
            OptionId::NoPairing => self.pairing = false,
            OptionId::Transport => {
                self.transport = match value {
                    "uring" => Transport::Uring,
                    "dev" => Transport::Dev,
                    _ => Transport::Auto,
                }
            }
            OptionId::QueuesPerThread => {
                let queues = usize::try_from(count(value)?).ok();
                self.ring.queues_per_thread = queues.and_then(NonZeroUsize::new);
            }
            OptionId::RingDepth => {
                let depth = u16::try_from(count(value)?).ok();
                self.ring.depth = depth.and_then(NonZeroU16::new);
            }
            OptionId::RingSpin => self.ring.spin = Duration::from_micros(count(value)?),
            OptionId::Threads => self.threads = usize::try_from(count(value)?).ok(),
            OptionId::MaxWrite => self.serving.max_write = Some(parse_bytes(value).map_err(bad)?),
            OptionId::MaxBackground => {
                self.serving.max_background = u16::try_from(count(value)?).ok();
            }
            OptionId::MaxReadahead => {
                self.serving.max_readahead = Some(parse_bytes(value).map_err(bad)?);
            }
            OptionId::Descriptors => {
                self.serving.descriptor_budget = usize::try_from(count(value)?).ok();
            }
            OptionId::Foreground => self.foreground = true,
            OptionId::StopTimeout => self.stop_timeout = parse_seconds(value).map_err(bad)?,
            OptionId::Log => self.log = Some(value.to_owned()),
            OptionId::LogFile => self.log_file = Some(value.into()),
            OptionId::Policy => self.policy = Some(value.into()),
            OptionId::Control if value == "none" => self.control = Control::None,
            OptionId::Control => self.control = Control::At(value.into()),
            OptionId::AutoUnmount | OptionId::Ignored | OptionId::User | OptionId::Owner => {}
            id => unreachable!("{id:?} is an attribute of the mount"),
        }
        Ok(())
    }

    /// Handles the options that the kernel alone acts upon; tells whether this was one.
    fn apply_attribute(&mut self, id: OptionId) -> bool {
        let attributes = &mut self.attributes;
        match id {
            OptionId::ReadOnly => attributes.read_only = true,
            OptionId::ReadWrite => attributes.read_only = false,
            OptionId::NoSuid => attributes.suid = false,
            OptionId::Suid => attributes.suid = true,
            OptionId::NoDev => attributes.dev = false,
            OptionId::Dev => attributes.dev = true,
            OptionId::NoExec => attributes.exec = false,
            OptionId::Exec => attributes.exec = true,
            OptionId::NoSymFollow => attributes.follow_symlinks = false,
            OptionId::SymFollow => attributes.follow_symlinks = true,
            OptionId::NoAtime => attributes.atime = Atime::Never,
            OptionId::Atime => attributes.atime = Atime::Default,
            OptionId::RelAtime => attributes.atime = Atime::Relative,
            OptionId::StrictAtime => attributes.atime = Atime::Strict,
            OptionId::NoDirAtime => attributes.directory_atime = false,
            OptionId::DirAtime => attributes.directory_atime = true,
            OptionId::Sync => attributes.synchronous = true,
            OptionId::Async => attributes.synchronous = false,
            _ => return false,
        }
        true
    }

    /// Lets the defaults follow what was said, and refuses what does not go together.
    fn settle(&mut self, effective: &[Setting]) -> Result<(), OptionError> {
        let said = |id| effective.iter().find(|setting| setting.option.id == id);
        self.serving.read_only = self.attributes.read_only;
        self.serving.allow_other = self.allow_other;
        self.serving.default_permissions = self.default_permissions;
        if !self.serving.xattr || !self.default_permissions {
            // Had it been asked for in so many words, that would have been a contradiction.
            self.serving.acl = false;
        }
        let Err(error) = self.serving.check() else {
            return Ok(());
        };
        let shown = |id| said(id).map_or_else(|| "the default".to_owned(), ToString::to_string);
        let cache = || format!("cache={}", word(self.serving.cache));
        let (first, second) = match error {
            ConfigError::UncheckedSharing => {
                let timeout = said(OptionId::EntryTimeout).or(said(OptionId::AttrTimeout));
                let second = match timeout {
                    Some(timeout) if self.serving.cache == CacheMode::Never => timeout.to_string(),
                    _ => cache(),
                };
                ("allow_other,no_default_permissions".to_owned(), second)
            }
            ConfigError::WritebackWithoutCache => (shown(OptionId::Writeback), cache()),
            ConfigError::AclWithoutXattr => (shown(OptionId::Acl), shown(OptionId::NoXattr)),
            ConfigError::CallersOfMappedIds => (shown(OptionId::Policy), shown(OptionId::UidMap)),
            ConfigError::PathsOfExported | ConfigError::NoPolicyToReplace => {
                (shown(OptionId::Policy), shown(OptionId::Export))
            }
        };
        Err(OptionError::Contradiction {
            first,
            second,
            fix: error.to_string(),
        })
    }
}

fn word(cache: CacheMode) -> &'static str {
    match cache {
        CacheMode::Never => "never",
        CacheMode::Auto => "auto",
        CacheMode::Always => "always",
    }
}

/// Adds a range, which must not share an id with another on either side.
fn add_range(map: &mut IdMap, value: &str) -> Result<(), String> {
    let new = parse_range(value)?;
    let mut ranges = match std::mem::take(map) {
        IdMap::Ranges(ranges) => ranges,
        IdMap::Identity | IdMap::Squash(_) => Vec::new(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(list: &str) -> Result<MountConfig, OptionError> {
        MountConfig::resolve("/src".into(), "/mnt".into(), &options::parse(list)?)
    }

    #[test]
    fn nothing_said() {
        let config = resolved("").unwrap();
        assert_eq!(config.attributes, MountAttributes::default());
        assert!(!config.attributes.suid && !config.attributes.dev && config.attributes.exec);
        assert_eq!(config.fsname, "/src");
        assert_eq!(config.subtype, "thrufs");
        assert!(config.default_permissions && !config.allow_other);
        assert_eq!(config.stop_timeout, Duration::from_secs(10));
        assert_eq!(config.control, Control::Usual);
        assert!(config.serving.acl && config.serving.xattr && !config.serving.writeback);
    }

    #[test]
    fn everything_said() {
        let config = resolved(
            "ro,suid,dev,noexec,nosymfollow,noatime,nodiratime,sync,allow_other,\
             fsname=a\\,b,subtype=x,cache=always,entry_timeout=1.5,attr_timeout=2,\
             negative_timeout=0,writeback,noacl,locks=shared,export,threads=3,nopairing,max_write=64K,\
             transport=uring,queues_per_thread=4,ring_depth=2,ring_spin=50,\
             max_background=7,max_readahead=32K,descriptors=99,stop_timeout=0.5,log=debug,\
             log_file=/l,control=/run/c,uidmap=0:1000:10,uidmap=10:0:1,gid=5",
        )
        .unwrap();
        let attributes = MountAttributes {
            read_only: true,
            suid: true,
            dev: true,
            exec: false,
            follow_symlinks: false,
            atime: Atime::Never,
            directory_atime: false,
            synchronous: true,
        };
        assert_eq!(config.attributes, attributes);
        assert!(!config.pairing);
        assert_eq!(config.transport, Transport::Uring);
        let ring = RingConfig {
            queues_per_thread: NonZeroUsize::new(4),
            depth: NonZeroU16::new(2),
            spin: Duration::from_micros(50),
        };
        assert_eq!(config.ring, ring);
        let serving = &config.serving;
        assert!(serving.read_only && serving.allow_other && serving.writeback && serving.export);
        assert!(!serving.acl && serving.xattr);
        assert_eq!(serving.cache, CacheMode::Always);
        assert_eq!(serving.entry_timeout, Some(Duration::from_millis(1500)));
        assert_eq!(serving.negative_timeout, Some(Duration::ZERO));
        assert_eq!(serving.locks, Locks::Shared);
        assert_eq!(serving.max_write, Some(65_536));
        assert_eq!(serving.max_background, Some(7));
        assert_eq!(serving.max_readahead, Some(32_768));
        assert_eq!(serving.descriptor_budget, Some(99));
        assert_eq!(serving.uid_map.to_host(3), Some(1003));
        assert_eq!(serving.uid_map.to_host(10), Some(0));
        assert_eq!(serving.gid_map, IdMap::Squash(5));
        assert_eq!(
            (config.threads, config.fsname.as_os_str()),
            (Some(3), "a,b".as_ref())
        );
        assert_eq!(config.stop_timeout, Duration::from_millis(500));
        assert_eq!(config.control, Control::At("/run/c".into()));
        assert_eq!(resolved("control=none").unwrap().control, Control::None);
    }

    #[test]
    fn unchecked_sharing_names_the_way_out() {
        let error = resolved("allow_other,no_default_permissions")
            .unwrap_err()
            .to_string();
        for part in [
            "allow_other",
            "no_default_permissions",
            "cache=auto",
            "cache=never",
        ] {
            assert!(error.contains(part), "{error}");
        }
        assert!(resolved("allow_other,no_default_permissions,cache=never").is_ok());
        let error = resolved("allow_other,no_default_permissions,cache=never,attr_timeout=3");
        let error = error.unwrap_err().to_string();
        assert!(error.contains("`attr_timeout=3`"), "{error}");
    }

    #[test]
    fn acl_follows_unless_it_was_asked_for() {
        assert!(!resolved("noxattr").unwrap().serving.acl);
        assert!(!resolved("no_default_permissions").unwrap().serving.acl);
        assert!(resolved("noxattr,acl").is_err());
    }

    #[test]
    fn ranges_that_overlap_are_refused() {
        assert!(resolved("uidmap=0:100:10,uidmap=9:500:1").is_err());
        assert!(resolved("uidmap=0:100:10,uidmap=50:109:1").is_err());
        assert!(resolved("uidmap=0:100:10,uidmap=10:110:1").is_ok());
    }

    #[test]
    fn settings_resolve_again_to_the_same() {
        let config = resolved("fsname=a\\,b,noatime,uidmap=0:1:2").unwrap();
        let again = MountConfig::resolve("/src".into(), "/mnt".into(), &config.settings).unwrap();
        assert_eq!(format!("{config:?}"), format!("{again:?}"));
    }
}
