//! Asking the policy in force about what clients do.
//!
//! A policy ([`policy`](crate::policy)) speaks of paths, attributes and callers; requests speak of
//! nodes and names. Here the one is found for the other: the paths of a node from its
//! [names](crate::names), its attributes and first bytes from the file beneath, the caller from the
//! request. A mount without a policy is not slowed down by one look at a flag.
//!
//! The policy is swapped as a whole. A request asks one, from its beginning to its end.
//!
//! **What the kernel keeps.** Names and attributes that the kernel has cached are not asked for
//! again, so a reload ends all of that ([`Notifier::increment_epoch`]). An open that was granted
//! stays granted.

mod audit;
mod evidence;
mod judgement;
mod permission;

pub use audit::AuditLog;
pub(crate) use audit::OpenRecord;
pub(crate) use evidence::NewFile;
use evidence::OfInode;
pub(crate) use evidence::OfStat;

use crate::config::ConfigError;
use crate::host::BASIC;
use crate::policy::{Access, DataPath, Decision, FilePath, Policy};
use parking_lot::RwLock;
use rustix::fs::{AtFlags, Mode, OFlags, Statx};
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use thrufs::{Errno, Notifier, Result};

/// The name by which a file is judged that has none (`O_TMPFILE`).
pub(crate) const UNNAMED: &CStr = c"(unnamed)";

/// A policy, and which one it is.
#[derive(Debug)]
pub(crate) struct InForce {
    pub(crate) policy: Arc<Policy>,
}

/// The policy of a served directory.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Nothing in a mount that was made without a policy: names were not tracked then.
    in_force: Option<RwLock<Arc<InForce>>>,
    notifier: OnceLock<Notifier>,
    /// `/proc`, to find out which programs callers run.
    processes: Option<OwnedFd>,
}

impl Rules {
    pub(crate) fn new(policy: Option<Arc<Policy>>) -> Rules {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Rules {
            processes: policy
                .as_ref()
                .and_then(|_| rustix::fs::open("/proc", flags, Mode::empty()).ok()),
            in_force: policy.map(|policy| RwLock::new(Arc::new(InForce { policy }))),
            notifier: OnceLock::new(),
        }
    }

    pub(crate) fn set_notifier(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    /// Whether there is, or may be, a policy.
    pub(crate) fn are_there(&self) -> bool {
        self.in_force.is_some()
    }

    pub(crate) fn in_force(&self) -> Option<Arc<InForce>> {
        Some(Arc::clone(&self.in_force.as_ref()?.read()))
    }

    /// The one in force, if it can say anything about changes.
    fn of_changes(&self) -> Option<Arc<InForce>> {
        self.in_force().filter(|rules| {
            let uses = rules.policy.uses();
            uses.deny || uses.read_only || uses.hide
        })
    }

    /// The one in force, if it hides names.
    pub(crate) fn of_names(&self) -> Option<Arc<InForce>> {
        self.in_force().filter(|rules| rules.policy.uses().hide)
    }

    /// Puts another policy in the place of the one in force.
    pub(crate) fn replace(&self, policy: Arc<Policy>) -> std::result::Result<(), ConfigError> {
        let slot = self
            .in_force
            .as_ref()
            .ok_or(ConfigError::NoPolicyToReplace)?;
        *slot.write() = Arc::new(InForce { policy });
        if let Some(notifier) = self.notifier.get()
            && let Err(error) = notifier.increment_epoch()
        {
            tracing::warn!("names that the kernel has cached stay for their time: {error}");
        }
        Ok(())
    }

    pub(crate) fn executable(&self, pid: u32) -> Option<Vec<u8>> {
        if pid == 0 {
            return None;
        }
        let path = format!("{pid}/exe");
        let link = rustix::fs::readlinkat(self.processes.as_ref()?, path, Vec::new()).ok()?;
        Some(link.into_bytes())
    }
}

/// What was found out about an open file-to-be.
pub(crate) struct Judged {
    pub(crate) rules: Arc<InForce>,
    pub(crate) decision: Decision,
    /// The latest path.
    pub(crate) path: Vec<u8>,
}

/// How files come where there is no policy.
pub(crate) const STRAIGHT: FilePath = FilePath {
    data: DataPath::Passthrough,
    rule: None,
    could_redact: None,
};

fn stat_name(parent_fd: BorrowedFd<'_>, name: &CStr) -> Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Ok(rustix::fs::statx(parent_fd, name, flags, BASIC)?)
}

fn stays_redacted(old: &Decision, new: &Decision) -> Result<()> {
    if old.file.could_redact.is_some() && new.file.could_redact.is_none() {
        Err(Errno::EXDEV)
    } else {
        Ok(())
    }
}

/// The error that a decision means for what someone wants to do.
pub(crate) fn permitted(decision: &Decision, access: Access) -> Result<()> {
    decision.check(access).map_err(|refusal| refusal.errno)
}

/// The same for making it: what would be hidden cannot be made.
pub(crate) fn permitted_new(decision: &Decision) -> Result<()> {
    match permitted(decision, Access::Change) {
        Err(_) if decision.hidden.is_some() => Err(Errno::EACCES),
        result => result,
    }
}
