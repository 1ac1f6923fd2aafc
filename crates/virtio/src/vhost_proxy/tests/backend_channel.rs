use super::*;
use rustix::net::{RecvFlags, recv};
use std::io::{Read, Write};
use thrufs_sys::fd_passing;
use vhost::vhost_user::message::{BackendReq, VhostUserMMap};
use vhost::vhost_user::{Backend, VhostUserFrontendReqHandler};
use wire::{REPLY, VERSION};

pub(super) const MAP: u32 = BackendReq::SHMEM_MAP as u32;
const UNMAP: u32 = BackendReq::SHMEM_UNMAP as u32;

/// Both outer ends of a back-end channel.
pub(super) struct Ends {
    pub(super) front_end: UnixStream,
    pub(super) worker: UnixStream,
}

impl Play {
    /// A worker that has got all messages, and the channel among them, if there is one.
    pub(super) fn worker_with_channel(&self) -> (UnixStream, Option<UnixStream>) {
        let worker = self.worker();
        let messages = messages_of(&worker).into_iter();
        let mut channels = messages.filter(is_of_channel).map(channel_of);
        let channel = channels.next();
        assert!(channels.next().is_none(), "two channels");
        (worker, channel)
    }

    /// Gives the worker a channel.
    fn open(&self, worker: &UnixStream) -> Ends {
        let (front_end, passed) = UnixStream::pair().unwrap();
        self.say_channel(0, passed);
        Ends {
            front_end,
            worker: channel_of(hear(worker)),
        }
    }

    fn say_channel(&self, flags: u32, passed: UnixStream) {
        let passed = File::from(OwnedFd::from(passed));
        self.say_with(code::SET_BACKEND_REQ_FD, flags, &[0; 8], &[&passed]);
    }

    /// A message to the worker and its reply. What was sent on the back-end channel before has been read, or
    /// is not for now.
    fn ask(&self, worker: &UnixStream) {
        self.say(code::GET_QUEUE_NUM, &[], &[]);
        assert_eq!(hear(worker).request(), Some(code::GET_QUEUE_NUM));
        reply(worker, code::GET_QUEUE_NUM, &3_u64.to_le_bytes());
        let answer = hear(&self.front_end);
        assert_eq!(answer.request(), Some(code::GET_QUEUE_NUM));
    }
}

fn is_of_channel(message: &VhostMessage) -> bool {
    message.request() == Some(code::SET_BACKEND_REQ_FD)
}

fn channel_of(message: VhostMessage) -> UnixStream {
    assert!(is_of_channel(&message));
    let [file] = <[OwnedFd; 1]>::try_from(message.files).unwrap();
    UnixStream::from(file)
}

fn null() -> File {
    File::open("/dev/null").unwrap()
}

/// The body of a request for 4096 bytes at this offset of the window.
fn at(offset: u64) -> Vec<u8> {
    [0, 0, offset, 4096, 1].map(u64::to_le_bytes).concat()
}

fn bytes_of(code: u32, flags: u32, body: &[u8]) -> Vec<u8> {
    let header = [code, flags, body.len() as u32].map(u32::to_ne_bytes);
    [&header.concat(), body].concat()
}

fn send(stream: &UnixStream, bytes: &[u8], files: usize) {
    let null = null();
    let files = vec![null.as_fd(); files];
    assert_eq!(
        fd_passing::send(stream.as_fd(), bytes, &files),
        Ok(bytes.len())
    );
}

pub(super) fn map(stream: &UnixStream, offset: u64) {
    let request = bytes_of(MAP, VERSION | NEED_REPLY, &at(offset));
    send(stream, &request, 1);
}

/// Fills the buffer of the socket's peer, and returns the number of bytes.
fn fill(stream: &UnixStream) -> usize {
    let send = || fd_passing::send_now(stream.as_fd(), &[0; 512], &[]);
    std::iter::from_fn(|| send().ok()).sum()
}

pub(super) fn reply_to(stream: &UnixStream, code: u32, result: u64) {
    let reply = bytes_of(code, VERSION | REPLY, &result.to_le_bytes());
    send(stream, &reply, 0);
}

/// Hears a request of the proxy for this offset.
pub(super) fn hear_request(stream: &UnixStream, code: u32, offset: u64) {
    let request = hear(stream);
    assert_eq!((request.code, request.flags), (code, VERSION | NEED_REPLY));
    assert_eq!(request.body, at(offset));
    let files = request.files.iter().map(|file| {
        let attributes = rustix::fs::fstat(file).unwrap();
        (attributes.st_dev, attributes.st_ino)
    });
    let null = rustix::fs::fstat(null()).unwrap();
    let expected = vec![(null.st_dev, null.st_ino); usize::from(code == MAP)];
    assert_eq!(files.collect::<Vec<_>>(), expected);
}

