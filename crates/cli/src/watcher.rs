//! What the workers of mounts and of shares have in common: they hear first what to serve, and have a thread
//! that waits for signals and for the supervisor.

use crate::channel::{Channel, Message};
use crate::control::answer::Subject;
use crate::policy_file::{Loaded, PolicyFiles};
use crate::process;
use crate::task;
use crate::waiting;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use thrufs_hostdir::policy::Accounts;
use thrufs_sys::signal::{SIGUSR1, SignalFd};

/// What the supervisor gives before it says what to serve.
#[derive(Default)]
pub(crate) struct Given {
    pub(crate) control: Option<OwnedFd>,
    pub(crate) callers: Option<OwnedFd>,
    pub(crate) policy: Option<PolicyFiles>,
}

/// Hears the supervisor until it says what to serve: what it gave, and that.
pub(crate) fn hear(supervisor: &Channel) -> Option<(Given, Message)> {
    let mut given = Given::default();
    loop {
        match supervisor.receive() {
            Ok(Some(Message::Control(socket))) => given.control = Some(socket),
            Ok(Some(Message::AboutCallers(socket))) => given.callers = Some(socket),
            Ok(Some(Message::Policy(text, audit))) => {
                given.policy = Some(PolicyFiles { text, audit });
            }
            Ok(Some(message)) => return Some((given, message)),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Who serves, as its supervisor sees it.
pub(crate) trait Watched: Send + 'static {
    /// The signals that the supervisor is told of. The others are sent to it as well, or to nobody.
    const PASSED_ON: &[i32];

    /// Acts upon what the supervisor says.
    fn on_message(&mut self, message: Message);

    /// The supervisor has died, without which nobody could end this process.
    fn on_orphaned(&mut self);
}

/// Waits for signals and for the supervisor.
pub(crate) struct Watcher<T> {
    pub(crate) supervisor: Arc<Channel>,
    pub(crate) signals: SignalFd,
    pub(crate) subject: Arc<Subject>,
    /// What the policy is called, and whom it may name.
    pub(crate) policy: Option<(PathBuf, Accounts)>,
    pub(crate) watched: T,
}

impl<T: Watched> Watcher<T> {
    /// Begins to watch, by a thread of its own that is confined first.
    ///
    /// # Errors
    ///
    /// No threads.
    pub(crate) fn start(mut self, confine: impl FnOnce() + Send + 'static) -> io::Result<()> {
        task::start_thread("thrufs-watcher", move || {
            if let Ok(thread) = process::this_thread() {
                let _ = self.supervisor.send(&Message::Watching(thread));
            }
            confine();
            while self.watch() {}
        })?;
        Ok(())
    }

    /// Whether there is a supervisor still.
    fn watch(&mut self) -> bool {
        let descriptors = [Some(self.signals.as_fd()), Some(self.supervisor.as_fd())];
        let [signal, message] = waiting::readable(descriptors, None);
        if signal && let Ok(signal) = self.signals.read() {
            match signal.number {
                SIGUSR1 => self.print_statistics(),
                // The supervisor's to act upon. If it is gone, that is noticed next.
                number if T::PASSED_ON.contains(&number) => {
                    let _ = self.supervisor.send(&Message::Signalled(number));
                }
                _ => {}
            }
        }
        if message {
            match self.supervisor.receive() {
                Ok(Some(Message::Statistics)) => self.print_statistics(),
                Ok(Some(Message::Policy(text, audit))) => {
                    self.replace_policy(PolicyFiles { text, audit });
                }
                Ok(Some(message)) => self.watched.on_message(message),
                Ok(None) | Err(_) => {
                    self.watched.on_orphaned();
                    return false;
                }
            }
        }
        true
    }

    /// A bad one changes nothing.
    fn replace_policy(&self, files: PolicyFiles) {
        let Some((path, accounts)) = &self.policy else {
            return;
        };
        let replaced = Loaded::read(files, path, accounts).and_then(|loaded| {
            let (policy, audit) = loaded.into_parts();
            Ok(self.subject.served.replace_policy(policy, audit)?)
        });
        match replaced {
            Ok(()) => tracing::info!("policy {} reloaded", path.display()),
            Err(error) => tracing::error!("policy not reloaded, the active one stays: {error}"),
        }
    }

    /// Asked for in so many words, so it is no matter of log levels.
    fn print_statistics(&self) {
        // In one piece: others may write to the same file. Perhaps nobody hears it any more.
        let _ = writeln!(io::stderr(), "{}", self.subject.statistics_text());
    }
}
