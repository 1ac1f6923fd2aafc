//! A worker of a share, which serves a machine or is on standby.

use super::connection::Connection;
use super::figures::QueryChannel;
use crate::channel::Order;
use crate::config::ShareConfig;
use crate::error::{StartupError, system};
use crate::foreign::Foreign;
use crate::policy_file::PolicyFiles;
use crate::process::{Process, Role};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use thrufs_sys::apart::Apart;

#[derive(Debug)]
pub(super) struct ShareWorker {
    pub(super) process: Process,
    /// The error it reported before its end.
    pub(super) exit_reason: Option<String>,
    /// The connection that it serves; on standby, none.
    pub(super) connection: Option<Foreign<Connection>>,
    /// For queries.
    pub(super) queries: Arc<QueryChannel>,
}

impl ShareWorker {
    /// Starts one; it sends `Ready` later.
    pub(super) fn start(
        apart: &mut Apart,
        program: &Path,
        config: &ShareConfig,
        policy: Option<&PolicyFiles>,
        source: &OwnedFd,
    ) -> Result<Foreign<ShareWorker>, StartupError> {
        let process = Process::start_apart(apart, program, Role::ShareWorker, config.paths())
            .map_err(system("start the worker"))?;
        let send = |message: Order| {
            let sent = process.channel.send_setup(&message);
            sent.map_err(system("send to the worker"))
        };
        let (queries, theirs) =
            QueryChannel::pair().map_err(system("create a socket for the worker"))?;
        send(Order::Control(vec![theirs]))?;
        if let Some(policy) = policy {
            send(policy.for_worker()?)?;
        }
        let source = source.try_clone();
        let source = source.map_err(system("duplicate a descriptor"))?;
        send(Order::Share(Box::new(config.clone()), vec![source]))?;
        Ok(Foreign::new(ShareWorker {
            process,
            exit_reason: None,
            connection: None,
            queries: Arc::new(queries),
        }))
    }
}

/// The state of the standby worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StandbyState {
    Starting,
    /// It waits for a front end.
    Ready,
    /// There is none: `machines` is reached, or the share ends. No front end is accepted.
    Full,
}

/// A worker of another program shows that it serves.
#[derive(Debug)]
pub(super) struct Proof {
    pub(super) deadline: Instant,
    /// Which resumes a machine; `None` before it is ready.
    pub(super) process: Option<u32>,
    /// How many machines were to be resumed until now.
    pub(super) given: u32,
}
