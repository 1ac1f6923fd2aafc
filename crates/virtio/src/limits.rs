//! Limits that the configuration checks and that size what is kept in memory for the next worker.

/// Most request queues of a device.
pub const REQUEST_QUEUES_MAX: u16 = 64;

/// Most descriptors of a queue.
pub(crate) const QUEUE_SIZE_MAX: u16 = 1024;

/// Most mappings of a DAX window at a time.
pub(crate) const MAPPINGS_MAX: usize = 32 << 10;

/// Bytes that a mapping of the window covers at most, and begins at a multiple of: Linux's `FUSE_DAX_SZ`.
pub(crate) const WINDOW_UNIT_BYTES: u64 = 2 << 20;
