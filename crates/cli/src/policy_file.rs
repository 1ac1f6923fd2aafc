//! Loads the policy of a mount or share, at the start and on SIGHUP.

use crate::audit_log;
use crate::channel::Order;
use crate::error::{StartupError, system, system_at};
use crate::lookup;
use rustix::fs::{MemfdFlags, Mode, SealFlags};
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use thrufs_hostdir::Config;
use thrufs_policy::{Accounts, POLICY_BYTES_MAX, Policy, PolicyFileError};

/// A checked policy for workers, which cannot open its file: a sealed copy of the text, which all workers use
/// until a reload, and the audit log.
#[derive(Debug)]
pub(crate) struct PolicyFiles {
    pub(crate) text: OwnedFd,
    pub(crate) audit: Option<OwnedFd>,
}

impl PolicyFiles {
    /// Loads the policy in `path`.
    pub(crate) fn open(path: &Path, serving: &Config) -> Result<PolicyFiles, StartupError> {
        let text = text_of(path)?;
        let policy = Policy::of_file(path, &text)?;
        let files = PolicyFiles::of(&policy, &text, serving)?;
        // The host does not see the programs of a guest.
        if policy.uses().executables && !serving.callers_are_local {
            return Err(StartupError::ProgramsOfGuests(path.into()));
        }
        Ok(files)
    }

    /// Opens the audit log of a policy, of which `text` is the text.
    pub(crate) fn of(
        policy: &Policy,
        text: &[u8],
        serving: &Config,
    ) -> Result<PolicyFiles, StartupError> {
        let audit = policy.audit_log().map(open_audit_log).transpose()?;
        serving.check_policy(policy)?;
        Ok(PolicyFiles {
            text: sealed(text).map_err(system("store the policy"))?,
            audit,
        })
    }

    /// The message for one worker, with a socket to a new audit log thread.
    pub(crate) fn for_worker(&self) -> Result<Order, StartupError> {
        self.for_worker_with(audit_log::begin)
    }

    /// As [`for_worker`](Self::for_worker); `begin` starts the audit log thread.
    pub(crate) fn for_worker_with(
        &self,
        begin: impl FnOnce(OwnedFd) -> io::Result<OwnedFd>,
    ) -> Result<Order, StartupError> {
        let copy = || {
            let log = self.audit.as_ref().map(OwnedFd::try_clone).transpose()?;
            let audit = log.map(begin).transpose()?;
            let text = self.text.try_clone()?;
            Ok(PolicyFiles { text, audit }.into_message())
        };
        copy().map_err(system::<io::Error>("start the audit log"))
    }

    pub(crate) fn into_message(self) -> Order {
        Order::Policy([self.text].into_iter().chain(self.audit).collect())
    }

    /// Of the descriptors of [its message](Self::into_message).
    pub(crate) fn received(descriptors: Vec<OwnedFd>) -> Option<PolicyFiles> {
        let mut descriptors = descriptors.into_iter();
        Some(PolicyFiles {
            text: descriptors.next()?,
            audit: descriptors.next(),
        })
    }

    /// Compiles it in a worker, and returns the audit log too; `path` and `accounts` are the name for messages
    /// and the known user names.
    pub(crate) fn compile(
        self,
        path: &Path,
        accounts: &Accounts,
    ) -> Result<(Arc<Policy>, Option<OwnedFd>), StartupError> {
        let text = read_bounded(&File::from(self.text)).map_err(system("read the policy"))?;
        let policy = Policy::parse(&text, accounts).map_err(|error| PolicyFileError::Bad {
            path: path.into(),
            error,
        })?;
        Ok((Arc::new(policy), self.audit))
    }
}

pub(crate) fn not_reloaded(error: impl Display) -> String {
    format!("policy not reloaded, the active one stays: {error}")
}

/// The text of a file that may be a user's.
pub(crate) fn text_of(path: &Path) -> Result<Vec<u8>, PolicyFileError> {
    Policy::text_of(path, lookup::open_regular(path).map(File::from))
}

/// The content, independent of the shared file offset. One byte more than the limit shows that it is too
/// long.
fn read_bounded(file: &File) -> io::Result<Vec<u8>> {
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut text = vec![0; length.min(POLICY_BYTES_MAX + 1)];
    file.read_exact_at(&mut text, 0)?;
    Ok(text)
}

/// A sealed memfd.
fn sealed(text: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create(c"thrufs-policy", flags)?;
    let file = File::from(memory);
    file.write_all_at(text, 0)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

fn open_audit_log(path: &Path) -> Result<OwnedFd, StartupError> {
    let opened = lookup::open_log(path, Mode::from_raw_mode(0o600));
    opened.map_err(system_at("append to the audit log", path))
}
