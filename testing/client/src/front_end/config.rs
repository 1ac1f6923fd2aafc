//! The configuration of a front end.

use super::window::WindowConfig;
use std::time::Duration;

/// The configuration of a front end.
#[derive(Clone, Debug)]
pub struct FrontEndConfig {
    /// Request queues: 1 to 64; fewer are used when the server has fewer.
    pub request_queues: u16,
    /// Entries of each queue: a power of two, at most 32768; also the most descriptors of a request, direct
    /// or indirect.
    pub queue_size: u16,
    /// Requests in flight on one queue, limited to `queue_size`.
    pub requests_max: usize,
    /// Most bulk data of a request, in bytes.
    pub data_bytes_max: usize,
    /// Whether to use indirect descriptors where the server offers them, as Linux does.
    pub indirect_descriptors: bool,
    /// Whether to use the event index where the server offers it, as Linux does.
    pub event_index: bool,
    /// A DAX window, where the server offers one with all that it needs: SHMEM, BACKEND_REQ, BACKEND_SEND_FD,
    /// REPLY_ACK, and CONFIGURE_MEM_SLOTS to announce mappings.
    pub window: Option<WindowConfig>,
    /// Time limit of a blocking request and of each message on the socket.
    pub time_limit: Option<Duration>,
}

impl Default for FrontEndConfig {
    fn default() -> FrontEndConfig {
        FrontEndConfig {
            request_queues: 1,
            queue_size: 1024,
            requests_max: 128,
            data_bytes_max: 1 << 20,
            indirect_descriptors: true,
            event_index: true,
            window: None,
            time_limit: Some(Duration::from_secs(30)),
        }
    }
}
