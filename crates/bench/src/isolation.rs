//! Where a run takes place, and what remains of it: nothing.
//!
//! ```text
//! front ──────► clean-up ─────────► namespaces ────► inside ──► servers, measurements
//! (terminal,    (a session of its   (makes them)     (process 1 there)
//!  Ctrl-C)       own; the folder)
//! ```
//!
//! * All that a run mounts and starts lives in a mount and a process namespace of its own: with the first
//!   process in there, **inside**, everything ends. An ordinary user gets a user namespace around them;
//!   where there is none, servers mount by fusermount3, and the clean-up process ends them.
//! * The **clean-up** process waits, outside of the terminal's session, for the end of the run or of the front. It
//!   ends what is left and removes the scratch folders. When it is killed itself, the front does so.
//! * Both adopt processes whose parents were killed (`PR_SET_CHILD_SUBREAPER`), so that no process escapes.
//! * The front and the run hold the two ends of a pipe, the **parent pipe**: a byte asks the run to come to an
//!   end with what it has measured, and its end (the front has gone, or is in a hurry) ends the run at once.
//! * If all are killed at once, the scratch folder stays, with a lock in it that no process holds.
//!   The next run in that directory removes it.

pub(crate) mod cleanup;
pub(crate) mod front;
pub(crate) mod namespaces;
mod refusal;
mod remains;
mod scratch;
mod tree;

use serde::{Deserialize, Serialize};

pub(crate) use tree::{kind, same_tree};

/// What a run may do here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Privileges {
    /// Root, in namespaces.
    Root,
    /// An ordinary user, as root of a user namespace.
    UserNamespace,
    /// An ordinary user.
    Plain,
}

impl Privileges {
    /// Those to be tried, the best first.
    fn possible() -> &'static [Privileges] {
        if rustix::process::geteuid().is_root() {
            &[Privileges::Root]
        } else {
            &[Privileges::UserNamespace, Privileges::Plain]
        }
    }

    fn word(self) -> &'static str {
        match self {
            Privileges::Root => "root",
            Privileges::UserNamespace => "user-namespace",
            Privileges::Plain => "plain",
        }
    }

    pub(crate) fn named(word: &str) -> crate::Outcome<Privileges> {
        let mut all = [
            Privileges::Root,
            Privileges::UserNamespace,
            Privileges::Plain,
        ]
        .into_iter();
        all.find(|privileges| privileges.word() == word)
            .ok_or_else(|| format!("{word}: no privileges"))
    }

    /// Whether the kernel's caches can be dropped.
    pub(crate) fn drops_caches(self) -> bool {
        self == Privileges::Root
    }

    /// What a reader of figures that were made here has to know.
    pub(crate) fn remarks(self, directory: &std::path::Path) -> Vec<String> {
        let mut remarks = Vec::new();
        if !self.drops_caches() {
            remarks.push(
                "measured by an ordinary user, who cannot drop what the kernel has cached: in cold rows \
                 nothing is cached above (each has a new mount), and everything beneath"
                    .to_owned(),
            );
        }
        if self == Privileges::UserNamespace {
            remarks.push(
                "servers run as root of a user namespace, in which nothing can outlive the run"
                    .to_owned(),
            );
        }
        if let Some(kind) = kind(directory).filter(|kind| kind.starts_with("fuse")) {
            remarks.push(format!(
                "{} is on {kind} itself: native is what that server can do",
                directory.display()
            ));
        }
        remarks
    }
}
