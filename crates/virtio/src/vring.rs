//! One queue as the front end sets it up, message by message; and its thread, from the kick that starts it
//! to the message that stops it.

use crate::memory::Regions;
use crate::post::{Post, Wiring};
use crate::queue::{Broken, Layout, Ring, RingFeatures};
use crate::serving::{Away, Finished, Serving, Shared, Start};
use crate::session::MakeFileSystem;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

/// Why a queue cannot be started or stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VringError {
    #[error("queue {number}: {broken}")]
    Broken { number: usize, broken: Broken },
    #[error("queue {number} cannot be served: {error}")]
    Start { number: usize, error: io::Error },
    #[error("the thread of queue {0} does not end")]
    Stuck(usize),
    #[error("queue {0} is in use and cannot be set up otherwise")]
    Busy(usize),
}

/// A queue and what is known of it.
#[derive(Debug)]
pub(crate) struct Vring {
    number: usize,
    post: Arc<Post>,
    pub(crate) layout: Layout,
    /// From where to take the first request.
    pub(crate) base: u16,
    pub(crate) kick: Option<Arc<OwnedFd>>,
    pub(crate) call: Option<Arc<OwnedFd>>,
    pub(crate) error: Option<Arc<OwnedFd>>,
    pub(crate) enabled: bool,
    running: Option<Receiver<Finished>>,
    runs: u64,
    away: Vec<Away>,
}

impl Vring {
    pub(crate) fn new(number: usize, post: Arc<Post>) -> Vring {
        Vring {
            number,
            post,
            layout: Layout::default(),
            base: 0,
            kick: None,
            call: None,
            error: None,
            enabled: false,
            running: None,
            runs: 0,
            away: Vec::new(),
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// An error when the queue is in use.
    ///
    /// # Errors
    ///
    /// As said.
    pub(crate) fn require_stopped(&self) -> Result<(), VringError> {
        if self.is_running() {
            return Err(VringError::Busy(self.number));
        }
        Ok(())
    }

    fn wiring(&self, regions: &Regions) -> Option<Wiring> {
        Some(Wiring {
            // Each queue has a table of its own, so that they do not share its count.
            regions: Arc::new(regions.clone()),
            kick: Arc::clone(self.kick.as_ref()?),
            call: self.call.clone(),
            error: self.error.clone(),
            enabled: self.enabled,
        })
    }

    /// Lets the thread know what has changed; starts it if all that it needs is there now.
    ///
    /// # Errors
    ///
    /// When the queue cannot be served.
    pub(crate) fn update<M: MakeFileSystem>(
        &mut self,
        shared: &Arc<Shared<M>>,
        regions: &Regions,
        features: RingFeatures,
    ) -> Result<(), VringError> {
        let Some(wiring) = self.wiring(regions) else {
            return Ok(());
        };
        if self.is_running() {
            self.post.rewire(wiring);
            return Ok(());
        }
        let complete = self.layout.size > 0 && self.layout.descriptors != 0;
        if !complete || regions.is_empty() {
            return Ok(());
        }
        self.start(shared, wiring, features)
    }

    fn start<M: MakeFileSystem>(
        &mut self,
        shared: &Arc<Shared<M>>,
        wiring: Wiring,
        features: RingFeatures,
    ) -> Result<(), VringError> {
        let number = self.number;
        let ring = Ring::new(
            Arc::clone(&wiring.regions),
            self.layout,
            features,
            self.base,
        )
        .map_err(|broken| VringError::Broken { number, broken })?;
        self.runs += 1;
        self.post.restart();
        let start = Start {
            number,
            run: self.runs,
            post: Arc::clone(&self.post),
            wiring,
            ring,
            away: std::mem::take(&mut self.away),
        };
        let failed = |error| VringError::Start { number, error };
        let serving = Serving::new(Arc::clone(shared), start);
        let serving = serving.map_err(|errno| failed(errno.into()))?;
        let (tell, finished) = channel();
        std::thread::Builder::new()
            .name(format!("thrufs-queue-{number}"))
            .spawn(move || {
                // Nobody listens when the connection gave up on the thread.
                let _ = tell.send(serving.serve());
            })
            .map_err(failed)?;
        self.running = Some(finished);
        tracing::debug!(
            queue = number,
            size = self.layout.size,
            base = self.base,
            "started"
        );
        Ok(())
    }

    /// Asks the thread to end, if there is one. [`stop`](Self::stop) waits for it.
    pub(crate) fn begin_to_stop(&self) {
        if self.is_running() {
            self.post.stop();
        }
    }

    /// Stops the queue. Returns from where another has to go on.
    ///
    /// # Errors
    ///
    /// When the thread has not ended by `deadline`, because a request does not; the queue is lost then.
    pub(crate) fn stop(&mut self, deadline: Instant) -> Result<u16, VringError> {
        self.kick = None;
        let Some(finished) = self.running.take() else {
            return Ok(self.base);
        };
        self.post.stop();
        let left = deadline.saturating_duration_since(Instant::now());
        let finished = finished.recv_timeout(left);
        let finished = finished.map_err(|_| VringError::Stuck(self.number))?;
        self.base = finished.next_available;
        self.away = finished.away;
        tracing::debug!(queue = self.number, base = self.base, "stopped");
        Ok(self.base)
    }

    /// As it was before it was set up, once it was stopped. Where to tell whom of what stays: front
    /// ends say that once.
    pub(crate) fn reset(&mut self) {
        *self = Vring {
            call: self.call.take(),
            error: self.error.take(),
            runs: self.runs,
            ..Vring::new(self.number, Arc::clone(&self.post))
        };
    }
}
