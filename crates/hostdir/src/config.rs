//! How a directory is served: the options, their defaults, and which of them exclude each other. Reads
//! nothing and opens nothing.

mod dax;
mod migration;
mod translation;
mod xattr_map;

pub(crate) use dax::compile;
pub use migration::{Migration, MigrationMode, MigrationOnError};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thrufs_policy::{DataPath, Policy};
pub use translation::{Translation, TranslationError};
pub use xattr_map::{XattrMap, XattrMapError};

/// How long the kernel may answer from its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheMode {
    /// Nothing is cached, neither names nor attributes nor data: every change on the host is seen at once.
    /// Slowest.
    Never,
    /// Names, attributes and listings are cached until the kernel needs the memory; no data. For trees in
    /// which files are written on the host, but not created, moved or removed.
    Metadata,
    /// Names and attributes are cached until they change where the host is followed ([`FollowMode`]), but no
    /// longer than [`Config::follow_timeout`], and elsewhere for one second; data as long as the lower file is
    /// unchanged, which is checked at every open (close-to-open).
    #[default]
    Auto,
    /// Everything is cached until the kernel needs the memory. For trees that do not change on the host.
    Always,
}

impl CacheMode {
    /// The data path of files without passthrough.
    pub(crate) fn data_path(self) -> DataPath {
        match self {
            CacheMode::Never | CacheMode::Metadata => DataPath::Direct,
            CacheMode::Auto | CacheMode::Always => DataPath::Cached,
        }
    }

    /// How long names and attributes are valid by default.
    pub fn default_timeout(self) -> Duration {
        match self {
            CacheMode::Never => Duration::ZERO,
            CacheMode::Auto => Duration::from_secs(1),
            CacheMode::Metadata | CacheMode::Always => Duration::from_secs(86_400),
        }
    }
}

/// Whether changes beneath are followed, so that the kernel keeps what it has until it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FollowMode {
    /// Where that is possible: by [`Filesystem`](Self::Filesystem) if file handles are used, and else by
    /// [`Directories`](Self::Directories).
    #[default]
    Auto,
    /// Each directory in use is watched. What is changed by a file handle may not be seen: by an NFS server, or by
    /// another server of this kind.
    Directories,
    /// The whole file system is, where that is possible, and else each directory in use. There is no most of
    /// directories then, but everybody who writes on that file system pays for it. Requires CAP_SYS_ADMIN.
    Filesystem,
    /// Nothing is watched.
    No,
}

/// Where file locks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Locks {
    /// In the client's kernel: among the users of this mount. No round trips.
    #[default]
    Local,
    /// On the lower files: among all users of the tree.
    Shared,
}

/// Who opens regular files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpenMode {
    /// [`Local`](Self::Local) for a read-only session that may have it, with local locks and without passthrough,
    /// whose server may read what its callers may; else [`Server`](Self::Server).
    #[default]
    Auto,
    /// The client's kernel, by the names, attributes and pages that it has. No round trips.
    Local,
    /// The server, which looks at the file each time.
    Server,
}

/// One range of an [`IdMap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdRange {
    /// First id that clients see.
    pub client: u32,
    /// First id on the host.
    pub host: u32,
    /// How many ids.
    pub count: u32,
}

/// Maps ids on the host to the ids that clients see, and back.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum IdMap {
    /// The same ids.
    #[default]
    Identity,
    /// Clients see this one id everywhere, and whatever they create belongs to the server. They cannot
    /// change owners.
    Squash(u32),
    /// Ids in ranges. Clients see ids outside of them as −1, which their kernel accepts as no user's (as in
    /// an idmapped mount).
    Ranges(Vec<IdRange>),
    /// Ids in ranges, each direction by itself; ids outside of them stay as they are.
    Translated(Translation),
}

/// No id. Linux shows it as its overflow id (65534), takes no user for its owner, and refuses changes and
/// writes.
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

    /// The id on the host for `client`; `None` when there is none.
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

    /// Whether clients see `host` as another id, or as none.
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
/// A process that may open files by handle (CAP_DAC_READ_SEARCH and `open_by_handle_at(2)`) can open every
/// file of the file system, not only those beneath the served directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileHandles {
    /// File handles are not used. A descriptor is held for each inode, within the budget; other inodes are
    /// found again by parent and name, and one that was moved on the host gives ESTALE.
    Never,
    /// Where file handles may be opened; elsewhere as [`Never`](Self::Never).
    #[default]
    Prefer,
    /// A directory where file handles may not be opened is not served.
    Mandatory,
}

