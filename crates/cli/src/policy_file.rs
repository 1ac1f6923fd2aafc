//! The policy of a mount: read when it begins, and again when it is told to.

use crate::error::CommandError;
use rustix::fs::{Mode, OFlags};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use thrufs_hostdir::policy::Policy;
use thrufs_hostdir::{AuditLog, Config};

/// A policy that was read, with the file for what it audits.
#[derive(Debug)]
pub(crate) struct Loaded {
    policy: Arc<Policy>,
    audit: Option<OwnedFd>,
}

impl Loaded {
    /// Reads the policy in `path`, and opens the file that its audited opens are told in.
    ///
    /// # Errors
    ///
    /// A file that cannot be read or written, and what is wrong with the policy, with its line and
    /// column.
    pub(crate) fn from(path: &Path) -> Result<Loaded, CommandError> {
        let policy = Policy::load(path)?;
        let audit = policy.audit_log().map(open_audit_log).transpose()?;
        Ok(Loaded {
            policy: Arc::new(policy),
            audit,
        })
    }

    /// The policy.
    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Has a directory be served by it.
    pub(crate) fn serve_by(self, serving: &mut Config) {
        serving.policy = Some(self.policy);
        serving.audit_log = AuditLog::new(self.audit);
    }

    /// Gives its parts away: the policy, and where audited opens are told.
    pub(crate) fn into_parts(self) -> (Arc<Policy>, Option<OwnedFd>) {
        (self.policy, self.audit)
    }
}

fn open_audit_log(path: &Path) -> Result<OwnedFd, CommandError> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY;
    rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).map_err(|errno| {
        CommandError::AuditLog {
            path: path.into(),
            source: errno.into(),
        }
    })
}
