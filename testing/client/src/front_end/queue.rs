//! A queue with buffers for many requests in flight.

use super::buffers::{Segments, SlotLayout};
use super::error::{QueueError, SubmitError};
use super::memory::SharedMemory;
use super::ring::{DriverRing, RawDescriptor, UsedElement, descriptor_flags};
use super::waker::{Waker, Woken};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use thrufs_abi::layout::{InHeader, OutHeader};
use thrufs_testing::{ReplyLayout, Shape};
use vmm_sys_util::eventfd::EventFd;
use zerocopy::{FromBytes, IntoBytes};

/// A request in flight on this queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    number: u64,
    slot: usize,
}

impl Token {
    /// A small number, unique among requests in flight.
    pub(crate) fn slot(self) -> usize {
        self.slot
    }
}

/// A request in parts, each with descriptors of its own.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// `struct fuse_in_header`.
    pub header: &'a [u8],
    /// Structures, names and values.
    pub arguments: &'a [u8],
    /// Data of a WRITE.
    pub data: &'a [u8],
}

impl<'a> Parts<'a> {
    /// Splits a request by its [`Shape`].
    #[must_use]
    pub fn of(request: &'a [u8], shape: &Shape) -> Parts<'a> {
        Parts {
            header: &request[..shape.header_end],
            arguments: &request[shape.header_end..shape.arguments_end],
            data: &request[shape.arguments_end..],
        }
    }
}

/// A request that the device has returned. Its buffers are in use until it is [freed](Queue::free).
#[derive(Debug)]
#[must_use = "its buffers are free only when it is given to `Queue::free`"]
pub struct Completion {
    token: Token,
    used: u32,
}

impl Completion {
    /// The request's token.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The next poll.
    Polled,
    /// A thread that takes it by its token.
    Claimed,
    /// None: it is freed at once.
    Dropped,
}

struct InFlight {
    token: Token,
    fate: Fate,
    descriptors: Vec<u16>,
}

#[derive(Clone, Copy, Default)]
struct Kept {
    reply: Option<ReplyLayout>,
    data_in: usize,
}

/// One virtqueue of a [`FrontEnd`](crate::FrontEnd), with buffers for requests.
///
/// [`submit`](Self::submit) any number, [`notify`](Self::notify) once,
/// [`wait`](Self::wait) and [`poll`](Self::poll) what came back.
pub struct Queue {
    memory: Arc<SharedMemory>,
    ring: DriverRing,
    slots: SlotLayout,
    indirect: bool,
    kick: EventFd,
    waker: Arc<Waker>,
    free_slots: Vec<usize>,
    free_descriptors: Vec<u16>,
    kept: Vec<Kept>,
    /// By head.
    in_flight: Vec<Option<InFlight>>,
    in_flight_count: usize,
    completed: VecDeque<Completion>,
    claimed: Vec<Completion>,
    next_token: u64,
    broken: Option<&'static str>,
    segments: Segments,
    /// Empty lists of descriptors, for reuse.
    spare_lists: Vec<Vec<u16>>,
}

impl Queue {
    pub(crate) fn new(
        memory: Arc<SharedMemory>,
        ring: DriverRing,
        slots: (SlotLayout, usize),
        indirect: bool,
        kick: EventFd,
        waker: Arc<Waker>,
    ) -> Queue {
        let size = ring.size();
        let (slots, count) = slots;
        Queue {
            memory,
            ring,
            slots,
            indirect,
            kick,
            waker,
            free_slots: (0..count).rev().collect(),
            free_descriptors: (0..size).rev().collect(),
            kept: vec![Kept::default(); count],
            in_flight: std::iter::repeat_with(|| None).take(size.into()).collect(),
            in_flight_count: 0,
            completed: VecDeque::new(),
            claimed: Vec::new(),
            next_token: 0,
            broken: None,
            segments: Segments::default(),
            spare_lists: Vec::new(),
        }
    }

    /// Most chains of the queue.
    #[must_use]
    pub fn size(&self) -> u16 {
        self.ring.size()
    }

    pub(crate) fn buffers(&self) -> usize {
        self.kept.len()
    }

    /// Requests that the device has.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight_count
    }

    /// Makes a request available to the device, which may not see it before [`notify`](Self::notify).
    /// Without a `reply` there are no writable descriptors.
    ///
    /// # Errors
    ///
    /// When it does not fit, at present or ever. Nothing was sent then.
    pub fn submit(
        &mut self,
        parts: &Parts<'_>,
        reply: Option<ReplyLayout>,
    ) -> Result<Token, SubmitError> {
        self.submit_for(parts, reply, Fate::Polled)
    }

