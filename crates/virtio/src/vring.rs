//! A queue as the front end sets it up, message by message, and its thread, from SET_VRING_KICK to
//! GET_VRING_BASE.

use crate::journal::{Again, Inflight, Journal, Phase, Tracker};
use crate::mailbox::{Mailbox, Wiring, signal};
use crate::memory::{DirtyLog, Regions};
use crate::queue::{Broken, VirtqueueFeatures, VirtqueueLayout, VirtqueueLog, VirtqueueRing};
use crate::queue_state::QueueState;
use crate::serving::{Finished, Serving, Start, in_order};
use crate::session::MakeFileSystem;
use crate::shared::Shared;
use crate::slot::Away;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

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

/// What is the same for all queues.
#[derive(Debug, Default)]
pub(crate) struct Setup {
    pub(crate) regions: Regions,
    pub(crate) features: VirtqueueFeatures,
    /// The log that queues use.
    pub(crate) log: Option<Arc<DirtyLog>>,
}

#[derive(Debug)]
pub(crate) struct Vring {
    number: usize,
    mailbox: Arc<Mailbox>,
    pub(crate) layout: VirtqueueLayout,
    /// The available index from which to take requests.
    pub(crate) base: u16,
    pub(crate) kick: Option<Arc<OwnedFd>>,
    pub(crate) call: Option<Arc<OwnedFd>>,
    pub(crate) error: Option<Arc<OwnedFd>>,
    pub(crate) enabled: bool,
    /// Guest address of the used ring, if writes to it are logged.
    pub(crate) used_log: Option<u64>,
    running: Option<Receiver<Finished>>,
    runs: u64,
    away: Vec<Away>,
    /// To be replayed, in this order.
    pub(crate) again: Vec<Again>,
    pub(crate) table: Option<Inflight>,
}

