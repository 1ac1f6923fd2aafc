//! A queue of a hostile guest: its tables, and what they lead to, are anything.
//!
//! The bytes are the start of the guest's memory, where the queue is, and what is done to it between
//! rounds. Whatever they are: taking and giving back ends, chains are bounded and lie within memory, and
//! nothing beyond it changes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use thrufs_virtio::memory::{Region, Regions};
use thrufs_virtio::queue::{Chain, Layout, Ring, RingFeatures};

const GUEST: u64 = 0x1000;
const USER: u64 = 0x7f00_0000_0000;
/// What the guest has, between two pages that it does not have.
const MEMORY_BYTES: usize = 0x8000;
const PAGE: usize = 0x1000;
const SIZE: u16 = 16;
const AVAILABLE: u64 = 0x100;
const USED: u64 = 0x200;

struct Machine {
    memory: OwnedFd,
    regions: Arc<Regions>,
}

fn machine() -> Machine {
    let memory = memfd_create("guest", MemfdFlags::CLOEXEC).expect("memory");
    ftruncate(&memory, (MEMORY_BYTES + 2 * PAGE) as u64).expect("memory");
    // Two regions that touch, so that ranges may span them.
    let half = MEMORY_BYTES as u64 / 2;
    let map = |at| Region::map(GUEST + at, USER + at, half, &memory, PAGE as u64 + at);
    let regions = vec![map(0).expect("a mapping"), map(half).expect("a mapping")];
    let regions = Arc::new(Regions::new(regions).expect("they do not overlap"));
    Machine { memory, regions }
}

thread_local! {
    static MACHINE: Machine = machine();
}

/// What is written to the guest's memory between two looks, and where.
type Round = (u16, Vec<u8>);

fuzz_target!(|input: (&[u8], Vec<Round>, bool, bool, u16)| {
    let (start, rounds, event_index, indirect, base) = input;
    let features = RingFeatures {
        event_index,
        indirect,
    };
    MACHINE.with(|machine| serve(machine, start, &rounds, features, base));
});

fn serve(machine: &Machine, start: &[u8], rounds: &[Round], features: RingFeatures, base: u16) {
    let mut memory = vec![0; MEMORY_BYTES];
    let length = start.len().min(MEMORY_BYTES);
    memory[..length].copy_from_slice(&start[..length]);
    pwrite(&machine.memory, &memory, PAGE as u64).expect("memory");
    let layout = Layout {
        size: SIZE,
        descriptors: USER,
        available: USER + AVAILABLE,
        used: USER + USED,
    };
    let regions = Arc::clone(&machine.regions);
    let mut ring = Ring::new(regions, layout, features, base).expect("it is in memory");
    let mut chain = Chain::default();
    round(machine, &mut ring, &mut chain);
    for (at, bytes) in rounds.iter().take(16) {
        let at = usize::from(*at) % MEMORY_BYTES;
        let length = bytes.len().min(MEMORY_BYTES - at);
        pwrite(&machine.memory, &bytes[..length], (PAGE + at) as u64).expect("memory");
        round(machine, &mut ring, &mut chain);
    }
    for guard in [0, PAGE + MEMORY_BYTES] {
        let mut bytes = vec![1; PAGE];
        pread(&machine.memory, &mut bytes, guard as u64).expect("memory");
        assert!(bytes.iter().all(|&byte| byte == 0), "changed beyond memory");
    }
}

fn round(machine: &Machine, ring: &mut Ring, chain: &mut Chain) {
    let _ = ring.look_by_ourselves();
    let mut taken = 0;
    while let Ok(Some(head)) = ring.take() {
        assert!(head < SIZE);
        taken += 1;
        assert!(taken <= usize::from(u16::MAX), "no end of requests");
        let mut written = 0;
        if ring.read_chain(head, chain).is_ok() {
            assert!(chain.readable_bytes() <= 32 << 20 && chain.writable_bytes() <= 32 << 20);
            let mut request = [0; 4096];
            let copied = chain.readable(&machine.regions, 0).copy_to(&mut request);
            assert_eq!(copied, chain.readable_bytes().min(request.len()));
            let place = chain.writable(&machine.regions, 16, usize::MAX);
            written = place.copy_from(&request);
        }
        if ring.complete(head, written as u32).is_err() {
            return;
        }
        // The guest may make entries available without end.
        if taken > 64 {
            break;
        }
    }
    let _ = ring.must_tell();
    let _ = ring.ask_to_be_told();
}
