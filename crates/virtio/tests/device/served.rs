//! A guest that sends requests as a kernel does, to a file system in memory.

use crate::ground::{
    ALL_FEATURES, Guest, SLOW, Serving, connect, count, end, error_of, forgotten, memory, serve,
    sessions,
};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;
use thrufs::{InitFlags, LowerFile, NoWait, Opcode};
use thrufs_abi::Reply;
use thrufs_abi::layout::{AttrOut, EntryOut, ForgetIn, LkIn, WriteOut};
use thrufs_testing::memory::{File, Files, MemoryFs};
use thrufs_testing::wait_until;
use thrufs_virtio::{DeviceConfig, DeviceError, DeviceHandle, MakeFileSystem, Served};
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;

fn config() -> DeviceConfig {
    DeviceConfig {
        request_queues: NonZeroU16::new(2).unwrap(),
        drain_timeout: Duration::from_secs(5),
        ..DeviceConfig::default()
    }
}

/// A device with a file system in memory, and a guest that has sent INIT.
fn begin() -> (Arc<Files>, Serving, Guest, DeviceHandle) {
    begin_with(config())
}

fn begin_with(config: DeviceConfig) -> (Arc<Files>, Serving, Guest, DeviceHandle) {
    let files = memory(|_| ());
    let (device, serving, mut guest) = serve(sessions(&files), config, ALL_FEATURES);
    guest.init().unwrap();
    (files, serving, guest, device.handle())
}

/// Submits a SETLKW for a lock that is never released, and waits until it blocks.
fn wait_for_lock(guest: &mut Guest, device: &DeviceHandle, queue: usize) -> u16 {
    let request = guest.request(Opcode::Setlkw, 2).arg(&LkIn::default());
    let head = guest.submit(queue, &request.finish(), 16);
    wait_until("a lock wait", || device.metrics().lock_waiters > 0);
    head
}

fn lookup(guest: &mut Guest, name: &str) -> Result<EntryOut, i32> {
    let request = guest.request(Opcode::Lookup, 1).name(name.as_bytes());
    let entry: EntryOut = guest.ask(request)?;
    // A negative entry.
    if entry.nodeid == 0 {
        return Err(libc_enoent());
    }
    Ok(entry)
}

/// Submits a read that blocks until the gate opens.
fn submit_slow(guest: &mut Guest, queue: usize, node: u64) -> u16 {
    let request = guest.read_request(node, SLOW.0, 0, 100);
    guest.submit(queue, &request, 116)
}

/// Submits a lookup of the file, with this much room for the reply.
fn submit_lookup(guest: &mut Guest, queue: usize, room: usize) -> u16 {
    let request = guest.request(Opcode::Lookup, 1).name(b"file").finish();
    guest.submit(queue, &request, room)
}

