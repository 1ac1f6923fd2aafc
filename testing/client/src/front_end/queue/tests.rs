//! The queue, with the test as its device.

use super::*;
use crate::front_end::ring::DriverRingLayout;
use crate::front_end::ring::tests::use_chain;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use thrufs_abi::layout::GetattrIn;
use thrufs_abi::{NodeId, Opcode, RequestBuilder, Unique};
use vmm_sys_util::eventfd::EFD_NONBLOCK;

/// A queue with the test as its device.
pub(crate) struct Ground {
    pub(crate) queue: Queue,
    memory: Arc<SharedMemory>,
    ring: DriverRingLayout,
    slots: SlotLayout,
    socket: UnixStream,
}

pub(crate) fn ground(size: u16, slot_count: usize, indirect: bool) -> Ground {
    let ring = DriverRingLayout::new(0, size);
    let slots = SlotLayout::new(ring.end, 8192, 4096);
    let memory = Arc::new(SharedMemory::new(slots.end(slot_count)).unwrap());
    let (own, socket) = UnixStream::pair().unwrap();
    let queue = Queue::new(
        Arc::clone(&memory),
        DriverRing::new(Arc::clone(&memory), ring, true, 0),
        (slots, slot_count),
        QueueFeatures { indirect },
        EventFd::new(EFD_NONBLOCK).unwrap(),
        Arc::new(Waker::new(&own).unwrap()),
    );
    // Kept open: the waker waits for the other end to close.
    std::mem::forget(own);
    Ground {
        queue,
        memory,
        ring,
        slots,
        socket,
    }
}

fn getattr() -> Vec<u8> {
    RequestBuilder::new(Opcode::Getattr, Unique(2), NodeId::ROOT)
        .arg(&GetattrIn::default())
        .finish()
}

impl Ground {
    pub(crate) fn descriptor(&self, index: u16) -> RawDescriptor {
        self.descriptor_at(self.ring.descriptors + usize::from(index) * 16)
    }

    /// In a table at a guest address.
    pub(crate) fn descriptor_in(&self, table: u64, index: u16) -> RawDescriptor {
        let table = (table - self.memory.guest_address(0)) as usize;
        self.descriptor_at(table + usize::from(index) * 16)
    }

    fn descriptor_at(&self, offset: usize) -> RawDescriptor {
        let mut bytes = [0; 16];
        self.memory.read(offset, &mut bytes);
        RawDescriptor::read_from_bytes(&bytes).unwrap()
    }

    pub(crate) fn memory_end(&self) -> u64 {
        self.memory.guest_address(self.memory.length())
    }

    fn answer(&self, id: u32, slot: usize, reply: &[u8]) {
        self.memory
            .write(self.slots.places(slot).reply_header, &reply[..16]);
        self.memory
            .write(self.slots.places(slot).reply_arguments, &reply[16..]);
        use_chain(&self.memory, self.ring, id, reply.len() as u32);
    }
}

#[test]
fn a_request_goes_out_and_its_reply_comes_back() {
    let mut ground = ground(16, 2, false);
    let token = ground.queue.submit_request(&getattr()).unwrap();
    let first = ground.descriptor(0);
    assert_eq!((first.length, first.flags, first.next), (40, 1, 1));
    assert_eq!(ground.descriptor(1).length, 16);
    assert_eq!(ground.descriptor(2).flags, 3);
    assert_eq!(
        (ground.descriptor(3).length, ground.descriptor(3).flags),
        (104, 2)
    );
    assert!(ground.queue.poll().unwrap().is_none());
    let mut reply = vec![9; 16 + 104];
    reply[..16].copy_from_slice(&[1; 16]);
    ground.answer(0, 0, &reply);
    let completion = ground.queue.poll().unwrap().unwrap();
    assert_eq!(completion.token(), token);
    let mut back = Vec::new();
    ground.queue.copy_reply(&completion, &mut back);
    assert_eq!(back, reply);
    assert_eq!(ground.queue.in_flight(), 0);
    ground.queue.free(completion);
}

#[test]
fn with_indirect_tables_each_request_takes_one_descriptor() {
    let mut ground = ground(4, 8, true);
    for _ in 0..4 {
        ground.queue.submit_request(&getattr()).unwrap();
    }
    let full = ground.queue.submit_request(&getattr());
    assert_eq!(full, Err(SubmitError::Full));
    let whole = ground.descriptor(0);
    assert_eq!((whole.length, whole.flags), (64, 4));
    let table = ground.slots.places(0).table;
    assert_eq!(whole.address, ground.memory.guest_address(table));
    use_chain(&ground.memory, ground.ring, 2, 16);
    let completion = ground.queue.poll().unwrap().unwrap();
    ground.queue.free(completion);
    assert!(ground.queue.submit_request(&getattr()).is_ok());
}

#[test]
fn buffers_are_used_again_only_when_freed() {
    let mut ground = ground(16, 1, true);
    ground.queue.submit_request(&getattr()).unwrap();
    use_chain(&ground.memory, ground.ring, 0, 16);
    let completion = ground.queue.poll().unwrap().unwrap();
    let full = ground.queue.submit_request(&getattr());
    assert_eq!(full, Err(SubmitError::Full));
    ground.queue.free(completion);
    assert!(ground.queue.submit_request(&getattr()).is_ok());
}

