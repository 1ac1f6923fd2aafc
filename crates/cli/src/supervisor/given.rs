//! What each worker of a mount is given, and what outlives it if another is to [go on](super::resume).

use crate::channel::Order;
use crate::config::MountConfig;
use crate::confinement::{clone_tree, raise_descriptor_limit};
use crate::deaths::Deaths;
use crate::error::{StartupError, system};
use crate::fd_store::{Store, Stored};
use crate::policy_file::PolicyFiles;
use crate::upgrade::handover::{Incoming, MountState, Outgoing, Slot};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use thrufs::session::Journal;
use thrufs_hostdir::Ledger;

/// What each worker is given.
pub(super) struct Given {
    /// The source and, if cloned, its mounts.
    sources: Vec<OwnedFd>,
    /// Of the control socket.
    listener: Option<OwnedFd>,
    /// Of metrics.
    metrics: Option<OwnedFd>,
    pub(super) policy: Option<PolicyFiles>,
    pub(super) record: Option<Record>,
}

/// What outlives a worker.
pub(super) struct Record {
    pub(super) journal: Journal,
    ledger: Ledger,
    fd_store: Store,
    pub(super) deaths: Deaths,
}

impl Record {
    fn begin(deaths_max: usize) -> io::Result<Record> {
        // Of locks, for the next worker.
        raise_descriptor_limit();
        Ok(Record {
            journal: Journal::new()?,
            ledger: Ledger::new()?,
            fd_store: Store::start(1)?,
            deaths: Deaths::new(deaths_max),
        })
    }

    /// Goes on with that of an earlier program of this process.
    fn resume(deaths_max: usize, files: &mut Incoming, ages: &[Duration]) -> io::Result<Record> {
        raise_descriptor_limit();
        let store = [Slot::StoreEnd, Slot::StoreSocket].map(|slot| files.take(slot));
        let [end, socket] = store;
        Ok(Record {
            journal: Journal::from_memory(files.take(Slot::Journal)?)?,
            ledger: files.take(Slot::Ledger)?.into(),
            fd_store: Store::resume(1, [end?, socket?], files.take_stored())?,
            deaths: Deaths::resume(deaths_max, ages),
        })
    }

    /// What is in the descriptor store.
    pub(super) fn stored(&self) -> impl Deref<Target = Stored> {
        self.fd_store.stored()
    }

    fn order(&self) -> io::Result<Order> {
        let all: [&dyn AsFd; 3] = [&self.journal, &self.ledger, &self.fd_store];
        let copies = all.map(|file| file.as_fd().try_clone_to_owned());
        Ok(Order::Record(copies.into_iter().collect::<Result<_, _>>()?))
    }
}

impl Given {
    pub(super) fn new(
        config: &MountConfig,
        sources: Vec<OwnedFd>,
        [listener, metrics]: [Option<OwnedFd>; 2],
        policy: Option<PolicyFiles>,
    ) -> Result<Given, StartupError> {
        let record = match config.server.deaths_max {
            0 => None,
            most => Some(Record::begin(most).map_err(system("record the session"))?),
        };
        Ok(Given {
            sources,
            listener,
            metrics,
            policy,
            record,
        })
    }

    /// Goes on with what an earlier program of this process has [handed over](Self::hand_over).
    pub(super) fn resume(state: &MountState, files: &mut Incoming) -> io::Result<Given> {
        let source = files.take(Slot::Source)?;
        let mounts = files.take_if_given(Slot::SourceMounts);
        let policy = files.take_if_given(Slot::Policy).map(|text| PolicyFiles {
            text,
            audit: files.take_if_given(Slot::AuditLog),
        });
        Ok(Given {
            sources: [source].into_iter().chain(mounts).collect(),
            listener: files.take_if_given(Slot::Queries),
            metrics: files.take_if_given(Slot::Metrics),
            policy,
            record: Some(Record::resume(
                state.config.server.deaths_max,
                files,
                &state.deaths,
            )?),
        })
    }

    /// Everything but what is in the descriptor store.
    pub(super) fn hand_over<'a>(&'a self, files: &mut Outgoing<'a>) {
        let sources = [Slot::Source, Slot::SourceMounts].into_iter();
        sources
            .zip(&self.sources)
            .for_each(|(slot, source)| files.add(slot, source));
        files.add_if(Slot::Queries, self.listener.as_ref());
        files.add_if(Slot::Metrics, self.metrics.as_ref());
        if let Some(policy) = &self.policy {
            files.add(Slot::Policy, &policy.text);
            files.add_if(Slot::AuditLog, policy.audit.as_ref());
        }
        if let Some(record) = &self.record {
            files.add(Slot::Journal, &record.journal);
            files.add(Slot::Ledger, &record.ledger);
            files.add(Slot::StoreEnd, record.fd_store.end());
            files.add(Slot::StoreSocket, &record.fd_store);
        }
    }

    /// What a worker is told before it serves. The first gets all for good if no other is to come.
    pub(super) fn orders(&mut self) -> Result<(Vec<Order>, Vec<OwnedFd>), StartupError> {
        let policy = self.policy.as_ref().map(PolicyFiles::for_worker);
        let mut orders: Vec<Order> = policy.transpose()?.into_iter().collect();
        let Some(record) = &self.record else {
            let queries = self.listener.take().map(|it| Order::Control(vec![it]));
            let metrics = self.metrics.take().map(|it| Order::Metrics(vec![it]));
            orders.extend(queries.into_iter().chain(metrics));
            return Ok((orders, std::mem::take(&mut self.sources)));
        };
        let copied = || {
            orders.push(record.order()?);
            let copy = |file: &Option<OwnedFd>| file.as_ref().map(OwnedFd::try_clone).transpose();
            let queries = copy(&self.listener)?.map(|it| Order::Control(vec![it]));
            let metrics = copy(&self.metrics)?.map(|it| Order::Metrics(vec![it]));
            orders.extend(queries.into_iter().chain(metrics));
            let mut sources = self.sources.iter();
            // The worker mounts the clone in a namespace of its own, which ends with it.
            let source = sources.next().map(OwnedFd::try_clone).transpose()?;
            let clone = sources.next().map(clone_tree).transpose()?;
            Ok((orders, source.into_iter().chain(clone).collect()))
        };
        copied().map_err(system::<io::Error>("duplicate what workers are given"))
    }
}