fn read(guest: &mut Guest, node: u64, fh: u64, offset: u64, size: u32) -> Vec<u8> {
    let request = guest.read_request(node, fh, offset, size);
    let reply = guest.transact(2, &request, 16 + size as usize);
    let reply = Reply::parse(&reply).unwrap();
    assert_eq!(reply.error, 0);
    reply.body.to_vec()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// Names, data and attributes, on two queues.
fn make_write_and_read(guest: &mut Guest) {
    assert_eq!(lookup(guest, "file").unwrap_err(), libc_enoent());
    let (node, fh) = guest.create("file");
    assert_eq!(lookup(guest, "file").unwrap().nodeid, node);
    let data = pattern(70_001);
    let request = guest.write_request(node, fh, 3, &data);
    let out: WriteOut = guest.ask(request).unwrap();
    assert_eq!(out.size as usize, data.len());
    let request = guest.getattr(node);
    let attr: AttrOut = guest.ask(request).unwrap();
    assert_eq!(attr.attr.size as usize, data.len() + 3);
    let seen = read(guest, node, fh, 0, 80_000);
    assert_eq!(&seen[..3], &[0; 3]);
    assert!(seen[3..] == data, "what was written is read");
    assert_eq!(read(guest, node, fh, 70_000, 4096), data[69_997..]);
    assert_eq!(read(guest, node, fh, 100_000, 4096), b"");
    let forget = ForgetIn { nlookup: 2 };
    let request = guest.request(Opcode::Forget, node).arg(&forget).finish();
    let head = guest.submit(0, &request, 0);
    assert_eq!(guest.next_used(0), (head, 0), "no reply");
}

fn libc_enoent() -> i32 {
    rustix::io::Errno::NOENT.raw_os_error()
}

#[test]
fn memory_is_served() {
    let (files, serving, mut guest, _) = begin();
    make_write_and_read(&mut guest);
    end(serving, guest);
    assert_eq!(forgotten(&files), count(&files.entries) as u64);
    assert_eq!(count(&files.destroyed), 1);
}

#[test]
fn without_the_event_index() {
    let files = memory(|_| ());
    let features = ALL_FEATURES & !(1 << 29);
    let (_, serving, mut guest) = serve(sessions(&files), config(), features);
    guest.init().unwrap();
    make_write_and_read(&mut guest);
    end(serving, guest);
}

#[test]
fn io_uring_and_passthrough_are_withheld_from_guests() {
    let files = memory(|_| ());
    let (_, serving, mut guest) = serve(sessions(&files), config(), ALL_FEATURES);
    let out = guest.init().unwrap();
    let flags = u64::from(out.flags) | u64::from(out.flags2) << 32;
    let agreed = InitFlags::from_bits_retain(flags);
    let never = InitFlags::OVER_IO_URING | InitFlags::PASSTHROUGH;
    assert!(!agreed.intersects(never), "{agreed:?}");
    assert!(agreed.contains(InitFlags::POSIX_LOCKS));
    assert_eq!((out.map_alignment, out.max_stack_depth), (0, 0));
    let offered = *files.offered.lock().unwrap();
    assert!(!offered.intersects(never) && offered.contains(InitFlags::SUBMOUNTS));
    end(serving, guest);
}

#[test]
fn requests_outside_a_session_fail_with_eio() {
    let files = memory(|_| ());
    let (_, serving, mut guest) = serve(sessions(&files), config(), ALL_FEATURES);
    assert_eq!(lookup(&mut guest, "file").unwrap_err(), 5);
    let forget = ForgetIn { nlookup: 2 };
    let request = guest.request(Opcode::Forget, 1).arg(&forget).finish();
    let head = guest.submit(0, &request, 0);
    assert_eq!(guest.next_used(0), (head, 0));
    guest.init().unwrap();
    assert_eq!(lookup(&mut guest, "file").unwrap_err(), libc_enoent());
    let request = guest.request(Opcode::Destroy, 0);
    guest.tell(request).unwrap();
    assert_eq!(lookup(&mut guest, "file").unwrap_err(), 5);
    guest.init().unwrap();
    assert_eq!(count(&files.destroyed), 1);
    assert_eq!(lookup(&mut guest, "file").unwrap_err(), libc_enoent());
    end(serving, guest);
    assert_eq!(count(&files.made), 2);
    assert_eq!(count(&files.destroyed), 2);
}

#[test]
fn another_init_begins_a_session_without_the_files_of_the_last() {
    let (files, serving, mut guest, device) = begin();
    let (node, fh) = guest.create("file");
    let head = wait_for_lock(&mut guest, &device, 2);
    guest.init().unwrap();
    // The lock wait was ended before the next session began.
    let (used, length) = guest.next_used(2);
    assert_eq!(used, head);
    assert_eq!(error_of(&guest.reply(2, head, length)), 107);
    assert_eq!(lookup(&mut guest, "file").unwrap_err(), libc_enoent());
    let request = guest.read_request(node, fh, 0, 100);
    let reply = guest.transact(1, &request, 116);
    assert_eq!(error_of(&reply), 116, "ESTALE: another file system");
    end(serving, guest);
    assert_eq!(count(&files.destroyed), 2);
}

#[test]
fn one_device_serves_several_guests_in_turn() {
    let files = memory(|_| ());
    let (device, serving, mut guest) = serve(sessions(&files), config(), ALL_FEATURES);
    guest.init().unwrap();
    make_write_and_read(&mut guest);
    end(serving, guest);
    let (serving, mut guest) = connect(&device, &config(), ALL_FEATURES);
    guest.init().unwrap();
    make_write_and_read(&mut guest);
    end(serving, guest);
    assert_eq!(count(&files.destroyed), 2);
    let lookups = device.handle().metrics();
    assert_eq!(lookups.operation(Opcode::Lookup).unwrap().requests(), 4);
}

#[test]
fn shutdown_ends_serving_and_the_session() {
    let files = memory(|_| ());
    let (device, serving, mut guest) = serve(sessions(&files), config(), ALL_FEATURES);
    guest.init().unwrap();
    wait_for_lock(&mut guest, &device.handle(), 1);
    device.handle().shutdown();
    assert_eq!(serving.join().unwrap().unwrap(), Served::ShutDown);
    assert_eq!(count(&files.destroyed), 1);
    let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    assert_eq!(device.serve(ours).unwrap(), Served::ShutDown);
}

fn lookup_on(guest: &mut Guest, queue: usize, name: &str) -> u64 {
    let request = guest
        .request(Opcode::Lookup, 1)
        .name(name.as_bytes())
        .finish();
    let reply = guest.transact(queue, &request, 4096);
    let entry: EntryOut = Reply::parse(&reply).unwrap().structure().unwrap();
    entry.nodeid
}

#[test]
fn file_data_are_read_and_written_in_guest_memory() {
    for no_wait in [NoWait::Memory, NoWait::Supported, NoWait::Unsupported] {
        let (files, serving, mut guest, _) = begin();
        let lower = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&lower, &pattern(50_000), 0).unwrap();
        let lower = Some(Arc::new(LowerFile::new(lower.into(), no_wait)));
        files.put(
            "file",
            File {
                lower,
                ..File::with(b"")
            },
        );
        let (node, fh) = (lookup(&mut guest, "file").unwrap().nodeid, 0);
        assert!(read(&mut guest, node, fh, 1, 60_000) == pattern(50_000)[1..]);
        let request = guest.write_request(node, fh, 49_999, &[7; 10_000]);
        let out: WriteOut = guest.ask(request).unwrap();
        assert_eq!(out.size, 10_000);
        let seen = read(&mut guest, node, fh, 49_998, 3);
        assert_eq!(seen, [pattern(50_000)[49_998], 7, 7]);
        end(serving, guest);
    }
}

