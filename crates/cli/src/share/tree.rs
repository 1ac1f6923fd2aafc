//! The served directory, with the session of the current guest.
//!
//! A session begins with INIT and ends with DESTROY, a reset or a disconnection. Each has its own tables:
//! node ids are not valid in the next.

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use thrufs_hostdir::{Config, ConfigError, FdStore, HostDir, Ledger, Resources, SetupError};
use thrufs_policy::Policy;
use thrufs_virtio::{Journal, MakeFileSystem};

pub(crate) struct SharedTree {
    source: OwnedFd,
    config: Config,
    state: Mutex<State>,
}

struct State {
    /// For the next session.
    resources: Resources,
    /// Weak, so that no file stays open after the session.
    current: Weak<HostDir>,
    journal: Option<Journal>,
}

impl SharedTree {
    /// Checks that `source` can be served.
    pub(crate) fn new(
        source: OwnedFd,
        config: Config,
        resources: Resources,
    ) -> Result<SharedTree, SetupError> {
        let tree = SharedTree {
            source,
            config,
            state: Mutex::new(State {
                resources: resources.clone(),
                current: Weak::new(),
                journal: None,
            }),
        };
        tree.open(resources)?;
        Ok(tree)
    }

    fn open(&self, resources: Resources) -> Result<HostDir, SetupError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let again = rustix::fs::openat(&self.source, ".", flags, Mode::empty());
        let again = again.map_err(|errno| SetupError::System {
            what: "open the source again",
            source: errno.into(),
        })?;
        HostDir::from_fd(again, self.config.clone(), resources)
    }

    /// Records sessions for the next worker.
    pub(crate) fn note_in(&self, ledger: Ledger, fd_store: Arc<dyn FdStore>, journal: Journal) {
        let mut state = self.state.lock();
        state.resources.ledger = Some(ledger);
        state.resources.fd_store = Some(fd_store);
        state.journal = Some(journal);
    }

    /// Deaths of workers of the current connection.
    pub(crate) fn deaths(&self) -> u64 {
        let state = self.state.lock();
        state.journal.as_ref().map_or(0, Journal::deaths)
    }

    /// The tables of the current session.
    pub(crate) fn current(&self) -> Option<Arc<HostDir>> {
        self.state.lock().current.upgrade()
    }

    /// Activates another policy.
    pub(crate) fn replace_policy(
        &self,
        policy: Arc<Policy>,
        audit: Option<OwnedFd>,
    ) -> Result<(), ConfigError> {
        self.config.check_policy(&policy)?;
        let (audit_log, current) = {
            let state = self.state.lock();
            (state.resources.audit_log.clone(), state.current.upgrade())
        };
        if audit.is_some() {
            audit_log.replace(audit);
        }
        if let Some(current) = current {
            current.replace_policy(Arc::clone(&policy), None)?;
        }
        self.state.lock().resources.policy = Some(policy);
        Ok(())
    }
}

pub(crate) struct Sessions(pub(crate) Arc<SharedTree>);

impl MakeFileSystem for Sessions {
    type FileSystem = HostDir;

    fn make(&self) -> io::Result<Arc<HostDir>> {
        let resources = self.0.state.lock().resources.clone();
        // Nothing of the previous session may be found.
        if let Some(ledger) = &resources.ledger {
            ledger.clear()?;
        }
        if let Some(fd_store) = &resources.fd_store {
            let kept = fd_store.take();
            kept.iter().for_each(|(key, _)| fd_store.discard(*key));
        }
        self.make_successor()
    }

    fn make_successor(&self) -> io::Result<Arc<HostDir>> {
        let resources = self.0.state.lock().resources.clone();
        let made = self.0.open(resources).map_err(io::Error::other)?;
        let made = Arc::new(made);
        self.0.state.lock().current = Arc::downgrade(&made);
        Ok(made)
    }
}