fn hear_reply(stream: &UnixStream, code: u32, result: u64) {
    let reply = hear(stream);
    assert_eq!((reply.code, reply.u64_at(0)), (code, Some(result)));
}

/// A request and its reply pass.
fn maps(worker: &UnixStream, front_end: &UnixStream, offset: u64) {
    map(worker, offset);
    hear_request(front_end, MAP, offset);
    reply_to(front_end, MAP, 0);
    hear_reply(worker, MAP, 0);
}

/// A proxy with a worker that has a channel.
pub(super) fn opened() -> (Play, UnixStream, Ends) {
    let play = Play::new();
    let (worker, _) = play.worker_with_channel();
    let ends = play.open(&worker);
    (play, worker, ends)
}

fn is_silent(stream: &UnixStream) -> bool {
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    recv(stream, &mut [0; 1], flags) == Err(rustix::io::Errno::AGAIN)
}

/// Waits until the peer has closed the channel, which has nothing to read before.
fn assert_ends(mut stream: &UnixStream) {
    let limit = Duration::from_secs(60);
    stream.set_read_timeout(Some(limit)).unwrap();
    match stream.read(&mut [0; 1]) {
        Ok(bytes) => assert_eq!(bytes, 0),
        // It has not read all.
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
    }
}

#[test]
fn requests_of_the_worker_and_their_replies_pass() {
    let play = Play::new();
    let (worker, none) = play.worker_with_channel();
    assert!(none.is_none());
    let ends = play.open(&worker);
    map(&ends.worker, 1);
    hear_request(&ends.front_end, MAP, 1);
    let unmap = bytes_of(UNMAP, VERSION | NEED_REPLY, &at(2));
    send(&ends.worker, &unmap, 0);
    play.ask(&worker);
    assert!(is_silent(&ends.front_end), "the first has no reply yet");
    reply_to(&ends.front_end, MAP, 0);
    hear_reply(&ends.worker, MAP, 0);
    hear_request(&ends.front_end, UNMAP, 2);
    reply_to(&ends.front_end, UNMAP, 1);
    hear_reply(&ends.worker, UNMAP, 1);
}

#[test]
fn requests_of_the_vhost_crate_pass() {
    let (_play, _worker, ends) = opened();
    let backend = Backend::from_stream(ends.worker);
    backend.set_reply_ack_flag(true);
    backend.set_shmem_flag(true);
    let request = VhostUserMMap {
        shm_offset: 1,
        len: 4096,
        flags: 1,
        ..VhostUserMMap::default()
    };
    let sender = std::thread::spawn(move || {
        let mapped = backend.shmem_map(&request, &null()).is_ok();
        (mapped, backend.shmem_unmap(&request).is_ok())
    });
    hear_request(&ends.front_end, MAP, 1);
    reply_to(&ends.front_end, MAP, 0);
    hear_request(&ends.front_end, UNMAP, 1);
    reply_to(&ends.front_end, UNMAP, 1);
    assert_eq!(sender.join().unwrap(), (true, false));
}

#[test]
fn messages_that_arrive_in_parts_are_forwarded_whole() {
    let (play, worker, ends) = opened();
    let request = bytes_of(MAP, VERSION | NEED_REPLY, &at(1));
    let reply = bytes_of(MAP, VERSION | REPLY, &5_u64.to_le_bytes());
    // The descriptor comes with the header or with the body.
    for (at_header, at_body) in [(1, 0), (0, 1)] {
        send(&ends.worker, &request[..12], at_header);
        play.ask(&worker);
        assert!(is_silent(&ends.front_end));
        send(&ends.worker, &request[12..], at_body);
        hear_request(&ends.front_end, MAP, 1);
        send(&ends.front_end, &reply[..19], 0);
        play.ask(&worker);
        assert!(is_silent(&ends.worker));
        send(&ends.front_end, &reply[19..], 0);
        hear_reply(&ends.worker, MAP, 5);
    }
}

#[test]
fn a_late_reply_is_not_given_to_the_next_worker() {
    let play = Play::new();
    let (first, _) = play.worker_with_channel();
    let ends = play.open(&first);
    map(&ends.worker, 1);
    hear_request(&ends.front_end, MAP, 1);
    // Another of the dead worker, which was not sent.
    map(&ends.worker, 2);
    drop((first, ends.worker));
    let (second, channel) = play.worker_with_channel();
    let channel = channel.unwrap();
    map(&channel, 3);
    play.ask(&second);
    assert!(is_silent(&ends.front_end), "the old one has no reply yet");
    reply_to(&ends.front_end, MAP, 7);
    hear_request(&ends.front_end, MAP, 3);
    assert!(is_silent(&channel));
    reply_to(&ends.front_end, MAP, 0);
    hear_reply(&channel, MAP, 0);
}

