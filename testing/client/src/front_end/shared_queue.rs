//! A queue that many threads share, each waiting for its own reply.
//!
//! The lock is held to poll and to submit, never to sleep. One waiting thread sleeps until the device signals,
//! the others until that thread has polled. A thread that has its reply wakes the others, of which one takes
//! over.

use super::error::{ExchangeError, QueueError, SubmitError};
use super::queue::{Parts, Queue, Token};
use super::waker::{Waker, Woken};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use thrufs_testing::ReplyLayout;

struct State {
    queue: Queue,
    /// A thread sleeps until the device signals.
    watched: bool,
}

/// Exclusive use of a [`Queue`], from [`FrontEnd::queue`](crate::FrontEnd::queue). Other threads' requests on
/// this queue wait meanwhile.
pub struct QueueGuard<'a>(MutexGuard<'a, State>);

impl std::ops::Deref for QueueGuard<'_> {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        &self.0.queue
    }
}

impl std::ops::DerefMut for QueueGuard<'_> {
    fn deref_mut(&mut self) -> &mut Queue {
        &mut self.0.queue
    }
}

pub(crate) struct SharedQueue {
    state: Mutex<State>,
    progress: Condvar,
    waker: Arc<Waker>,
}

impl SharedQueue {
    pub(crate) fn new(queue: Queue) -> SharedQueue {
        SharedQueue {
            waker: Arc::clone(queue.waker()),
            state: Mutex::new(State {
                queue,
                watched: false,
            }),
            progress: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lock(&self) -> QueueGuard<'_> {
        QueueGuard(self.state())
    }

    /// Sends a request and waits until the device has returned it. Writes the reply to `reply`.
    pub(crate) fn exchange(
        &self,
        parts: &Parts<'_>,
        layout: Option<ReplyLayout>,
        deadline: Option<Instant>,
        reply: &mut Vec<u8>,
    ) -> Result<(), ExchangeError> {
        let mut state = self.state();
        let token = loop {
            match state.queue.submit_claimed(parts, layout) {
                Ok(token) => break token,
                Err(SubmitError::Full) => {
                    let before = state.queue.in_flight();
                    state.queue.harvest()?;
                    if state.queue.in_flight() == before {
                        state = self.progress(state, deadline)?;
                    }
                }
                Err(error) => return Err(error.into()),
            }
        };
        state.queue.notify()?;
        self.collect(state, token, deadline, reply)
    }

    fn collect<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        token: Token,
        deadline: Option<Instant>,
        reply: &mut Vec<u8>,
    ) -> Result<(), ExchangeError> {
        loop {
            state.queue.harvest()?;
            if let Some(completion) = state.queue.take(token) {
                state.queue.copy_reply(&completion, reply);
                state.queue.free(completion);
                drop(state);
                // Threads that wait for a free buffer or for their reply.
                self.progress.notify_all();
                return Ok(());
            }
            state = match self.progress(state, deadline) {
                Ok(state) => state,
                Err(error) => {
                    self.state().queue.abandon(token);
                    return Err(error);
                }
            };
        }
    }

