//! Why bytes are no request.

use crate::ids::Unique;
use std::fmt;

/// Bytes that are no request, and what can be said of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The request's number, where the header was there: an error can be answered then.
    pub unique: Option<Unique>,
    /// The operation's number, where the header was there.
    pub opcode: Option<u32>,
    /// What is wrong.
    pub kind: ParseErrorKind,
}

/// What is wrong with bytes that are no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseErrorKind {
    /// They end too early.
    TooShort {
        /// Bytes that had to be there.
        need: usize,
        /// Bytes that were.
        got: usize,
    },
    /// The header's length is not that of the message.
    LengthMismatch {
        /// What the header says, in bytes.
        header: u32,
        /// What there is, in bytes.
        got: usize,
    },
    /// No such operation is known.
    UnknownOpcode(u32),
    /// A string has no NUL.
    NoTerminator,
    /// A name is empty, has a slash, or is too long.
    BadName,
    /// Something follows where nothing may.
    TrailingBytes(usize),
    /// The extensions are malformed.
    BadExtension,
    /// A count or size contradicts the bytes that are there.
    BadCount,
}

impl ParseError {
    /// The error number to answer with: ENOSYS for unknown operations, else EINVAL.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        const EINVAL: i32 = 22;
        const ENOSYS: i32 = 38;
        match self.kind {
            ParseErrorKind::UnknownOpcode(_) => ENOSYS,
            _ => EINVAL,
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.opcode.and_then(crate::opcode::Opcode::from_u32) {
            Some(opcode) => write!(f, "malformed {}: {:?}", opcode.name(), self.kind),
            None => write!(f, "malformed request: {:?}", self.kind),
        }
    }
}

impl std::error::Error for ParseError {}
