//! Raw and faulty descriptor chains.

use crate::front_end::{
    FIRST_REQUEST_QUEUE, FrontEnd, Queue, RawDescriptor, Token, descriptor_flags,
};
use thrufs_abi::layout::GetattrIn;
use thrufs_abi::{NodeId, Opcode, RequestBuilder, Unique};
use zerocopy::IntoBytes;

const NEXT: u16 = descriptor_flags::NEXT;
const WRITE: u16 = descriptor_flags::WRITE;
const INDIRECT: u16 = descriptor_flags::INDIRECT;

/// Bytes of a slot for the buffers of a faulty chain.
const SCRATCH_BYTES: usize = 8192;

macro_rules! faults {
    ($($(#[$doc:meta])* $fault:ident $name:literal,)*) => {
        /// The fault of a chain that is otherwise a valid GETATTR of the root.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Fault {
            $($(#[$doc])* $fault,)*
        }

        impl Fault {
            /// All faults, with their names.
            pub const ALL: &'static [(&'static str, Fault)] = &[$(($name, Fault::$fault),)*];
        }
    };
}

faults! {
    /// The last descriptor leads to the first.
    Loop "loop",
    /// A descriptor leads to itself.
    LoopToSelf "loop-to-self",
    /// The next descriptor is beyond the table.
    NextBeyondTable "next-beyond-table",
    /// The first descriptor is beyond the table.
    HeadBeyondTable "head-beyond-table",
    /// Every descriptor has length zero.
    LengthZero "length-zero",
    /// A readable descriptor of 4 GiB less one.
    LengthHuge "length-huge",
    /// A writable descriptor of 4 GiB less one.
    ReplyLengthHuge "reply-length-huge",
    /// The request is outside the memory.
    AddressOutside "address-outside",
    /// The reply is outside the memory.
    ReplyAddressOutside "reply-address-outside",
    /// The request begins in the memory and ends beyond it.
    AddressAcrossEnd "address-across-end",
    /// Address and length together are more than 64 bits.
    AddressWraps "address-wraps",
    /// A writable descriptor comes before a readable one.
    WritableFirst "writable-first",
    /// All descriptors are writable: there is no request.
    NothingReadable "nothing-readable",
    /// The request ends within its header.
    HeaderShort "header-short",
    /// No room for the reply's header.
    ReplyShort "reply-short",
    /// No room for a reply at all.
    NoReply "no-reply",
    /// The header's length says more than the descriptors have.
    HeaderLengthLong "header-length-long",
    /// The header's length says less than a header.
    HeaderLengthShort "header-length-short",
    /// A table within a table.
    IndirectInIndirect "indirect-in-indirect",
    /// A table whose length is no multiple of a descriptor's.
    IndirectOddLength "indirect-odd-length",
    /// A table of length zero.
    IndirectEmpty "indirect-empty",
    /// A table of 4 GiB.
    IndirectHuge "indirect-huge",
    /// A table outside the memory.
    IndirectOutside "indirect-outside",
    /// A table descriptor that has a next one in the ring.
    IndirectWithNext "indirect-with-next",
    /// A table marked as writable.
    IndirectWritable "indirect-writable",
    /// A loop within a table.
    IndirectLoop "indirect-loop",
    /// Unknown flags.
    FlagsUnknown "flags-unknown",
    /// The same chain made available twice.
    Twice "twice",
    /// The available index is more than the ring's size ahead.
    IndexJumps "index-jumps",
    /// The available index goes backwards.
    IndexGoesBack "index-goes-back",
}

/// Raw access to a queue of a [`FrontEnd`]. Chains that return are [completions](Queue::poll) without a reply.
///
/// It takes one slot of buffers, which it frees on drop, but not with a chain in flight: the device may still
/// write into it.
pub struct RawQueue<'a> {
    queue: &'a mut Queue,
    slot: usize,
    scratch: usize,
}

impl Drop for RawQueue<'_> {
    fn drop(&mut self) {
        if self.queue.in_flight() == 0 {
            self.queue.give_slot_back(self.slot);
        }
    }
}

