//! The bytes of a request, as its transport has them.

use crate::data::WriteSource;
use thrufs_abi::{Dialect, ParseError, Payload, Request};

/// A request in one piece, in the pieces of io_uring, or with its data out of line.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// All of it, contiguous.
    Whole(&'a [u8]),
    /// See [`Request::parse_split`].
    Pieces {
        /// `struct fuse_in_header`.
        header: &'a [u8],
        /// The structure of the operation, followed by anything.
        structure: &'a [u8],
        /// All other arguments, and nothing else.
        rest: &'a [u8],
    },
    /// A WRITE with out-of-line data.
    OutOfLine {
        /// The header and the structure of the operation.
        bytes: &'a [u8],
        /// The data, as many bytes as header and structure say.
        data: WriteSource<'a>,
    },
}

impl<'a> Message<'a> {
    pub(super) fn parse(self, dialect: Dialect) -> Result<Request<'a>, ParseError> {
        match self {
            Message::Whole(bytes) => Request::parse(bytes, dialect, Payload::Inline),
            Message::Pieces {
                header,
                structure,
                rest,
            } => Request::parse_split(header, structure, rest, dialect, Payload::Inline),
            Message::OutOfLine { bytes, .. } => Request::parse(bytes, dialect, Payload::External),
        }
    }

    pub(super) fn data(self) -> Option<WriteSource<'a>> {
        match self {
            Message::OutOfLine { data, .. } => Some(data),
            Message::Whole(_) | Message::Pieces { .. } => None,
        }
    }
}

impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for Message<'a> {
    fn from(bytes: &'a T) -> Message<'a> {
        Message::Whole(bytes.as_ref())
    }
}