#[test]
fn a_used_length_beyond_the_reply_s_room_is_limited() {
    let mut ground = ground(16, 1, true);
    ground.queue.submit_request(&getattr()).unwrap();
    use_chain(&ground.memory, ground.ring, 0, u32::MAX);
    let completion = ground.queue.poll().unwrap().unwrap();
    assert_eq!(completion.used_bytes(), u32::MAX);
    let mut reply = Vec::new();
    ground.queue.copy_reply(&completion, &mut reply);
    assert_eq!(reply.len(), 16 + 104);
}

#[test]
fn bytes_beyond_the_used_length_are_not_read() {
    for (used, header, structure) in [
        (15, false, false),
        (16, true, false),
        (23, true, false),
        (24, true, true),
    ] {
        let mut ground = ground(16, 1, true);
        ground.queue.submit_request(&getattr()).unwrap();
        use_chain(&ground.memory, ground.ring, 0, used);
        let completion = ground.queue.poll().unwrap().unwrap();
        assert_eq!(ground.queue.reply_header(&completion).is_some(), header);
        let value: Option<u64> = ground.queue.reply_structure(&completion);
        assert_eq!(value.is_some(), structure, "{used}");
        let more: Option<[u64; 14]> = ground.queue.reply_structure(&completion);
        assert!(more.is_none(), "there was no room for so much");
        ground.queue.free(completion);
    }
}

#[test]
fn an_abandoned_request_is_freed_when_it_returns() {
    let mut ground = ground(16, 1, true);
    let request = getattr();
    let shape = Shape::of(&request);
    let parts = Parts::of(&request, &shape);
    let token = ground.queue.submit_claimed(&parts, shape.reply).unwrap();
    ground.queue.abandon(token);
    let full = ground.queue.submit_request(&request);
    assert_eq!(full, Err(SubmitError::Full), "the device still has it");
    use_chain(&ground.memory, ground.ring, 0, 16);
    ground.queue.harvest().unwrap();
    assert!(ground.queue.take(token).is_none());
    assert!(ground.queue.poll().unwrap().is_none());
    assert!(ground.queue.submit_request(&request).is_ok());
}

#[test]
fn claimed_completions_are_not_polled() {
    let mut ground = ground(16, 2, true);
    let request = getattr();
    let shape = Shape::of(&request);
    let parts = Parts::of(&request, &shape);
    let claimed = ground.queue.submit_claimed(&parts, shape.reply).unwrap();
    let polled = ground.queue.submit(&parts, shape.reply).unwrap();
    use_chain(&ground.memory, ground.ring, 0, 16);
    use_chain(&ground.memory, ground.ring, 1, 16);
    let completion = ground.queue.poll().unwrap().unwrap();
    assert_eq!(completion.token(), polled);
    ground.queue.free(completion);
    assert!(ground.queue.poll().unwrap().is_none());
    let completion = ground.queue.take(claimed).unwrap();
    ground.queue.free(completion);
}

#[test]
fn returned_chains_that_were_not_in_flight_break_the_queue() {
    for id in [1, 15, 16, 0x1_0000, u32::MAX] {
        let mut ground = ground(16, 2, true);
        ground.queue.submit_request(&getattr()).unwrap();
        use_chain(&ground.memory, ground.ring, id, 16);
        assert!(matches!(ground.queue.poll(), Err(QueueError::Broken(_))));
        assert!(matches!(ground.queue.poll(), Err(QueueError::Broken(_))));
        let refused = ground.queue.submit_request(&getattr());
        assert_eq!(refused, Err(SubmitError::Broken));
    }
    let mut twice = ground(16, 2, true);
    twice.queue.submit_request(&getattr()).unwrap();
    use_chain(&twice.memory, twice.ring, 0, 16);
    use_chain(&twice.memory, twice.ring, 0, 16);
    assert!(twice.queue.poll().is_err());
}

#[test]
fn the_device_is_kicked_once_for_many() {
    let mut ground = ground(16, 4, true);
    for _ in 0..3 {
        ground.queue.submit_request(&getattr()).unwrap();
    }
    ground.queue.notify().unwrap();
    ground.queue.notify().unwrap();
    assert_eq!(ground.queue.kick_event().read().unwrap(), 1);
}

#[test]
fn waiting_ends_with_a_signal_the_deadline_or_the_server() {
    let mut ground = ground(16, 4, true);
    ground.queue.submit_request(&getattr()).unwrap();
    let soon = || Some(Instant::now() + Duration::from_millis(20));
    assert!(!ground.queue.wait(soon()).unwrap());
    ground.queue.waker().call().write(1).unwrap();
    assert!(ground.queue.wait(None).unwrap());
    assert!(!ground.queue.wait(soon()).unwrap(), "it was one signal");
    use_chain(&ground.memory, ground.ring, 0, 16);
    assert!(ground.queue.wait(None).unwrap());
    let completion = ground.queue.poll().unwrap().unwrap();
    ground.queue.free(completion);
    drop(ground.socket);
    assert!(matches!(ground.queue.wait(None), Err(QueueError::Gone)));
}
