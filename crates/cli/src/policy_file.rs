//! The policy of a mount: read when it begins, and again when it is told to.

use crate::error::{CommandError, system};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use thrufs_hostdir::policy::{Accounts, POLICY_BYTES_MAX, Policy, PolicyFileError};
use thrufs_hostdir::{AuditLog, Config};

/// A policy that was read, with the file for what it audits.
#[derive(Debug)]
pub(crate) struct Loaded {
    policy: Arc<Policy>,
    audit: Option<OwnedFd>,
}

/// The files of a policy, opened by one who sees them for one who does not.
#[derive(Debug)]
pub(crate) struct PolicyFiles {
    pub(crate) text: OwnedFd,
    pub(crate) audit: Option<OwnedFd>,
}

impl PolicyFiles {
    /// Opens them, if the policy in `path` has no fault and goes together with `serving`.
    ///
    /// # Errors
    ///
    /// As [`Loaded::from`]. Rules that match on programs are refused: those of a guest are not known
    /// here.
    pub(crate) fn open(path: &Path, serving: &Config) -> Result<PolicyFiles, CommandError> {
        let text = File::open(path).map_err(system("open the policy"))?;
        let loaded = Loaded::from(path)?;
        serving.check_policy(loaded.policy())?;
        if loaded.policy().uses().executables {
            return Err(CommandError::ProgramsOfGuests(path.into()));
        }
        Ok(PolicyFiles {
            text: text.into(),
            audit: loaded.audit,
        })
    }
}

impl Loaded {
    /// Reads the policy in a file that was opened; `path` and `accounts` are what it was called and
    /// whom it may name.
    ///
    /// # Errors
    ///
    /// As [`from`](Self::from).
    pub(crate) fn read(
        files: PolicyFiles,
        path: &Path,
        accounts: &Accounts,
    ) -> Result<Loaded, CommandError> {
        let mut text = Vec::new();
        // One byte more than allowed tells that it is too long.
        File::from(files.text)
            .take(POLICY_BYTES_MAX as u64 + 1)
            .read_to_end(&mut text)
            .map_err(system("read the policy"))?;
        let policy = Policy::parse(&text, accounts).map_err(|error| PolicyFileError::Bad {
            path: path.into(),
            error,
        })?;
        Ok(Loaded {
            policy: Arc::new(policy),
            audit: files.audit,
        })
    }

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