    /// As [`submit`](Self::submit), for a completion that is [taken](Self::take) instead of polled.
    pub(crate) fn submit_claimed(
        &mut self,
        parts: &Parts<'_>,
        reply: Option<ReplyLayout>,
    ) -> Result<Token, SubmitError> {
        self.submit_for(parts, reply, Fate::Claimed)
    }

    fn submit_for(
        &mut self,
        parts: &Parts<'_>,
        reply: Option<ReplyLayout>,
        fate: Fate,
    ) -> Result<Token, SubmitError> {
        if self.broken.is_some() {
            return Err(SubmitError::Broken);
        }
        let data_in = parts.data.len();
        let room = reply.unwrap_or_default();
        let header_fits = parts.header.len() <= size_of::<InHeader>();
        if !header_fits || !self.slots.fits(parts.arguments.len(), data_in, room) {
            return Err(SubmitError::TooLarge);
        }
        let slot = self.free_slots.pop().ok_or(SubmitError::Full)?;
        let places = self.slots.places(slot);
        self.memory.write(places.header, parts.header);
        self.memory.write(places.arguments, parts.arguments);
        self.memory.write(places.data, parts.data);
        let lengths = (parts.header.len(), parts.arguments.len(), data_in);
        let memory = &self.memory;
        self.segments
            .lay_out(&self.slots, slot, lengths, reply, |offset| {
                memory.guest_address(offset)
            });
        let descriptors = match self.write_chain(places.table) {
            Ok(descriptors) => descriptors,
            Err(error) => {
                self.free_slots.push(slot);
                return Err(error);
            }
        };
        self.kept[slot] = Kept { reply, data_in };
        let head = descriptors[0];
        Ok(self.start(head, slot, fate, descriptors))
    }

    /// As [`submit`](Self::submit), for contiguous bytes, with the descriptors that a kernel makes.
    pub fn submit_request(&mut self, request: &[u8]) -> Result<Token, SubmitError> {
        let shape = Shape::of(request);
        self.submit(&Parts::of(request, &shape), shape.reply)
    }

    /// Writes `self.segments` as a chain, in the indirect table at `table` if negotiated, and returns its
    /// descriptors.
    fn write_chain(&mut self, table: usize) -> Result<Vec<u16>, SubmitError> {
        let count = self.segments.list.len();
        if count == 0 {
            return Err(SubmitError::Empty);
        }
        // As Linux: an indirect table for more than one segment.
        let indirect = self.indirect && count > 1;
        let needed = if indirect { 1 } else { count };
        if needed > usize::from(self.ring.size()) {
            return Err(SubmitError::TooLarge);
        }
        if needed > self.free_descriptors.len() {
            return Err(SubmitError::Full);
        }
        let mut descriptors = self.spare_lists.pop().unwrap_or_default();
        let from = self.free_descriptors.len() - needed;
        descriptors.extend(self.free_descriptors.drain(from..).rev());
        let list = &mut self.segments.list;
        for (index, segment) in list.iter_mut().enumerate().take(count - 1) {
            segment.flags |= descriptor_flags::NEXT;
            segment.next = if indirect {
                index as u16 + 1
            } else {
                descriptors[index + 1]
            };
        }
        if indirect {
            self.memory.write(table, list.as_slice().as_bytes());
            let whole = RawDescriptor {
                address: self.memory.guest_address(table),
                length: (count * size_of::<RawDescriptor>()) as u32,
                flags: descriptor_flags::INDIRECT,
                next: 0,
            };
            self.ring.put_descriptor(descriptors[0], &whole);
        } else {
            for (segment, &index) in list.iter().zip(&descriptors) {
                self.ring.put_descriptor(index, segment);
            }
        }
        Ok(descriptors)
    }

    fn start(&mut self, head: u16, slot: usize, fate: Fate, descriptors: Vec<u16>) -> Token {
        let token = Token {
            number: self.next_token,
            slot,
        };
        self.next_token += 1;
        let entry = InFlight {
            token,
            fate,
            descriptors,
        };
        if self.in_flight[usize::from(head)].replace(entry).is_none() {
            self.in_flight_count += 1;
        }
        self.ring.publish(head);
        token
    }

    /// Kicks the device for what was submitted, if it wants a kick.
    pub fn notify(&mut self) -> Result<(), QueueError> {
        if self.ring.needs_kick() {
            self.kick()?;
        }
        Ok(())
    }

    /// Kicks the device.
    pub fn kick(&self) -> Result<(), QueueError> {
        self.kick.write(1).map_err(QueueError::Waiting)
    }

    /// The next completion, without waiting.
    ///
    /// # Errors
    ///
    /// When the device returned a chain that it did not have; the queue cannot be used any longer then.
    pub fn poll(&mut self) -> Result<Option<Completion>, QueueError> {
        self.harvest()?;
        Ok(self.completed.pop_front())
    }