#[test]
fn a_queue_is_stopped_and_started_again() {
    let (_, serving, mut guest, device) = begin();
    let (node, _) = guest.create("file");
    let lock = wait_for_lock(&mut guest, &device, 1);
    let base = guest.front_end.get_vring_base(1).unwrap();
    assert_eq!(base, u32::from(guest.queues[1].available));
    // Requests wait while the queue is stopped.
    let head = submit_lookup(&mut guest, 1, 4096);
    assert_eq!(guest.next_used_within(1, Duration::from_millis(30)), None);
    guest.start_queue(1, base as u16);
    let (used, length) = guest.next_used(1);
    assert_eq!(used, head);
    let entry: EntryOut = Reply::parse(&guest.reply(1, head, length))
        .unwrap()
        .structure()
        .unwrap();
    assert_eq!(entry.nodeid, node);
    // A lock wait from before is answered after.
    let request = guest.request(Opcode::Destroy, 0).finish();
    guest.transact(2, &request, 16);
    let (used, length) = guest.next_used(1);
    assert_eq!(used, lock);
    assert_eq!(error_of(&guest.reply(1, lock, length)), 107);
    end(serving, guest);
}

#[test]
fn stopping_a_queue_waits_for_requests_but_not_for_lock_waits() {
    let (files, serving, mut guest, device) = begin();
    let (node, _) = guest.create("file");
    let head = submit_slow(&mut guest, 1, node);
    wait_until("blocked", || device.metrics().blocked == 1);
    let gate = Arc::clone(&files);
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        gate.gate.open();
    });
    guest.front_end.get_vring_base(1).unwrap();
    let used = guest.next_used_within(1, Duration::ZERO);
    assert_eq!(
        used,
        Some((head, 16)),
        "answered before the queue has stopped"
    );
    opener.join().unwrap();
    end(serving, guest);
}

