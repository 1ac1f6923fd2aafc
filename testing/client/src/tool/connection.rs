//! How a command reaches a server.

use super::error::ToolError;
use crate::front_end::{FrontEnd, FrontEndConfig};
use std::path::PathBuf;
use std::time::Duration;
use thrufs_testing::Client;

/// The connection to a server.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The vhost-user socket.
    pub socket: PathBuf,
    /// Most request queues to use: 1 to 64.
    pub request_queues: u16,
    /// Entries of each queue: a power of two.
    pub queue_size: u16,
    /// Whether to use indirect descriptors, as Linux does.
    pub indirect: bool,
    /// Time limit of a request.
    pub time_limit: Duration,
}

impl Connection {
    /// A connection with defaults.
    pub fn to(socket: impl Into<PathBuf>) -> Connection {
        Connection {
            socket: socket.into(),
            ..Connection::default()
        }
    }

    pub(super) fn config(&self) -> FrontEndConfig {
        FrontEndConfig {
            request_queues: self.request_queues,
            queue_size: self.queue_size,
            indirect_descriptors: self.indirect,
            time_limit: Some(self.time_limit),
            ..FrontEndConfig::default()
        }
    }

    pub(super) fn connect(&self, config: &FrontEndConfig) -> Result<FrontEnd, ToolError> {
        FrontEnd::connect(&self.socket, config).map_err(|source| ToolError::Connect {
            socket: self.socket.clone(),
            source,
        })
    }

    /// Connects, and mounts as a guest would, with a window if there is one.
    pub(super) fn mount(&self, config: &FrontEndConfig) -> Result<Client<FrontEnd>, ToolError> {
        let front_end = self.connect(config)?;
        let mounted = match front_end.window() {
            Some(_) => Client::mount_with_window(front_end),
            None => Client::mount(front_end),
        };
        mounted.map_err(|source| ToolError::Mount {
            socket: self.socket.clone(),
            source,
        })
    }
}

impl Default for Connection {
    fn default() -> Connection {
        Connection {
            socket: PathBuf::new(),
            request_queues: 1,
            queue_size: 1024,
            indirect: true,
            time_limit: Duration::from_secs(30),
        }
    }
}