#[test]
fn a_late_reply_is_discarded_while_there_is_no_worker() {
    let play = Play::new();
    let (first, _) = play.worker_with_channel();
    let ends = play.open(&first);
    map(&ends.worker, 1);
    hear_request(&ends.front_end, MAP, 1);
    drop(first);
    assert_ends(&ends.worker);
    reply_to(&ends.front_end, MAP, 7);
    let (_second, channel) = play.worker_with_channel();
    let channel = channel.unwrap();
    maps(&channel, &ends.front_end, 2);
}

#[test]
fn half_a_message_of_a_dead_worker_is_dropped() {
    let play = Play::new();
    let (mut worker, _) = play.worker_with_channel();
    let mut ends = play.open(&worker);
    let request = bytes_of(MAP, VERSION | NEED_REPLY, &at(1));
    for bytes in [1, 11, 12, 13, 51] {
        send(&ends.worker, &request[..bytes], 1);
        play.ask(&worker);
        drop((worker, ends.worker));
        let (next, channel) = play.worker_with_channel();
        (worker, ends.worker) = (next, channel.unwrap());
        assert!(is_silent(&ends.front_end));
        maps(&ends.worker, &ends.front_end, 2);
    }
}

#[test]
fn other_messages_of_a_worker_close_its_channel_and_do_not_reach_the_front_end() {
    let flags = VERSION | NEED_REPLY;
    let mut other_region = at(1);
    other_region[0] = 1;
    let request = at(1);
    let refused = [
        (MAP, flags, &request[..], 0),
        (MAP, flags, &request[..], 2),
        (UNMAP, flags, &request[..], 1),
        (MAP, VERSION, &request[..], 1),
        (MAP, flags | REPLY, &request[..], 1),
        (MAP, NEED_REPLY | 2, &request[..], 1),
        (MAP, flags | 16, &request[..], 1),
        (MAP, flags, &other_region[..], 1),
        (MAP, flags, &request[..39], 1),
        (MAP, flags, &[0; 48], 1),
        (UNMAP, flags, &[], 0),
        (UNMAP, flags, &[0; 4097], 0),
        (BackendReq::SHARED_OBJECT_ADD as u32, flags, &[0; 16], 0),
        (BackendReq::CONFIG_CHANGE_MSG as u32, flags, &[], 0),
        (11, flags, &request[..], 0),
    ];
    let play = Play::new();
    let (mut worker, _) = play.worker_with_channel();
    let mut ends = play.open(&worker);
    for (code, flags, body, files) in refused {
        send(&ends.worker, &bytes_of(code, flags, body), files);
        assert_ends(&ends.worker);
        play.ask(&worker);
        assert!(is_silent(&ends.front_end), "{code} {flags} {files}");
        drop((worker, ends.worker));
        let (next, channel) = play.worker_with_channel();
        (worker, ends.worker) = (next, channel.unwrap());
    }
    map(&ends.worker, 2);
    hear_request(&ends.front_end, MAP, 2);
}

#[test]
fn a_front_end_that_does_not_read_its_channel_does_not_delay_its_messages() {
    let play = Play::new();
    let (worker, _) = play.worker_with_channel();
    let (mut front_end, passed) = UnixStream::pair().unwrap();
    let mut filled = vec![0; fill(&passed)];
    play.say_channel(0, passed);
    let channel = channel_of(hear(&worker));
    map(&channel, 1);
    (0..3).for_each(|_| play.ask(&worker));
    drop((worker, channel));
    // It is sent whole all the same, and so is what follows.
    let (worker, channel) = play.worker_with_channel();
    map(channel.as_ref().unwrap(), 2);
    play.ask(&worker);
    front_end.read_exact(&mut filled).unwrap();
    hear_request(&front_end, MAP, 1);
    reply_to(&front_end, MAP, 0);
    hear_request(&front_end, MAP, 2);
}

#[test]
fn a_reply_to_a_request_that_was_not_sent_closes_the_channel() {
    let play = Play::new();
    let (worker, _) = play.worker_with_channel();
    let (front_end, passed) = UnixStream::pair().unwrap();
    fill(&passed);
    play.say_channel(0, passed);
    let channel = channel_of(hear(&worker));
    map(&channel, 1);
    play.ask(&worker);
    reply_to(&front_end, MAP, 0);
    assert_ends(&channel);
    play.ask(&worker);
}

