//! What is wrong with a policy, and where.

use std::io;
use std::path::PathBuf;

/// Why a policy is invalid, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct PolicyError {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl PolicyError {
    /// The error at this byte of the text.
    pub(super) fn at(text: &str, offset: usize, message: String) -> PolicyError {
        let before = &text.as_bytes()[..offset.min(text.len())];
        let line_start = before.iter().rposition(|&byte| byte == b'\n');
        let last_line = &before[line_start.map_or(0, |newline| newline + 1)..];
        PolicyError {
            line: before.iter().filter(|&&byte| byte == b'\n').count() + 1,
            column: String::from_utf8_lossy(last_line).chars().count() + 1,
            message,
        }
    }
}

/// Why a file is no policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyFileError {
    /// It cannot be read.
    #[error("cannot read the policy {path}: {source}", path = .path.display())]
    Unreadable {
        /// The policy's file, or a file of accounts that it needs.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not a valid policy.
    #[error("{path}:{error}", path = .path.display())]
    Bad {
        /// The policy's file.
        path: PathBuf,
        /// What is wrong, and where.
        error: PolicyError,
    },
}

/// A fault in the text, and the byte at which it begins.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) offset: usize,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn new(offset: usize, message: impl Into<String>) -> Fault {
        Fault {
            offset,
            message: message.into(),
        }
    }
}

/// What is wrong with a single value.
pub(super) type Problem = String;
