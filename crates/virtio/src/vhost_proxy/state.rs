//! What a proxy has, for the proxy of the next program of its process.
//!
//! | a record | its message | its descriptors |
//! |---|---|---|
//! | `SETUP` | a message that is in effect | of it |
//! | `PENDING` | the message without a reply | of it |
//! | `FRONT_END` | the bytes of a message that has arrived in part | the connection, and those of these bytes |
//! | `CHANNEL` | the same of the back-end channel | the front end's end |
//! | `REQUEST` | the outstanding request: its code, and what is not sent | of what is not sent |
//!
//! The worker is not among it: it has ended, and the next one has its own connections.

use crate::wire::{Reader, VhostMessage};
use std::os::fd::OwnedFd;

pub(super) const SETUP: u32 = 1;
pub(super) const PENDING: u32 = 2;
pub(super) const FRONT_END: u32 = 3;
pub(super) const CHANNEL: u32 = 4;
pub(super) const REQUEST: u32 = 5;
/// In the flags of [`FRONT_END`].
pub(super) const MIGRATING: u32 = 1;

/// Bytes of a record before its body: kind, code, flags, length, number of descriptors.
const RECORD_BYTES: usize = 20;

/// See [`VhostProxy::suspend`](super::VhostProxy::suspend). The format of the bytes may change with each version.
#[derive(Debug)]
pub struct ProxyState {
    /// The records.
    pub bytes: Vec<u8>,
    /// Their descriptors, in this order. A front end or a worker may have sent them: to close one may take as long as
    /// it likes.
    pub files: Vec<OwnedFd>,
}

impl ProxyState {
    pub(super) fn add(&mut self, kind: u32, message: VhostMessage) {
        let VhostMessage {
            code, flags, body, ..
        } = &message;
        let (length, files) = (body.len() as u32, message.files.len() as u32);
        let header = [kind, *code, *flags, length, files].map(u32::to_ne_bytes);
        self.bytes.extend(header.concat());
        self.bytes.extend(body);
        self.files.extend(message.files);
    }

    pub(super) fn into_records(self) -> Option<Vec<(u32, VhostMessage)>> {
        let (mut bytes, mut files) = (&self.bytes[..], self.files.into_iter());
        let mut records = Vec::new();
        while !bytes.is_empty() {
            let (header, rest) = bytes.split_at_checked(RECORD_BYTES)?;
            let words = header.as_chunks().0.iter().copied();
            let words: Vec<u32> = words.map(u32::from_ne_bytes).collect();
            let [kind, code, flags, length, count] = words[..].try_into().ok()?;
            let (body, rest) = rest.split_at_checked(length as usize)?;
            if files.len() < count as usize {
                return None;
            }
            let message = VhostMessage {
                code,
                flags,
                body: body.to_vec(),
                files: files.by_ref().take(count as usize).collect(),
            };
            records.push((kind, message));
            bytes = rest;
        }
        (files.len() == 0).then_some(records)
    }
}

/// As a message, of which only this is used.
pub(super) fn record(code: u32, body: Vec<u8>, files: Vec<OwnedFd>) -> VhostMessage {
    VhostMessage {
        code,
        flags: 0,
        body,
        files,
    }
}

/// The connection, which is the first descriptor, and what has arrived by it.
pub(super) fn split(message: VhostMessage) -> Option<(OwnedFd, Reader)> {
    let mut files = message.files.into_iter();
    let connection = files.next()?;
    Some((connection, Reader::of_parts(message.body, files.collect())))
}