impl Vring {
    pub(crate) fn new(number: usize, mailbox: Arc<Mailbox>) -> Vring {
        Vring {
            number,
            mailbox,
            layout: VirtqueueLayout::default(),
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

    /// Fails while the queue runs.
    pub(crate) fn require_stopped(&self) -> Result<(), VringError> {
        if self.is_running() {
            return Err(VringError::Busy(self.number));
        }
        Ok(())
    }

    fn wiring(&self, setup: &Setup, in_force: Option<&Sender<()>>) -> Option<Wiring> {
        let log = setup.log.clone().map(|log| VirtqueueLog {
            log,
            used: self.used_log,
        });
        Some(Wiring {
            // A clone for each queue, so that queues share no reference count.
            regions: Arc::new(setup.regions.clone()),
            kick: Arc::clone(self.kick.as_ref()?),
            call: self.call.clone(),
            error: self.error.clone(),
            enabled: self.enabled,
            log,
            in_force: in_force.cloned(),
        })
    }

    /// Whether [`update`](Self::update) would start it, given memory regions.
    pub(crate) fn is_about_to_start(&self) -> bool {
        let complete = self.layout.size > 0 && self.layout.descriptors != 0;
        complete && self.kick.is_some() && !self.is_running()
    }

    /// Passes the set-up to the thread, or starts it once the set-up is complete. `in_force` is dropped once
    /// it applies.
    pub(crate) fn update<M: MakeFileSystem>(
        &mut self,
        shared: &Arc<Shared<M>>,
        setup: &Setup,
        in_force: Option<&Sender<()>>,
    ) -> Result<(), VringError> {
        let Some(wiring) = self.wiring(setup, in_force) else {
            return Ok(());
        };
        if self.is_running() {
            self.mailbox.rewire(wiring);
            return Ok(());
        }
        if !self.is_about_to_start() || setup.regions.is_empty() {
            return Ok(());
        }
        self.start(shared, wiring, setup.features)
    }

    /// The ring, in which the requests that are away or to be replayed are in use.
    fn ring(
        &mut self,
        journal: Option<&Journal>,
        wiring: &Wiring,
        features: VirtqueueFeatures,
    ) -> Result<VirtqueueRing, Broken> {
        let (regions, layout) = (Arc::clone(&wiring.regions), self.layout);
        let mut ring = VirtqueueRing::new(regions, layout, features, self.base)?;
        let table = self.table.as_ref();
        let table = table.and_then(|table| table.of_size(layout.size));
        let tracker = Tracker::new(journal, table, self.number, layout.size);
        if self.runs == 0 {
            // The first run in this process; another process may have served the queue.
            let is_new = journal.is_some_and(|journal| journal.has_new_base(self.number));
            let left = ring.take_over(tracker, is_new.then_some(self.base))?;
            if left.is_empty() {
                let heads = self.adopt(&mut ring);
                heads.iter().for_each(|head| ring.note_taken(*head));
            } else {
                self.again = in_order(left);
            }
        } else {
            let heads = self.adopt(&mut ring);
            ring.track(tracker, &heads);
        }
        ring.set_log(wiring.log.clone());
        Ok(ring)
    }

    fn start<M: MakeFileSystem>(
        &mut self,
        shared: &Arc<Shared<M>>,
        wiring: Wiring,
        features: VirtqueueFeatures,
    ) -> Result<(), VringError> {
        let number = self.number;
        let journal = shared.journal.as_ref();
        let ring = self
            .ring(journal, &wiring, features)
            .map_err(|broken| VringError::Broken { number, broken })?;
        if let Some(journal) = journal {
            journal.take_base(number);
            if self.runs == 0
                && journal.deaths() > 0
                && let Some(call) = &wiring.call
            {
                // The dead process may have returned requests without a notification.
                signal(call.as_fd());
            }
        }
        self.runs += 1;
        self.mailbox.restart();
        let start = Start {
            number,
            run: self.runs,
            mailbox: Arc::clone(&self.mailbox),
            wiring,
            queue: QueueState::new(ring, std::mem::take(&mut self.away)),
            again: std::mem::take(&mut self.again),
        };
        let failed = |error| VringError::Start { number, error };
        let serving = Serving::new(Arc::clone(shared), start);
        let serving = serving.map_err(|errno| failed(errno.into()))?;
        let (tell, finished) = channel();
        std::thread::Builder::new()
            .name(format!("thrufs-queue-{number}"))
            .spawn(move || {
                // Fails when `stop` has timed out.
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

    /// Marks the requests that were away when the queue was stopped as in use again, if it is the same queue:
    /// after a reset of the guest the used index differs. Returns their heads.
    fn adopt(&mut self, ring: &mut VirtqueueRing) -> Vec<u16> {
        let missing = ring.next_available().wrapping_sub(ring.next_used());
        let same = usize::from(missing) == self.away.len() + self.again.len();
        let heads = self.away.iter().map(|away| away.head);
        let again = self.again.iter().map(|again| again.head);
        let heads: Vec<u16> = heads.chain(again).collect();
        if same && heads.iter().all(|head| ring.mark(*head).is_ok()) {
            return heads;
        }
        ring.unmark_all();
        self.away.clear();
        self.again.clear();
        Vec::new()
    }

    pub(crate) fn begin_to_stop(&self) {
        if self.is_running() {
            self.mailbox.stop();
        }
    }

    /// Stops the queue. Returns the available index from which to continue.
    ///
    /// # Errors
    ///
    /// When the thread has not ended by `deadline`, because of a request; the queue is lost then.
    pub(crate) fn stop(&mut self, deadline: Instant) -> Result<u16, VringError> {
        self.kick = None;
        let Some(finished) = self.running.take() else {
            return Ok(self.base);
        };
        self.mailbox.stop();
        let left = deadline.saturating_duration_since(Instant::now());
        let finished = finished.recv_timeout(left);
        let finished = finished.map_err(|_| VringError::Stuck(self.number))?;
        self.base = finished.next_available;
        (self.away, self.again) = (finished.away, finished.again);
        tracing::debug!(queue = self.number, base = self.base, "stopped");
        Ok(self.base)
    }

    /// Fails when requests of this stopped queue are in progress that cannot be replayed.
    pub(crate) fn require_only_waits(&self) -> Result<(), VringError> {
        // The state of a migration does not say how far a request is that another process had begun.
        let is_taken = |again: &Again| again.phase == Phase::Taken;
        let is_wait = |away: &Away| away.wait.is_for_lock();
        if self.away.iter().all(is_wait) && self.again.iter().all(is_taken) {
            return Ok(());
        }
        Err(VringError::Stuck(self.number))
    }

    /// Moves the requests in progress of this stopped queue to those to be replayed. Their results here are
    /// discarded.
    pub(crate) fn withdraw(&mut self) {
        let away = self.away.drain(..);
        self.again.extend(away.map(|away| Again::taken(away.head)));
    }

    /// Resets the set-up of a stopped queue, but for the call and error eventfds: front ends send them once.
    pub(crate) fn reset(&mut self) {
        *self = Vring {
            call: self.call.take(),
            error: self.error.take(),
            table: self.table.take(),
            runs: self.runs,
            ..Vring::new(self.number, Arc::clone(&self.mailbox))
        };
    }
}
