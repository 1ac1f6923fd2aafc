//! When the worker of a mount dies, another goes on with the session (`resume=N`).
//!
//! The supervisor keeps `/dev/fuse` open, so that the kernel's requests wait, and what outlives a worker: the
//! [journal](Journal), the [record of the session](Ledger), and [descriptors](Store) of locked and of unlinked
//! files. The next worker gets the same, asks the kernel to send again what the dead one has read, and goes on.
//! Only a worker that was killed by a signal is followed by another, and not more often than N times in a minute.

use super::{MountSupervisor, start_worker};
use crate::channel::Order;
use crate::config::MountConfig;
use crate::confinement::{clone_tree, raise_descriptor_limit};
use crate::deaths::Deaths;
use crate::error::{StartupError, system};
use crate::mounting::connection_lives;
use crate::policy_file::PolicyFiles;
use crate::strongbox::Store;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};
use thrufs::session::Journal;
use thrufs_hostdir::Ledger;

/// For the next worker to begin. Callers wait meanwhile.
const RESUME_TIMEOUT: Duration = Duration::from_secs(30);

/// What each worker is given.
pub(super) struct Given {
    /// The source and, if cloned, its mounts.
    sources: Vec<OwnedFd>,
    /// Of the control socket.
    listener: Option<OwnedFd>,
    pub(super) policy: Option<PolicyFiles>,
    record: Option<Record>,
}

/// What outlives a worker.
struct Record {
    journal: Journal,
    ledger: Ledger,
    strongbox: Store,
    deaths: Deaths,
}

impl Record {
    fn begin(deaths_max: usize) -> io::Result<Record> {
        // Of locks, for the next worker.
        raise_descriptor_limit();
        Ok(Record {
            journal: Journal::new()?,
            ledger: Ledger::new()?,
            strongbox: Store::start(1)?,
            deaths: Deaths::new(deaths_max),
        })
    }

    fn order(&self) -> io::Result<Order> {
        let all: [&dyn AsFd; 3] = [&self.journal, &self.ledger, &self.strongbox];
        let copies = all.map(|file| file.as_fd().try_clone_to_owned());
        Ok(Order::Record(copies.into_iter().collect::<Result<_, _>>()?))
    }
}

impl Given {
    pub(super) fn new(
        config: &MountConfig,
        sources: Vec<OwnedFd>,
        listener: Option<OwnedFd>,
        policy: Option<PolicyFiles>,
    ) -> Result<Given, StartupError> {
        let record = match config.server.deaths_max {
            0 => None,
            most => Some(Record::begin(most).map_err(system("record the session"))?),
        };
        Ok(Given {
            sources,
            listener,
            policy,
            record,
        })
    }

    /// What a worker is told before it serves. The first gets all for good if no other is to come.
    pub(super) fn orders(&mut self) -> Result<(Vec<Order>, Vec<OwnedFd>), StartupError> {
        let policy = self.policy.as_ref().map(PolicyFiles::for_worker);
        let mut orders: Vec<Order> = policy.transpose()?.into_iter().collect();
        let Some(record) = &self.record else {
            let listener = self.listener.take().map(|it| Order::Control(vec![it]));
            orders.extend(listener);
            return Ok((orders, std::mem::take(&mut self.sources)));
        };
        let copied = || {
            orders.push(record.order()?);
            let listener = self.listener.as_ref().map(OwnedFd::try_clone).transpose()?;
            orders.extend(listener.map(|it| Order::Control(vec![it])));
            let mut sources = self.sources.iter();
            // The worker mounts the clone in a namespace of its own, which ends with it.
            let source = sources.next().map(OwnedFd::try_clone).transpose()?;
            let clone = sources.next().map(clone_tree).transpose()?;
            Ok((orders, source.into_iter().chain(clone).collect()))
        };
        copied().map_err(system::<io::Error>("duplicate what workers are given"))
    }
}

impl MountSupervisor {
    /// Whether another worker goes on if this one is killed.
    pub(super) fn may_resume(&self) -> bool {
        let record = self.given.record.as_ref();
        record.is_some_and(|record| record.journal.has_session())
            && self.device.as_ref().is_some_and(connection_lives)
    }

    /// Whether another worker goes on, after the worker has ended without a request.
    pub(super) fn resume(&mut self) -> bool {
        self.left.retain_mut(|left| {
            let has_ended = left.has_ended_within(Duration::ZERO);
            has_ended.then(|| left.wait());
            !has_ended
        });
        let has_ended = self.worker.has_ended_within(Duration::ZERO);
        let was_killed = match has_ended.then(|| self.worker.wait()) {
            Some(Ok(status)) => status.signal().is_some(),
            Some(Err(_)) => false,
            None => true,
        };
        if !was_killed || !self.may_resume() {
            return false;
        }
        let Some(record) = &mut self.given.record else {
            return false;
        };
        record.journal.count_death();
        let mountpoint = self.config.mountpoint.clone();
        let shown = mountpoint.display();
        if let Err(why) = record.deaths.count() {
            if let Some(why) = why {
                tracing::error!("{shown} is not resumed: {why}");
            }
            return false;
        }
        tracing::error!("the server of {shown} was killed: another goes on");
        match self.start_next() {
            Ok(()) => true,
            Err(error) => {
                tracing::error!("{shown} is not resumed: {error}");
                false
            }
        }
    }

    fn start_next(&mut self) -> Result<(), StartupError> {
        let device = self
            .device
            .as_ref()
            .expect("held until the last worker has ended");
        let (orders, sources) = self.given.orders()?;
        let next = start_worker(&self.config, device, sources, orders)?;
        let last = std::mem::replace(&mut self.worker, next);
        self.left.push(last);
        self.tell_of_mount();
        self.begins_until = Some(Instant::now() + RESUME_TIMEOUT);
        Ok(())
    }

    /// The worker that was to go on does not begin.
    pub(super) fn on_late_begin(&mut self) {
        let shown = self.config.mountpoint.display();
        tracing::error!("{shown} is not resumed: the server does not begin");
        self.end_resuming();
        self.worker.kill();
    }

    /// No other worker goes on from now on.
    pub(super) fn end_resuming(&mut self) {
        self.begins_until = None;
        self.given.record = None;
    }
}
