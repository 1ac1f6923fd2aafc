//! What this transport has to know of a request before it is dispatched: whether a session begins or
//! ends with it, and where its data start, which are left where they are.

use thrufs_abi::Opcode;
use thrufs_abi::layout::{InHeader, WriteIn};
use zerocopy::FromBytes;

/// Size of what every request begins with, in bytes.
pub(crate) const HEADER_BYTES: usize = size_of::<InHeader>();

/// The number of the operation whose request begins with these bytes; 0, which is none, for too few.
pub(crate) fn opcode_of(bytes: &[u8]) -> u32 {
    let header = InHeader::read_from_prefix(bytes);
    header.map_or(0, |(header, _)| header.opcode)
}

/// What a request means to the transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A session begins.
    Init,
    /// A session ends.
    Destroy,
    /// Data follow the first so many bytes.
    Data(usize),
    /// Anything else.
    #[default]
    Plain,
}

impl Kind {
    /// Of the request whose header is this.
    pub(crate) fn of(header: &[u8]) -> Kind {
        let header = InHeader::read_from_prefix(header).ok();
        match header.and_then(|(header, _)| Opcode::from_u32(header.opcode)) {
            Some(Opcode::Init) => Kind::Init,
            Some(Opcode::Destroy) => Kind::Destroy,
            Some(Opcode::Write) => Kind::Data(HEADER_BYTES + size_of::<WriteIn>()),
            _ => Kind::Plain,
        }
    }
}
