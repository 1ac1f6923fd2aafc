//! What a served directory uses besides its options: live objects, which are handed in when it is opened.

use crate::judge::{AuditLog, Programs};
use crate::ledger::{FdStore, Ledger};
use std::sync::Arc;
use thrufs_policy::Policy;

/// Live objects that a served directory uses. All are optional; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Resources {
    /// Rules about names, callers and content. A mount made with a policy can get another one later
    /// ([`HostDir::replace_policy`](crate::HostDir::replace_policy)), a mount made without cannot.
    pub policy: Option<Arc<Policy>>,
    /// Where audit records are written.
    pub audit_log: AuditLog,
    /// Finds the programs of local callers; `None` where this process sees them in `/proc`.
    pub programs: Option<Arc<dyn Programs>>,
    /// Records what a client knows, so that another process can resume its session if this one dies.
    pub ledger: Option<Ledger>,
    /// Keeps descriptors that another process could not open again.
    pub fd_store: Option<Arc<dyn FdStore>>,
}