#[test]
fn at_the_limits_of_blocked_requests_queues_block_and_locks_fail() {
    let config = DeviceConfig {
        blocked_max: 1,
        lock_waiters_max: 1,
        ..config()
    };
    let (files, serving, mut guest, device) = begin_with(config);
    let (node, _) = guest.create("file");
    wait_for_lock(&mut guest, &device, 2);
    let request = guest.request(Opcode::Setlkw, 2).arg(&LkIn::default());
    let reply = guest.transact(1, &request.finish(), 16);
    assert_eq!(error_of(&reply), 37, "ENOLCK");
    // The second one blocks the queue's thread.
    for _ in 0..2 {
        submit_slow(&mut guest, 1, node);
    }
    wait_until("blocked inline", || device.metrics().blocked_inline == 1);
    submit_lookup(&mut guest, 1, 4096);
    assert_eq!(guest.next_used_within(1, Duration::from_millis(30)), None);
    assert_eq!(lookup_on(&mut guest, 2, "file"), node, "another queue");
    files.gate.open();
    for _ in 0..3 {
        guest.next_used(1);
    }
    let counts = device.metrics();
    assert_eq!(counts.lock_waiters_refused, 1);
    end(serving, guest);
}

#[test]
fn requests_that_never_end_are_reported_as_stuck() {
    let config = DeviceConfig {
        drain_timeout: Duration::from_millis(100),
        ..config()
    };
    let (files, serving, mut guest, device) = begin_with(config);
    let (node, _) = guest.create("file");
    submit_slow(&mut guest, 2, node);
    wait_until("blocked", || device.metrics().blocked == 1);
    let refused = guest.init().unwrap_err();
    assert_eq!(refused, 16, "EBUSY: one session at a time");
    drop(guest);
    let served = serving.join().unwrap();
    assert!(matches!(served, Err(DeviceError::Stuck(1))), "{served:?}");
    assert_eq!(count(&files.destroyed), 0);
    files.gate.open();
    wait_until("destroyed", || count(&files.destroyed) == 1);
    assert_eq!(count(&files.made), 1);
}

#[test]
fn a_disabled_queue_serves_nothing() {
    let (_, serving, mut guest, _) = begin();
    guest.front_end.set_vring_enable(2, false).unwrap();
    let head = submit_lookup(&mut guest, 2, 4096);
    assert_eq!(guest.next_used_within(2, Duration::from_millis(30)), None);
    guest.front_end.set_vring_enable(2, true).unwrap();
    assert_eq!(guest.next_used(2), (head, 16));
    end(serving, guest);
}

#[test]
fn a_reset_ends_the_session_and_keeps_the_device_usable() {
    let (files, serving, mut guest, _) = begin();
    guest.create("file");
    guest.front_end.reset_device().unwrap();
    assert_eq!(count(&files.destroyed), 1);
    for queue in 0..3 {
        let (available, used) = (guest.queues[queue].available, guest.queues[queue].used);
        assert_eq!(available, used);
        guest.start_queue(queue, available);
    }
    assert_eq!(lookup(&mut guest, "file").unwrap_err(), 5);
    guest.init().unwrap();
    assert_eq!(lookup(&mut guest, "file").unwrap_err(), libc_enoent());
    end(serving, guest);
}

#[test]
fn regions_are_added_and_removed_while_queues_run() {
    let (_, serving, mut guest, _) = begin();
    let more = rustix::fs::memfd_create("more", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&more, 0x1000).unwrap();
    let mut region = guest.region();
    region.guest_phys_addr = 0x1000;
    region.userspace_addr = 0x1000;
    region.memory_size = 0x1000;
    region.mmap_handle = std::os::fd::AsRawFd::as_raw_fd(&more);
    let request = guest.request(Opcode::Lookup, 1).name(b"file").finish();
    let ask = |guest: &mut Guest| {
        guest.put(1, 0x8000, &request);
        let (question, reply) = (guest.guest_address(1, 0x8000), 0x1100);
        guest.descriptor(1, 15 * 16, question, request.len() as u32, 1, 14);
        guest.descriptor(1, 14 * 16, reply, 200, 2, 0);
        guest.offer(1, 15);
        guest.next_used(1)
    };
    assert_eq!(ask(&mut guest), (15, 0), "no such memory");
    guest.front_end.add_mem_region(&region).unwrap();
    assert_eq!(ask(&mut guest), (15, 16));
    let mut reply = [0; 16];
    rustix::io::pread(&more, &mut reply, 0x100).unwrap();
    assert_eq!(error_of(&reply), libc_enoent());
    guest.front_end.remove_mem_region(&region).unwrap();
    assert_eq!(ask(&mut guest), (15, 0));
    end(serving, guest);
}

