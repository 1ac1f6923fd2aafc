//! The directory, as it is served to the guest of the moment.
//!
//! A session of a guest begins with INIT and ends with DESTROY, a reset or its disconnection. Each gets
//! tables of its own: what one session knew by a number, the next knows not.

use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use thrufs::Snapshot;
use thrufs_hostdir::policy::Policy;
use thrufs_hostdir::{Config, ConfigError, HostDir, Ledger, SetupError, Strongbox};
use thrufs_virtio::{DeviceHandle, Journal, MakeFileSystem};

/// See the module.
pub(crate) struct SharedTree {
    source: OwnedFd,
    state: Mutex<State>,
}

struct State {
    /// How the next session is served.
    config: Config,
    /// Gone when the session is, so that nothing is held of what lies beneath.
    current: Weak<HostDir>,
    device: Option<DeviceHandle>,
    journal: Option<Journal>,
}

impl SharedTree {
    /// Tries whether `source` can be served like this.
    ///
    /// # Errors
    ///
    /// See [`SetupError`].
    pub(crate) fn new(source: OwnedFd, config: Config) -> Result<SharedTree, SetupError> {
        let tree = SharedTree {
            source,
            state: Mutex::new(State {
                config: config.clone(),
                current: Weak::new(),
                device: None,
                journal: None,
            }),
        };
        tree.open(config)?;
        Ok(tree)
    }

    fn open(&self, config: Config) -> Result<HostDir, SetupError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let again = rustix::fs::openat(&self.source, ".", flags, Mode::empty());
        let again = again.map_err(|errno| SetupError::System {
            what: "open the source again",
            source: errno.into(),
        })?;
        HostDir::from_fd(again, config)
    }

    /// What it can be asked about.
    pub(crate) fn set_device(&self, device: DeviceHandle) {
        self.state().device = Some(device);
    }

    /// Has sessions noted where the next process finds them.
    pub(crate) fn note_in(&self, ledger: Ledger, strongbox: Arc<dyn Strongbox>, journal: Journal) {
        let mut state = self.state();
        state.config.ledger = Some(ledger);
        state.config.strongbox = Some(strongbox);
        state.journal = Some(journal);
    }

    /// How many workers have died while they served the guest of the moment.
    pub(crate) fn deaths(&self) -> u64 {
        let state = self.state();
        state.journal.as_ref().map_or(0, Journal::deaths)
    }

    /// The tables of the session, while there is one.
    pub(crate) fn current(&self) -> Option<Arc<HostDir>> {
        self.state().current.upgrade()
    }

    /// The figures of the device.
    pub(crate) fn metrics(&self) -> Snapshot {
        let device = self.state().device.clone();
        device.map_or_else(
            || thrufs::Metrics::default().snapshot(),
            |device| device.metrics(),
        )
    }

    /// Serves by another policy from now on.
    ///
    /// # Errors
    ///
    /// When it does not go together with how the directory is served.
    pub(crate) fn replace_policy(
        &self,
        policy: Arc<Policy>,
        audit: Option<OwnedFd>,
    ) -> Result<(), ConfigError> {
        let (config, current) = {
            let state = self.state();
            (state.config.clone(), state.current.upgrade())
        };
        config.check_policy(&policy)?;
        if audit.is_some() {
            // Of all sessions.
            config.audit_log.replace(audit);
        }
        if let Some(current) = current {
            current.replace_policy(Arc::clone(&policy), None)?;
        }
        self.state().config.policy = Some(policy);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tree, as the device asks for it.
pub(crate) struct Sessions(pub(crate) Arc<SharedTree>);

impl MakeFileSystem for Sessions {
    type FileSystem = HostDir;

    fn make(&self) -> io::Result<Arc<HostDir>> {
        let config = self.0.state().config.clone();
        // Of the session before, nobody is to find anything.
        if let Some(ledger) = &config.ledger {
            ledger.clear()?;
        }
        if let Some(strongbox) = &config.strongbox {
            let kept = strongbox.take();
            kept.iter().for_each(|(key, _)| strongbox.discard(*key));
        }
        self.make_successor()
    }

    fn make_successor(&self) -> io::Result<Arc<HostDir>> {
        let config = self.0.state().config.clone();
        let made = self.0.open(config).map_err(io::Error::other)?;
        let made = Arc::new(made);
        self.0.state().current = Arc::downgrade(&made);
        Ok(made)
    }
}
