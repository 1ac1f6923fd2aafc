//! What is served, and how: plain data, in which the options are resolved ([`options`](crate::options)).
//!
//! It is made in the process that starts a server. The others receive it, and look at no option. If their
//! versions differ, a field that the sender does not know has its default, and one that the receiver does not
//! know is refused.

mod path;
mod server;
mod share;

pub(crate) use server::{ControlLocation, MetricsAddress, ServerConfig};
pub(crate) use share::{CapabilityChange, FilterAction, Sandbox, ShareConfig};

use rustix::mount::MountAttrFlags;
use serde::{Deserialize, Serialize};
use std::num::{NonZeroU16, NonZeroUsize};
use std::path::{Path, PathBuf};
use thrufs::{Transport, UringConfig};
use thrufs_hostdir::{Config, Locks};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct MountConfig {
    /// Absolute.
    #[serde(with = "path")]
    pub(crate) source: PathBuf,
    /// Absolute and without symbolic links.
    #[serde(with = "path")]
    pub(crate) mountpoint: PathBuf,
    #[serde(with = "bitflags::serde")]
    pub(crate) attributes: MountAttrFlags,
    /// Whether the source is read by the rules for times of access in `attributes`, instead of its own.
    pub(crate) sets_atime: bool,
    pub(crate) synchronous: bool,
    /// Whether to unmount when the server dies; otherwise the mount stays and returns ENOTCONN.
    pub(crate) auto_unmount: bool,
    /// The path of the source unless given.
    pub(crate) fsname: Option<String>,
    /// The type of the mount, after "fuse.".
    pub(crate) subtype: String,
    pub(crate) serving: Config,
    #[serde(with = "TransportWord")]
    pub(crate) transport: Transport,
    #[serde(with = "Ring")]
    pub(crate) ring: UringConfig,
    pub(crate) threads: Option<usize>,
    pub(crate) server: ServerConfig,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Transport")]
enum TransportWord {
    Auto,
    Uring,
    Dev,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "UringConfig", deny_unknown_fields)]
struct Ring {
    queues_per_thread: Option<NonZeroUsize>,
    depth: Option<NonZeroU16>,
}

impl Default for MountConfig {
    fn default() -> MountConfig {
        MountConfig {
            source: PathBuf::new(),
            mountpoint: PathBuf::new(),
            attributes: MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
            sets_atime: false,
            synchronous: false,
            auto_unmount: false,
            fsname: None,
            subtype: "thrufs".to_owned(),
            serving: Config {
                // Programs above and beneath share a machine.
                locks: Locks::Shared,
                ..Config::default()
            },
            transport: Transport::Auto,
            ring: UringConfig::default(),
            threads: None,
            server: ServerConfig::default(),
        }
    }
}

impl MountConfig {
    /// Arguments of the processes, for ps(1).
    pub(crate) fn paths(&self) -> [&Path; 2] {
        [&self.source, &self.mountpoint]
    }

    /// What to set and to clear at the mounts of the source, so that times of access are kept as the options say.
    pub(crate) fn atime(&self) -> Option<[MountAttrFlags; 2]> {
        const RULE: MountAttrFlags = MountAttrFlags::MOUNT_ATTR__ATIME;
        const DIRECTORIES: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NODIRATIME;
        let cleared = if self.sets_atime {
            RULE
        } else {
            MountAttrFlags::empty()
        };
        let set = self.attributes & (cleared | DIRECTORIES);
        (self.sets_atime || !set.is_empty()).then_some([set, cleared])
    }

    pub(crate) fn has(&self, attribute: MountAttrFlags) -> bool {
        self.attributes.contains(attribute)
    }
}