#[test]
fn a_reply_without_room_is_undone() {
    let (files, serving, mut guest, _) = begin();
    guest.create("file");
    let lookups = count(&files.entries);
    for (room, length) in [(0, 0), (15, 0), (16, 16), (100, 16)] {
        let head = submit_lookup(&mut guest, 1, room);
        assert_eq!(guest.next_used(1), (head, length));
        if length > 0 {
            assert_eq!(error_of(&guest.reply(1, head, length)), 5);
        }
    }
    assert_eq!(count(&files.entries), lookups + 4);
    assert_eq!(forgotten(&files), 4);
    end(serving, guest);
}

#[test]
fn malformed_requests_are_returned() {
    let (_, serving, mut guest, device) = begin();
    // A loop.
    let address = guest.guest_address(1, 0);
    guest.descriptor(1, 7 * 16, address, 8, 1, 7);
    guest.offer(1, 7);
    assert_eq!(guest.next_used(1), (7, 0));
    // No bytes, half a header, and a header with a wrong length.
    for request in [&[][..], &[1; 20], &[255; 40]] {
        let head = guest.submit(1, request, 100);
        let (used, length) = guest.next_used(1);
        assert_eq!(used, head);
        assert!(length == 0 || length == 16, "{length}");
    }
    assert!(device.metrics().malformed >= 3);
    // WRITEs with less and with more data than announced.
    let (node, fh) = guest.create("file");
    for change in [-1_i32, 1] {
        let mut request = guest.write_request(node, fh, 0, &[1; 100]).finish();
        request.resize((request.len() as i32 + change) as usize, 1);
        let reply = guest.transact(1, &request, 100);
        assert_eq!(error_of(&reply), 22);
    }
    assert_eq!(read(&mut guest, node, fh, 0, 10), b"");
    end(serving, guest);
}

#[test]
fn a_broken_queue_is_reported_and_others_are_served() {
    let (_, serving, mut guest, _) = begin();
    guest.set_available(1, guest.queues[1].available.wrapping_add(1000));
    assert!(guest.error_reported(1));
    let request = guest.request(Opcode::Lookup, 1).name(b"file").finish();
    let reply = guest.transact(2, &request, 100);
    assert_eq!(error_of(&reply), libc_enoent());
    let base = guest.front_end.get_vring_base(1).unwrap();
    guest.queues[1].available = base as u16;
    guest.set_available(1, base as u16);
    guest.start_queue(1, base as u16);
    assert_eq!(lookup(&mut guest, "file").unwrap_err(), libc_enoent());
    end(serving, guest);
}

#[test]
fn invalid_messages_of_front_ends_are_refused() {
    let refused = |ask: fn(&mut Guest)| {
        let files = memory(|_| ());
        let (_, serving, mut guest) = serve(sessions(&files), config(), ALL_FEATURES);
        ask(&mut guest);
        drop(guest);
        let served = serving.join().unwrap();
        assert!(
            matches!(served, Err(DeviceError::Protocol(_))),
            "{served:?}"
        );
    };
    refused(|guest| assert!(guest.front_end.set_features(1 << 5).is_err()));
    refused(|guest| {
        guest.front_end.get_vring_base(1).unwrap();
        assert!(guest.front_end.set_vring_num(1, 2048).is_err());
    });
    refused(|guest| assert!(guest.front_end.set_vring_num(1, 8).is_err(), "it runs"));
    refused(|guest| {
        let mut region = guest.region();
        region.memory_size += 1 << 40;
        assert!(guest.front_end.set_mem_table(&[region]).is_err());
    });
    refused(|guest| {
        let region = guest.region();
        assert!(
            guest.front_end.add_mem_region(&region).is_err(),
            "it overlaps"
        );
    });
}

#[test]
fn init_fails_when_no_file_system_is_made() {
    struct None;
    impl MakeFileSystem for None {
        type FileSystem = MemoryFs;
        fn make(&self) -> std::io::Result<Arc<MemoryFs>> {
            Err(std::io::ErrorKind::PermissionDenied.into())
        }
    }
    let (_, serving, mut guest) = serve(None, config(), ALL_FEATURES);
    // EACCES, as it was made.
    assert_eq!(guest.init().unwrap_err(), 13);
    end(serving, guest);
}
