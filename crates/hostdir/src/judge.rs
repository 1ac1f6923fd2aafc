//! Applies the active policy to requests.
//!
//! A policy ([`policy`](crate::policy)) speaks of paths, attributes and callers; requests name nodes. This
//! module finds the paths of a node by its [names](crate::tree::names), reads attributes and first bytes from the
//! lower file, and takes the caller from the request. A mount without a policy pays one check of a flag.
//!
//! A policy is replaced as a whole, and a request uses one policy from its beginning to its end. A
//! [`reload`] makes the kernel drop cached names if their answer changes. An open that was granted stays
//! granted.

mod attribute_source;
mod audit;
mod decide;
mod name_lock;
mod permission;
mod reload;

pub(crate) use attribute_source::NewFile;
pub(crate) use attribute_source::StatSource;
use attribute_source::{InodeSource, NameSource};
pub use audit::AuditLog;
pub(crate) use audit::AuditedOpen;
pub(crate) use permission::RulesOfEntries;
use reload::HiddenNames;

use crate::config::ConfigError;
use crate::host::BASIC;
use crate::policy::{Decision, FilePath, FileType, Policy, PolicyDataPath};
use crate::quota::QuotaCharge;
use parking_lot::RwLock;
use rustix::fs::{AtFlags, Mode, OFlags, Statx};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use thrufs::{Context, Notifier, Result};

/// The name under which rules match a file that has none (`O_TMPFILE`).
pub(crate) const UNNAMED: &CStr = c"(unnamed)";

#[derive(Debug)]
pub(crate) struct ActivePolicy {
    pub(crate) policy: Arc<Policy>,
    /// Counts from 1.
    pub(crate) generation: u64,
}

impl ActivePolicy {
    /// Requires a thread that may block if rules may read the content of a file of this type. Fails with
    /// `DEFER`, before anything was done.
    pub(crate) fn require_blocking_for_content(
        &self,
        file_type: FileType,
        context: &Context<'_>,
    ) -> Result<()> {
        if self.policy.uses().content && file_type == FileType::RegularFile {
            context.require_blocking()?;
        }
        Ok(())
    }
}

/// Finds the programs that callers execute, for a process that cannot read them in `/proc`.
pub trait Programs: std::fmt::Debug + Send + Sync {
    /// The path of the program that a caller executes, by its process id as requests give it.
    fn program(&self, caller: u32) -> Option<Vec<u8>>;
}

#[derive(Debug)]
struct ProcPrograms(OwnedFd);

impl ProcPrograms {
    fn open() -> Option<ProcPrograms> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let processes = rustix::fs::open("/proc", flags, Mode::empty());
        processes.ok().map(ProcPrograms)
    }
}

impl Programs for ProcPrograms {
    fn program(&self, caller: u32) -> Option<Vec<u8>> {
        let link = rustix::fs::readlinkat(&self.0, format!("{caller}/exe"), Vec::new());
        Some(link.ok()?.into_bytes())
    }
}

#[derive(Debug)]
pub(crate) struct Rules {
    /// `None` in a mount that was made without a policy: names were not tracked then.
    active_policy: Option<RwLock<Arc<ActivePolicy>>>,
    notifier: OnceLock<Notifier>,
    hidden: HiddenNames,
    audit_log: AuditLog,
    programs: Option<Arc<dyn Programs>>,
    name_lock: name_lock::NameLock,
    /// How many changes of names have begun, and how many have ended.
    names_changing: AtomicU64,
    names_changed: AtomicU64,
}

impl Rules {
    /// Programs are looked up only if callers are processes of this machine; in `/proc` if `programs` is
    /// `None`.
    pub(crate) fn new(
        policy: Option<Arc<Policy>>,
        audit_log: AuditLog,
        callers_are_local: bool,
        programs: Option<Arc<dyn Programs>>,
    ) -> Rules {
        let of_local_callers = || programs.or_else(|| Some(Arc::new(ProcPrograms::open()?)));
        Rules {
            programs: policy
                .as_ref()
                .filter(|_| callers_are_local)
                .and_then(|_| of_local_callers()),
            active_policy: policy.map(|policy| {
                let generation = 1;
                RwLock::new(Arc::new(ActivePolicy { policy, generation }))
            }),
            notifier: OnceLock::new(),
            audit_log,
            hidden: HiddenNames::default(),
            name_lock: name_lock::NameLock::default(),
            names_changing: AtomicU64::new(0),
            names_changed: AtomicU64::new(0),
        }
    }

    /// Opens the lock that all servers of one source share, if there may be rules. Errors: those of opening
    /// the root.
    pub(crate) fn open_name_lock(&self, root: impl AsFd) -> Result<()> {
        if self.has_policy() {
            self.name_lock.open(root)?;
        }
        Ok(())
    }

