//! The messages of a front end that are in effect: only the latest of each kind, so that their number is
//! bounded.

use crate::limits::REQUEST_QUEUES_MAX;
use crate::memory::REGIONS_MAX;
use crate::wire::{VhostMessage, send};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use vhost::vhost_user::message::FrontendReq;

const QUEUES_MAX: u32 = 1 + REQUEST_QUEUES_MAX as u32;
/// Most regions that SET_MEM_TABLE names.
const TABLE_REGIONS_MAX: usize = 8;
const REGION_BYTES: usize = 32;
/// Bytes of SET_MEM_TABLE and ADD_MEM_REG before the regions.
const REGIONS_AT: usize = 8;
/// Bytes of a region without its offset in the file.
const REGION_KEY_BYTES: usize = 24;

/// Messages replayed before the memory, in this order.
const BEFORE: [FrontendReq; 3] = [
    FrontendReq::SET_PROTOCOL_FEATURES,
    FrontendReq::SET_OWNER,
    FrontendReq::SET_FEATURES,
];

/// Messages replayed after the memory, in this order, for each queue. The kicks, which start them, come last.
const AFTER: [FrontendReq; 10] = [
    FrontendReq::SET_BACKEND_REQ_FD,
    FrontendReq::SET_LOG_BASE,
    FrontendReq::SET_INFLIGHT_FD,
    FrontendReq::SET_VRING_NUM,
    FrontendReq::SET_VRING_BASE,
    FrontendReq::SET_VRING_ADDR,
    FrontendReq::SET_VRING_ERR,
    FrontendReq::SET_VRING_CALL,
    FrontendReq::SET_VRING_ENABLE,
    FrontendReq::SET_VRING_KICK,
];

/// Messages whose effect a reset ends.
const OF_A_RUN: [FrontendReq; 5] = [
    FrontendReq::SET_VRING_NUM,
    FrontendReq::SET_VRING_BASE,
    FrontendReq::SET_VRING_ADDR,
    FrontendReq::SET_VRING_ENABLE,
    FrontendReq::SET_VRING_KICK,
];

#[derive(Debug)]
struct Region {
    body: [u8; REGION_BYTES],
    file: OwnedFd,
}

#[derive(Debug, Default)]
pub(super) struct DeviceSetup {
    latest: BTreeMap<(FrontendReq, u32), VhostMessage>,
    regions: Vec<Region>,
}

/// The queue of a message; 0 without one.
pub(super) fn queue_of(message: &VhostMessage) -> u32 {
    let first = message.u32_at(0).unwrap_or(u32::MAX);
    match message.request() {
        Some(
            FrontendReq::SET_VRING_KICK | FrontendReq::SET_VRING_CALL | FrontendReq::SET_VRING_ERR,
        ) => first & 0xff,
        Some(
            FrontendReq::SET_VRING_NUM
            | FrontendReq::SET_VRING_BASE
            | FrontendReq::SET_VRING_ADDR
            | FrontendReq::SET_VRING_ENABLE,
        ) => first,
        _ => 0,
    }
}

impl DeviceSetup {
    /// Records a message that took effect.
    pub(super) fn keep(&mut self, mut message: VhostMessage) {
        let Some(request) = message.request() else {
            return;
        };
        match request {
            FrontendReq::SET_MEM_TABLE => {
                self.regions.clear();
                self.add_regions(message);
            }
            FrontendReq::ADD_MEM_REG => self.add_regions(message),
            FrontendReq::REM_MEM_REG => {
                let gone = message.body.get(REGIONS_AT..REGIONS_AT + REGION_KEY_BYTES);
                self.regions
                    .retain(|region| Some(&region.body[..REGION_KEY_BYTES]) != gone);
            }
            FrontendReq::RESET_OWNER | FrontendReq::RESET_DEVICE => {
                self.latest
                    .retain(|(request, _), _| !OF_A_RUN.contains(request));
            }
            request if BEFORE.contains(&request) || AFTER.contains(&request) => {
                let queue = queue_of(&message);
                // None has more.
                message.files.truncate(1);
                if queue < QUEUES_MAX {
                    self.latest.insert((request, queue), message);
                }
            }
            _ => {}
        }
    }

    /// Records that a queue was stopped at `base`.
    pub(super) fn stopped(&mut self, queue: u32, base: u32) {
        self.latest.remove(&(FrontendReq::SET_VRING_KICK, queue));
        self.keep(VhostMessage {
            code: FrontendReq::SET_VRING_BASE.into(),
            flags: 0,
            body: [queue, base].map(u32::to_ne_bytes).concat(),
            files: Vec::new(),
        });
    }

