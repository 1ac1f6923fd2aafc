//! How a directory is served.

use crate::datapath::DataPath;
use crate::ledger::Ledger;
use crate::policy::Policy;
use crate::rules::{AuditLog, Programs};
use crate::strongbox::Strongbox;
use crate::succession::Migration;
use crate::translation::Translation;
use crate::xattr_map::XattrMap;
use std::sync::Arc;
use std::time::Duration;

/// For how long the kernel may answer from what it was told before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CacheMode {
    /// Nothing is cached, neither names nor attributes nor data: every change beneath is seen at
    /// once. Slowest.
    Never,
    /// Names, attributes and listings, until the kernel needs the memory; no data. For trees whose
    /// files are written by others but not made, moved or removed.
    Metadata,
    /// Names and attributes for one second; data as long as the file beneath is unchanged, which
    /// is checked at every open (close-to-open).
    #[default]
    Auto,
    /// Everything, until the kernel needs the memory. For trees that nobody else changes.
    Always,
}

impl CacheMode {
    /// How data go where the kernel does not use the lower file itself.
    pub(crate) fn data_path(self) -> DataPath {
        match self {
            CacheMode::Never | CacheMode::Metadata => DataPath::Direct,
            CacheMode::Auto | CacheMode::Always => DataPath::Cached,
        }
    }

    /// How long names and attributes are believed when nothing else is said.
    pub fn default_timeout(self) -> Duration {
        match self {
            CacheMode::Never => Duration::ZERO,
            CacheMode::Auto => Duration::from_secs(1),
            CacheMode::Metadata | CacheMode::Always => Duration::from_secs(86_400),
        }
    }
}

/// Where file locks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Locks {
    /// In the client's kernel: the users of this mount lock against each other. No round trips.
    #[default]
    Local,
    /// On the files beneath: against everybody who uses the tree.
    Shared,
}

/// One range of an [`IdMap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// First id as clients see it.
    pub client: u32,
    /// First id as it is on the host.
    pub host: u32,
    /// How many ids.
    pub count: u32,
}

/// Which ids clients see for those on the host, and the other way round.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum IdMap {
    /// The same.
    #[default]
    Identity,
    /// Clients see this one id everywhere, and whatever they create belongs to the server. They
    /// cannot change owners.
    Squash(u32),
    /// Ids in ranges; those outside them are nobody's: clients see −1, and their kernel lets nobody
    /// pass for the owner (as of files of an idmapped mount that its map does not hold).
    Ranges(Vec<IdRange>),
    /// Ids in ranges, each way by itself; those outside them stay as they are.
    Translated(Translation),
}

/// No id: Linux shows it as its overflow id (65534), but takes nobody for its user, and lets nobody change
/// or write what has it.
pub(crate) const NO_ID: u32 = u32::MAX;

impl IdMap {
    /// The id that clients see for `host`.
    pub fn to_client(&self, host: u32) -> u32 {
        match self {
            IdMap::Identity => host,
            IdMap::Squash(id) => *id,
            IdMap::Ranges(ranges) => ranges
                .iter()
                .find_map(|r| shift(host, r.host, r.client, r.count))
                .unwrap_or(NO_ID),
            IdMap::Translated(translation) => translation.to_client(host),
        }
    }

    /// The id on the host for a client's; `None` when there is none.
    pub fn to_host(&self, client: u32) -> Option<u32> {
        match self {
            IdMap::Identity => Some(client),
            IdMap::Squash(_) => None,
            IdMap::Ranges(ranges) => ranges
                .iter()
                .find_map(|r| shift(client, r.client, r.host, r.count)),
            IdMap::Translated(translation) => translation.to_host(client),
        }
    }

    /// Whether clients take `host` for another id, or for none.
    pub(crate) fn hides(&self, host: u32) -> bool {
        self.to_host(self.to_client(host)) != Some(host)
    }

    /// Whether ids are the same on both sides.
    pub fn is_identity(&self) -> bool {
        *self == IdMap::Identity
    }
}

fn shift(id: u32, from: u32, to: u32, count: u32) -> Option<u32> {
    let offset = id.checked_sub(from)?;
    if offset < count {
        to.checked_add(offset)
    } else {
        None
    }
}

/// Whether inodes are found again by file handle.
///
/// Who may open files by handle (CAP_DAC_READ_SEARCH and `open_by_handle_at(2)`) may open every file of a
/// file system, not only those beneath the served directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FileHandles {
    /// They are not asked for. A descriptor is held for each inode, as long as the budget allows, and
    /// others are found again by parent and name: what another moves meanwhile gives ESTALE.
    Never,
    /// Where they may be opened; elsewhere as [`Never`](Self::Never).
    #[default]
    Prefer,
    /// A directory where they may not be opened is not served.
    Mandatory,
}

