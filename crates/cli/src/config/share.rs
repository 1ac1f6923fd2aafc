//! The configuration of a share: its own settings, and the defaults in which it differs from a mount.

use super::{ServerConfig, serving};
use crate::options::{self, OptionError, OptionId, Setting, Use};
use rustix::thread::CapabilitySet;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use thrufs_hostdir::{Config, FileHandles, IdMap, MigrationMode, Translation};
use thrufs_virtio::{DeviceConfig, Tag};

const QUEUES_MAX: u16 = 64;

const MACHINES_MAX: usize = 8;
/// Deaths of workers in a minute after which a request is presumed the cause.
const DEATHS_MAX: usize = 10;

/// How the worker is confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sandbox {
    /// The first available of the others.
    Best,
    /// A mount namespace whose root is the source, or failure.
    Namespace,
    /// The source as root directory, or failure.
    Chroot,
    /// No confinement.
    None,
}

/// The action for a system call that the filter does not list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilterAction {
    Fail,
    Kill,
    Log,
    Trap,
    /// No filter.
    Allow,
}

/// Capabilities to keep in addition, and to drop although serving needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CapabilityChange {
    pub(crate) kept: CapabilitySet,
    pub(crate) dropped: CapabilitySet,
}

/// All of a share but its listening socket.
#[derive(Clone, Debug)]
pub(crate) struct ShareConfig {
    /// Absolute.
    pub(crate) source: PathBuf,
    /// The socket of front ends, for messages.
    pub(crate) socket: PathBuf,
    pub(crate) serving: Config,
    pub(crate) tag: Option<Tag>,
    pub(crate) request_queues: NonZeroU16,
    pub(crate) queue_size_max: u16,
    /// Most helper threads of a queue; depends on the number of CPUs unless given.
    pub(crate) queue_helpers_max: Option<usize>,
    pub(crate) machines_max: usize,
    /// Deaths of one connection's workers within a minute before it is closed.
    pub(crate) deaths_max: usize,
    pub(crate) sandbox: Sandbox,
    /// Ids of the user namespace; only the user's own unless given.
    pub(crate) namespace_uids: IdMap,
    pub(crate) namespace_gids: IdMap,
    pub(crate) filter: FilterAction,
    pub(crate) capabilities: CapabilityChange,
    /// Serve a virtual CPU that is alone from its own CPU.
    pub(crate) pairing: bool,
    /// RLIMIT_NOFILE: the hard limit unless given, 0 to leave it.
    pub(crate) descriptor_limit: Option<u64>,
    pub(crate) server: ServerConfig,
    /// The settings before resolution, which the worker receives.
    pub(crate) settings: Vec<Setting>,
}

impl ShareConfig {
    pub(crate) fn resolve(
        source: PathBuf,
        socket: PathBuf,
        settings: &[Setting],
    ) -> Result<ShareConfig, OptionError> {
        let effective = options::in_force(settings)?;
        let serving = Config {
            passthrough: false,
            callers_are_local: false,
            allow_mmap: false,
            file_handles: FileHandles::Never,
            // The guest's kernel checks permissions.
            allow_other: true,
            default_permissions: true,
            ..Config::default()
        };
        let server = ServerConfig {
            foreground: true,
            ..ServerConfig::default()
        };
        let device = DeviceConfig::default();
        let mut config = ShareConfig {
            source,
            socket,
            serving,
            tag: None,
            request_queues: queues_of_this_machine(),
            queue_size_max: device.queue_size_max,
            queue_helpers_max: device.queue_helpers_max,
            machines_max: MACHINES_MAX,
            deaths_max: DEATHS_MAX,
            sandbox: Sandbox::Best,
            namespace_uids: IdMap::Identity,
            namespace_gids: IdMap::Identity,
            filter: FilterAction::Fail,
            capabilities: CapabilityChange {
                kept: CapabilitySet::empty(),
                dropped: CapabilitySet::empty(),
            },
            pairing: true,
            descriptor_limit: None,
            server,
            settings: settings.to_vec(),
        };
        for setting in &effective {
            config.apply(setting)?;
        }
        if !config.serving.xattr {
            config.serving.acl = false;
        }
        config.check_namespace(&effective)?;
        config.check_handles(&effective)?;
        serving::check(&config.serving, &effective)?;
        Ok(config)
    }

    /// Whether the user namespace maps other ids than the user's own.
    pub(crate) fn maps_namespace(&self) -> bool {
        !self.namespace_uids.is_identity()
    }

