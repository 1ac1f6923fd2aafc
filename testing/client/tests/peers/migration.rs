//! Live migration of a front end from one server to another.

use std::io;
use std::num::NonZeroU16;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thrufs::layout::{LkIn, ReadIn};
use thrufs::{FileHandle, InitFlags, NodeId, Opcode};
use thrufs_client::{
    Client, FIRST_REQUEST_QUEUE, FrontEnd, FrontEndConfig, GuestMemory, MigrateError,
};
use thrufs_testing::memory::{Files, MemoryFs, Settings};
use thrufs_testing::wait_until;
use thrufs_virtio::{Device, DeviceConfig, DeviceError, DeviceHandle, MakeFileSystem, Served};

const ROOT: NodeId = NodeId::ROOT;
const READ_WRITE: i32 = 2;
const BOTH: [GuestMemory; 2] = [GuestMemory::Shared, GuestMemory::Copied { rounds: 2 }];

/// A server with a device of its own, as in another process.
struct Server {
    handle: DeviceHandle,
    thread: Option<JoinHandle<Result<Served, DeviceError>>>,
}

impl Server {
    fn start(make: impl MakeFileSystem, queues: u16) -> (Server, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let config = DeviceConfig {
            request_queues: NonZeroU16::new(queues).unwrap(),
            ..DeviceConfig::default()
        };
        let device = Device::new(make, config).unwrap();
        let server = Server {
            handle: device.handle(),
            thread: Some(std::thread::spawn(move || device.serve(theirs))),
        };
        (server, ours)
    }

    /// Once the front end is gone.
    fn end(mut self) -> Result<Served, DeviceError> {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.handle.shutdown();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// READs by this handle wait for the gate.
const SLOW: FileHandle = FileHandle(99);

/// What all servers share.
fn tree() -> Arc<Files> {
    Files::new(Settings {
        wants: InitFlags::POSIX_LOCKS,
        hook: Some(Box::new(|asked| match asked.handle {
            SLOW => asked.wait(),
            _ => Ok(()),
        })),
        ..Settings::default()
    })
}

fn sessions(files: &Arc<Files>) -> impl Fn() -> io::Result<Arc<MemoryFs>> + Send + Sync + use<> {
    let files = Arc::clone(files);
    move || Ok(Arc::new(files.serve()))
}

fn config(queues: u16) -> FrontEndConfig {
    FrontEndConfig {
        request_queues: queues,
        requests_max: 32,
        data_bytes_max: 64 << 10,
        ..FrontEndConfig::default()
    }
}

fn mount(files: &Arc<Files>, queues: u16) -> (Server, Client<FrontEnd>) {
    let (server, stream) = Server::start(sessions(files), queues);
    let front_end = FrontEnd::over(stream, &config(queues)).unwrap();
    (server, Client::mount(front_end).unwrap())
}

/// Opens the latches when dropped, also after a failure.
struct Opens<'a>(&'a Files);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        self.0.gate.open();
        self.0.lock.release();
    }
}

/// Bytes without repetition, by number.
fn pattern(number: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|at| (at * 31 + at / 251 + number * 7) as u8)
        .collect()
}

fn read_request(client: &Client<FrontEnd>, node: NodeId, fh: u64, size: u32) -> Vec<u8> {
    let arg = ReadIn {
        fh,
        size,
        ..ReadIn::default()
    };
    client.root().request(Opcode::Read, node).arg(&arg).finish()
}

/// The source answers while its queues are stopped, after the memory was copied: a write that is not logged
/// would be lost.
#[test]
fn replies_not_collected_yet_are_migrated() {
    for memory in BOTH {
        let files = tree();
        let (_source, client) = mount(&files, 1);
        let root = client.root();
        let (entry, open) = root.create(ROOT, b"file", READ_WRITE, 0o644).unwrap();
        let node = NodeId(entry.nodeid);
        let bytes = pattern(1, 20_000);
        root.write(node, open.fh, 0, &bytes, 0).unwrap();
        let mut queue = client.carrier().queue(FIRST_REQUEST_QUEUE).unwrap();
        for _ in 0..16 {
            let request = read_request(&client, node, SLOW.0, 20_000);
            queue.submit_request(&request).unwrap();
        }
        queue.notify().unwrap();
        drop(queue);
        let (_destination, stream) = Server::start(sessions(&files), 1);
        let moved = std::thread::scope(|scope| {
            let opens = Opens(&files);
            scope.spawn(move || {
                std::thread::sleep(Duration::from_secs(2));
                drop(opens);
            });
            client.carrier().migrate_over(stream, memory).unwrap()
        });
        assert_eq!(moved.requests_in_flight, 16);
        if memory != GuestMemory::Shared {
            assert!(moved.logged_pages > 16 * 4, "{}", moved.logged_pages);
        }
        let mut queue = client.carrier().queue(FIRST_REQUEST_QUEUE).unwrap();
        let mut reply = Vec::new();
        while queue.in_flight() > 0 {
            let end = Some(Instant::now() + Duration::from_secs(60));
            assert!(queue.wait(end).unwrap());
            while let Some(completion) = queue.poll().unwrap() {
                queue.copy_reply(&completion, &mut reply);
                assert_eq!(reply[16..], bytes);
                queue.free(completion);
            }
        }
    }
}

