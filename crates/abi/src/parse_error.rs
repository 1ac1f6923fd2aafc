//! Errors of bytes that are no request.

use crate::ids::Unique;
use std::fmt;

/// Bytes that are no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The request's number, if the header was complete: an error can be sent then.
    pub unique: Option<Unique>,
    /// The operation's number, if the header was complete.
    pub opcode: Option<u32>,
    /// The error.
    pub kind: ParseErrorKind,
}

/// Kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseErrorKind {
    /// The bytes end too early.
    TooShort {
        /// Bytes that are required.
        need: usize,
        /// Bytes that are there.
        got: usize,
    },
    /// The header's length is not that of the message.
    LengthMismatch {
        /// The header's length, in bytes.
        header: u32,
        /// The message's length, in bytes.
        got: usize,
    },
    /// The operation is unknown.
    UnknownOpcode(u32),
    /// A string has no NUL.
    NoTerminator,
    /// A name is empty, has a slash, or is too long.
    BadName,
    /// Bytes follow the last argument.
    TrailingBytes(usize),
    /// The extensions are malformed.
    BadExtension,
    /// A count or size does not fit the bytes.
    BadCount,
}

impl ParseError {
    /// The error to reply: ENOSYS for unknown operations, else EINVAL.
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