    /// A map of users without one of groups, or the reverse, is of no use.
    fn check_namespace(&self, effective: &[Setting]) -> Result<(), OptionError> {
        let is_one = |setting: &&Setting| {
            matches!(
                setting.option.id,
                OptionId::NamespaceUids | OptionId::NamespaceGids
            )
        };
        match effective.iter().find(is_one) {
            Some(one) if self.namespace_uids.is_identity() != self.namespace_gids.is_identity() => {
                let problem = "use both namespace_uidmap and namespace_gidmap, not one of them";
                Err(one.bad(problem.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Migration by file handles requires opening by handle.
    fn check_handles(&mut self, effective: &[Setting]) -> Result<(), OptionError> {
        if self.serving.migration.mode != MigrationMode::FileHandles {
            return Ok(());
        }
        let said = |id| effective.iter().find(|setting| setting.option.id == id);
        match said(OptionId::FileHandles) {
            None => self.serving.file_handles = FileHandles::Prefer,
            Some(never) if self.serving.file_handles == FileHandles::Never => {
                return Err(OptionError::Contradiction {
                    first: "migration_mode=file-handles".to_owned(),
                    second: never.to_string(),
                    fix: "migration by file handles requires files to be held by handle here; use \
                          inode_file_handles=prefer or migration_mode=find-paths"
                        .to_owned(),
                });
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Arguments of the processes, for ps(1).
    pub(crate) fn paths(&self) -> [&Path; 2] {
        [&self.source, &self.socket]
    }

    pub(crate) fn device(&self) -> DeviceConfig {
        DeviceConfig {
            tag: self.tag.clone(),
            request_queues: self.request_queues,
            queue_size_max: self.queue_size_max,
            queue_helpers_max: self.queue_helpers_max,
            drain_timeout: self.server.stop_timeout,
            ..DeviceConfig::default()
        }
    }

    fn apply(&mut self, setting: &Setting) -> Result<(), OptionError> {
        let id = setting.option.id;
        if !setting.option.used.includes(Use::Share) {
            return Err(setting.not_for("share"));
        }
        if self.apply_switch(id)
            || self.server.apply(setting)?
            || serving::apply(&mut self.serving, setting)?
        {
            return Ok(());
        }
        match id {
            OptionId::Tag => self.tag = Some(setting.read(Tag::new)?),
            OptionId::Queues => {
                let queues = NonZeroU16::new(setting.count()?);
                self.request_queues = queues.unwrap_or(NonZeroU16::MIN);
            }
            OptionId::QueueSize => {
                self.queue_size_max = setting.count()?;
                if !self.queue_size_max.is_power_of_two() {
                    return Err(setting.bad("it must be a power of two".to_owned()));
                }
            }
            OptionId::QueueThreads => {
                let threads: usize = setting.count()?;
                self.queue_helpers_max = Some(threads.saturating_sub(1));
            }
            OptionId::Machines => self.machines_max = setting.count()?,
            OptionId::Resume => self.deaths_max = setting.count()?,
            OptionId::XattrMap => {
                self.serving.xattr_map = Some(setting.read(str::parse)?);
            }
            OptionId::TranslateUid => {
                setting.read(|rule| translate(&mut self.serving.uid_map, rule))?;
            }
            OptionId::TranslateGid => {
                setting.read(|rule| translate(&mut self.serving.gid_map, rule))?;
            }
            OptionId::NamespaceUids => {
                setting.read(|range| serving::add_range(&mut self.namespace_uids, range))?;
            }
            OptionId::NamespaceGids => {
                setting.read(|range| serving::add_range(&mut self.namespace_gids, range))?;
            }
            OptionId::Sandbox => {
                self.sandbox = match setting.text() {
                    "namespace" => Sandbox::Namespace,
                    "chroot" => Sandbox::Chroot,
                    _ => Sandbox::None,
                }
            }
            OptionId::Seccomp => {
                self.filter = match setting.text() {
                    "kill" => FilterAction::Kill,
                    "log" => FilterAction::Log,
                    "trap" => FilterAction::Trap,
                    "none" => FilterAction::Allow,
                    _ => FilterAction::Fail,
                }
            }
            OptionId::Capabilities => self.capabilities = setting.read(parse_capabilities)?,
            OptionId::DescriptorLimit => self.descriptor_limit = Some(setting.count()?),
            id => unreachable!("{id:?} is for shares"),
        }
        Ok(())
    }

    fn apply_switch(&mut self, id: OptionId) -> bool {
        let serving = &mut self.serving;
        match id {
            OptionId::ReadOnly(on) => serving.read_only = on,
            OptionId::AllowMmap(on) => serving.allow_mmap = on,
            OptionId::AllowDirectIo(on) => serving.allow_direct_io = on,
            OptionId::Readdirplus(on) => serving.readdirplus = on,
            OptionId::SecurityLabel(on) => serving.security_label = on,
            OptionId::Submounts(on) => serving.announce_submounts = on,
            OptionId::Killpriv(on) => serving.killpriv = on,
            OptionId::Pairing(on) => self.pairing = on,
            _ => return false,
        }
        true
    }
}

fn queues_of_this_machine() -> NonZeroU16 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let queues = u16::try_from(processors).unwrap_or(QUEUES_MAX);
    NonZeroU16::new(queues.min(QUEUES_MAX)).unwrap_or(NonZeroU16::MIN)
}

fn translate(map: &mut IdMap, rule: &str) -> Result<(), String> {
    let mut translation = match std::mem::take(map) {
        IdMap::Translated(translation) => translation,
        _ => Translation::default(),
    };
    let added = translation.add(rule);
    *map = IdMap::Translated(translation);
    added.map_err(|error| error.to_string())
}

/// `+sys_admin:-mknod`. Of two changes of one capability, the later counts.
fn parse_capabilities(value: &str) -> Result<CapabilityChange, String> {
    let mut change = CapabilityChange {
        kept: CapabilitySet::empty(),
        dropped: CapabilitySet::empty(),
    };
    for part in value.split(':') {
        let (sign, name) = match (part.strip_prefix('+'), part.strip_prefix('-')) {
            (Some(name), _) => ('+', name),
            (_, Some(name)) => ('-', name),
            _ => return Err("it must be a list as in +sys_admin:-mknod".to_owned()),
        };
        let upper = name.to_ascii_uppercase();
        let known = CapabilitySet::from_name(upper.strip_prefix("CAP_").unwrap_or(&upper));
        let one = known.ok_or_else(|| format!("there is no capability `{name}`"))?;
        change.kept.set(one, sign == '+');
        change.dropped.set(one, sign == '-');
    }
    Ok(change)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::MountOption;
    use std::time::Duration;
    use thrufs_hostdir::{CacheMode, Locks, Migration, MigrationOnError};

    fn resolved(list: &str) -> Result<ShareConfig, OptionError> {
        ShareConfig::resolve("/src".into(), "/run/s".into(), &options::parse(list)?)
    }

    #[test]
    fn default_configuration() {
        let config = resolved("").unwrap();
        assert_eq!(config.serving.cache, CacheMode::Auto);
        assert!(config.serving.xattr && config.serving.acl && config.serving.killpriv);
        assert!(!config.serving.passthrough && !config.serving.allow_mmap);
        assert!(config.serving.default_permissions && config.serving.announce_submounts);
        assert!(config.server.foreground);
        assert_eq!(config.tag, None);
        assert_eq!(config.queue_size_max, 1024);
        assert_eq!(config.device().queue_helpers_max, None);
        assert_eq!(config.deaths_max, 10);
        assert_eq!(config.serving.file_handles, FileHandles::Never);
        assert_eq!(
            (config.sandbox, config.filter),
            (Sandbox::Best, FilterAction::Fail)
        );
    }

    #[test]
    fn every_option_is_resolved() {
        for option in options::OPTIONS.iter() {
            let one = |option: &'static MountOption| {
                options::setting(option, option.sample().as_deref()).unwrap()
            };
            let mut settings = vec![one(option)];
            // One without the other is refused.
            let partner = match option.id {
                OptionId::NamespaceUids => options::find("namespace_gidmap"),
                OptionId::NamespaceGids => options::find("namespace_uidmap"),
                _ => None,
            };
            settings.extend(partner.map(one));
            let resolved = ShareConfig::resolve("/src".into(), "/run/s".into(), &settings);
            let (name, used) = (option.name, option.used.includes(Use::Share));
            assert_eq!(resolved.is_ok(), used, "{name}: {resolved:?}");
        }
    }

    #[test]
    fn options_take_their_values() {
        let config = resolved(
            "ro,tag=home,queues=3,queue_size=256,queue_threads=4,cache=metadata,allow_mmap,allow_direct_io,\
             no_readdirplus,no_announce_submounts,security_label,no_killpriv_v2,locks=shared,\
             xattrmap=:map::user.v.:,translate_uid=map:0:1000:10,translate_uid=host:5:6:1,\
             translate_gid=squash-guest:0:7:9,sandbox=chroot,seccomp=trap,\
             modcaps=+sys_admin:-mknod:+CAP_MKNOD:-setfcap,rlimit_nofile=4096,stop_timeout=3,\
             migration_mode=file-handles,migration_on_error=guest-error,migration_verify_handles,\
             migration_confirm_paths,migration_refuse_handles",
        )
        .unwrap();
        let serving = &config.serving;
        assert!(serving.read_only && serving.allow_mmap && serving.allow_direct_io);
        assert!(!serving.readdirplus && !serving.announce_submounts && !serving.killpriv);
        assert!(serving.security_label);
        assert_eq!(serving.cache, CacheMode::Metadata);
        assert_eq!(serving.locks, Locks::Shared);
        assert_eq!(serving.xattr_map, Some(":map::user.v.:".parse().unwrap()));
        assert_eq!(serving.uid_map.to_host(3), Some(1003));
        assert_eq!(serving.uid_map.to_client(5), 6, "both rules");
        assert_eq!(serving.gid_map.to_host(8), Some(7));
        assert_eq!(
            (config.sandbox, config.filter),
            (Sandbox::Chroot, FilterAction::Trap)
        );
        let capabilities = config.capabilities;
        assert_eq!(
            capabilities.kept,
            CapabilitySet::SYS_ADMIN | CapabilitySet::MKNOD
        );
        assert_eq!(capabilities.dropped, CapabilitySet::SETFCAP);
        assert_eq!(config.descriptor_limit, Some(4096));
        let migration = Migration {
            mode: MigrationMode::FileHandles,
            on_error: MigrationOnError::GuestError,
            verify_handles: true,
            confirm_paths: true,
            accept_handles: false,
        };
        assert_eq!(config.serving.migration, migration);
        assert_eq!(config.serving.file_handles, FileHandles::Prefer);
        let device = config.device();
        assert_eq!(device.tag, Some(Tag::new("home").unwrap()));
        assert_eq!(
            (device.request_queues.get(), device.queue_size_max),
            (3, 256)
        );
        assert_eq!(device.queue_helpers_max, Some(3));
        assert_eq!(device.drain_timeout, Duration::from_secs(3));
    }

    #[test]
    fn inapplicable_options_of_a_share_name_the_remedy() {
        for (list, part) in [
            ("allow_other", "to a share: in a guest"),
            ("passthrough", "only through the server"),
            ("noatime", "where the guest mounts it"),
            ("threads=3", "use queues="),
            ("transport=dev", "use queues="),
            ("fsname=x", "use tag="),
            ("nofail", "mount(8)"),
        ] {
            let error = resolved(list).unwrap_err().to_string();
            assert!(error.contains("does not apply to a share"), "{error}");
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn invalid_values_are_refused() {
        for (list, part) in [
            ("queue_size=100", "power of two"),
            ("queues=0", "between 1 and 64"),
            ("tag=aaaaaaaaaabbbbbbbbbbccccccccccddddddd", "36"),
            ("xattrmap=:nope:", "rule 1"),
            ("translate_uid=guest:1", "3 numbers"),
            (
                "translate_uid=map:0:1:1,translate_uid=map:0:2:1",
                "shares ids",
            ),
            ("namespace_uidmap=0:1000:1", "not one of them"),
            (
                "namespace_uidmap=0:1:2,namespace_uidmap=1:9:1,namespace_gidmap=0:1:1",
                "shares ids",
            ),
            ("namespace_gidmap=0:1:1,sandbox=chroot", "no user namespace"),
            ("modcaps=sys_admin", "+sys_admin"),
            ("modcaps=+flying", "`flying`"),
            ("uid=0,translate_uid=map:0:1:1", "not both"),
            ("uidmap=0:1:1,translate_uid=map:0:1:1", "not with both"),
            ("cache=metadata,writeback", "contradicts"),
            ("xattrmap=:ok:all:::,noxattr", "contradicts"),
            (
                "migration_mode=file-handles,inode_file_handles=never",
                "contradicts",
            ),
        ] {
            let error = resolved(list).unwrap_err().to_string();
            assert!(error.contains(part), "{list}: {error}");
        }
        assert!(resolved("noxattr").is_ok());
    }
}
