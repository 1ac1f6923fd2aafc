//! The policy of a mount: read when it begins, and again when it is told to.

use crate::audit_log;
use crate::channel::Message;
use crate::error::{CommandError, system};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
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

/// A policy as it was read, for who does not see its file: a copy that nobody can change, which all
/// workers of a share serve by until it is read again, and the file for what it audits.
#[derive(Debug)]
pub(crate) struct PolicyFiles {
    pub(crate) text: OwnedFd,
    pub(crate) audit: Option<OwnedFd>,
}

impl PolicyFiles {
    /// Reads it, if the policy in `path` has no fault and goes together with `serving`.
    ///
    /// # Errors
    ///
    /// As [`Loaded::from`]. Rules that match on programs are refused: those of a guest are not known
    /// here.
    pub(crate) fn open(path: &Path, serving: &Config) -> Result<PolicyFiles, CommandError> {
        let (files, policy) = PolicyFiles::of_mount(path, serving)?;
        if policy.uses().executables {
            return Err(CommandError::ProgramsOfGuests(path.into()));
        }
        Ok(files)
    }

    /// The same for a mount, whose callers are processes of this machine.
    ///
    /// # Errors
    ///
    /// As [`Loaded::from`].
    pub(crate) fn of_mount(
        path: &Path,
        serving: &Config,
    ) -> Result<(PolicyFiles, Arc<Policy>), CommandError> {
        let file = File::open(path).map_err(system("open the policy"))?;
        let text = read_bounded(&file).map_err(system("read the policy"))?;
        let loaded = Loaded::of(Policy::of_file(path, &text)?)?;
        serving.check_policy(loaded.policy())?;
        let files = PolicyFiles {
            text: sealed(&text).map_err(system("store the policy"))?,
            audit: loaded.audit,
        };
        Ok((files, loaded.policy))
    }

    /// What one worker is told: it holds the policy, and who writes its audit log for it.
    ///
    /// # Errors
    ///
    /// No descriptors, no threads.
    pub(crate) fn for_worker(&self) -> io::Result<Message> {
        let begin = |file: &OwnedFd| audit_log::begin(file.try_clone()?);
        let audit = self.audit.as_ref().map(begin).transpose()?;
        Ok(Message::Policy(self.text.try_clone()?, audit))
    }
}

/// What is in a file from its beginning, wherever others who have it open are. One byte more than
/// allowed tells that it is too long.
fn read_bounded(file: &File) -> io::Result<Vec<u8>> {
    let mut text = vec![0; POLICY_BYTES_MAX + 1];
    let mut length = 0;
    while length < text.len() {
        match file.read_at(&mut text[length..], length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    text.truncate(length);
    Ok(text)
}

/// Memory with this in it, for ever.
fn sealed(text: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create(c"thrufs-policy", flags)?;
    let file = File::from(memory);
    file.write_all_at(text, 0)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

impl Loaded {
    /// Reads the policy that was kept; `path` and `accounts` are what it was called and whom it may
    /// name.
    ///
    /// # Errors
    ///
    /// As [`from`](Self::from).
    pub(crate) fn read(
        files: PolicyFiles,
        path: &Path,
        accounts: &Accounts,
    ) -> Result<Loaded, CommandError> {
        let text = read_bounded(&File::from(files.text)).map_err(system("read the policy"))?;
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
        Loaded::of(Policy::load(path)?)
    }

    fn of(policy: Policy) -> Result<Loaded, CommandError> {
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
