//! Buffers of requests in flight: slots in the shared memory, each for one request and its reply.
//!
//! ```text
//! in header · arguments     | two allocations, as in the kernel; read by the device
//! out header · arguments    | the same; written by the device
//! table                     | indirect descriptors
//! data                      | pages of bulk data: to the device, then from it
//! ```

use super::ring::{RawDescriptor, descriptor_flags};
use thrufs_abi::layout::{InHeader, OutHeader};
use thrufs_testing::ReplyLayout;

/// Room for arguments: the largest xattr value with its name, two names, a symlink target.
pub(crate) const ARGUMENT_BYTES_MAX: usize = 76 * 1024;

/// Arguments begin on a cache line of their own.
const ARGUMENTS_AT: usize = 64;
const HALF_BYTES: usize = (ARGUMENTS_AT + ARGUMENT_BYTES_MAX).next_multiple_of(PAGE);
const PAGE: usize = 4096;

/// Descriptors of a chain besides pages: two headers, twice arguments.
const DESCRIPTORS_BESIDES_DATA: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotLayout {
    start: usize,
    /// Room for bulk data in both directions together, in bytes.
    data_bytes_max: usize,
    table_bytes: usize,
}

/// The segments of one request's chain, in the order of the chain.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    pub(crate) list: Vec<RawDescriptor>,
}

/// Offsets of a slot's parts in the memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotPlaces {
    pub(crate) header: usize,
    pub(crate) arguments: usize,
    pub(crate) reply_header: usize,
    pub(crate) reply_arguments: usize,
    pub(crate) table: usize,
    pub(crate) data: usize,
}

impl SlotLayout {
    /// Slots from `start` (a multiple of a page) on.
    pub(crate) fn new(start: usize, data_bytes_max: usize) -> SlotLayout {
        let data_bytes_max = data_bytes_max.next_multiple_of(PAGE) + PAGE;
        let descriptors = data_bytes_max / PAGE + DESCRIPTORS_BESIDES_DATA + 1;
        SlotLayout {
            start,
            data_bytes_max,
            table_bytes: (descriptors * size_of::<RawDescriptor>()).next_multiple_of(PAGE),
        }
    }

    fn stride(&self) -> usize {
        2 * HALF_BYTES + self.table_bytes + self.data_bytes_max
    }

    pub(crate) fn end(&self, count: usize) -> usize {
        self.start + count * self.stride()
    }

    /// Offset of bulk data from the device, after `data_in` bytes to it.
    pub(crate) fn reply_data(&self, data_in: usize) -> usize {
        data_in.next_multiple_of(PAGE)
    }

    pub(crate) fn fits(&self, arguments: usize, data: usize, reply: ReplyLayout) -> bool {
        let data = self.reply_data(data).checked_add(reply.data);
        arguments <= ARGUMENT_BYTES_MAX
            && reply.arguments <= ARGUMENT_BYTES_MAX
            && data.is_some_and(|data| data <= self.data_bytes_max)
    }

    pub(crate) fn places(&self, slot: usize) -> SlotPlaces {
        let header = self.start + slot * self.stride();
        let reply_header = header + HALF_BYTES;
        let table = reply_header + HALF_BYTES;
        SlotPlaces {
            header,
            arguments: header + ARGUMENTS_AT,
            reply_header,
            reply_arguments: reply_header + ARGUMENTS_AT,
            table,
            data: table + self.table_bytes,
        }
    }
}

impl Segments {
    /// The chain of a request as a Linux guest makes it. `address` translates offsets.
    pub(crate) fn lay_out(
        &mut self,
        layout: &SlotLayout,
        slot: usize,
        request: (usize, usize, usize),
        reply: Option<ReplyLayout>,
        address: impl Fn(usize) -> u64,
    ) {
        let places = layout.places(slot);
        let (header, arguments, data) = request;
        debug_assert!(header <= size_of::<InHeader>());
        self.list.clear();
        let mut add = |offset: usize, length: usize, flags: u16| {
            if length > 0 {
                self.list.push(RawDescriptor {
                    address: address(offset),
                    length: length as u32,
                    flags,
                    next: 0,
                });
            }
        };
        add(places.header, header, 0);
        add(places.arguments, arguments, 0);
        pages(places.data, data, |at, length| add(at, length, 0));
        let Some(reply) = reply else { return };
        let write = descriptor_flags::WRITE;
        add(places.reply_header, size_of::<OutHeader>(), write);
        add(places.reply_arguments, reply.arguments, write);
        let start = places.data + layout.reply_data(data);
        pages(start, reply.data, |at, length| add(at, length, write));
    }
}

fn pages(start: usize, length: usize, mut each: impl FnMut(usize, usize)) {
    let end = start + length;
    let mut at = start;
    while at < end {
        let next = (at + PAGE).min(end);
        each(at, next - at);
        at = next;
    }
}
