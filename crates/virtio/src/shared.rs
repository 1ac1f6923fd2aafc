//! What the threads of one front end's connection share.

use crate::carry_out::Sleeping;
use crate::config::DeviceConfig;
use crate::connection::Connection;
use crate::journal::Journal;
use crate::session::{MakeFileSystem, NullFileSystem, Sessions};
use crate::stall_monitor::Watch;
use crate::window::Window;
use std::sync::Arc;
use thrufs::serving::{BlockingPool, ServingThreads};
use thrufs::{Dispatcher, Metrics, Wait};

pub(crate) struct Shared<M: MakeFileSystem> {
    pub(crate) sessions: Sessions<M>,
    pub(crate) pool: Arc<BlockingPool<Sleeping<M::FileSystem>>>,
    pub(crate) threads: ServingThreads,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) connection: Arc<Connection>,
    /// Answers requests outside a session.
    pub(crate) null_dispatcher: Dispatcher<NullFileSystem>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) config: DeviceConfig,
    /// For the process that resumes this connection.
    pub(crate) journal: Option<Journal>,
    pub(crate) window: Option<Window<M::FileSystem>>,
}

impl<M: MakeFileSystem> Shared<M> {
    /// Has another thread execute the request. Returns it when there is none.
    pub(crate) fn send_away(
        &self,
        sleeping: Sleeping<M::FileSystem>,
    ) -> Option<Sleeping<M::FileSystem>> {
        match (&self.window, sleeping.wait) {
            (Some(window), Wait::Window) => {
                window.take(sleeping);
                None
            }
            (_, Wait::Io | Wait::Late | Wait::Lock { .. } | Wait::Window) => {
                self.pool.take(sleeping).err()
            }
        }
    }
}
