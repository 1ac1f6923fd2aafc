//! Builds requests as a kernel does: for clients in user space, tests and fuzzers.

use crate::ids::{NodeId, Unique};
use crate::layout::InHeader;
use crate::opcode::Opcode;
use zerocopy::{Immutable, IntoBytes};

/// Builds one request.
#[derive(Clone, Debug)]
pub struct RequestBuilder {
    header: InHeader,
    structure: Vec<u8>,
    rest: Vec<u8>,
    extensions: Vec<u8>,
}

/// A request in the three pieces of io_uring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitRequest {
    /// The header.
    pub header: Vec<u8>,
    /// The structure of the operation.
    pub structure: Vec<u8>,
    /// All other arguments.
    pub rest: Vec<u8>,
}

impl RequestBuilder {
    /// A request of root, without arguments.
    #[must_use]
    pub fn new(opcode: Opcode, unique: Unique, node: NodeId) -> RequestBuilder {
        RequestBuilder::from_number(opcode.number(), unique, node)
    }

    /// As [`new`](Self::new), for an operation that may be unknown.
    #[must_use]
    pub fn from_number(opcode: u32, unique: Unique, node: NodeId) -> RequestBuilder {
        let header = InHeader {
            opcode,
            unique: unique.0,
            nodeid: node.0,
            ..InHeader::default()
        };
        RequestBuilder {
            header,
            structure: Vec::new(),
            rest: Vec::new(),
            extensions: Vec::new(),
        }
    }

    /// The caller's ids.
    #[must_use]
    pub fn ids(mut self, uid: u32, gid: u32, pid: u32) -> RequestBuilder {
        (self.header.uid, self.header.gid, self.header.pid) = (uid, gid, pid);
        self
    }

    /// The structure that the arguments start with.
    #[must_use]
    pub fn arg(mut self, structure: &(impl IntoBytes + Immutable)) -> RequestBuilder {
        self.structure.extend_from_slice(structure.as_bytes());
        self
    }

    /// A string, with the NUL that ends it.
    #[must_use]
    pub fn name(mut self, name: &[u8]) -> RequestBuilder {
        self.rest.extend_from_slice(name);
        self.rest.push(0);
        self
    }

    /// Bytes without padding.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> RequestBuilder {
        self.rest.extend_from_slice(bytes);
        self
    }

    /// An extension record, padded to eight bytes.
    #[must_use]
    pub fn extension(mut self, record: &[u8]) -> RequestBuilder {
        self.extensions.extend_from_slice(record);
        self.extensions
            .resize(self.extensions.len().next_multiple_of(8), 0);
        self
    }

    fn complete(mut self) -> (InHeader, Vec<u8>, Vec<u8>) {
        self.header.total_extlen = (self.extensions.len() / 8) as u16;
        self.rest.extend_from_slice(&self.extensions);
        let length = size_of::<InHeader>() + self.structure.len() + self.rest.len();
        self.header.len = length as u32;
        (self.header, self.structure, self.rest)
    }

    /// In one piece, as `/dev/fuse` delivers it.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        let (header, structure, rest) = self.complete();
        [header.as_bytes(), &structure, &rest].concat()
    }

    /// In three pieces, as io_uring delivers it.
    #[must_use]
    pub fn finish_split(self) -> SplitRequest {
        let (header, structure, rest) = self.complete();
        SplitRequest {
            header: header.as_bytes().to_vec(),
            structure,
            rest,
        }
    }
}