    fn add_regions(&mut self, message: VhostMessage) {
        let (bodies, _) = message
            .body
            .get(REGIONS_AT..)
            .unwrap_or_default()
            .as_chunks::<REGION_BYTES>();
        let regions = bodies.iter().zip(message.files);
        self.regions
            .extend(regions.map(|(&body, file)| Region { body, file }));
        self.regions.truncate(REGIONS_MAX);
    }

    /// Sends all messages to another worker; SET_BACKEND_REQ_FD with `channel`, and not without it. `wait`
    /// is called after each query, and waits for its reply, if it has one.
    pub(super) fn replay(
        &self,
        stream: BorrowedFd<'_>,
        channel: Option<BorrowedFd<'_>>,
        wait: &mut dyn FnMut(FrontendReq) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut ask = |request| {
            send(stream, request, 0, &[], &[])?;
            wait(request)
        };
        ask(FrontendReq::GET_FEATURES)?;
        if self
            .latest
            .contains_key(&(FrontendReq::SET_PROTOCOL_FEATURES, 0))
        {
            ask(FrontendReq::GET_PROTOCOL_FEATURES)?;
        }
        self.replay_these(&BEFORE, stream, channel, wait)?;
        self.replay_regions(stream)?;
        self.replay_these(&AFTER, stream, channel, wait)?;
        // A query last: its reply shows that all messages before took effect.
        send(stream, FrontendReq::GET_FEATURES, 0, &[], &[])?;
        wait(FrontendReq::GET_FEATURES)
    }

    fn replay_these(
        &self,
        requests: &[FrontendReq],
        stream: BorrowedFd<'_>,
        channel: Option<BorrowedFd<'_>>,
        wait: &mut dyn FnMut(FrontendReq) -> io::Result<()>,
    ) -> io::Result<()> {
        for &request in requests {
            let of_channel = request == FrontendReq::SET_BACKEND_REQ_FD;
            if of_channel && channel.is_none() {
                continue;
            }
            for (_, message) in self.latest.range((request, 0)..=(request, u32::MAX)) {
                message.send_with(stream, 0, channel.filter(|_| of_channel))?;
                if request == FrontendReq::SET_LOG_BASE {
                    wait(request)?;
                }
            }
        }
        Ok(())
    }

    fn replay_regions(&self, stream: BorrowedFd<'_>) -> io::Result<()> {
        if self.regions.len() > TABLE_REGIONS_MAX {
            // More regions than SET_MEM_TABLE holds were added one by one.
            for region in &self.regions {
                let body = [&[0; 8][..], &region.body].concat();
                send(
                    stream,
                    FrontendReq::ADD_MEM_REG,
                    0,
                    &body,
                    &[region.file.as_fd()],
                )?;
            }
        } else if !self.regions.is_empty() {
            let count = self.regions.len() as u32;
            let mut body = [count, 0].map(u32::to_ne_bytes).concat();
            for region in &self.regions {
                body.extend_from_slice(&region.body);
            }
            let files: Vec<BorrowedFd<'_>> = self
                .regions
                .iter()
                .map(|region| region.file.as_fd())
                .collect();
            send(stream, FrontendReq::SET_MEM_TABLE, 0, &body, &files)?;
        }
        Ok(())
    }

    pub(super) fn protocol_features(&self) -> u64 {
        self.number_of(FrontendReq::SET_PROTOCOL_FEATURES)
    }

    pub(super) fn features(&self) -> u64 {
        self.number_of(FrontendReq::SET_FEATURES)
    }

    fn number_of(&self, request: FrontendReq) -> u64 {
        let latest = self.latest.get(&(request, 0));
        latest.and_then(|message| message.u64_at(0)).unwrap_or(0)
    }

    /// Messages that, [kept](Self::keep) in this order, have the same effect.
    pub(super) fn into_messages(self) -> impl Iterator<Item = VhostMessage> {
        let regions = self.regions.into_iter().map(|region| VhostMessage {
            code: FrontendReq::ADD_MEM_REG.into(),
            flags: 0,
            body: [&[0; REGIONS_AT][..], &region.body].concat(),
            files: vec![region.file],
        });
        self.latest.into_values().chain(regions)
    }
}
