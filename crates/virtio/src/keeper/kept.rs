//! The messages of a front end that are in effect: only the latest of each kind, so that their number is
//! bounded.

use super::wire::{Parcel, code, send};
use crate::config::REQUEST_QUEUES_MAX;
use crate::memory::REGIONS_MAX;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const QUEUES_MAX: u32 = 1 + REQUEST_QUEUES_MAX as u32;
/// Most regions that SET_MEM_TABLE names.
const TABLE_REGIONS_MAX: usize = 8;
const REGION_BYTES: usize = 32;
/// Bytes of a region without its offset in the file.
const REGION_KEY_BYTES: usize = 24;

/// Messages replayed before the memory, in this order.
const BEFORE: [u32; 3] = [
    code::SET_PROTOCOL_FEATURES,
    code::SET_OWNER,
    code::SET_FEATURES,
];

/// Messages replayed after the memory, in this order, for each queue. The kicks, which start them, come last.
const AFTER: [u32; 10] = [
    code::SET_BACKEND_REQ_FD,
    code::SET_LOG_BASE,
    code::SET_INFLIGHT_FD,
    code::SET_VRING_NUM,
    code::SET_VRING_BASE,
    code::SET_VRING_ADDR,
    code::SET_VRING_ERR,
    code::SET_VRING_CALL,
    code::SET_VRING_ENABLE,
    code::SET_VRING_KICK,
];

/// Messages whose effect a reset ends.
const OF_A_RUN: [u32; 5] = [
    code::SET_VRING_NUM,
    code::SET_VRING_BASE,
    code::SET_VRING_ADDR,
    code::SET_VRING_ENABLE,
    code::SET_VRING_KICK,
];

#[derive(Debug)]
struct Region {
    body: [u8; REGION_BYTES],
    file: OwnedFd,
}

#[derive(Debug, Default)]
pub(super) struct Kept {
    said: BTreeMap<(u32, u32), Parcel>,
    regions: Vec<Region>,
}

/// The queue of a message; 0 without one.
pub(super) fn queue_of(parcel: &Parcel) -> u32 {
    let first = parcel.u32_at(0).unwrap_or(u32::MAX);
    match parcel.code {
        code::SET_VRING_KICK | code::SET_VRING_CALL | code::SET_VRING_ERR => first & 0xff,
        code::SET_VRING_NUM
        | code::SET_VRING_BASE
        | code::SET_VRING_ADDR
        | code::SET_VRING_ENABLE => first,
        _ => 0,
    }
}

impl Kept {
    /// Records a message that took effect.
    pub(super) fn keep(&mut self, parcel: Parcel) {
        match parcel.code {
            code::SET_MEM_TABLE => self.replace_regions(parcel),
            code::ADD_MEM_REG => self.add_region(parcel),
            code::REM_MEM_REG => {
                let gone = parcel.body.get(8..8 + REGION_KEY_BYTES);
                self.regions
                    .retain(|region| Some(&region.body[..REGION_KEY_BYTES]) != gone);
            }
            code::RESET_OWNER | code::RESET_DEVICE => {
                self.said.retain(|(code, _), _| !OF_A_RUN.contains(code));
            }
            code if BEFORE.contains(&code) || AFTER.contains(&code) => {
                let queue = queue_of(&parcel);
                if queue < QUEUES_MAX {
                    self.said.insert((code, queue), parcel);
                }
            }
            _ => {}
        }
    }

    /// Records that a queue was stopped at `base`.
    pub(super) fn stopped(&mut self, queue: u32, base: u32) {
        self.said.remove(&(code::SET_VRING_KICK, queue));
        let body = [queue, base].map(u32::to_ne_bytes).concat();
        if queue < QUEUES_MAX {
            let base = Parcel::new(code::SET_VRING_BASE, body);
            self.said.insert((code::SET_VRING_BASE, queue), base);
        }
    }

    fn replace_regions(&mut self, parcel: Parcel) {
        let bodies = parcel.body.get(8..).unwrap_or(&[]);
        let bodies = bodies.chunks_exact(REGION_BYTES);
        self.regions = bodies
            .zip(parcel.files)
            .filter_map(|(body, file)| {
                let body = body.try_into().ok()?;
                Some(Region { body, file })
            })
            .collect();
    }

    fn add_region(&mut self, parcel: Parcel) {
        let body = parcel.body.get(8..8 + REGION_BYTES);
        let body = body.and_then(|body| body.try_into().ok());
        let file = parcel.files.into_iter().next();
        if let (Some(body), Some(file)) = (body, file)
            && self.regions.len() < REGIONS_MAX
        {
            self.regions.push(Region { body, file });
        }
    }

    /// Sends all messages to another worker. `said` is called after each with its code, and waits for its
    /// reply, if it has one.
    pub(super) fn tell(
        &self,
        stream: BorrowedFd<'_>,
        said: &mut dyn FnMut(u32) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut ask = |code| {
            send(stream, code, 0, &[], &[])?;
            said(code)
        };
        ask(code::GET_FEATURES)?;
        if self.said.contains_key(&(code::SET_PROTOCOL_FEATURES, 0)) {
            ask(code::GET_PROTOCOL_FEATURES)?;
        }
        self.tell_these(&BEFORE, stream, said)?;
        self.tell_regions(stream)?;
        self.tell_these(&AFTER, stream, said)?;
        // A query last: its reply shows that all messages before took effect.
        send(stream, code::GET_FEATURES, 0, &[], &[])?;
        said(code::GET_FEATURES)
    }

    fn tell_these(
        &self,
        codes: &[u32],
        stream: BorrowedFd<'_>,
        said: &mut dyn FnMut(u32) -> io::Result<()>,
    ) -> io::Result<()> {
        for &code in codes {
            for (_, parcel) in self.said.range((code, 0)..=(code, u32::MAX)) {
                parcel.send(stream, 0)?;
                if code == code::SET_LOG_BASE {
                    said(code)?;
                }
            }
        }
        Ok(())
    }

    fn tell_regions(&self, stream: BorrowedFd<'_>) -> io::Result<()> {
        if self.regions.len() > TABLE_REGIONS_MAX {
            // More regions than SET_MEM_TABLE holds were added one by one.
            for region in &self.regions {
                let body = [&[0; 8][..], &region.body].concat();
                send(stream, code::ADD_MEM_REG, 0, &body, &[region.file.as_fd()])?;
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
            send(stream, code::SET_MEM_TABLE, 0, &body, &files)?;
        }
        Ok(())
    }

    pub(super) fn protocol_features(&self) -> u64 {
        let said = self.said.get(&(code::SET_PROTOCOL_FEATURES, 0));
        said.and_then(|parcel| parcel.u64_at(0)).unwrap_or(0)
    }
}
