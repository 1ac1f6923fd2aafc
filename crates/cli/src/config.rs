//! The configuration of a mount: the settings of the table of options, resolved and checked once. [`share`]
//! has that of a share, [`serving`] and [`server`] what both have in common. Nothing later looks at a
//! setting by name.

mod server;
mod serving;
mod share;

pub(crate) use server::ServerConfig;
pub(crate) use share::{FilterAction, Sandbox, ShareConfig};

use crate::options::{self, OptionError, OptionId, Setting, Use};
use rustix::mount::MountAttrFlags;
use std::ffi::OsString;
use std::num::{NonZeroU16, NonZeroUsize};
use std::path::{Path, PathBuf};
use thrufs::{Transport, UringConfig};
use thrufs_hostdir::Config;

#[derive(Clone, Debug)]
pub(crate) struct MountConfig {
    /// Absolute.
    pub(crate) source: PathBuf,
    /// Absolute and without symbolic links.
    pub(crate) mountpoint: PathBuf,
    pub(crate) attributes: MountAttrFlags,
    pub(crate) synchronous: bool,
    pub(crate) allow_other: bool,
    pub(crate) default_permissions: bool,
    /// Whether to unmount when the server dies; otherwise the mount stays and returns ENOTCONN.
    pub(crate) auto_unmount: bool,
    pub(crate) fsname: OsString,
    /// The type of the mount, after "fuse.".
    pub(crate) subtype: String,
    pub(crate) serving: Config,
    pub(crate) transport: Transport,
    pub(crate) ring: UringConfig,
    pub(crate) threads: Option<usize>,
    /// Whether a reader may be paired with its only caller.
    pub(crate) pairing: bool,
    pub(crate) server: ServerConfig,
    /// The settings before resolution, which supervisor and worker receive.
    pub(crate) settings: Vec<Setting>,
}

impl MountConfig {
    /// Arguments of the processes, for ps(1).
    pub(crate) fn paths(&self) -> [&Path; 2] {
        [&self.source, &self.mountpoint]
    }

