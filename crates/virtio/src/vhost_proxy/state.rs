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

use super::channel::BackendChannel;
use super::commands::Commands;
use super::device_setup::DeviceSetup;
use super::{ProxyThread, Reader};
use crate::journal::Journal;
use crate::wire::VhostMessage;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

const SETUP: u32 = 1;
const PENDING: u32 = 2;
const FRONT_END: u32 = 3;
const CHANNEL: u32 = 4;
const REQUEST: u32 = 5;
/// In the flags of [`FRONT_END`].
const MIGRATING: u32 = 1;

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
    fn add(&mut self, kind: u32, message: VhostMessage) {
        let VhostMessage {
            code, flags, body, ..
        } = &message;
        let (length, files) = (body.len() as u32, message.files.len() as u32);
        let header = [kind, *code, *flags, length, files].map(u32::to_ne_bytes);
        self.bytes.extend(header.concat());
        self.bytes.extend(body);
        self.files.extend(message.files);
    }

    fn into_records(self) -> Option<Vec<(u32, VhostMessage)>> {
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

impl ProxyThread {
    pub(super) fn into_state(self) -> ProxyState {
        let mut state = ProxyState {
            bytes: Vec::new(),
            files: Vec::new(),
        };
        let (body, files) = self.from_front_end.into_parts();
        let connection = OwnedFd::from(self.front_end);
        let files = [connection].into_iter().chain(files).collect();
        let mut front_end = record(0, body, files);
        front_end.flags = if self.is_migrating { MIGRATING } else { 0 };
        state.add(FRONT_END, front_end);
        for message in self.setup.into_messages() {
            state.add(SETUP, message);
        }
        if let Some(message) = self.pending {
            state.add(PENDING, message);
        }
        let (channel, request) = self.backend_channel.into_records();
        if let Some(channel) = channel {
            state.add(CHANNEL, channel);
        }
        if let Some(request) = request {
            state.add(REQUEST, request);
        }
        state
    }

    pub(super) fn of_state(
        state: ProxyState,
        commands: Commands,
        served: Arc<OwnedFd>,
        journal: Journal,
    ) -> io::Result<ProxyThread> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let (mut front_end, mut is_migrating, mut pending) = (None, false, None);
        let (mut channel, mut request) = (None, None);
        let mut setup = DeviceSetup::default();
        for (kind, message) in state.into_records().ok_or_else(invalid)? {
            match kind {
                SETUP => setup.keep(message),
                PENDING => pending = Some(message),
                FRONT_END => {
                    is_migrating = message.flags & MIGRATING != 0;
                    front_end = split(message);
                }
                CHANNEL => channel = split(message),
                REQUEST => request = Some(message),
                _ => return Err(invalid()),
            }
        }
        let (front_end, from_front_end) = front_end.ok_or_else(invalid)?;
        Ok(ProxyThread {
            commands,
            served,
            front_end: front_end.into(),
            from_front_end,
            worker: None,
            from_worker: Reader::default(),
            setup,
            pending,
            backend_channel: BackendChannel::of_records(channel, request),
            is_held: false,
            is_migrating,
            journal,
        })
    }
}

/// The connection, which is the first descriptor, and what has arrived by it.
fn split(message: VhostMessage) -> Option<(OwnedFd, Reader)> {
    let mut files = message.files.into_iter();
    let connection = files.next()?;
    Some((connection, Reader::of_parts(message.body, files.collect())))
}