/// All options of a served directory: plain values. Live objects are in [`Resources`](crate::Resources).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Cache mode; the timeouts follow from it unless they are given.
    pub cache: CacheMode,
    /// How long names are valid.
    pub entry_timeout: Option<Duration>,
    /// How long attributes are valid.
    pub attr_timeout: Option<Duration>,
    /// How long the kernel caches that a name does not exist.
    pub negative_timeout: Option<Duration>,
    /// Whether changes beneath are followed. Only with [`CacheMode::Auto`].
    pub follow: FollowMode,
    /// How long names and attributes are valid that are followed, unless their timeouts are given.
    pub follow_timeout: Duration,
    /// Most directories, and files with several names, that are followed: some 1.2 KB of the kernel's memory
    /// each.
    pub follow_marks: usize,
    /// Let the kernel cache written data and write it later. Changes on the host to files that are open
    /// here can be lost then.
    pub writeback: bool,
    /// Let the kernel use lower files itself where it can: reads, writes and maps of open files then do not
    /// reach the server. Other files go by the cache mode.
    pub passthrough: bool,
    /// Who opens regular files. [`OpenMode::Local`] excludes passthrough.
    pub opens: OpenMode,
    /// Whether callers are processes of this machine, so that rules and the audit log can name their
    /// programs. A guest's are not.
    pub callers_are_local: bool,
    /// Drop set-id bits and capabilities of files that are written to or truncated (KILLPRIV_V2). Otherwise
    /// the kernel does it, and asks for a file's capabilities before every write: only of use to measure
    /// that cost.
    pub killpriv: bool,
    /// Without a cache for data (`never`, `metadata`), allow shared mappings. Mapped data is cached all the
    /// same, and changes on the host are not seen there.
    pub allow_mmap: bool,
    /// Open lower files with `O_DIRECT` when clients do. Transfers that are not aligned as the lower file
    /// system demands then fail.
    pub allow_direct_io: bool,
    /// Return attributes along with the names of a directory, where that is of use.
    pub readdirplus: bool,
    /// Tell guests which directories are mount points, so that they show a device for each mount.
    pub announce_submounts: bool,
    /// Serve mounts beneath that show the kernel and its processes (proc, sysfs, cgroups, …): what a caller may do
    /// there, the server does.
    pub kernel_file_systems: bool,
    /// Serve extended attributes.
    pub xattr: bool,
    /// Maps names of extended attributes to those on the host.
    pub xattr_map: Option<XattrMap>,
    /// Give new files the security label that the client sends. Needs `xattr`.
    pub security_label: bool,
    /// Serve POSIX ACLs, and make the kernel enforce them. Needs `xattr`.
    pub acl: bool,
    /// Where file locks are kept.
    pub locks: Locks,
    /// Keep file handles (`name_to_handle_at(2)`, NFS) valid after the kernel has forgotten the inode, as
    /// long as it is among the last [`exported_nodes_max`](Self::exported_nodes_max).
    pub export: bool,
    /// How many forgotten nodes are kept for `export`: some 200 bytes each. Beyond that the oldest are
    /// dropped, and their file handles fail with ESTALE.
    pub exported_nodes_max: usize,
    /// Refuse every change.
    pub read_only: bool,
    /// User ids.
    pub uid_map: IdMap,
    /// Group ids.
    pub gid_map: IdMap,
    /// Most bytes in one READ or WRITE.
    pub max_write: Option<u32>,
    /// Most background requests in flight (`max_background` of INIT).
    pub max_background: Option<u16>,
    /// Most bytes to read ahead.
    pub max_readahead: Option<u32>,
    /// Whether inodes are found again by file handle.
    pub file_handles: FileHandles,
    /// Most descriptors cached for inodes that are not open. By default half of `RLIMIT_NOFILE`, but at most
    /// 16,384 with file handles and 65,536 without.
    pub descriptor_budget: Option<usize>,
    /// Most descriptors for open directories, open files and owners of shared locks of one user of the
    /// clients. Beyond it an open fails with ENFILE and a lock with ENOLCK. Files under passthrough cost
    /// none. By default half of what `RLIMIT_NOFILE` leaves beside
    /// [`descriptor_budget`](Self::descriptor_budget). All users together have three quarters of that, at
    /// least the quota of one. Root and the server's user are not limited.
    ///
    /// The same parts of the budget hold for removed inodes without a file handle, which only their
    /// descriptor leads to; they are charged to the user who removed them. Beyond the quota the descriptor
    /// is closed, and holders of the inode get ESTALE.
    pub user_descriptors_max: Option<usize>,
    /// Names of files that a guest maps from the host's page cache, where its machine monitor has a DAX window:
    /// patterns of one component (`*.img`). Without any, all files, if the monitor maps beyond the end of files; if
    /// it does not, none, since the guest cannot change their size.
    pub dax: Vec<String>,
    /// The least size of such a file, in bytes.
    pub dax_bytes_min: u64,
    /// How a client's session is saved for another process, and how one is restored.
    pub migration: Migration,
    /// Whether other users than the mount's owner may use it (for [`Config::check`]).
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
            follow: FollowMode::default(),
            follow_timeout: Duration::from_secs(3600),
            follow_marks: 200_000,
            writeback: false,
            passthrough: true,
            opens: OpenMode::default(),
            callers_are_local: true,
            killpriv: true,
            allow_mmap: true,
            allow_direct_io: false,
            readdirplus: true,
            announce_submounts: true,
            kernel_file_systems: true,
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
            dax: Vec::new(),
            dax_bytes_min: 2 << 20,
            migration: Migration::default(),
            allow_other: false,
            default_permissions: true,
        }
    }
}