    /// Waits until a chain may have come back.
    fn progress<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        deadline: Option<Instant>,
    ) -> Result<MutexGuard<'a, State>, ExchangeError> {
        // With nothing in flight, only threads that take their replies free buffers.
        if state.watched || state.queue.in_flight() == 0 {
            return self.until_looked(state, deadline);
        }
        if state.queue.is_armed_and_empty() {
            state.watched = true;
            drop(state);
            let woken = self.waker.sleep(deadline);
            state = self.state();
            state.watched = false;
            self.progress.notify_all();
            match woken.map_err(QueueError::Waiting)? {
                Woken::Signal => {}
                Woken::Late if state.queue.is_armed_and_empty() => return Err(ExchangeError::Late),
                Woken::Gone if state.queue.is_armed_and_empty() => {
                    return Err(QueueError::Gone.into());
                }
                Woken::Late | Woken::Gone => {}
            }
        }
        Ok(state)
    }

    fn until_looked<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        deadline: Option<Instant>,
    ) -> Result<MutexGuard<'a, State>, ExchangeError> {
        let Some(deadline) = deadline else {
            let woken = self.progress.wait(state);
            return Ok(woken.unwrap_or_else(PoisonError::into_inner));
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ExchangeError::Late);
        }
        let woken = self.progress.wait_timeout(state, left);
        Ok(woken.unwrap_or_else(PoisonError::into_inner).0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::buffers::SlotLayout;
    use super::super::memory::SharedMemory;
    use super::super::queue::QueueFeatures;
    use super::super::ring::tests::use_chain;
    use super::super::ring::{DriverRing, DriverRingLayout, RawDescriptor, descriptor_flags};
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::Ordering;
    use std::time::Duration;
    use thrufs_abi::layout::{InHeader, OutHeader};
    use thrufs_abi::{NodeId, Opcode, Reply, RequestBuilder, Unique};
    use thrufs_testing::Shape;
    use vmm_sys_util::eventfd::{EFD_CLOEXEC, EventFd};
    use zerocopy::{FromBytes, IntoBytes};

    const SIZE: u16 = 32;
    const SLOTS: usize = 3;

    /// A device that answers each request with a header, batches in reverse order.
    struct Device {
        memory: Arc<SharedMemory>,
        ring: DriverRingLayout,
        kick: EventFd,
        waker: Arc<Waker>,
        next: u16,
    }

    impl Device {
        fn descriptor(&self, index: u16) -> RawDescriptor {
            let mut bytes = [0; 16];
            let at = self.ring.descriptors + usize::from(index) * 16;
            self.memory.read(at, &mut bytes);
            RawDescriptor::read_from_bytes(&bytes).unwrap()
        }

        fn offset(&self, descriptor: &RawDescriptor) -> usize {
            (descriptor.address - self.memory.guest_address(0)) as usize
        }

        fn answer(&self, head: u16) {
            let mut descriptor = self.descriptor(head);
            let mut bytes = [0; size_of::<InHeader>()];
            self.memory.read(self.offset(&descriptor), &mut bytes);
            let unique = InHeader::read_from_bytes(&bytes).unwrap().unique;
            while descriptor.flags & descriptor_flags::WRITE == 0 {
                descriptor = self.descriptor(descriptor.next);
            }
            let reply = OutHeader {
                len: 16,
                error: 0,
                unique,
            };
            self.memory
                .write(self.offset(&descriptor), reply.as_bytes());
            use_chain(&self.memory, self.ring, head.into(), 16);
        }

        /// Answers until it has answered so many.
        fn serve(&mut self, count: usize) {
            let mut answered = 0;
            while answered < count {
                self.kick.read().unwrap();
                let available = self.ring.available;
                let index = self.memory.load_u16(available + 2, Ordering::Acquire);
                let heads: Vec<u16> = (0..index.wrapping_sub(self.next))
                    .map(|number| {
                        let entry = self.next.wrapping_add(number) % SIZE;
                        let at = available + 4 + usize::from(entry) * 2;
                        self.memory.load_u16(at, Ordering::Relaxed)
                    })
                    .collect();
                self.next = index;
                heads.iter().rev().for_each(|&head| self.answer(head));
                answered += heads.len();
                self.waker.call().write(1).unwrap();
            }
        }
    }

    fn ground() -> (SharedQueue, Device, UnixStream, UnixStream) {
        let ring = DriverRingLayout::new(0, SIZE);
        let slots = SlotLayout::new(ring.end, 4096, 4096);
        let memory = Arc::new(SharedMemory::new(slots.end(SLOTS)).unwrap());
        let (own, others) = UnixStream::pair().unwrap();
        let kick = EventFd::new(EFD_CLOEXEC).unwrap();
        let waker = Arc::new(Waker::new(&own).unwrap());
        let device = Device {
            memory: Arc::clone(&memory),
            ring,
            kick: kick.try_clone().unwrap(),
            waker: Arc::clone(&waker),
            next: 0,
        };
        // Without the event index, the device of these tests need not know it.
        let queue = Queue::new(
            Arc::clone(&memory),
            DriverRing::new(memory, ring, false, 0),
            (slots, SLOTS),
            QueueFeatures { indirect: false },
            kick,
            waker,
        );
        (SharedQueue::new(queue), device, own, others)
    }

    fn exchange(
        queue: &SharedQueue,
        unique: u64,
        patience: Duration,
    ) -> Result<u64, ExchangeError> {
        let request = RequestBuilder::new(Opcode::Statfs, Unique(unique), NodeId::ROOT).finish();
        let shape = Shape::of(&request);
        let deadline = Some(Instant::now() + patience);
        let mut reply = Vec::new();
        let parts = Parts::of(&request, &shape);
        queue.exchange(&parts, shape.reply, deadline, &mut reply)?;
        Ok(Reply::parse(&reply).unwrap().unique.0)
    }

    #[test]
    fn every_thread_gets_its_own_reply() {
        const THREADS: u64 = 8;
        const EACH: u64 = 500;
        let (queue, mut device, _own, _others) = ground();
        let queue = &queue;
        std::thread::scope(|scope| {
            scope.spawn(move || device.serve((THREADS * EACH) as usize));
            for thread in 0..THREADS {
                scope.spawn(move || {
                    for number in 0..EACH {
                        let unique = thread * EACH + number + 1;
                        let answered = exchange(queue, unique, Duration::from_secs(60));
                        assert_eq!(answered.unwrap(), unique);
                    }
                });
            }
        });
    }

    #[test]
    fn every_waiting_thread_gets_its_timeout() {
        let (queue, _device, _own, _others) = ground();
        let queue = &queue;
        std::thread::scope(|scope| {
            // More threads than buffers.
            for unique in 0..5 {
                scope.spawn(move || {
                    let late = exchange(queue, unique, Duration::from_millis(30));
                    assert!(matches!(late, Err(ExchangeError::Late)));
                });
            }
        });
    }

    #[test]
    fn every_waiting_thread_fails_when_the_server_disconnects() {
        let (queue, _device, _own, others) = ground();
        let queue = &queue;
        std::thread::scope(|scope| {
            for unique in 0..5 {
                scope.spawn(move || {
                    let gone = exchange(queue, unique, Duration::from_secs(60));
                    assert!(matches!(gone, Err(ExchangeError::Queue(QueueError::Gone))));
                });
            }
            std::thread::sleep(Duration::from_millis(30));
            drop(others);
        });
    }
}