impl<'a> RawQueue<'a> {
    /// `None` when the queue has no free buffers.
    #[must_use]
    pub fn of(queue: &'a mut Queue) -> Option<RawQueue<'a>> {
        let slot = queue.take_slot()?;
        let scratch = queue.slot_layout().places(slot).header;
        Some(RawQueue {
            queue,
            slot,
            scratch,
        })
    }

    /// The queue, to poll and to kick.
    pub fn queue(&mut self) -> &mut Queue {
        self.queue
    }

    /// A guest address in 8 KiB of scratch memory.
    #[must_use]
    pub fn scratch(&self, offset: usize) -> u64 {
        self.queue
            .memory()
            .guest_address(self.scratch + offset % SCRATCH_BYTES)
    }

    /// The first guest address behind the memory.
    #[must_use]
    pub fn memory_end(&self) -> u64 {
        let memory = self.queue.memory();
        memory.guest_address(memory.length())
    }

    /// Writes into the scratch memory, as much as fits.
    pub fn fill(&mut self, offset: usize, bytes: &[u8]) {
        let offset = offset % SCRATCH_BYTES;
        let length = bytes.len().min(SCRATCH_BYTES - offset);
        let memory = self.queue.memory();
        memory.write(self.scratch + offset, &bytes[..length]);
    }

    /// Reads from the scratch memory, as much as it has.
    pub fn peek(&self, offset: usize, bytes: &mut [u8]) {
        let offset = offset % SCRATCH_BYTES;
        let length = bytes.len().min(SCRATCH_BYTES - offset);
        let memory = self.queue.memory();
        memory.read(self.scratch + offset, &mut bytes[..length]);
    }

    /// Takes up to `count` free descriptors.
    pub fn take_descriptors(&mut self, count: usize) -> Vec<u16> {
        self.queue.take_descriptors(count)
    }

    /// Writes a descriptor, free or not, at `index` modulo the queue's size.
    pub fn put(&mut self, index: u16, descriptor: RawDescriptor) {
        self.queue.ring().put_descriptor(index, &descriptor);
    }

    /// Makes a chain available. `descriptors` are freed when it returns. There is no token for a head beyond
    /// the table.
    pub fn publish(&mut self, head: u16, descriptors: Vec<u16>) -> Option<Token> {
        self.queue.start_raw(head, descriptors)
    }

    /// Sets the available index.
    pub fn jump(&mut self, by: i16) {
        let index = self.queue.ring().available_index();
        let index = index.wrapping_add_signed(by);
        self.queue.ring().jump_available(index);
    }

    /// Links descriptors for `chain`, lets `spoil` change them, and makes the chain available.
    fn chain(
        &mut self,
        chain: &[RawDescriptor],
        spoil: impl FnOnce(&[u16], &mut [RawDescriptor]),
    ) -> Option<Token> {
        let indices = self.take_descriptors(chain.len());
        if indices.len() < chain.len() {
            return None;
        }
        let mut chain = chain.to_vec();
        link(&mut chain, &indices);
        spoil(&indices, &mut chain);
        for (&index, &descriptor) in indices.iter().zip(&chain) {
            self.put(index, descriptor);
        }
        self.publish(indices[0], indices)
    }

    /// The same in an indirect table; `whole` is the descriptor of the table.
    fn table(
        &mut self,
        chain: &[RawDescriptor],
        spoil: impl FnOnce(&mut [RawDescriptor], &mut RawDescriptor),
    ) -> Option<Token> {
        let mut chain = chain.to_vec();
        let indices: Vec<u16> = (0..chain.len() as u16).collect();
        link(&mut chain, &indices);
        let mut whole = descriptor(
            self.scratch(TABLE_AT),
            (chain.len() * size_of::<RawDescriptor>()) as u32,
            INDIRECT,
        );
        spoil(&mut chain, &mut whole);
        self.fill(TABLE_AT, chain.as_slice().as_bytes());
        let head = *self.take_descriptors(1).first()?;
        self.put(head, whole);
        self.publish(head, vec![head])
    }

    /// Puts a faulty chain on the queue and kicks. Returns the token of the chain, if it has one.
    pub fn inject(&mut self, fault: Fault) -> Result<Option<Token>, crate::QueueError> {
        let request = RequestBuilder::new(Opcode::Getattr, Unique(UNIQUE), NodeId::ROOT)
            .arg(&GetattrIn::default())
            .finish();
        self.fill(0, &request);
        let token = self.spoiled(fault, request.len() as u32);
        self.queue.kick()?;
        Ok(token)
    }

    fn spoiled(&mut self, fault: Fault, length: u32) -> Option<Token> {
        let request = descriptor(self.scratch(0), length, 0);
        let reply = descriptor(self.scratch(REPLY_AT), 512, WRITE);
        let good = [request, reply];
        let end = self.memory_end();
        match fault {
            Fault::Loop => self.chain(&good, |indices, chain| go_on(&mut chain[1], indices[0])),
            Fault::LoopToSelf => self.chain(&good, |indices, chain| {
                go_on(&mut chain[0], indices[0]);
            }),
            Fault::NextBeyondTable => self.chain(&good, |_, chain| go_on(&mut chain[0], u16::MAX)),
            Fault::HeadBeyondTable => self.publish(u16::MAX, Vec::new()),
            Fault::LengthZero => self.chain(&good, |_, chain| {
                chain.iter_mut().for_each(|one| one.length = 0);
            }),
            Fault::LengthHuge => self.chain(&good, |_, chain| chain[0].length = u32::MAX),
            Fault::ReplyLengthHuge => self.chain(&good, |_, chain| chain[1].length = u32::MAX),
            Fault::AddressOutside => self.chain(&good, |_, chain| chain[0].address = 0x10),
            Fault::ReplyAddressOutside => {
                self.chain(&good, |_, chain| chain[1].address = end + 4096)
            }
            Fault::AddressAcrossEnd => self.chain(&good, |_, chain| chain[0].address = end - 8),
            Fault::AddressWraps => self.chain(&good, |_, chain| chain[0].address = u64::MAX - 8),
            Fault::WritableFirst => self.chain(&[reply, request], |_, _| {}),
            Fault::NothingReadable => self.chain(&good, |_, chain| chain[0].flags |= WRITE),
            Fault::HeaderShort => self.chain(&good, |_, chain| chain[0].length = 39),
            Fault::ReplyShort => self.chain(&good, |_, chain| chain[1].length = 15),
            Fault::NoReply => self.chain(&good[..1], |_, _| {}),
            Fault::HeaderLengthLong => self.with_header_length(&good, 100_000),
            Fault::HeaderLengthShort => self.with_header_length(&good, 7),
            Fault::FlagsUnknown => self.chain(&good, |_, chain| chain[0].flags |= 0xfff0),
            Fault::Twice => {
                let token = self.chain(&good, |_, _| {});
                let ring = self.queue.ring();
                ring.repeat_last();
                token
            }
            Fault::IndexJumps => {
                let by = self.queue.size().wrapping_add(100);
                self.jump(by.cast_signed());
                None
            }
            Fault::IndexGoesBack => {
                self.jump(-1);
                None
            }
            _ => self.spoiled_table(fault, &good),
        }
    }

    fn with_header_length(&mut self, good: &[RawDescriptor], length: u32) -> Option<Token> {
        self.fill(0, &length.to_ne_bytes());
        self.chain(good, |_, _| {})
    }

    fn spoiled_table(&mut self, fault: Fault, good: &[RawDescriptor]) -> Option<Token> {
        let outside = self.memory_end() + 4096;
        let inner = self.scratch(TABLE_AT);
        self.table(good, |chain, whole| match fault {
            Fault::IndirectInIndirect => {
                chain[0].flags |= INDIRECT;
                (chain[0].address, chain[0].length) = (inner, 32);
            }
            Fault::IndirectOddLength => whole.length -= 5,
            Fault::IndirectEmpty => whole.length = 0,
            Fault::IndirectHuge => whole.length = 0xffff_fff0,
            Fault::IndirectOutside => whole.address = outside,
            Fault::IndirectWithNext => go_on(whole, 0),
            Fault::IndirectWritable => whole.flags |= WRITE,
            Fault::IndirectLoop => go_on(&mut chain[1], 0),
            _ => {}
        })
    }
}

/// The unique id of the request in faulty chains.
pub const UNIQUE: u64 = 0x0dd_0dd0;

const REPLY_AT: usize = 4096;
const TABLE_AT: usize = 6144;

fn descriptor(address: u64, length: u32, flags: u16) -> RawDescriptor {
    RawDescriptor {
        address,
        length,
        flags,
        next: 0,
    }
}

fn link(chain: &mut [RawDescriptor], indices: &[u16]) {
    let count = chain.len();
    for (one, &next) in chain.iter_mut().zip(&indices[1..]).take(count - 1) {
        go_on(one, next);
    }
}

fn go_on(descriptor: &mut RawDescriptor, next: u16) {
    descriptor.flags |= NEXT;
    descriptor.next = next;
}

/// Injects a fault into the first request queue. Returns whether the chain returned within a moment.
///
/// # Errors
///
/// When the server closed the connection, or broke the queue.
pub fn inject(
    front_end: &FrontEnd,
    fault: Fault,
    patience: std::time::Duration,
) -> Result<bool, crate::QueueError> {
    let Some(mut queue) = front_end.queue(FIRST_REQUEST_QUEUE) else {
        return Ok(false);
    };
    let Some(mut raw) = RawQueue::of(&mut queue) else {
        return Ok(false);
    };
    let Some(token) = raw.inject(fault)? else {
        return Ok(false);
    };
    let deadline = std::time::Instant::now() + patience;
    let queue = raw.queue();
    while queue.wait(Some(deadline))? {
        while let Some(completion) = queue.poll()? {
            let back = completion.token() == token;
            queue.free(completion);
            if back {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front_end::queue_tests::{Ground, ground};

    /// A queue after a fault, and the change of its available index.
    fn after(fault: Fault) -> (Ground, i16) {
        let mut ground = ground(16, 4, true);
        let mut raw = RawQueue::of(&mut ground.queue).unwrap();
        let token = raw.inject(fault).unwrap();
        let breaks_ring = matches!(
            fault,
            Fault::HeadBeyondTable | Fault::IndexJumps | Fault::IndexGoesBack
        );
        assert!(token.is_some() || breaks_ring, "{fault:?}");
        assert_eq!(raw.queue().kick_event().read().unwrap(), 1, "{fault:?}");
        drop(raw);
        let index = ground.queue.ring().available_index().cast_signed();
        (ground, index)
    }

    #[test]
    fn every_fault_is_made_and_has_a_name_of_its_own() {
        for &(name, fault) in Fault::ALL {
            let (_, index) = after(fault);
            let expected = match fault {
                Fault::Twice => 2,
                Fault::IndexJumps => 116,
                Fault::IndexGoesBack => -1,
                _ => 1,
            };
            assert_eq!(index, expected, "{name}");
            let of_name = Fault::ALL.iter().filter(|(other, _)| *other == name);
            assert_eq!(of_name.count(), 1, "{name}");
        }
    }

    #[test]
    fn chains_are_wrong_as_they_say() {
        let first = |fault| after(fault).0.descriptor(0);
        let second = |fault| after(fault).0.descriptor(1);
        assert_eq!(
            (second(Fault::Loop).flags, second(Fault::Loop).next),
            (3, 0)
        );
        assert_eq!(first(Fault::LoopToSelf).next, 0);
        assert_eq!(first(Fault::NextBeyondTable).next, u16::MAX);
        assert_eq!(first(Fault::LengthHuge).length, u32::MAX);
        assert_eq!(second(Fault::ReplyLengthHuge).length, u32::MAX);
        assert_eq!(first(Fault::WritableFirst).flags, 3);
        assert_eq!(second(Fault::WritableFirst).flags, 0);
        assert_eq!(first(Fault::NothingReadable).flags, 3);
        assert_eq!(first(Fault::NoReply).flags, 0);
        let (across, _) = after(Fault::AddressAcrossEnd);
        let descriptor = across.descriptor(0);
        assert!(descriptor.address < across.memory_end());
        assert!(descriptor.address + u64::from(descriptor.length) > across.memory_end());
        let wraps = first(Fault::AddressWraps);
        assert!(wraps.address.checked_add(wraps.length.into()).is_none());
    }

    #[test]
    fn tables_are_wrong_as_they_say() {
        let table = |fault| {
            let (ground, _) = after(fault);
            let whole = ground.descriptor(0);
            let inner = (0..2).map(|index| ground.descriptor_in(whole.address, index));
            (whole, inner.collect::<Vec<_>>())
        };
        let (whole, inner) = table(Fault::IndirectInIndirect);
        assert_eq!((whole.flags, whole.length), (INDIRECT, 32));
        assert_eq!(inner[0].flags & INDIRECT, INDIRECT);
        assert_eq!(table(Fault::IndirectOddLength).0.length, 27);
        assert_eq!(table(Fault::IndirectWithNext).0.flags, INDIRECT | NEXT);
        assert_eq!(table(Fault::IndirectWritable).0.flags, INDIRECT | WRITE);
        let (_, inner) = table(Fault::IndirectLoop);
        assert_eq!((inner[1].flags, inner[1].next), (NEXT | WRITE, 0));
    }
}
