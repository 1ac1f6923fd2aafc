//! The parts of a request and the room for its reply, as a guest's kernel lays out a descriptor chain.

use thrufs_abi::Opcode;
use thrufs_abi::layout::{
    EntryOut, GetxattrIn, GetxattrOut, InHeader, IoctlIn, IoctlOut, OpenOut, OutHeader, ReadIn,
};
use thrufs_abi::opcode::{ReplyBody, Trailing};
use zerocopy::FromBytes;

/// The longest symlink target in bytes: a page.
const LINK_BYTES_MAX: usize = 4096;

/// Room for the reply to an unknown operation.
const UNKNOWN_REPLY_BYTES: usize = 4096;

/// The room for a reply after its header, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyLayout {
    /// For structures, names and values: one descriptor.
    pub arguments: usize,
    /// For bulk data: a descriptor for each page or folio.
    pub data: usize,
}

impl ReplyLayout {
    /// The total with the header.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        size_of::<OutHeader>() + self.arguments + self.data
    }
}

/// Offsets of the parts of a request, and the room for its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The end of the header, in bytes from the start.
    pub header_end: usize,
    /// The end of the arguments; what follows is bulk data.
    pub arguments_end: usize,
    /// `None` for a request without a reply.
    pub reply: Option<ReplyLayout>,
}

impl Shape {
    /// The shape of a request. Malformed bytes are all header and arguments.
    #[must_use]
    pub fn of(request: &[u8]) -> Shape {
        let header_end = request.len().min(size_of::<InHeader>());
        let (header, body) = request.split_at(header_end);
        let opcode = InHeader::read_from_bytes(header)
            .ok()
            .and_then(|header| Opcode::from_u32(header.opcode));
        let Some(row) = opcode.map(Opcode::row) else {
            return Shape {
                header_end,
                arguments_end: request.len(),
                reply: Some(arguments_only(UNKNOWN_REPLY_BYTES)),
            };
        };
        let arguments = match row.trailing {
            Trailing::Data | Trailing::Bytes => row.structure_bytes.min(body.len()),
            _ => body.len(),
        };
        Shape {
            header_end,
            arguments_end: header_end + arguments,
            reply: reply_layout(row.reply, body),
        }
    }
}

const fn arguments_only(arguments: usize) -> ReplyLayout {
    ReplyLayout { arguments, data: 0 }
}

const fn data_only(data: usize) -> ReplyLayout {
    ReplyLayout { arguments: 0, data }
}

fn reply_layout(reply: ReplyBody, body: &[u8]) -> Option<ReplyLayout> {
    Some(match reply {
        ReplyBody::Silent => return None,
        ReplyBody::Empty => ReplyLayout::default(),
        ReplyBody::Fixed(bytes) => arguments_only(bytes),
        ReplyBody::Entry => arguments_only(size_of::<EntryOut>()),
        ReplyBody::Open | ReplyBody::OpenDirectory => arguments_only(size_of::<OpenOut>()),
        ReplyBody::EntryOpen => arguments_only(size_of::<EntryOut>() + size_of::<OpenOut>()),
        ReplyBody::Data | ReplyBody::Entries => data_only(read_size(body)),
        ReplyBody::Value => arguments_only(attribute_size(body)),
        ReplyBody::Target => data_only(LINK_BYTES_MAX),
        ReplyBody::Ioctl => ioctl_layout(body),
    })
}

fn read_size(body: &[u8]) -> usize {
    ReadIn::read_from_prefix(body).map_or(0, |(arg, _)| arg.size as usize)
}

/// A size of zero asks for the size as a number, another for the value.
fn attribute_size(body: &[u8]) -> usize {
    match GetxattrIn::read_from_prefix(body) {
        Ok((arg, _)) if arg.size > 0 => arg.size as usize,
        _ => size_of::<GetxattrOut>(),
    }
}

fn ioctl_layout(body: &[u8]) -> ReplyLayout {
    let data = IoctlIn::read_from_prefix(body).map_or(0, |(arg, _)| arg.out_size as usize);
    ReplyLayout {
        arguments: size_of::<IoctlOut>(),
        data,
    }
}
