//! Reading again what a server has read at its start, by SIGHUP and `thrufs ctl`: log file and policy.
//!
//! ```text
//! client ──► control thread of the worker ── Reload ──► supervisor: opens files
//!    ◄── outcome ── control thread ◄── watcher ◄── Policy, Reloaded ──┘
//! ```
//!
//! A worker in control of an attacker could have it reloaded before: by [`Signalled`](crate::channel::Notice::Signalled).

use super::protocol::{Refusal, Reply};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt;
use std::io;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Less than the client waits.
const TIMEOUT: Duration = Duration::from_secs(8);

/// What was read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reloaded {
    pub(crate) log_file: bool,
    pub(crate) policy: bool,
}

/// Or why not all of it was.
pub(crate) type Outcome = Result<Reloaded, String>;

impl Reloaded {
    /// Logs what became of the parts.
    pub(crate) fn of(log_file: Result<bool, String>, policy: Result<bool, String>) -> Outcome {
        let outcome = match (log_file, policy) {
            (Ok(log_file), Ok(policy)) => Ok(Reloaded { log_file, policy }),
            (Err(one), Err(other)) => Err(format!("{one}; {other}")),
            (Err(why), Ok(_)) | (Ok(_), Err(why)) => Err(why),
        };
        match &outcome {
            Ok(reloaded) => tracing::info!("{reloaded}"),
            Err(why) => tracing::error!("{why}"),
        }
        outcome
    }
}

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.log_file, self.policy) {
            (true, true) => "the log file was opened again, and the policy was read again",
            (true, false) => "the log file was opened again; there is no policy",
            (false, true) => "the policy was read again; there is no log file",
            (false, false) => "nothing to reload: there is neither a log file nor a policy",
        })
    }
}

fn reply(outcome: Outcome) -> Reply {
    match outcome {
        Ok(reloaded) => Reply::Result(json!({
            "log_file": reloaded.log_file,
            "policy": reloaded.policy,
            "text": reloaded.to_string(),
        })),
        Err(why) => Reply::Error(Refusal::because(libc::EINVAL, &why)),
    }
}

/// Has the supervisor reload, and waits for the outcome.
pub(crate) fn by_supervisor(
    outcomes: &Receiver<Outcome>,
    ask: impl FnOnce() -> io::Result<()>,
) -> Reply {
    // Of those that were waited for in vain.
    while outcomes.try_recv().is_ok() {}
    let late = "the server has not reloaded within 8 s: its log says what became of it";
    let outcome = match ask() {
        Ok(()) => outcomes.recv_timeout(TIMEOUT),
        Err(error) => return reply(Err(format!("cannot ask the supervisor: {error}"))),
    };
    reply(outcome.unwrap_or_else(|_| Err(late.to_owned())))
}