/// Everything that can be chosen about a served directory.
#[derive(Clone, Debug)]
pub struct Config {
    /// Cache mode; the timeouts follow from it unless they are given.
    pub cache: CacheMode,
    /// How long a name is believed.
    pub entry_timeout: Option<Duration>,
    /// How long attributes are believed.
    pub attr_timeout: Option<Duration>,
    /// How long the absence of a name is believed.
    pub negative_timeout: Option<Duration>,
    /// Let the kernel keep written data and write it later. Changes beneath to files that are
    /// open here can be lost then.
    pub writeback: bool,
    /// Let the kernel use lower files by itself where it can: reads, writes and maps of open files
    /// then do not reach the server. Where it cannot, files go by the cache mode.
    pub passthrough: bool,
    /// Rules about names, callers and content. A mount made with them may get others later
    /// ([`HostDir::replace_policy`](crate::HostDir::replace_policy)), one made without may not.
    pub policy: Option<Arc<Policy>>,
    /// Where audited opens are told.
    pub audit_log: AuditLog,
    /// Whether callers are processes of this machine, whose programs can be found out for the rules and
    /// the audit log. A guest's are not.
    pub callers_are_local: bool,
    /// Who tells which programs local callers run; nobody where this process sees them in `/proc`.
    pub programs: Option<Arc<dyn Programs>>,
    /// Drop set-id bits and capabilities of files that are written to or truncated (KILLPRIV_V2).
    /// Otherwise the kernel does it, and asks for a file's capabilities before every write: there is
    /// no reason for that but to measure what it costs.
    pub killpriv: bool,
    /// Without a cache for data (`never`, `metadata`), let files be mapped so that stores are shared.
    /// What is mapped is cached all the same, and changes beneath are not seen there.
    pub allow_mmap: bool,
    /// Open lower files with `O_DIRECT` when clients do. Transfers that the lower file system finds
    /// not aligned then fail.
    pub allow_direct_io: bool,
    /// Give attributes along with the names of a directory, where that is of use.
    pub readdirplus: bool,
    /// Tell clients that are guests which directories have something else mounted on them, so that
    /// they see a device for each mount.
    pub announce_submounts: bool,
    /// Serve extended attributes.
    pub xattr: bool,
    /// Which names they have on the host.
    pub xattr_map: Option<Arc<XattrMap>>,
    /// Give what clients make the security label that they say. Needs `xattr`.
    pub security_label: bool,
    /// Serve POSIX ACLs, and have the kernel honour them. Needs `xattr`.
    pub acl: bool,
    /// Where locks are kept.
    pub locks: Locks,
    /// Let file handles (`name_to_handle_at(2)`, NFS) stay valid after the kernel has forgotten
    /// the inode, as long as it is among the last [`exported_nodes_max`](Self::exported_nodes_max).
    pub export: bool,
    /// How many forgotten nodes stay known for `export`: some 200 bytes each. When there are more, the
    /// oldest are let go, and file handles of them fail with ESTALE.
    pub exported_nodes_max: usize,
    /// Refuse every change.
    pub read_only: bool,
    /// User ids.
    pub uid_map: IdMap,
    /// Group ids.
    pub gid_map: IdMap,
    /// Most bytes in one READ or WRITE.
    pub max_write: Option<u32>,
    /// Most requests in flight that nobody waits for.
    pub max_background: Option<u16>,
    /// Most bytes to read ahead.
    pub max_readahead: Option<u32>,
    /// Whether inodes are found again by file handle.
    pub file_handles: FileHandles,
    /// Most descriptors kept for inodes that are not open; half of `RLIMIT_NOFILE` unless given.
    pub descriptor_budget: Option<usize>,
    /// Most descriptors that open directories and files of one user of clients cost at a time, and owners
    /// of shared locks, beyond which an open fails with ENFILE and a lock with ENOLCK. Files that go
    /// straight through cost none. Half of what `RLIMIT_NOFILE` leaves beside
    /// [`descriptor_budget`](Self::descriptor_budget) unless given; all users together have three
    /// quarters of that, or as much as one if that is more. Root has no limit, nor has the user who serves.
    ///
    /// The same parts of the budget are for removed inodes to which nothing but their descriptor leads,
    /// because they have no file handles: of the user who has removed them. Beyond them the
    /// descriptor is closed, and whoever holds the inode gets ESTALE.
    pub user_descriptors_max: Option<usize>,
    /// How the session of a client leaves for another process, and how one is received.
    pub migration: Migration,
    /// Where it is noted what the client may know, for whoever goes on with its session should this
    /// process die.
    pub ledger: Option<Ledger>,
    /// Who keeps the descriptors that could not be opened again.
    pub strongbox: Option<Arc<dyn Strongbox>>,
    /// Whether others than the mount's owner may use it (for [`Config::check`]).
    pub allow_other: bool,
    /// Whether the kernel checks permissions (for [`Config::check`]).
    pub default_permissions: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            cache: CacheMode::default(),
            entry_timeout: None,
            attr_timeout: None,
            negative_timeout: None,
            writeback: false,
            passthrough: true,
            policy: None,
            audit_log: AuditLog::default(),
            callers_are_local: true,
            programs: None,
            killpriv: true,
            allow_mmap: true,
            allow_direct_io: false,
            readdirplus: true,
            announce_submounts: true,
            xattr: true,
            xattr_map: None,
            security_label: false,
            acl: true,
            locks: Locks::default(),
            export: false,
            exported_nodes_max: 65_536,
            read_only: false,
            uid_map: IdMap::default(),
            gid_map: IdMap::default(),
            max_write: None,
            max_background: None,
            max_readahead: None,
            file_handles: FileHandles::default(),
            descriptor_budget: None,
            user_descriptors_max: None,
            migration: Migration::default(),
            ledger: None,
            strongbox: None,
            allow_other: false,
            default_permissions: true,
        }
    }
}

