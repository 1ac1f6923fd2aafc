//! The bytes of a request, as transports have them.

use thrufs_abi::{Dialect, ParseError, Payload, Request};

/// One request, in one piece or in those in which io_uring delivers it.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// All of it, one after the other.
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
        }
    }
}

impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for Message<'a> {
    fn from(bytes: &'a T) -> Message<'a> {
        Message::Whole(bytes.as_ref())
    }
}