#[test]
fn a_worker_that_does_not_read_its_replies_loses_its_channel() {
    let (play, worker, ends) = opened();
    let request = bytes_of(UNMAP, VERSION | NEED_REPLY, &at(1));
    let unread = (0..100_000).take_while(|_| {
        let _ = (&ends.worker).write(&request);
        play.ask(&worker);
        if is_silent(&ends.front_end) {
            return false;
        }
        hear_request(&ends.front_end, UNMAP, 1);
        reply_to(&ends.front_end, UNMAP, 0);
        true
    });
    let unread = unread.count();
    assert!((1..100_000).contains(&unread), "{unread}");
    play.ask(&worker);
}

#[test]
fn a_front_end_that_closes_its_channel_or_sends_no_reply_closes_that_of_the_worker() {
    let breaks: [&dyn Fn(UnixStream); 7] = [
        &drop,
        &|front_end| reply_to(&front_end, UNMAP, 0),
        &|front_end| send(&front_end, &bytes_of(MAP, VERSION, &[0; 8]), 0),
        &|front_end| send(&front_end, &bytes_of(MAP, VERSION | REPLY, &[0; 4]), 0),
        &|front_end| send(&front_end, &bytes_of(MAP, VERSION | REPLY, &[0; 8]), 1),
        &|front_end| send(&front_end, &bytes_of(MAP, REPLY, &[0; 8]), 0),
        &|front_end| {
            front_end.shutdown(Shutdown::Write).unwrap();
            assert_ends(&front_end);
        },
    ];
    for breaks in breaks {
        let (play, worker, ends) = opened();
        map(&ends.worker, 1);
        hear_request(&ends.front_end, MAP, 1);
        breaks(ends.front_end);
        assert_ends(&ends.worker);
        play.ask(&worker);
        drop(worker);
        let (_next, none) = play.worker_with_channel();
        assert!(none.is_none());
    }
    let (play, worker, ends) = opened();
    // Without a request.
    reply_to(&ends.front_end, MAP, 0);
    assert_ends(&ends.worker);
    assert_ends(&ends.front_end);
    play.ask(&worker);
}

#[test]
fn another_channel_replaces_the_first() {
    let play = Play::new();
    let (worker, _) = play.worker_with_channel();
    let first = play.open(&worker);
    map(&first.worker, 1);
    hear_request(&first.front_end, MAP, 1);
    let second = play.open(&worker);
    assert_ends(&first.worker);
    assert_ends(&first.front_end);
    maps(&second.worker, &second.front_end, 2);
    drop((worker, second.worker));
    let (_next, channel) = play.worker_with_channel();
    map(&channel.unwrap(), 3);
    hear_request(&second.front_end, MAP, 3);
}

#[test]
fn a_channel_that_the_worker_has_not_acknowledged_is_sent_to_the_next() {
    let play = Play::new();
    let (first, _) = play.worker_with_channel();
    play.say(code::SET_PROTOCOL_FEATURES, &REPLY_ACK.to_le_bytes(), &[]);
    hear(&first);
    let (front_end, passed) = UnixStream::pair().unwrap();
    play.say_channel(NEED_REPLY, passed);
    let dead = channel_of(hear(&first));
    drop(first);
    let (second, none) = play.worker_with_channel();
    assert!(none.is_none(), "not in effect yet");
    assert_ends(&dead);
    let channel = channel_of(hear(&second));
    reply(&second, code::SET_BACKEND_REQ_FD, &[0; 8]);
    assert_eq!(hear(&play.front_end).u64_at(0), Some(0));
    map(&channel, 1);
    hear_request(&front_end, MAP, 1);
}

#[test]
fn requests_pass_while_the_messages_are_replayed() {
    let play = Play::new();
    let (first, _) = play.worker_with_channel();
    let ends = play.open(&first);
    drop((first, ends.worker));
    let second = play.worker();
    assert_eq!(hear(&second).request(), Some(code::GET_FEATURES));
    reply(&second, code::GET_FEATURES, &[0; 8]);
    let channel = channel_of(hear(&second));
    maps(&channel, &ends.front_end, 1);
    assert_eq!(hear(&second).request(), Some(code::GET_FEATURES));
    reply(&second, code::GET_FEATURES, &[0; 8]);
    play.ask(&second);
}

#[test]
fn what_is_no_stream_socket_is_not_passed_to_the_worker() {
    let play = Play::new();
    let (worker, _) = play.worker_with_channel();
    let (datagrams, _other) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let datagrams = File::from(OwnedFd::from(datagrams));
    play.say(code::SET_BACKEND_REQ_FD, &[0; 8], &[&datagrams]);
    let message = hear(&worker);
    assert!(is_of_channel(&message) && message.files.is_empty());
    play.ask(&worker);
}

#[test]
fn the_end_of_the_connection_closes_the_channel() {
    let (play, _worker, ends) = opened();
    play.front_end.shutdown(Shutdown::Both).unwrap();
    assert_ends(&ends.worker);
    assert_ends(&ends.front_end);
}
