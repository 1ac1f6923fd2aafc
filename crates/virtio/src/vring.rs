//! One queue as the front end sets it up, message by message; and its thread, from the kick that starts it
//! to the message that stops it.

use crate::desk::{Away, Desk};
use crate::journal::{Inflight, Tracker};
use crate::memory::{DirtyLog, Regions};
use crate::post::{Post, Wiring};
use crate::queue::{Broken, Layout, Ring, RingFeatures, RingLog};
use crate::serving::{Finished, Serving, Shared, Start, in_order};
use crate::session::MakeFileSystem;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
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

/// What all queues of a device have in common.
#[derive(Clone, Copy)]
pub(crate) struct Setup<'a> {
    pub(crate) regions: &'a Regions,
    pub(crate) features: RingFeatures,
    /// Where to note what is written.
    pub(crate) log: Option<&'a Arc<DirtyLog>>,
    /// To be dropped when this is in force.
    pub(crate) in_force: Option<&'a Sender<()>>,
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
    /// Where the used ring is for the guest, if writes to it are to be noted.
    pub(crate) used_log: Option<u64>,
    running: Option<Receiver<Finished>>,
    runs: u64,
    away: Vec<Away>,
    /// Requests that were taken and that whoever goes on with this queue has to carry out again.
    pub(crate) again: Vec<u16>,
    /// Where the front end wants it noted what is in flight.
    pub(crate) table: Option<Inflight>,
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
            used_log: None,
            running: None,
            runs: 0,
            away: Vec::new(),
            again: Vec::new(),
            table: None,
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

    fn wiring(&self, setup: &Setup<'_>) -> Option<Wiring> {
        let log = setup.log.map(|log| RingLog {
            log: Arc::clone(log),
            used: self.used_log,
        });
        Some(Wiring {
            // Each queue has a table of its own, so that they do not share its count.
            regions: Arc::new(setup.regions.clone()),
            kick: Arc::clone(self.kick.as_ref()?),
            call: self.call.clone(),
            error: self.error.clone(),
            enabled: self.enabled,
            log,
            in_force: setup.in_force.cloned(),
        })
    }

    /// Whether [`update`](Self::update) would start it, given memory.
    pub(crate) fn is_about_to_start(&self) -> bool {
        let complete = self.layout.size > 0 && self.layout.descriptors != 0;
        complete && self.kick.is_some() && !self.is_running()
    }

    /// Lets the thread know what has changed; starts it if all that it needs is there now.
    ///
    /// # Errors
    ///
    /// When the queue cannot be served.
    pub(crate) fn update<M: MakeFileSystem>(
        &mut self,
        shared: &Arc<Shared<M>>,
        setup: &Setup<'_>,
    ) -> Result<(), VringError> {
        let Some(wiring) = self.wiring(setup) else {
            return Ok(());
        };
        if self.is_running() {
            self.post.rewire(wiring);
            return Ok(());
        }
        if !self.is_about_to_start() || setup.regions.is_empty() {
            return Ok(());
        }
        self.start(shared, wiring, setup.features)
    }

    fn start<M: MakeFileSystem>(
        &mut self,
        shared: &Arc<Shared<M>>,
        wiring: Wiring,
        features: RingFeatures,
    ) -> Result<(), VringError> {
        let number = self.number;
        let mut ring = Ring::new(
            Arc::clone(&wiring.regions),
            self.layout,
            features,
            self.base,
        )
        .map_err(|broken| VringError::Broken { number, broken })?;
        let journal = shared.journal.as_ref();
        let table = self.table.as_ref();
        let table = table.and_then(|table| table.of_size(self.layout.size));
        let mut tracker = Some(Tracker::new(journal, table, number, self.layout.size));
        let mut left = Vec::new();
        if self.runs == 0
            && let Some(tracker) = tracker.take()
        {
            // Perhaps not the first of all processes that serve it.
            let anew = journal.is_none_or(|journal| journal.has_new_base(number));
            let base = (anew && journal.is_some()).then_some(self.base);
            let again = ring.take_over(tracker, base);
            left = in_order(again.map_err(|broken| VringError::Broken { number, broken })?);
        }
        if let Some(journal) = journal {
            journal.take_base(number);
        }
        self.runs += 1;
        self.post.restart();
        let start = Start {
            number,
            run: self.runs,
            post: Arc::clone(&self.post),
            wiring,
            desk: Desk::new(ring, std::mem::take(&mut self.away)),
            again: std::mem::take(&mut self.again),
            succeeds: self.runs == 1 && journal.is_some_and(|journal| journal.deaths() > 0),
            tracker,
            left,
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
        (self.away, self.again) = (finished.away, finished.again);
        tracing::debug!(queue = self.number, base = self.base, "stopped");
        Ok(self.base)
    }

    /// An error when requests of this stopped queue are under way that cannot be taken back.
    ///
    /// # Errors
    ///
    /// As said.
    pub(crate) fn require_only_waits(&self) -> Result<(), VringError> {
        if self.away.iter().all(Away::waits_for_lock) {
            return Ok(());
        }
        Err(VringError::Stuck(self.number))
    }

    /// Has what is still under way of this stopped queue carried out again by whoever goes on with it.
    /// What becomes of it here does not count any more.
    pub(crate) fn withdraw(&mut self) {
        let heads = self.away.drain(..).map(|away| away.head());
        self.again.extend(heads);
    }

    /// As it was before it was set up, once it was stopped. Where to tell whom of what stays: front
    /// ends say that once.
    pub(crate) fn reset(&mut self) {
        *self = Vring {
            call: self.call.take(),
            error: self.error.take(),
            table: self.table.take(),
            runs: self.runs,
            ..Vring::new(self.number, Arc::clone(&self.post))
        };
    }
}
