//! The configuration of a share: its own settings, and the defaults in which it differs from a mount.

use super::{ServerConfig, path};
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};
use std::num::{NonZeroU16, NonZeroU64};
use std::path::{Path, PathBuf};
use thrufs_hostdir::{Config, FileHandles, IdMap};
use thrufs_virtio::{DeviceConfig, REQUEST_QUEUES_MAX, Tag};

const MACHINES_MAX: usize = 8;
/// Deaths of workers in a minute after which a request is presumed the cause.
const DEATHS_MAX: usize = 10;

/// How the worker is confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FilterAction {
    #[serde(rename = "errno")]
    Fail,
    Kill,
    Log,
    Trap,
    /// No filter.
    #[serde(rename = "none")]
    Allow,
}

/// Capabilities to keep in addition, and to drop although serving needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CapabilityChange {
    #[serde(with = "bitflags::serde")]
    pub(crate) kept: CapabilitySet,
    #[serde(with = "bitflags::serde")]
    pub(crate) dropped: CapabilitySet,
}

/// All of a share but its listening socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ShareConfig {
    /// Absolute.
    #[serde(with = "path")]
    pub(crate) source: PathBuf,
    /// The socket of front ends, for messages.
    #[serde(with = "path")]
    pub(crate) socket: PathBuf,
    pub(crate) serving: Config,
    pub(crate) tag: Option<String>,
    pub(crate) request_queues: NonZeroU16,
    pub(crate) queue_size_max: u16,
    /// Most helper threads of a queue; depends on the number of CPUs unless given.
    pub(crate) queue_helpers_max: Option<usize>,
    /// Bytes of the DAX window; 0 for none.
    pub(crate) window_bytes: u64,
    pub(crate) machines_max: usize,
    pub(crate) sandbox: Sandbox,
    /// Ids of the user namespace; only the user's own unless given.
    pub(crate) namespace_uids: IdMap,
    pub(crate) namespace_gids: IdMap,
    pub(crate) filter: FilterAction,
    pub(crate) capabilities: CapabilityChange,
    /// RLIMIT_NOFILE: the hard limit unless given, 0 to leave it.
    pub(crate) descriptor_limit: Option<u64>,
    pub(crate) server: ServerConfig,
}

impl Default for ShareConfig {
    fn default() -> ShareConfig {
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
            deaths_max: DEATHS_MAX,
            ..ServerConfig::default()
        };
        let device = DeviceConfig::default();
        ShareConfig {
            source: PathBuf::new(),
            socket: PathBuf::new(),
            serving,
            tag: None,
            request_queues: queues_of_this_machine(),
            queue_size_max: device.queue_size_max,
            queue_helpers_max: device.queue_helpers_max,
            window_bytes: 0,
            machines_max: MACHINES_MAX,
            sandbox: Sandbox::Best,
            namespace_uids: IdMap::Identity,
            namespace_gids: IdMap::Identity,
            filter: FilterAction::Fail,
            capabilities: CapabilityChange {
                kept: CapabilitySet::empty(),
                dropped: CapabilitySet::empty(),
            },
            descriptor_limit: None,
            server,
        }
    }
}

impl ShareConfig {
    /// Whether the user namespace maps other ids than the user's own.
    pub(crate) fn maps_namespace(&self) -> bool {
        !self.namespace_uids.is_identity()
    }

    /// Arguments of the processes, for ps(1).
    pub(crate) fn paths(&self) -> [&Path; 2] {
        [&self.source, &self.socket]
    }

    pub(crate) fn device(&self) -> DeviceConfig {
        DeviceConfig {
            tag: self.tag.as_deref().and_then(|tag| Tag::new(tag).ok()),
            request_queues: self.request_queues,
            queue_size_max: self.queue_size_max,
            queue_helpers_max: self.queue_helpers_max,
            window_bytes: NonZeroU64::new(self.window_bytes),
            drain_timeout: self.server.stop_timeout,
            ..DeviceConfig::default()
        }
    }
}

fn queues_of_this_machine() -> NonZeroU16 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let queues = u16::try_from(processors).unwrap_or(REQUEST_QUEUES_MAX);
    NonZeroU16::new(queues.min(REQUEST_QUEUES_MAX)).unwrap_or(NonZeroU16::MIN)
}
