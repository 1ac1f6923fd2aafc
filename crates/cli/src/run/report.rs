//! `--report`: how many files the command read, wrote and created, and what the rules refused it.
//!
//! The audit log thread counts each record before it acknowledges it ([`crate::audit_log`]):
//! everything that the command got an answer to is counted when the worker has ended. The command chooses
//! paths and programs: what is kept of them is bounded, and they are escaped where they are printed.
//!
//! | module | content |
//! |---|---|
//! | `counts` | the counts, and the report as JSON |
//! | `page` | the report as text, on a page of the terminal |
//! | `text` | names as text that controls no terminal |

mod counts;
mod page;
mod text;

use crate::output;
use counts::Counts;
use page::Size;
use parking_lot::Mutex;
use std::sync::Arc;
use thrufs_policy::Policy;

/// The counts of a run, shared with the audit log thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Report(Arc<Mutex<Counts>>);

impl Report {
    pub(super) fn new(no_network: bool) -> Report {
        Report(Arc::new(Mutex::new(Counts {
            no_network,
            ..Counts::default()
        })))
    }

    /// What counts a record, for the audit log thread.
    pub(super) fn counting(&self) -> impl FnMut(&str, bool) + Send + 'static {
        let counts = Arc::clone(&self.0);
        move |line, is_written| {
            let mut counts = counts.lock();
            counts.add(line, is_written);
        }
    }

    /// Prints it to standard error: standard output is the command's.
    pub(super) fn print(&self, policy: &Policy, as_json: bool) {
        let counts = self.0.lock();
        let text = match as_json {
            true => counts.json(policy) + "\n",
            false => counts.page(policy, Size::of_standard_error()),
        };
        let _ = output::report_surely(&text);
    }
}

#[cfg(test)]
mod tests;
