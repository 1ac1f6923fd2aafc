//! The other side of both channels: it keeps a list of the messages, and the test sends those of a back end.

use super::super::wire::{self, Message, NEED_REPLY};
use crate::front_end::{FrontEnd, FrontEndConfig, ProtocolFeatures, WindowConfig, features};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) const GET_FEATURES: u32 = 1;
pub(crate) const GET_VRING_BASE: u32 = 11;
const GET_PROTOCOL_FEATURES: u32 = 15;
pub(crate) const SET_PROTOCOL_FEATURES: u32 = 16;
const GET_QUEUE_NUM: u32 = 17;
pub(crate) const SET_BACKEND_REQ_FD: u32 = 21;
pub(crate) const GET_CONFIG: u32 = 24;
pub(crate) const ADD_MEM_REG: u32 = 37;
pub(crate) const REM_MEM_REG: u32 = 38;
pub(crate) const GET_SHMEM_CONFIG: u32 = 44;

pub(crate) const WINDOW_BYTES: u64 = 16 << 20;

/// Messages of the main channel: codes and bodies.
#[derive(Default)]
struct Seen {
    messages: Mutex<Vec<(u32, Vec<u8>)>>,
    /// Held by a test that wants announcements to wait.
    announcements: Mutex<()>,
}

pub(crate) struct BackEnd {
    seen: Arc<Seen>,
    channels: Mutex<Receiver<UnixStream>>,
}

/// What a back end offers.
#[derive(Clone, Copy)]
pub(crate) struct Offer {
    pub(crate) protocol: ProtocolFeatures,
    pub(crate) window_bytes: u64,
}

impl Default for Offer {
    fn default() -> Offer {
        Offer {
            protocol: FrontEndConfig::default().protocol_features
                | ProtocolFeatures::SHMEM
                | ProtocolFeatures::BACKEND_REQ
                | ProtocolFeatures::BACKEND_SEND_FD,
            window_bytes: WINDOW_BYTES,
        }
    }
}

/// A front end with a window or without, and its back end.
pub(crate) fn connect(window: Option<WindowConfig>, offer: Offer) -> (FrontEnd, BackEnd) {
    let (own, other) = UnixStream::pair().unwrap();
    let (sender, channels) = channel();
    let seen = Arc::new(Seen::default());
    let back_end = BackEnd {
        seen: Arc::clone(&seen),
        channels: Mutex::new(channels),
    };
    // Ends with the front end's side of the socket.
    std::thread::spawn(move || {
        while let Ok(Some(message)) = wire::receive(&other) {
            if answer(&other, message, &offer, &seen, &sender).is_err() {
                break;
            }
        }
    });
    let config = FrontEndConfig {
        window,
        requests_max: 2,
        time_limit: Some(LIMIT),
        ..FrontEndConfig::default()
    };
    (FrontEnd::over(own, &config).unwrap(), back_end)
}

fn answer(
    stream: &UnixStream,
    message: Message,
    offer: &Offer,
    seen: &Seen,
    channels: &Sender<UnixStream>,
) -> std::io::Result<()> {
    let code = message.code;
    let number = |number: u64| number.to_ne_bytes().to_vec();
    seen.messages
        .lock()
        .unwrap()
        .push((code, message.body.clone()));
    let body = match code {
        GET_FEATURES => number(
            features::VERSION_1
                | features::PROTOCOL_FEATURES
                | features::LOG_ALL
                | features::INDIRECT_DESCRIPTORS,
        ),
        GET_PROTOCOL_FEATURES => number(offer.protocol.bits()),
        GET_QUEUE_NUM => number(2),
        GET_VRING_BASE => message.body,
        GET_CONFIG => {
            let mut body = message.body;
            body[12..].fill(0);
            body[12 + 36] = 1;
            body
        }
        GET_SHMEM_CONFIG => {
            let mut body = [number(1), number(offer.window_bytes)].concat();
            body.resize(2056, 0);
            body
        }
        _ => {
            if [ADD_MEM_REG, REM_MEM_REG].contains(&code) {
                drop(seen.announcements.lock());
            }
            for file in message.files.into_iter() {
                if code == SET_BACKEND_REQ_FD {
                    let _ = channels.send(UnixStream::from(file));
                }
            }
            if message.flags & NEED_REPLY == 0 {
                return Ok(());
            }
            number(0)
        }
    };
    wire::send(stream, code, 1 | 4, &body, &[])
}

impl BackEnd {
    /// The back end's end of its channel.
    pub(crate) fn channel(&self) -> Channel {
        let stream = self.channels.lock().unwrap().recv_timeout(LIMIT).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Channel(stream)
    }

    /// Codes of the messages so far.
    pub(crate) fn codes(&self) -> Vec<u32> {
        let messages = self.seen.messages.lock().unwrap();
        messages.iter().map(|message| message.0).collect()
    }

    /// The numbers in the bodies of the messages of one code.
    pub(crate) fn bodies(&self, code: u32) -> Vec<Vec<u64>> {
        let messages = self.seen.messages.lock().unwrap();
        let those = messages.iter().filter(|message| message.0 == code);
        let words = |body: &Vec<u8>| {
            let chunks = body.as_chunks().0.iter();
            chunks.map(|word| u64::from_ne_bytes(*word)).collect()
        };
        those.map(|message| words(&message.1)).collect()
    }

    /// Lets ADD_MEM_REG and REM_MEM_REG wait for their answers.
    pub(crate) fn hold_announcements(&self) -> std::sync::MutexGuard<'_, ()> {
        self.seen.announcements.lock().unwrap()
    }
}

/// What a test maps, with the values that are most often right.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) region: u8,
    pub(crate) file_offset: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) flags: u64,
}

impl Sent {
    pub(crate) fn at(offset: u64, length: u64) -> Sent {
        Sent {
            region: 0,
            file_offset: 0,
            offset,
            length,
            flags: wire::WRITABLE,
        }
    }

    pub(crate) fn body(self) -> Vec<u8> {
        let mut body = vec![0; 8];
        body[0] = self.region;
        for word in [self.file_offset, self.offset, self.length, self.flags] {
            body.extend(word.to_ne_bytes());
        }
        body
    }
}

pub(crate) struct Channel(pub(super) UnixStream);

impl Channel {
    pub(crate) fn send(&self, code: u32, flags: u32, body: &[u8], files: &[BorrowedFd<'_>]) {
        wire::send(&self.0, code, 1 | flags, body, files).unwrap();
    }

    pub(crate) fn send_map(&self, sent: Sent, file: impl AsFd) {
        let files = [file.as_fd()];
        self.send(wire::SHMEM_MAP, NEED_REPLY, &sent.body(), &files);
    }

    pub(crate) fn send_unmap(&self, sent: Sent) {
        self.send(wire::SHMEM_UNMAP, NEED_REPLY, &sent.body(), &[]);
    }

    /// The result in the next answer, which is one to `code`.
    pub(crate) fn answer(&self, code: u32) -> u64 {
        let answer = wire::receive(&self.0).unwrap().unwrap();
        assert_eq!((answer.code, answer.flags), (code, 1 | 4));
        u64::from_ne_bytes(answer.body.try_into().unwrap())
    }

    pub(crate) fn map(&self, sent: Sent, file: impl AsFd) -> u64 {
        self.send_map(sent, file);
        self.answer(wire::SHMEM_MAP)
    }

    pub(crate) fn unmap(&self, sent: Sent) -> u64 {
        self.send_unmap(sent);
        self.answer(wire::SHMEM_UNMAP)
    }
}
