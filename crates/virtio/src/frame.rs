//! What the transport reads of a request before dispatch: whether it begins or ends a session, and where
//! out-of-line data start.

use thrufs_abi::Opcode;
use thrufs_abi::layout::{InHeader, WriteIn};
use zerocopy::FromBytes;

pub(crate) const HEADER_BYTES: usize = size_of::<InHeader>();

/// The opcode of a request; 0 when it is too short.
pub(crate) fn opcode_of(bytes: &[u8]) -> u32 {
    let header = InHeader::read_from_prefix(bytes);
    header.map_or(0, |(header, _)| header.opcode)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    Init,
    Destroy,
    /// WRITE: data follow the first so many bytes.
    Data(usize),
    #[default]
    Plain,
}

impl Kind {
    pub(crate) fn of(header: &[u8]) -> Kind {
        match Opcode::from_u32(opcode_of(header)) {
            Some(Opcode::Init) => Kind::Init,
            Some(Opcode::Destroy) => Kind::Destroy,
            Some(Opcode::Write) => Kind::Data(HEADER_BYTES + size_of::<WriteIn>()),
            _ => Kind::Plain,
        }
    }
}
