//! What is wrong with the rules of a run.

use std::path::PathBuf;
use thrufs_policy::PolicyFileError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum RuleError {
    #[error("bad value `{pattern}` for --{option}: {problem}")]
    Pattern {
        option: &'static str,
        pattern: String,
        problem: String,
    },
    #[error(
        "{path} records in {log}, an earlier policy in another audit log: a run has one, set it with --audit"
    )]
    AuditLogs { path: PathBuf, log: String },
    #[error("the audit log {0} is in the tree, where the command could change it")]
    AuditLogInTree(PathBuf),
    #[error("the audit log {0} has other names (hard links), by which the command could change it")]
    AuditLogLinked(PathBuf),
    #[error("the audit log {0} is not UTF-8, as a policy is")]
    AuditLogName(PathBuf),
    #[error(transparent)]
    Policy(#[from] PolicyFileError),
}