fn wait_for_lock(client: &Client<FrontEnd>, node: NodeId) -> i32 {
    let request = client.root().request(Opcode::Setlkw, node);
    let reply = client.transact(&request.arg(&LkIn::default()).finish());
    let reply = reply.expect("an answer");
    thrufs_abi::Reply::parse(&reply).unwrap().error
}

fn lock_waits(files: &Files, count: usize) {
    wait_until("waiting for the lock", || files.lock.waiting() == count);
}

#[test]
fn a_lock_wait_continues_at_the_destination() {
    for memory in BOTH {
        let files = tree();
        let (source, client) = mount(&files, 2);
        let (entry, _) = client
            .root()
            .create(ROOT, b"file", READ_WRITE, 0o644)
            .unwrap();
        let node = NodeId(entry.nodeid);
        std::thread::scope(|scope| {
            let opens = Opens(&files);
            let waits: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| wait_for_lock(&client, node)))
                .collect();
            lock_waits(&files, 3);
            let (destination, stream) = Server::start(sessions(&files), 2);
            client.carrier().migrate_over(stream, memory).unwrap();
            assert_eq!(source.end().unwrap(), Served::Disconnected);
            lock_waits(&files, 3);
            assert!(waits.iter().all(|wait| !wait.is_finished()));
            assert_eq!(destination.handle.metrics().lock_waiters, 3);
            drop(opens);
            for wait in waits {
                assert_eq!(wait.join().unwrap(), 0);
            }
            assert_eq!(files.lock.granted(), 3);
            drop(client.carrier().queue(FIRST_REQUEST_QUEUE));
            assert_eq!(client.root().getattr(node).unwrap().attr.size, 0);
            drop(destination);
        });
    }
}

#[test]
fn a_failed_migration_leaves_the_guest_and_its_lock_wait_at_the_source() {
    let files = tree();
    let (source, client) = mount(&files, 1);
    let (entry, open) = client
        .root()
        .create(ROOT, b"file", READ_WRITE, 0o644)
        .unwrap();
    let node = NodeId(entry.nodeid);
    let copied = GuestMemory::Copied { rounds: 1 };
    let migrate = |stream| client.carrier().migrate_over(stream, copied);
    std::thread::scope(|scope| {
        let opens = Opens(&files);
        let wait = scope.spawn(|| wait_for_lock(&client, node));
        lock_waits(&files, 1);
        // Another number of queues; a source that does not save; a destination with another INIT.
        let (_other, stream) = Server::start(sessions(&files), 2);
        drop(stream);
        files.stays.store(true, Ordering::SeqCst);
        let (_other, stream) = Server::start(sessions(&files), 1);
        assert!(matches!(migrate(stream), Err(MigrateError::Save(_))));
        files.stays.store(false, Ordering::SeqCst);
        lock_waits(&files, 1);
        let stubborn = tree();
        stubborn.stays.store(true, Ordering::SeqCst);
        let (_other, stream) = Server::start(sessions(&stubborn), 1);
        assert!(matches!(migrate(stream), Err(MigrateError::Load(_))));
        lock_waits(&files, 1);
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(matches!(migrate(ours), Err(MigrateError::Destination(_))));
        let bytes = pattern(3, 5000);
        assert_eq!(client.root().write(node, open.fh, 0, &bytes, 0), Ok(5000));
        assert_eq!(client.root().read(node, open.fh, 0, 5000).unwrap(), bytes);
        assert!(!wait.is_finished());
        drop(opens);
        assert_eq!(wait.join().unwrap(), 0);
    });
    assert_eq!(source.handle.metrics().malformed, 0);
    client.unmount();
    assert_eq!(source.end().unwrap(), Served::Disconnected);
}