    pub(crate) fn has(&self, attribute: MountAttrFlags) -> bool {
        self.attributes.contains(attribute)
    }

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
            attributes: MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
            synchronous: false,
            allow_other: false,
            default_permissions: true,
            auto_unmount: false,
            subtype: "thrufs".to_owned(),
            serving: Config::default(),
            transport: Transport::Auto,
            ring: UringConfig::default(),
            threads: None,
            pairing: true,
            server: ServerConfig::default(),
            settings: settings.to_vec(),
        };
        for setting in &effective {
            config.apply(setting)?;
        }
        config.settle(&effective)?;
        Ok(config)
    }

    fn apply(&mut self, setting: &Setting) -> Result<(), OptionError> {
        let id = setting.option.id;
        if !setting.option.used.includes(Use::Mount) {
            return Err(setting.not_for("mount"));
        }
        if self.apply_attribute(id)
            || self.server.apply(setting)?
            || serving::apply(&mut self.serving, setting)?
        {
            return Ok(());
        }
        match id {
            OptionId::Sync(on) => self.synchronous = on,
            OptionId::AllowOther => self.allow_other = true,
            OptionId::DefaultPermissions(on) => self.default_permissions = on,
            OptionId::FsName => self.fsname = setting.text().into(),
            OptionId::Subtype => setting.text().clone_into(&mut self.subtype),
            OptionId::Pairing(on) => self.pairing = on,
            OptionId::Transport => {
                self.transport = match setting.text() {
                    "uring" => Transport::Uring,
                    "dev" => Transport::Dev,
                    _ => Transport::Auto,
                }
            }
            OptionId::QueuesPerThread => {
                self.ring.queues_per_thread = NonZeroUsize::new(setting.count()?);
            }
            OptionId::RingDepth => self.ring.depth = NonZeroU16::new(setting.count()?),
            OptionId::Threads => self.threads = Some(setting.count()?),
            OptionId::AutoUnmount => self.auto_unmount = true,
            OptionId::Ignored => {}
            id => unreachable!("{id:?} is for mounts"),
        }
        Ok(())
    }

    /// Applies an option that only the kernel acts upon; returns whether it was one.
    fn apply_attribute(&mut self, id: OptionId) -> bool {
        let (flag, is_set) = match id {
            OptionId::ReadOnly(on) => (MountAttrFlags::MOUNT_ATTR_RDONLY, on),
            OptionId::Suid(on) => (MountAttrFlags::MOUNT_ATTR_NOSUID, !on),
            OptionId::Dev(on) => (MountAttrFlags::MOUNT_ATTR_NODEV, !on),
            OptionId::Exec(on) => (MountAttrFlags::MOUNT_ATTR_NOEXEC, !on),
            OptionId::SymFollow(on) => (MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW, !on),
            OptionId::DirAtime(on) => (MountAttrFlags::MOUNT_ATTR_NODIRATIME, !on),
            OptionId::Atime(atime) => (atime, true),
            _ => return false,
        };
        self.attributes.set(flag, is_set);
        true
    }

    /// Derives dependent defaults, and checks for contradictions.
    fn settle(&mut self, effective: &[Setting]) -> Result<(), OptionError> {
        self.serving.read_only = self.has(MountAttrFlags::MOUNT_ATTR_RDONLY);
        self.serving.allow_other = self.allow_other;
        self.serving.default_permissions = self.default_permissions;
        if !self.serving.xattr || !self.default_permissions {
            // An explicit `acl` would have been a contradiction.
            self.serving.acl = false;
        }
        serving::check(&self.serving, effective)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::socket::ControlLocation;
    use std::time::Duration;
    use thrufs_hostdir::{CacheMode, IdMap, Locks};

    fn resolved(list: &str) -> Result<MountConfig, OptionError> {
        MountConfig::resolve("/src".into(), "/mnt".into(), &options::parse(list)?)
    }

    #[test]
    fn default_configuration() {
        let config = resolved("").unwrap();
        let nosuid_nodev = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        assert_eq!(config.attributes, nosuid_nodev);
        assert_eq!(config.fsname, "/src");
        assert_eq!(config.subtype, "thrufs");
        assert!(config.default_permissions && !config.allow_other && !config.auto_unmount);
        assert!(resolved("auto_unmount").unwrap().auto_unmount);
        assert_eq!(config.server.stop_timeout, Duration::from_secs(10));
        assert_eq!(config.server.control, ControlLocation::Usual);
        assert!(config.serving.acl && config.serving.xattr && !config.serving.writeback);
    }

    #[test]
    fn every_option_is_resolved() {
        for option in options::OPTIONS.iter() {
            let setting = options::setting(option, option.sample().as_deref()).unwrap();
            let resolved = MountConfig::resolve("/src".into(), "/mnt".into(), &[setting]);
            let (name, used) = (option.name, option.used.includes(Use::Mount));
            assert_eq!(resolved.is_ok(), used, "{name}: {resolved:?}");
        }
    }

    #[test]
    fn options_take_their_values() {
        let config = resolved(
            "ro,suid,dev,noexec,nosymfollow,noatime,nodiratime,sync,allow_other,\
             fsname=a\\,b,subtype=x,cache=always,entry_timeout=1.5,attr_timeout=2,\
             negative_timeout=0,writeback,noacl,locks=shared,export,threads=3,nopairing,max_write=64K,\
             transport=uring,queues_per_thread=4,ring_depth=2,\
             max_background=7,max_readahead=32K,descriptors=99,stop_timeout=0.5,log=debug,\
             log_file=/l,control=/run/c,uidmap=0:1000:10,uidmap=10:0:1,gid=5",
        )
        .unwrap();
        let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
            | MountAttrFlags::MOUNT_ATTR_NOEXEC
            | MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW
            | MountAttrFlags::MOUNT_ATTR_NOATIME
            | MountAttrFlags::MOUNT_ATTR_NODIRATIME;
        assert!(config.synchronous);
        assert_eq!(config.attributes, attributes);
        assert!(!config.pairing);
        assert_eq!(config.transport, Transport::Uring);
        let ring = UringConfig {
            queues_per_thread: NonZeroUsize::new(4),
            depth: NonZeroU16::new(2),
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
        assert_eq!(config.server.stop_timeout, Duration::from_millis(500));
        assert_eq!(config.server.control, ControlLocation::At("/run/c".into()));
        assert_eq!(
            resolved("control=none").unwrap().server.control,
            ControlLocation::None
        );
    }

    #[test]
    fn allow_other_without_permission_checks_is_refused() {
        for more in [
            "",
            ",cache=never",
            ",cache=never,ro",
            ",cache=always,uid=1000",
        ] {
            let error = resolved(&format!("allow_other,no_default_permissions{more}"));
            let error = error.unwrap_err().to_string();
            for part in ["`allow_other`", "`no_default_permissions`", "drop one"] {
                assert!(error.contains(part), "{more}: {error}");
            }
        }
        assert!(resolved("no_default_permissions").is_ok());
    }

    #[test]
    fn acl_follows_other_options_unless_explicit() {
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
    fn resolving_settings_twice_gives_the_same() {
        let config = resolved("fsname=a\\,b,noatime,uidmap=0:1:2").unwrap();
        let again = MountConfig::resolve("/src".into(), "/mnt".into(), &config.settings).unwrap();
        assert_eq!(format!("{config:?}"), format!("{again:?}"));
    }
}
