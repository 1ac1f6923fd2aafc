//! Asking the policy in force about what clients do.
//!
//! A policy ([`policy`](crate::policy)) speaks of paths, attributes and callers; requests speak of
//! nodes and names. Here the one is found for the other: the paths of a node from its
//! [names](crate::names), its attributes and first bytes from the file beneath, the caller from the
//! request. A mount without a policy is not slowed down by one look at a flag.
//!
//! The policy is swapped as a whole. A request asks one, from its beginning to its end.
//!
//! **What the kernel keeps.** Names that the kernel has cached are not asked for again, so a reload has
//! it drop those that it changes ([`reload`]). An open that was granted stays granted.

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
use crate::policy::{Access, DataPath, Decision, FilePath, FileType, Policy};
use crate::quota::QuotaCharge;
use parking_lot::RwLock;
use rustix::fs::{AtFlags, Mode, OFlags, Statx};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use thrufs::{Context, Errno, Notifier, Result};

/// The name by which a file is judged that has none (`O_TMPFILE`).
pub(crate) const UNNAMED: &CStr = c"(unnamed)";

/// A policy, and which one it is.
#[derive(Debug)]
pub(crate) struct ActivePolicy {
    pub(crate) policy: Arc<Policy>,
    /// From 1 on, each its own.
    pub(crate) generation: u64,
}

impl ActivePolicy {
    /// Goes elsewhere to sleep if a file of this type may be looked into.
    ///
    /// # Errors
    ///
    /// `DEFER`, before anything was done.
    pub(crate) fn looks_into(&self, file_type: FileType, context: &Context<'_>) -> Result<()> {
        if self.policy.uses().content && file_type == FileType::RegularFile {
            context.require_blocking()?;
        }
        Ok(())
    }
}

/// Tells which programs callers run, for a process that does not see them.
pub trait Programs: std::fmt::Debug + Send + Sync {
    /// The path of the program that a caller, given as requests name it, executes.
    fn program(&self, caller: u32) -> Option<Vec<u8>>;
}

/// `/proc`, for a process that does.
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

/// The policy of a served directory.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Nothing in a mount that was made without a policy: names were not tracked then.
    active_policy: Option<RwLock<Arc<ActivePolicy>>>,
    notifier: OnceLock<Notifier>,
    hidden: HiddenNames,
    /// To find out which programs callers run.
    programs: Option<Arc<dyn Programs>>,
    name_lock: name_lock::NameLock,
    /// How many changes of names have begun, and how many have ended.
    names_changing: AtomicU64,
    names_changed: AtomicU64,
}

impl Rules {
    /// The programs of callers are found out only where those are processes of this machine; where
    /// nobody is to be asked, here.
    pub(crate) fn new(
        policy: Option<Arc<Policy>>,
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
            hidden: HiddenNames::default(),
            name_lock: name_lock::NameLock::default(),
            names_changing: AtomicU64::new(0),
            names_changed: AtomicU64::new(0),
        }
    }

    /// Opens what servers of one source wait for each other by, where there may be rules.
    ///
    /// # Errors
    ///
    /// Those of opening the root.
    pub(crate) fn open_name_lock(&self, root: impl AsFd) -> Result<()> {
        if self.are_there() {
            self.name_lock.open(root)?;
        }
        Ok(())
    }

    /// Whether the rules in force redact or hide: what they say is gone around by whoever renames in
    /// between.
    pub(crate) fn rely_on_names(&self) -> bool {
        self.active_policy().is_some_and(|rules| {
            let uses = rules.policy.uses();
            uses.redact || uses.hide
        })
    }

    /// Runs what changes names beneath and in the inodes.
    pub(crate) fn changing_names(&self, change: impl FnOnce() -> Result<()>) -> Result<()> {
        self.names_changing.fetch_add(1, Ordering::SeqCst);
        let changed = change();
        self.names_changed.fetch_add(1, Ordering::SeqCst);
        changed
    }

    /// The state of all names, to be asked before one is looked up; nothing while one changes.
    pub(crate) fn state_of_names(&self) -> Option<u64> {
        // In this name_lock: what begins in between is seen.
        let changed = self.names_changed.load(Ordering::SeqCst);
        (changed == self.names_changing.load(Ordering::SeqCst)).then_some(changed)
    }

    /// Whether no name has changed since that state, and none is changing.
    pub(crate) fn names_are_since(&self, state: u64) -> bool {
        self.names_changing.load(Ordering::SeqCst) == state
    }

    pub(crate) fn set_notifier(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    pub(crate) fn notifier(&self) -> Option<&Notifier> {
        self.notifier.get()
    }

    /// Whether there is, or may be, a policy.
    pub(crate) fn are_there(&self) -> bool {
        self.active_policy.is_some()
    }

    pub(crate) fn active_policy(&self) -> Option<Arc<ActivePolicy>> {
        Some(Arc::clone(&self.active_policy.as_ref()?.read()))
    }

    /// The one in force, if it can say anything about opens of directories.
    pub(crate) fn of_opens(&self) -> Option<Arc<ActivePolicy>> {
        self.active_policy().filter(|rules| {
            let uses = rules.policy.uses();
            uses.deny || uses.hide || uses.audit
        })
    }

    /// The one in force, if it can say anything about changes.
    fn of_changes(&self) -> Option<Arc<ActivePolicy>> {
        self.active_policy().filter(|rules| {
            let uses = rules.policy.uses();
            uses.deny || uses.read_only || uses.hide
        })
    }

    /// The one in force, if it redacts anything.
    pub(crate) fn that_redact(&self) -> Option<Arc<ActivePolicy>> {
        self.active_policy()
            .filter(|rules| rules.policy.uses().redact)
    }

    /// The one in force, if it hides names.
    pub(crate) fn of_names(&self) -> Option<Arc<ActivePolicy>> {
        self.active_policy()
            .filter(|rules| rules.policy.uses().hide)
    }

    /// Puts another policy in the place of the one in force, and gives that one back.
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

/// What was found out about an open file-to-be.
pub(crate) struct PathDecision {
    pub(crate) rules: Arc<ActivePolicy>,
    pub(crate) decision: Decision,
    /// The latest path.
    pub(crate) path: Vec<u8>,
}

/// Who opened something, for whoever judges it once more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenerIds {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl OpenerIds {
    /// As one word, in which it is kept.
    pub(crate) fn word(self) -> u64 {
        u64::from(self.uid) << 32 | u64::from(self.gid)
    }

    /// As far as it matters where no rule asks: as whose share it counts.
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

/// How files come where there is no policy.
pub(crate) const PASSTHROUGH: FilePath = FilePath {
    data: DataPath::Passthrough,
    rule: None,
};

fn stat_name(parent_fd: BorrowedFd<'_>, name: &CStr) -> Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Ok(rustix::fs::statx(parent_fd, name, flags, BASIC)?)
}

fn stays_redacted(old: &Decision, new: &Decision) -> Result<()> {
    if old.file.redaction().is_some() && new.file.redaction().is_none() {
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
