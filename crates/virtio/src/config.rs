//! The configuration of a device, and its virtio configuration space.

use crate::limits::{MAPPINGS_MAX, QUEUE_SIZE_MAX, REQUEST_QUEUES_MAX, WINDOW_UNIT_BYTES};
use crate::tag::{TAG_BYTES, Tag};
use std::num::{NonZeroU16, NonZeroU64};
use std::time::Duration;

/// Largest size of a window.
const WINDOW_BYTES_MAX: u64 = WINDOW_UNIT_BYTES * MAPPINGS_MAX as u64;

/// The configuration of a device. The limits of blocked requests have counters in
/// [`Snapshot`](thrufs::Snapshot).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// The name by which the guest mounts it. Without one, the VMM provides it, and this device offers no
    /// configuration space.
    pub tag: Option<Tag>,
    /// Most request queues besides the high-priority queue: 1 to 64. Each has a thread while it is in use.
    pub request_queues: NonZeroU16,
    /// Most descriptors of a queue: a power of two, 1024 at most. A Linux guest's requests have at most so
    /// many pages, less four.
    pub queue_size_max: u16,
    /// Most requests of all queues that block on threads of their own. Beyond, the queue threads block.
    pub blocked_max: usize,
    /// Most lock waits of all queues: half of them of one user, three quarters of all users but root. Beyond,
    /// they fail with `ENOLCK`.
    pub lock_waiters_max: usize,
    /// How long a stop waits for requests in progress.
    pub drain_timeout: Duration,
    /// How long the thread of a queue that had several requests at once spins for more before it sleeps, as
    /// long as that finds some. Zero for never.
    pub spin: Duration,
    /// Size of the DAX window in bytes: a multiple of 2 MiB, 64 GiB at most. `None` for none. A device with a window
    /// does not migrate.
    pub window_bytes: Option<NonZeroU64>,
    /// Most helper threads of a queue with several requests at once; at most 3. `None` for as many as there
    /// are CPUs for, of which half are left to the guest.
    pub queue_helpers_max: Option<usize>,
}

impl Default for DeviceConfig {
    fn default() -> DeviceConfig {
        DeviceConfig {
            tag: None,
            request_queues: NonZeroU16::MIN,
            queue_size_max: QUEUE_SIZE_MAX,
            blocked_max: 64,
            lock_waiters_max: 128,
            drain_timeout: Duration::from_secs(5),
            spin: Duration::from_micros(50),
            window_bytes: None,
            queue_helpers_max: None,
        }
    }
}

/// Why a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// More than [`REQUEST_QUEUES_MAX`] queues.
    #[error("{0} request queues: there are at most {REQUEST_QUEUES_MAX}")]
    RequestQueues(u16),
    /// No power of two, or more than 1024.
    #[error("a queue of {0} descriptors: it is a power of two, {QUEUE_SIZE_MAX} at most")]
    QueueSize(u16),
    /// No multiple of 2 MiB, or more than 64 GiB.
    #[error("a DAX window of {0} bytes: it is a multiple of 2 MiB, 64 GiB at most")]
    Window(u64),
}

impl DeviceConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.request_queues.get() > REQUEST_QUEUES_MAX {
            return Err(ConfigError::RequestQueues(self.request_queues.get()));
        }
        if !self.queue_size_max.is_power_of_two() || self.queue_size_max > QUEUE_SIZE_MAX {
            return Err(ConfigError::QueueSize(self.queue_size_max));
        }
        if let Some(bytes) = self.window_bytes.map(NonZeroU64::get)
            && (!bytes.is_multiple_of(WINDOW_UNIT_BYTES) || bytes > WINDOW_BYTES_MAX)
        {
            return Err(ConfigError::Window(bytes));
        }
        Ok(())
    }

    /// The number of all queues: the high-priority queue and the request queues.
    pub(crate) fn queues(&self) -> usize {
        1 + usize::from(self.request_queues.get())
    }

    /// `length` bytes at `offset` of `struct virtio_fs_config`, padded with zeroes to 256 bytes; `None` beyond.
    pub(crate) fn space(&self, offset: u32, length: u32) -> Option<Vec<u8>> {
        const SPACE_BYTES: usize = 256;
        let mut space = [0; SPACE_BYTES];
        let (tag, rest) = space.split_at_mut(TAG_BYTES);
        tag.copy_from_slice(&self.tag.as_ref()?.to_field());
        let queues = u32::from(self.request_queues.get());
        rest[..4].copy_from_slice(&queues.to_le_bytes());
        let offset = offset as usize;
        let end = offset.checked_add(length as usize)?;
        space.get(offset..end).map(<[u8]>::to_vec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_space() {
        let mut config = DeviceConfig {
            request_queues: NonZeroU16::new(3).unwrap(),
            ..DeviceConfig::default()
        };
        assert_eq!(config.space(0, 40), None, "no tag, no space");
        config.tag = Some(Tag::new("home").unwrap());
        let space = config.space(0, 60).unwrap();
        assert_eq!(&space[..5], b"home\0");
        assert_eq!(&space[36..40], &[3, 0, 0, 0]);
        assert!(space[40..].iter().all(|&byte| byte == 0));
        assert_eq!(config.space(36, 4).unwrap(), [3, 0, 0, 0]);
        assert_eq!(config.space(255, 2), None);
        assert_eq!(config.space(u32::MAX, u32::MAX), None);
    }

    #[test]
    fn too_many_queues_and_invalid_queue_sizes_are_refused() {
        let with = |queues, size| DeviceConfig {
            request_queues: NonZeroU16::new(queues).unwrap(),
            queue_size_max: size,
            ..DeviceConfig::default()
        };
        assert_eq!(with(64, 1024).check(), Ok(()));
        assert_eq!(with(65, 1024).check(), Err(ConfigError::RequestQueues(65)));
        for size in [0, 1000, 2048] {
            assert_eq!(with(1, size).check(), Err(ConfigError::QueueSize(size)));
        }
    }
}