/// Choices that do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Nobody would check what others may: they would act as the server's user.
    #[error(
        "allow_other without default_permissions disables all permission checks: every user of the mount \
         acts as the user who runs the server; drop one of them"
    )]
    UncheckedSharing,
    /// Written data cannot be kept where nothing may be kept.
    #[error(
        "writeback caches written data, which cache=never and cache=metadata forbid: drop one of them"
    )]
    WritebackWithoutCache,
    /// ACLs are extended attributes.
    #[error("acl needs xattr: drop noxattr, or add noacl")]
    AclWithoutXattr,
    /// Rules about callers speak of ids on the host.
    #[error("rules that match on callers need ids that are not mapped: drop uid_map and gid_map")]
    CallersOfMappedIds,
    /// Whoever comes with a file handle comes without a path.
    #[error("rules that match on paths do not work with export: drop one of them")]
    PathsOfExported,
    /// Only a mount made with a policy keeps what policies need.
    #[error("the mount was made without a policy: mount again with one")]
    NoPolicyToReplace,
}

impl Config {
    /// Tells whether the choices go together.
    ///
    /// # Errors
    ///
    /// The first pair that does not.
    pub fn check(&self) -> Result<(), ConfigError> {
        // The server acts with its own privilege, whatever is cached and whoever it is: it relies on the
        // kernel's checks.
        if self.allow_other && !self.default_permissions {
            return Err(ConfigError::UncheckedSharing);
        }
        if self.writeback && self.cache.data_path() == DataPath::Direct {
            return Err(ConfigError::WritebackWithoutCache);
        }
        if self.acl && !self.xattr {
            return Err(ConfigError::AclWithoutXattr);
        }
        match &self.policy {
            Some(policy) => self.check_policy(policy),
            None => Ok(()),
        }
    }

    /// Tells whether a policy goes together with the other choices.
    ///
    /// # Errors
    ///
    /// The first that it does not go with.
    pub fn check_policy(&self, policy: &Policy) -> Result<(), ConfigError> {
        let uses = policy.uses();
        if uses.callers && !(self.uid_map.is_identity() && self.gid_map.is_identity()) {
            return Err(ConfigError::CallersOfMappedIds);
        }
        if uses.paths && self.export {
            return Err(ConfigError::PathsOfExported);
        }
        Ok(())
    }

    pub(crate) fn entry_timeout(&self) -> Duration {
        self.entry_timeout.unwrap_or(self.cache.default_timeout())
    }

    pub(crate) fn attr_timeout(&self) -> Duration {
        self.attr_timeout.unwrap_or(self.cache.default_timeout())
    }

    pub(crate) fn negative_timeout(&self) -> Duration {
        self.negative_timeout
            .unwrap_or(self.cache.default_timeout())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_map_both_ways_and_nothing_else() {
        let map = IdMap::Ranges(vec![IdRange {
            client: 0,
            host: 100_000,
            count: 1000,
        }]);
        assert_eq!(map.to_client(100_007), 7);
        assert_eq!(map.to_host(7), Some(100_007));
        assert_eq!(map.to_client(5), NO_ID);
        assert_eq!(map.to_host(1000), None);
        let edge = IdMap::Ranges(vec![IdRange {
            client: 10,
            host: u32::MAX,
            count: 5,
        }]);
        assert_eq!(edge.to_host(11), None, "no wrap-around");
    }

    #[test]
    fn unchecked_sharing_is_refused_whatever_is_cached() {
        let mut config = Config {
            allow_other: true,
            default_permissions: false,
            acl: false,
            ..Config::default()
        };
        let caches = [
            CacheMode::Never,
            CacheMode::Metadata,
            CacheMode::Auto,
            CacheMode::Always,
        ];
        for cache in caches {
            config.cache = cache;
            assert_eq!(config.check(), Err(ConfigError::UncheckedSharing));
        }
        config.allow_other = false;
        assert_eq!(config.check(), Ok(()));
    }

    #[test]
    fn writeback_needs_a_cache_for_data() {
        let mut config = Config {
            writeback: true,
            cache: CacheMode::Metadata,
            ..Config::default()
        };
        assert_eq!(config.check(), Err(ConfigError::WritebackWithoutCache));
        config.writeback = false;
        assert_eq!(config.check(), Ok(()));
    }
}
