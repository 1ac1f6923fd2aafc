//! Raw and faulty descriptor chains.

use crate::front_end::{
    FIRST_REQUEST_QUEUE, FrontEnd, Queue, QueueError, RawDescriptor, Token, descriptor_flags,
};
use std::time::{Duration, Instant};
use thrufs_abi::layout::GetattrIn;
use thrufs_abi::{NodeId, Opcode, RequestBuilder, Unique};
use zerocopy::IntoBytes;

const NEXT: u16 = descriptor_flags::NEXT;
const WRITE: u16 = descriptor_flags::WRITE;
const INDIRECT: u16 = descriptor_flags::INDIRECT;

/// Bytes of a slot for the buffers of a faulty chain.
const SCRATCH_BYTES: usize = 8192;
const REPLY_AT: usize = 4096;
const TABLE_AT: usize = 6144;

/// Puts a chain on the queue that has one fault, and is otherwise a valid GETATTR of the root.
pub(super) type Fault = fn(&mut RawQueue<'_>) -> Option<Token>;

pub(super) const FAULTS: &[Fault] = &[
    // The last descriptor leads to the first.
    |raw| raw.chain(|_, indices, chain| go_on(&mut chain[1], indices[0])),
    // A descriptor leads to itself.
    |raw| raw.chain(|_, indices, chain| go_on(&mut chain[0], indices[0])),
    // The next descriptor is beyond the table.
    |raw| raw.chain(|_, _, chain| go_on(&mut chain[0], u16::MAX)),
    // The first descriptor is beyond the table.
    |raw| raw.publish(u16::MAX, Vec::new()),
    // Every descriptor has length zero.
    |raw| raw.chain(|_, _, chain| chain.iter_mut().for_each(|one| one.length = 0)),
    // A readable descriptor of 4 GiB less one, and a writable one.
    |raw| raw.chain(|_, _, chain| chain[0].length = u32::MAX),
    |raw| raw.chain(|_, _, chain| chain[1].length = u32::MAX),
    // The request is outside the memory, and the reply.
    |raw| raw.chain(|_, _, chain| chain[0].address = 0x10),
    |raw| raw.chain(|raw, _, chain| chain[1].address = raw.memory_end() + 4096),
    // The request begins in the memory and ends beyond it.
    |raw| raw.chain(|raw, _, chain| chain[0].address = raw.memory_end() - 8),
    // Address and length together are more than 64 bits.
    |raw| raw.chain(|_, _, chain| chain[0].address = u64::MAX - 8),
    // A writable descriptor comes before a readable one.
    |raw| raw.chain(|_, _, chain| (chain[0].flags, chain[1].flags) = (NEXT | WRITE, 0)),
    // All descriptors are writable: there is no request.
    |raw| raw.chain(|_, _, chain| chain[0].flags |= WRITE),
    // The request ends within its header.
    |raw| raw.chain(|_, _, chain| chain[0].length = 39),
    // No room for the reply's header, and none for a reply at all.
    |raw| raw.chain(|_, _, chain| chain[1].length = 15),
    |raw| raw.chain(|_, _, chain| chain[0].flags = 0),
    // The header's length says more than the descriptors have, and less than a header.
    |raw| raw.chain(|raw, _, _| raw.fill(0, &100_000_u32.to_ne_bytes())),
    |raw| raw.chain(|raw, _, _| raw.fill(0, &7_u32.to_ne_bytes())),
    // Unknown flags.
    |raw| raw.chain(|_, _, chain| chain[0].flags |= 0xfff0),
    // The same chain made available twice.
    |raw| {
        let token = raw.chain(|_, _, _| ());
        raw.queue.ring().repeat_last();
        token
    },
    // The available index is more than the ring's size ahead, and goes backwards.
    |raw| raw.jump(raw.queue.size().wrapping_add(100).cast_signed()),
    |raw| raw.jump(-1),
    // A table within a table.
    |raw| {
        let inner = raw.scratch(TABLE_AT);
        raw.table(|chain, _| {
            (chain[0].address, chain[0].length) = (inner, 32);
            chain[0].flags |= INDIRECT;
        })
    },
    // A table whose length is no multiple of a descriptor's, of length zero, of 4 GiB.
    |raw| raw.table(|_, whole| whole.length -= 5),
    |raw| raw.table(|_, whole| whole.length = 0),
    |raw| raw.table(|_, whole| whole.length = 0xffff_fff0),
    // A table outside the memory.
    |raw| {
        let outside = raw.memory_end() + 4096;
        raw.table(|_, whole| whole.address = outside)
    },
    // A table descriptor that has a next one in the ring.
    |raw| raw.table(|_, whole| go_on(whole, 0)),
    // A table marked as writable.
    |raw| raw.table(|_, whole| whole.flags |= WRITE),
    // A loop within a table.
    |raw| raw.table(|chain, _| go_on(&mut chain[1], 0)),
];

/// Raw access to a queue of a [`FrontEnd`]. Chains that return are [completions](Queue::poll) without a reply.
///
/// It takes one slot of buffers, which it frees on drop, but not with a chain in flight: the device may still
/// write into it.
pub(super) struct RawQueue<'a> {
    pub(super) queue: &'a mut Queue,
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
    pub(super) fn of(queue: &'a mut Queue) -> Option<RawQueue<'a>> {
        let slot = queue.take_slot()?;
        let scratch = queue.slot_layout().places(slot).header;
        Some(RawQueue {
            queue,
            slot,
            scratch,
        })
    }

    /// A guest address in 8 KiB of scratch memory.
    pub(super) fn scratch(&self, offset: usize) -> u64 {
        self.queue
            .memory()
            .guest_address(self.scratch + offset % SCRATCH_BYTES)
    }

    /// The first guest address behind the memory.
    pub(super) fn memory_end(&self) -> u64 {
        let memory = self.queue.memory();
        memory.guest_address(memory.length())
    }

    /// Writes into the scratch memory, as much as fits.
    pub(super) fn fill(&mut self, offset: usize, bytes: &[u8]) {
        let length = bytes.len().min(SCRATCH_BYTES - offset);
        let memory = self.queue.memory();
        memory.write(self.scratch + offset, &bytes[..length]);
    }

    /// Takes up to `count` free descriptors.
    pub(super) fn take_descriptors(&mut self, count: usize) -> Vec<u16> {
        self.queue.take_descriptors(count)
    }

    /// Writes a descriptor, free or not, at `index` modulo the queue's size.
    pub(super) fn put(&mut self, index: u16, descriptor: RawDescriptor) {
        self.queue.ring().put_descriptor(index, &descriptor);
    }

    /// Makes a chain available. `descriptors` are freed when it returns. There is no token for a head beyond
    /// the table.
    pub(super) fn publish(&mut self, head: u16, descriptors: Vec<u16>) -> Option<Token> {
        self.queue.start_raw(head, descriptors)
    }

    /// Changes the available index.
    pub(super) fn jump(&mut self, by: i16) -> Option<Token> {
        let index = self.queue.ring().available_index();
        let index = index.wrapping_add_signed(by);
        self.queue.ring().jump_available(index);
        None
    }

    /// Writes the request, and links a descriptor for it and one for its reply, at `indices`.
    fn good(&mut self, indices: &[u16]) -> [RawDescriptor; 2] {
        let request = RequestBuilder::new(Opcode::Getattr, Unique(0x0dd_0dd0), NodeId::ROOT)
            .arg(&GetattrIn::default())
            .finish();
        self.fill(0, &request);
        let mut first = descriptor(self.scratch(0), request.len() as u32, 0);
        go_on(&mut first, indices[1]);
        [first, descriptor(self.scratch(REPLY_AT), 512, WRITE)]
    }

    /// Lets `spoil` change the valid chain, of which it gets the indices, and makes it available.
    fn chain(
        &mut self,
        spoil: impl FnOnce(&mut Self, &[u16], &mut [RawDescriptor; 2]),
    ) -> Option<Token> {
        let indices = self.take_descriptors(2);
        if indices.len() < 2 {
            return None;
        }
        let mut chain = self.good(&indices);
        spoil(self, &indices, &mut chain);
        for (&index, descriptor) in indices.iter().zip(chain) {
            self.put(index, descriptor);
        }
        self.publish(indices[0], indices)
    }

    /// The same in an indirect table, whose own descriptor is the second argument of `spoil`.
    fn table(
        &mut self,
        spoil: impl FnOnce(&mut [RawDescriptor; 2], &mut RawDescriptor),
    ) -> Option<Token> {
        let mut chain = self.good(&[0, 1]);
        let mut whole = descriptor(self.scratch(TABLE_AT), size_of_val(&chain) as u32, INDIRECT);
        spoil(&mut chain, &mut whole);
        self.fill(TABLE_AT, chain.as_bytes());
        let head = *self.take_descriptors(1).first()?;
        self.put(head, whole);
        self.publish(head, vec![head])
    }
}

fn descriptor(address: u64, length: u32, flags: u16) -> RawDescriptor {
    RawDescriptor {
        address,
        length,
        flags,
        next: 0,
    }
}

fn go_on(descriptor: &mut RawDescriptor, next: u16) {
    descriptor.flags |= NEXT;
    descriptor.next = next;
}

/// Injects a fault into the first request queue, and waits a moment for the return of its chain.
///
/// # Errors
///
/// When the server closed the connection, or broke the queue.
pub(super) fn inject(
    front_end: &FrontEnd,
    fault: Fault,
    patience: Duration,
) -> Result<(), QueueError> {
    let Some(mut queue) = front_end.queue(FIRST_REQUEST_QUEUE) else {
        return Ok(());
    };
    let Some(mut raw) = RawQueue::of(&mut queue) else {
        return Ok(());
    };
    let token = fault(&mut raw);
    raw.queue.kick()?;
    let deadline = Instant::now() + patience;
    let mut is_back = token.is_none();
    while !is_back && raw.queue.wait(Some(deadline))? {
        while let Some(completion) = raw.queue.poll()? {
            is_back |= Some(completion.token()) == token;
            raw.queue.free(completion);
        }
    }
    Ok(())
}