    /// The completion of this claimed request, if it has come.
    pub(crate) fn take(&mut self, token: Token) -> Option<Completion> {
        let index = self.claimed.iter().position(|one| one.token == token)?;
        Some(self.claimed.swap_remove(index))
    }

    /// Frees this claimed request when it completes.
    pub(crate) fn abandon(&mut self, token: Token) {
        if let Some(completion) = self.take(token) {
            self.free(completion);
        }
        let mut entries = self.in_flight.iter_mut().flatten();
        if let Some(entry) = entries.find(|entry| entry.token == token) {
            entry.fate = Fate::Dropped;
        }
    }

    pub(crate) fn harvest(&mut self) -> Result<(), QueueError> {
        loop {
            if let Some(why) = self.broken {
                return Err(QueueError::Broken(why));
            }
            match self.ring.next_used() {
                Ok(None) => return Ok(()),
                Ok(Some(element)) => self.complete(element),
                Err(_) => self.broken = Some("its index jumped"),
            }
        }
    }

    fn complete(&mut self, element: UsedElement) {
        let entry = usize::try_from(element.id)
            .ok()
            .and_then(|id| self.in_flight.get_mut(id))
            .and_then(Option::take);
        let Some(mut entry) = entry else {
            self.broken = Some("it gave back a chain that it did not have");
            return;
        };
        self.in_flight_count -= 1;
        self.free_descriptors.append(&mut entry.descriptors);
        self.spare_lists.push(entry.descriptors);
        let completion = Completion {
            token: entry.token,
            used: element.length,
        };
        match entry.fate {
            Fate::Polled => self.completed.push_back(completion),
            Fate::Claimed => self.claimed.push(completion),
            Fate::Dropped => self.free(completion),
        }
    }

    /// Sleeps until the device signals or `deadline`; false after the deadline. Does not sleep when there is
    /// a completion.
    ///
    /// # Errors
    ///
    /// When the server has gone and left no completion.
    pub fn wait(&mut self, deadline: Option<Instant>) -> Result<bool, QueueError> {
        if self.is_ready() {
            return Ok(true);
        }
        match self.waker.sleep(deadline).map_err(QueueError::Waiting)? {
            Woken::Signal => Ok(true),
            Woken::Late => Ok(self.is_ready()),
            Woken::Gone if self.is_ready() => Ok(true),
            Woken::Gone => Err(QueueError::Gone),
        }
    }

    /// Whether there is a completion. If not, the device will signal the next.
    pub(crate) fn is_ready(&mut self) -> bool {
        !self.completed.is_empty() || self.ring.arm()
    }

    /// Whether all returned chains are harvested. Then the device will signal the next.
    pub(crate) fn is_armed_and_empty(&mut self) -> bool {
        !self.ring.arm()
    }

    pub(crate) fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    pub(crate) fn kick_event(&self) -> &EventFd {
        &self.kick
    }

    pub(crate) fn ring(&mut self) -> &mut DriverRing {
        &mut self.ring
    }

    pub(crate) fn move_to(&mut self, memory: &Arc<SharedMemory>) {
        self.memory = Arc::clone(memory);
        self.ring.move_to(memory);
    }

    /// Replaces the content of `reply` by the bytes of the reply that were written.
    pub fn copy_reply(&self, completion: &Completion, reply: &mut Vec<u8>) {
        reply.clear();
        let (slot, kept) = self.kept_by(completion);
        let Some(layout) = kept.reply else { return };
        let places = self.slots.places(slot);
        let mut left = (completion.used as usize).min(layout.bytes());
        let data = places.data + self.slots.reply_data(kept.data_in);
        for (at, length) in [
            (places.reply_header, size_of::<OutHeader>()),
            (places.reply_arguments, layout.arguments),
            (data, layout.data),
        ] {
            let length = length.min(left);
            let from = reply.len();
            reply.resize(from + length, 0);
            self.memory.read(at, &mut reply[from..]);
            left -= length;
        }
    }

    /// The header of the reply; `None` when fewer bytes were written.
    #[must_use]
    pub fn reply_header(&self, completion: &Completion) -> Option<OutHeader> {
        let (slot, kept) = self.kept_by(completion);
        kept.reply?;
        if (completion.used as usize) < size_of::<OutHeader>() {
            return None;
        }
        let mut header = [0; size_of::<OutHeader>()];
        self.memory
            .read(self.slots.places(slot).reply_header, &mut header);
        OutHeader::read_from_bytes(&header).ok()
    }

    fn kept_by(&self, completion: &Completion) -> (usize, Kept) {
        let slot = completion.token.slot;
        (slot, self.kept[slot])
    }

    /// Frees the buffers of a completion.
    pub fn free(&mut self, completion: Completion) {
        self.free_slots.push(completion.token.slot);
    }
}
