//! Common to the workers of mounts and shares: the setup messages, and the thread that waits for signals
//! and the supervisor.

use crate::channel::{Notice, Order, ToParent};
use crate::confinement::Duty;
use crate::control::answer::Subject;
use crate::control::connection::Answer;
use crate::control::reload::Outcome;
use crate::output::report_of;
use crate::policy_file::{PolicyFiles, not_reloaded};
use crate::process;
use crate::task;
use crate::waiting;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use thrufs_policy::Accounts;
use thrufs_sys::signal::{SIGUSR1, SignalFd};

/// Received before the message that says what to serve.
#[derive(Default)]
pub(crate) struct WorkerSetup {
    pub(crate) control: Option<OwnedFd>,
    pub(crate) metrics: Option<OwnedFd>,
    pub(crate) callers: Option<OwnedFd>,
    pub(crate) policy: Option<PolicyFiles>,
    pub(crate) record: Vec<OwnedFd>,
}

/// Receives until the message that says what to serve.
pub(crate) fn receive_setup(supervisor: &ToParent) -> Option<(WorkerSetup, Order)> {
    let mut setup = WorkerSetup::default();
    loop {
        match supervisor.receive() {
            Ok(Some(Order::Control(mut socket))) => setup.control = socket.pop(),
            Ok(Some(Order::Metrics(mut socket))) => setup.metrics = socket.pop(),
            Ok(Some(Order::CallerQueries(mut socket))) => setup.callers = socket.pop(),
            Ok(Some(Order::Record(all))) => setup.record = all,
            Ok(Some(Order::Policy(files))) => setup.policy = PolicyFiles::received(files),
            Ok(Some(message)) => return Some((setup, message)),
            Ok(None) => return None,
            Err(error) => {
                let _ = supervisor.send(&Notice::Failed(error.to_string()));
                return None;
            }
        }
    }
}

/// The server that the watcher controls.
pub(crate) trait Watched: Send + 'static {
    /// The signals that are reported to the supervisor.
    const PASSED_ON: &[i32];

    /// Those of the main thread and of the watcher.
    const DUTIES: [Duty; 2];

    /// Answers queries at the control socket, on a thread of its own.
    const ANSWER_QUERIES: fn(OwnedFd, &mut Answer<'_>);

    /// Handles a message of the supervisor.
    fn on_message(&mut self, message: Order);

    /// The supervisor has died, so this process must end itself.
    fn on_orphaned(&mut self);
}

pub(crate) struct Watcher<T> {
    pub(crate) supervisor: Arc<ToParent>,
    pub(crate) signals: SignalFd,
    pub(crate) subject: Arc<Subject>,
    /// The path of the policy, and the known accounts.
    pub(crate) policy: Option<(PathBuf, Accounts)>,
    /// Of the last policy that was sent, until the outcome of its reload is.
    pub(crate) refused: Option<String>,
    /// To the control thread.
    pub(crate) outcomes: Sender<Outcome>,
    pub(crate) watched: T,
}

impl<T: Watched> Watcher<T> {
    /// Starts the thread, which calls `confine` first. When this returns, the supervisor can watch the thread: if this
    /// process were killed before, while another thread is blocked in the kernel, nobody would see it.
    pub(crate) fn start(mut self, confine: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let (sent, is_sent) = channel::<()>();
        task::start_thread("thrufs-watcher", move || {
            if let Ok(thread) = process::this_thread() {
                let _ = self.supervisor.send(&Notice::Watching(vec![thread]));
            }
            drop(sent);
            confine();
            while self.watch() {}
        })?;
        let _ = is_sent.recv();
        Ok(())
    }

    /// Returns whether the supervisor is alive.
    fn watch(&mut self) -> bool {
        let descriptors = [Some(self.signals.as_fd()), Some(self.supervisor.as_fd())];
        let [signal, message] = waiting::readable(descriptors, None);
        if signal && let Ok(signal) = self.signals.read() {
            match signal.number {
                SIGUSR1 => self.print_statistics(),
                // The supervisor decides. If it has died, the next event shows it.
                number if T::PASSED_ON.contains(&number) => {
                    let _ = self.supervisor.send(&Notice::Signalled(number));
                }
                _ => {}
            }
        }
        if message {
            match self.supervisor.receive() {
                Ok(Some(Order::Statistics)) => self.print_statistics(),
                Ok(Some(Order::Policy(files))) => {
                    if let Some(files) = PolicyFiles::received(files) {
                        self.refused = self.replace_policy(files).err();
                    }
                }
                Ok(Some(Order::Reloaded(outcome))) => {
                    let outcome = self.refused.take().map_or(outcome, Err);
                    let _ = self.outcomes.send(outcome);
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

    fn replace_policy(&self, files: PolicyFiles) -> Result<(), String> {
        let Some((path, accounts)) = &self.policy else {
            return Ok(());
        };
        let replaced = files
            .compile(path, accounts)
            .and_then(|(policy, audit)| Ok(self.subject.served.replace_policy(policy, audit)?));
        let shown = path.display();
        replaced
            .inspect(|()| tracing::info!("policy {shown} reloaded"))
            .map_err(not_reloaded)
            .inspect_err(|why| tracing::error!("{why}"))
    }

    /// Requested explicitly, so independent of log levels.
    fn print_statistics(&self) {
        report_of(&self.subject.place, &self.subject.statistics_text());
    }
}