    /// Whether the active rules redact or hide, so that a concurrent rename could evade them.
    pub(crate) fn rely_on_names(&self) -> bool {
        self.active_policy().is_some_and(|rules| {
            let uses = rules.policy.uses();
            uses.redact || uses.hide
        })
    }

    /// Runs `change`, which changes names on the lower file system and in the inodes.
    pub(crate) fn changing_names(&self, change: impl FnOnce() -> Result<()>) -> Result<()> {
        self.names_changing.fetch_add(1, Ordering::SeqCst);
        let changed = change();
        self.names_changed.fetch_add(1, Ordering::SeqCst);
        changed
    }

    /// The state of all names, to be read before a name is looked up; `None` while a name changes.
    pub(crate) fn names_state(&self) -> Option<u64> {
        // In this order, so that a change that begins in between is seen.
        let changed = self.names_changed.load(Ordering::SeqCst);
        (changed == self.names_changing.load(Ordering::SeqCst)).then_some(changed)
    }

    /// Whether no name has changed since `state`, and none is changing.
    pub(crate) fn names_unchanged_since(&self, state: u64) -> bool {
        self.names_changing.load(Ordering::SeqCst) == state
    }

    pub(crate) fn set_notifier(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    pub(crate) fn audit_log(&self) -> &AuditLog {
        &self.audit_log
    }

    pub(crate) fn notifier(&self) -> Option<&Notifier> {
        self.notifier.get()
    }

    pub(crate) fn has_policy(&self) -> bool {
        self.active_policy.is_some()
    }

    pub(crate) fn active_policy(&self) -> Option<Arc<ActivePolicy>> {
        Some(Arc::clone(&self.active_policy.as_ref()?.read()))
    }

    /// The active policy, if it can affect opens of directories.
    pub(crate) fn for_opens(&self) -> Option<Arc<ActivePolicy>> {
        self.active_policy().filter(|rules| {
            let uses = rules.policy.uses();
            uses.deny || uses.hide || uses.audit
        })
    }

    /// The active policy, if it can forbid changes.
    fn for_changes(&self) -> Option<Arc<ActivePolicy>> {
        self.active_policy().filter(|rules| {
            let uses = rules.policy.uses();
            uses.deny || uses.read_only || uses.hide
        })
    }

    /// The active policy, if it redacts anything.
    pub(crate) fn that_redact(&self) -> Option<Arc<ActivePolicy>> {
        self.active_policy()
            .filter(|rules| rules.policy.uses().redact)
    }

    /// The active policy, if it hides names.
    pub(crate) fn that_hide(&self) -> Option<Arc<ActivePolicy>> {
        self.active_policy()
            .filter(|rules| rules.policy.uses().hide)
    }

    fn replace(&self, policy: Arc<Policy>) -> std::result::Result<Arc<ActivePolicy>, ConfigError> {
        let slot = self
            .active_policy
            .as_ref()
            .ok_or(ConfigError::NoPolicyToReplace)?;
        let mut active_policy = slot.write();
        let generation = active_policy.generation + 1;
        let new = Arc::new(ActivePolicy { policy, generation });
        Ok(std::mem::replace(&mut *active_policy, new))
    }

    pub(crate) fn executable(&self, pid: u32) -> Option<Vec<u8>> {
        if pid == 0 {
            return None;
        }
        self.programs.as_ref()?.program(pid)
    }
}

/// A decision, with the policy that made it.
pub(crate) struct PathDecision {
    pub(crate) rules: Arc<ActivePolicy>,
    pub(crate) decision: Decision,
    /// The latest path of the file.
    pub(crate) path: Vec<u8>,
}

/// The user and group that opened a file, to decide again with another policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenerIds {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl OpenerIds {
    pub(crate) fn word(self) -> u64 {
        u64::from(self.uid) << 32 | u64::from(self.gid)
    }

    /// Only the user with the charged quota: enough where no rule asks for the opener.
    pub(crate) fn counted_for(charge: Option<&QuotaCharge>) -> OpenerIds {
        OpenerIds {
            uid: charge.map_or(0, QuotaCharge::uid),
            gid: 0,
        }
    }

    pub(crate) fn from_word(word: u64) -> OpenerIds {
        OpenerIds {
            uid: (word >> 32) as u32,
            gid: word as u32,
        }
    }
}

/// The data path of all files where there is no policy.
pub(crate) const PASSTHROUGH: FilePath = FilePath {
    data: PolicyDataPath::Passthrough,
    rule: None,
};

fn stat_name(parent_fd: BorrowedFd<'_>, name: &CStr) -> Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Ok(rustix::fs::statx(parent_fd, name, flags, BASIC)?)
}
