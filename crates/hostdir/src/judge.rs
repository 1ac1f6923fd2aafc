//! What the active policy says of a node, a name and a caller. Knows the [tree](crate::tree), and neither open
//! files nor requests.
//!
//! A policy ([`policy`](thrufs_policy)) speaks of paths, attributes and callers; requests name nodes. The judge
//! finds the paths of a node by its names, reads attributes and first bytes from the
//! lower file, and takes the caller from the request. A mount without a policy pays one check of a flag.
//!
//! A policy is replaced as a whole, and a request uses one policy from its beginning to its end. A
//! [`reload`] makes the kernel drop cached names if their answer changes. An open that was granted stays
//! granted.
//!
//! | method of [`Judge`] | |
//! |---|---|
//! | `has_policy`, `active_policy`, `for_opens`, `reload_rules` | the policy in force, and another one |
//! | `decide_inode`, `decide_new`, `decide_again`, `is_redacted` | what it decides of a file and a caller |
//! | `lasting_access` | what all rules leave of a file, whatever changes |
//! | `may_change`, `may_resize`, `may_make`, `may_link`, `may_move`, `may_replace`, `may_reveal` | a request is refused or not |
//! | `hidden_from_lookup`, `rules_of_entries` | names that are hidden |
//! | `permit`, `refuse`, `record_open` | refusals and opens, in the audit log |
//! | `lock_names`, `rely_on_names` | changes of names, one after the other |

mod attribute_source;
mod audit;
mod audit_log;
mod decide;
mod hidden_names;
mod name_lock;
mod permission;
mod programs;
mod reload;

pub(crate) use attribute_source::{NewFile, OpenFileSource};
pub(crate) use audit::{AuditedNames, AuditedOpen};
pub use audit_log::AuditLog;
pub(crate) use permission::RulesOfEntries;
pub use programs::Programs;

use crate::config::Config;
use crate::ledger::Key;
use crate::tree::Tree;
use hidden_names::HiddenNames;
use name_lock::{NameLock, NameLockGuard};
use parking_lot::RwLock;
use programs::ProcPrograms;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use thrufs::{Context, Result};
use thrufs_policy::{DataPath, Decision, FilePath, FileType, Policy, Uses};

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

/// What the active policy says of a node, a name and a caller.
pub(crate) struct Judge {
    tree: Arc<Tree>,
    /// `None` in a mount that was made without a policy: names were not tracked then.
    active_policy: Option<RwLock<Arc<ActivePolicy>>>,
    hidden: HiddenNames,
    /// Whether the kernel above caches that a name does not exist.
    caches_absent_names: bool,
    pub(crate) audit_log: AuditLog,
    programs: Option<Arc<dyn Programs>>,
    name_lock: NameLock,
}

impl Judge {
    /// Programs are looked up only if callers are processes of this machine; in `/proc` if `programs` is
    /// `None`.
    pub(crate) fn new(
        tree: Arc<Tree>,
        config: &Config,
        policy: Option<Arc<Policy>>,
        audit_log: AuditLog,
        programs: Option<Arc<dyn Programs>>,
    ) -> Judge {
        let of_local_callers = || programs.or_else(|| Some(Arc::new(ProcPrograms::open()?)));
        Judge {
            tree,
            programs: policy
                .as_ref()
                .filter(|_| config.callers_are_local)
                .and_then(|_| of_local_callers()),
            active_policy: policy.map(|policy| {
                let generation = 1;
                RwLock::new(Arc::new(ActivePolicy { policy, generation }))
            }),
            hidden: HiddenNames::default(),
            caches_absent_names: !config.negative_timeout().is_zero(),
            audit_log,
            name_lock: NameLock::default(),
        }
    }

    /// Nodes come from another process, which may have shown what is hidden here.
    pub(crate) fn doubt_nodes(&self) {
        if let Some(active) = &self.active_policy {
            let mut active = active.write();
            *active = Arc::new(ActivePolicy {
                policy: Arc::clone(&active.policy),
                generation: active.generation + 1,
            });
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

    /// Goes on with the name lock of a process that died.
    pub(crate) fn go_on_with_name_lock(&self, root: OwnedFd) {
        self.name_lock.go_on(root);
    }

    /// Takes the name lock, where rules rely on names. Fails with `EBUSY` after two seconds.
    pub(crate) fn lock_names(&self, context: &Context<'_>) -> Result<Option<NameLockGuard<'_>>> {
        if !self.rely_on_names() {
            return Ok(None);
        }
        let store = |root: BorrowedFd<'_>| {
            self.tree.keep(Key::NameLock, root);
        };
        self.name_lock.lock(context, store).map(Some)
    }

    /// Whether the active rules redact or hide, so that a concurrent rename could evade them.
    pub(crate) fn rely_on_names(&self) -> bool {
        self.rules_if(|uses| uses.redact || uses.hide).is_some()
    }

    pub(crate) fn has_policy(&self) -> bool {
        self.active_policy.is_some()
    }

    pub(crate) fn active_policy(&self) -> Option<Arc<ActivePolicy>> {
        Some(Arc::clone(&self.active_policy.as_ref()?.read()))
    }

    /// The active policy, if what it uses is of interest.
    fn rules_if(&self, is_of_interest: impl Fn(Uses) -> bool) -> Option<Arc<ActivePolicy>> {
        self.active_policy()
            .filter(|rules| is_of_interest(rules.policy.uses()))
    }

    /// The active policy, if it can affect opens of directories.
    pub(crate) fn for_opens(&self) -> Option<Arc<ActivePolicy>> {
        self.rules_if(|uses| uses.deny || uses.hide || uses.audit)
    }

    /// The active policy, if it can forbid changes.
    fn for_changes(&self) -> Option<Arc<ActivePolicy>> {
        self.rules_if(|uses| uses.deny || uses.read_only || uses.hide)
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

/// The data path of all files where there is no policy.
pub(crate) const PASSTHROUGH: FilePath = FilePath::new(DataPath::Passthrough, None);
