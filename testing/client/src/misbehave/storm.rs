//! Random attacks of a hostile guest or front end, reproducible by a seed.
//!
//! An [`episode`] is one connection with one kind of attack. [`Session`] sends plausible requests: known
//! operations on existing nodes and handles, with arguments that no kernel would send.

mod session;

pub use session::Session;

use super::socket::{RawMessage, is_closed};
use crate::front_end::{ConnectError, FIRST_REQUEST_QUEUE, FrontEnd, FrontEndConfig};
use rustix::fs::{MemfdFlags, SealFlags};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use thrufs_sys::fd_passing;
use thrufs_testing::{Client, Random};

fn config(random: &mut Random) -> FrontEndConfig {
    FrontEndConfig {
        request_queues: random.pick(&[1, 1, 2, 4]),
        queue_size: random.pick(&[16, 128, 1024]),
        requests_max: random.pick(&[1, 8, 64]),
        indirect_descriptors: !random.once_in(3),
        event_index: !random.once_in(3),
        time_limit: Some(Duration::from_secs(20)),
        ..FrontEndConfig::default()
    }
}

/// One kind of attack. `None` when the server has closed the connection.
type Harm = fn(&Path, &mut Random) -> Option<()>;

/// Connects, attacks and disconnects. Returns the name of the attack. The server may refuse it.
pub fn episode(socket: &Path, random: &mut Random) -> &'static str {
    let kinds: &[(&str, Harm)] = &[
        ("requests", requests),
        ("requests", requests),
        ("messages", messages),
        ("messages in a session", messages_in_a_session),
        ("leaving during the handshake", leave),
        ("leaving with requests in flight", vanish),
    ];
    let (name, harm) = random.pick(kinds);
    let _ = harm(socket, random);
    name
}

fn requests(socket: &Path, random: &mut Random) -> Option<()> {
    let client = Client::mount(FrontEnd::connect(socket, &config(random)).ok()?).ok()?;
    let mut session = Session::new();
    for _ in 0..random.below(10) {
        session.burst(client.carrier(), random)?;
    }
    if random.once_in(2) {
        client.unmount();
    }
    Some(())
}

fn vanish(socket: &Path, random: &mut Random) -> Option<()> {
    let client = Client::mount(FrontEnd::connect(socket, &config(random)).ok()?).ok()?;
    let mut session = Session::new();
    let mut queue = client.carrier().queue(FIRST_REQUEST_QUEUE)?;
    for _ in 0..random.below(64) {
        let request = session.request(random);
        if queue.submit_request(&request).is_err() {
            break;
        }
    }
    queue.notify().ok()?;
    if random.once_in(2) {
        std::thread::sleep(Duration::from_micros(random.number() % 3000));
    }
    Some(())
}

fn leave(socket: &Path, random: &mut Random) -> Option<()> {
    let config = config(random);
    // Seven before the queues, and two for each.
    let mut left = random.below(7 + 2 * (1 + usize::from(config.request_queues)));
    let mut watch = || {
        let goes_on = left.checked_sub(1).ok_or(ConnectError::Left);
        goes_on.map(|less| left = less)
    };
    FrontEnd::watched(UnixStream::connect(socket).ok()?, &config, &mut watch).ok()?;
    Some(())
}

fn messages(socket: &Path, random: &mut Random) -> Option<()> {
    send_messages(&UnixStream::connect(socket).ok()?, random)
}

fn messages_in_a_session(socket: &Path, random: &mut Random) -> Option<()> {
    let stream = UnixStream::connect(socket).ok()?;
    let own = stream.try_clone().ok()?;
    let client = Client::mount(FrontEnd::over(stream, &config(random)).ok()?).ok()?;
    let mut session = Session::new();
    session.burst(client.carrier(), random)?;
    send_messages(&own, random)?;
    session.burst(client.carrier(), random)
}

fn send_messages(stream: &UnixStream, random: &mut Random) -> Option<()> {
    stream
        .set_read_timeout(Some(Duration::from_millis(2)))
        .ok()?;
    stream
        .set_write_timeout(Some(Duration::from_secs(1)))
        .ok()?;
    let descriptors = descriptors()?;
    for _ in 0..random.below(20) {
        let message = message(random);
        let bytes = message.bytes();
        let cut = if random.once_in(10) {
            random.below(bytes.len() + 1)
        } else {
            bytes.len()
        };
        let count = random.pick(&[0, 0, 0, 1, 1, 2, 8, 64]);
        let with: Vec<_> = (0..count)
            .map(|_| descriptors[random.below(descriptors.len())].as_fd())
            .collect();
        fd_passing::send(stream.as_fd(), &bytes[..cut], &with).ok()?;
        if random.once_in(3) && is_closed(stream).ok()? {
            return None;
        }
    }
    Some(())
}

/// Descriptors of several kinds. Memory that is passed keeps its size: truncating it kills the server of this
/// front end (SIGBUS), which is known.
fn descriptors() -> Option<Vec<OwnedFd>> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create("storm", flags).ok()?;
    rustix::fs::ftruncate(&memory, 1 << 20).ok()?;
    rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK).ok()?;
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).ok()?;
    let (reader, writer) = rustix::pipe::pipe().ok()?;
    let null = File::open("/dev/null").ok()?.into();
    Some(vec![memory, event, reader, writer, null])
}

fn message(random: &mut Random) -> RawMessage {
    let numbers = 1 + random.below(12);
    let payload: Vec<u8> = (0..numbers)
        .flat_map(|_| session::number(random, &[]).to_ne_bytes())
        .collect();
    let length = random
        .pick(&[0, 8, 8, 12, 16, 40, payload.len()])
        .min(payload.len());
    let mut message = RawMessage::new(1 + random.below(46) as u32, &payload[..length]);
    message.flags = random.pick(&[1, 1, 1, 9, 9, 0, 5, 0xffff_ffff]);
    if random.once_in(10) {
        message.size = random.number() as u32;
    }
    message
}