/// Options that exclude each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Other users would act as the server's user, without any check.
    #[error(
        "allow_other without default_permissions disables all permission checks: every user of the mount \
         acts as the user who runs the server; drop one of them"
    )]
    UncheckedSharing,
    /// Writeback caches data, which these cache modes forbid.
    #[error(
        "writeback caches written data, which cache=never and cache=metadata forbid: drop one of them"
    )]
    WritebackWithoutCache,
    /// The kernel cannot open files by itself.
    #[error("opens=local {0}; use opens=server")]
    OpensNotLocal(String),
    /// ACLs are extended attributes.
    #[error("acl needs xattr: drop noxattr, or add noacl")]
    AclWithoutXattr,
    /// Rules about callers name ids on the host.
    #[error("rules that match on callers need ids that are not mapped: drop uid_map and gid_map")]
    CallersOfMappedIds,
    /// Whoever comes with a file handle comes without a path.
    #[error("rules that match on paths do not work with export: drop one of them")]
    PathsOfExported,
    /// A pattern of names.
    #[error("dax: {0}")]
    Pattern(String),
    /// Only a mount made with a policy tracks names.
    #[error("the mount was made without a policy: mount again with one")]
    NoPolicyToReplace,
}

impl Config {
    /// Checks the options against each other.
    ///
    /// # Errors
    ///
    /// The first pair that excludes each other.
    pub fn check(&self) -> Result<(), ConfigError> {
        // The server acts with its own privileges in any cache mode, and relies on the kernel's checks.
        if self.allow_other && !self.default_permissions {
            return Err(ConfigError::UncheckedSharing);
        }
        if self.writeback && self.cache.data_path() == DataPath::Direct {
            return Err(ConfigError::WritebackWithoutCache);
        }
        if self.acl && !self.xattr {
            return Err(ConfigError::AclWithoutXattr);
        }
        if self.opens == OpenMode::Local {
            let local = self.may_open_locally();
            local.map_err(|why| ConfigError::OpensNotLocal(why.to_owned()))?;
        }
        compile(&self.dax).map_err(|error| ConfigError::Pattern(error.to_string()))?;
        Ok(())
    }

    /// Checks a policy against the other options.
    ///
    /// # Errors
    ///
    /// The first option that excludes it.
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

    /// Fails with `EROFS` if every change is refused.
    pub(crate) fn writable(&self) -> thrufs::Result<()> {
        if self.read_only {
            Err(thrufs::Errno::EROFS)
        } else {
            Ok(())
        }
    }

    /// Fails with `EOVERFLOW` for a file that belongs to no id of clients. Their kernel refuses to change it; a guest
    /// may send requests that its kernel has not checked.
    pub(crate) fn require_mapped(&self, uid: u32, gid: u32) -> thrufs::Result<()> {
        match self.uid_map.to_client(uid) == NO_ID || self.gid_map.to_client(gid) == NO_ID {
            true => Err(thrufs::Errno::EOVERFLOW),
            false => Ok(()),
        }
    }

    /// Whether clients see other ids than the host.
    pub(crate) fn maps_ids(&self) -> bool {
        !(self.uid_map.is_identity() && self.gid_map.is_identity())
    }

    /// Whether the map gives files of the host's `id` to somebody who is another user on the host. A guest's users are
    /// none there, and have by the map the ids that are meant for them, unless that is root's.
    pub(crate) fn lends(&self, map: &IdMap, id: u32) -> bool {
        map.to_client(id) != id && (self.callers_are_local || id == 0)
    }

    /// Whether these options let the kernel open files by itself; otherwise why not.
    pub(crate) fn may_open_locally(&self) -> Result<(), &'static str> {
        let keeps_until_told = self.cache == CacheMode::Always || self.follows();
        for (is_met, otherwise) in [
            (
                self.default_permissions,
                "needs default_permissions: nobody else checks who opens a file",
            ),
            (
                keeps_until_told,
                "needs cache=always, or cache=auto on a mount that is followed: nothing else tells the kernel \
                 that a file has changed",
            ),
            (
                self.locks == Locks::Local,
                "needs locks=local: a lock beneath ends with its open file, whose end nobody tells",
            ),
            (!self.writeback, "does not go with writeback"),
            (
                self.read_only || !self.maps_ids(),
                "needs ro with mapped ids: files of others lose their set-id bits when they are opened for writing",
            ),
            (
                self.read_only || self.callers_are_local,
                "needs ro on a share: the next worker would not find files that were removed while they were open",
            ),
        ] {
            if !is_met {
                return Err(otherwise);
            }
        }
        Ok(())
    }

    /// Whether changes beneath are to be followed. A guest takes no notifications.
    pub fn follows(&self) -> bool {
        self.cache == CacheMode::Auto && self.follow != FollowMode::No && self.callers_are_local
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
    fn id_ranges_map_both_ways() {
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
    fn allow_other_without_default_permissions_is_refused() {
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
    fn writeback_is_refused_without_a_data_cache() {
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
