mod backend_channel;
mod suspended;

use super::*;
use crate::journal::Journal;
use crate::wire;
use FrontendReq as code;
use rustix::event::{EventfdFlags, eventfd};
use std::fs::File;
use std::time::Duration;

/// The front end and the workers of a proxy.
struct Play {
    front_end: UnixStream,
    proxy: VhostProxy,
    journal: Journal,
}

impl Play {
    fn new() -> Play {
        let (ours, front_end) = UnixStream::pair().unwrap();
        let journal = Journal::new().unwrap();
        let proxy = VhostProxy::start(ours, journal.clone()).unwrap();
        Play {
            front_end,
            proxy,
            journal,
        }
    }

    fn worker(&self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        self.proxy.attach(ours);
        theirs
    }

    fn say(&self, code: code, body: &[u8], files: &[&File]) {
        self.say_with(code, 0, body, files);
    }

    fn say_with(&self, code: code, flags: u32, body: &[u8], files: &[&File]) {
        let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
        wire::send(self.front_end.as_fd(), code, flags, body, &files).unwrap();
    }
}

fn event() -> File {
    eventfd(0, EventfdFlags::empty()).unwrap().into()
}

fn memory() -> File {
    let flags = rustix::fs::MemfdFlags::empty();
    rustix::fs::memfd_create("memory", flags).unwrap().into()
}

fn is_disconnected(play: &Play) -> bool {
    (0..6000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        !play.proxy.is_connected()
    })
}

/// The next message, within a minute.
fn hear(stream: &UnixStream) -> VhostMessage {
    let mut reader = Reader::default();
    let minute = rustix::event::Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    loop {
        if let Some(message) = reader.read(stream).unwrap() {
            return message;
        }
        let mut polled = [PollFd::new(stream, PollFlags::IN)];
        let ready = poll(&mut polled, Some(&minute));
        assert_ne!(ready, Ok(0), "nothing is said");
    }
}

fn reply(stream: &UnixStream, code: code, body: &[u8]) {
    wire::send(stream.as_fd(), code, 4, body, &[]).unwrap();
}

/// The messages that a new worker gets, up to the final query. Queries are answered.
fn messages_of(worker: &UnixStream) -> Vec<VhostMessage> {
    let mut messages = Vec::new();
    let mut questions = 0;
    loop {
        let message = hear(worker);
        let code = message.request().unwrap();
        if matches!(code, code::GET_FEATURES | code::GET_PROTOCOL_FEATURES) {
            reply(worker, code, &[0; 8]);
            questions += u32::from(code == code::GET_FEATURES);
            if questions == 2 {
                return messages;
            }
        } else {
            messages.push(message);
        }
    }
}

fn codes(messages: &[VhostMessage]) -> Vec<code> {
    let code = |message: &VhostMessage| message.request().unwrap();
    messages.iter().map(code).collect()
}

fn words(words: [u32; 2]) -> Vec<u8> {
    words.map(u32::to_le_bytes).concat()
}

#[test]
fn the_next_worker_gets_the_messages_in_effect() {
    let play = Play::new();
    let first = play.worker();
    assert!(messages_of(&first).is_empty());
    let [file, memory] = [event(), memory()];
    play.say(code::SET_FEATURES, &5_u64.to_le_bytes(), &[]);
    play.say(code::SET_VRING_KICK, &words([1, 0]), &[&file]);
    play.say(code::SET_VRING_BASE, &words([1, 7]), &[]);
    play.say(code::SET_VRING_CALL, &words([1, 0]), &[&file]);
    // More descriptors than belong to it.
    play.say(code::SET_VRING_CALL, &words([1, 0]), &[&file; 32]);
    play.say(code::SET_VRING_NUM, &words([1, 64]), &[]);
    let table = [&words([1, 0])[..], &[9; 32]].concat();
    play.say(code::SET_MEM_TABLE, &table, &[&memory]);
    for _ in 0..7 {
        hear(&first);
    }
    assert!(play.journal.has_new_base(1), "said by the front end");
    play.journal.take_base(1);
    drop(first);
    let second = play.worker();
    let messages = messages_of(&second);
    let expected = [
        code::SET_FEATURES,
        code::SET_MEM_TABLE,
        code::SET_VRING_NUM,
        code::SET_VRING_BASE,
        code::SET_VRING_CALL,
        code::SET_VRING_KICK,
    ];
    assert_eq!(codes(&messages), expected);
    assert_eq!(messages[1].body, table);
    let files = messages.iter().map(|message| message.files.len());
    assert_eq!(files.collect::<Vec<_>>(), [0, 1, 0, 0, 1, 1]);
    assert!(!play.journal.has_new_base(1), "said by us");
    assert!(play.proxy.is_connected());
}

#[test]
fn a_message_without_a_reply_is_sent_to_the_next_worker() {
    let play = Play::new();
    let first = play.worker();
    messages_of(&first);
    play.say(code::GET_QUEUE_NUM, &[], &[]);
    assert_eq!(hear(&first).request(), Some(code::GET_QUEUE_NUM));
    // Not all of a reply, and more than the socket holds: the proxy has begun to read it.
    rustix::net::sockopt::set_socket_send_buffer_size(&first, 1).unwrap();
    (0..11).for_each(|_| io::Write::write_all(&mut &first, &[17]).unwrap());
    drop(first);
    let second = play.worker();
    messages_of(&second);
    assert_eq!(hear(&second).request(), Some(code::GET_QUEUE_NUM));
    reply(&second, code::GET_QUEUE_NUM, &3_u64.to_le_bytes());
    let answer = hear(&play.front_end);
    assert_eq!(
        (answer.request(), answer.u64_at(0)),
        (Some(code::GET_QUEUE_NUM), Some(3))
    );
}

#[test]
fn messages_wait_while_there_is_no_worker() {
    let play = Play::new();
    let first = play.worker();
    messages_of(&first);
    drop(first);
    play.say(code::SET_OWNER, &[], &[]);
    play.say(code::GET_FEATURES, &[], &[]);
    let second = play.worker();
    let messages = messages_of(&second);
    assert!(messages.len() <= 1, "{messages:?}");
    if messages.is_empty() {
        assert_eq!(hear(&second).request(), Some(code::SET_OWNER));
    }
    assert_eq!(hear(&second).request(), Some(code::GET_FEATURES));
}

#[test]
fn a_stopped_queue_is_not_started_for_the_next_worker() {
    let play = Play::new();
    let first = play.worker();
    messages_of(&first);
    let file = event();
    play.say(code::SET_VRING_BASE, &words([1, 0]), &[]);
    play.say(code::SET_VRING_KICK, &words([1, 0]), &[&file]);
    play.say(code::GET_VRING_BASE, &words([1, 0]), &[]);
    (0..3).for_each(|_| drop(hear(&first)));
    reply(&first, code::GET_VRING_BASE, &words([1, 55]));
    assert_eq!(hear(&play.front_end).u32_at(4), Some(55));
    drop(first);
    let messages = messages_of(&play.worker());
    assert_eq!(codes(&messages), [code::SET_VRING_BASE]);
    assert_eq!(messages[0].body, words([1, 55]));
}

#[test]
fn what_a_reset_has_ended_is_not_told_to_the_next_worker() {
    for reset in [code::RESET_OWNER, code::RESET_DEVICE] {
        let play = Play::new();
        let first = play.worker();
        messages_of(&first);
        let [file, memory] = [event(), memory()];
        let table = [&words([1, 0])[..], &[9; 32]].concat();
        let addresses = [&words([1, 0])[..], &[7; 32]].concat();
        play.say(code::SET_FEATURES, &5_u64.to_le_bytes(), &[]);
        play.say(code::SET_MEM_TABLE, &table, &[&memory]);
        play.say(code::SET_VRING_NUM, &words([1, 64]), &[]);
        play.say(code::SET_VRING_BASE, &words([1, 7]), &[]);
        play.say(code::SET_VRING_ADDR, &addresses, &[]);
        play.say(code::SET_VRING_CALL, &words([1, 0]), &[&file]);
        play.say(code::SET_VRING_ENABLE, &words([1, 1]), &[]);
        play.say(code::SET_VRING_KICK, &words([1, 0]), &[&file]);
        play.say(reset, &[], &[]);
        (0..9).for_each(|_| drop(hear(&first)));
        drop(first);
        let messages = messages_of(&play.worker());
        let expected = [
            code::SET_FEATURES,
            code::SET_MEM_TABLE,
            code::SET_VRING_CALL,
        ];
        assert_eq!(codes(&messages), expected, "{reset:?}");
    }
}

#[test]
fn refused_messages_and_removed_regions_are_not_replayed() {
    let play = Play::new();
    let first = play.worker();
    messages_of(&first);
    play.say(code::SET_PROTOCOL_FEATURES, &REPLY_ACK.to_le_bytes(), &[]);
    hear(&first);
    let file = memory();
    let region = |byte: u8| [&[0; 8][..], &[byte; 32]].concat();
    for (byte, answer) in [(1, 0_u64), (2, 0), (3, 1)] {
        play.say_with(code::ADD_MEM_REG, NEED_REPLY, &region(byte), &[&file]);
        hear(&first);
        reply(&first, code::ADD_MEM_REG, &answer.to_le_bytes());
        hear(&play.front_end);
    }
    play.say(code::REM_MEM_REG, &region(1), &[]);
    hear(&first);
    drop(first);
    let messages = messages_of(&play.worker());
    let expected = [code::SET_PROTOCOL_FEATURES, code::SET_MEM_TABLE];
    assert_eq!(codes(&messages), expected);
    assert_eq!(messages[1].body, [&words([1, 0])[..], &[2; 32]].concat());
}

#[test]
fn a_front_end_that_hangs_up_or_breaks_the_protocol_is_disconnected() {
    let play = Play::new();
    let worker = play.worker();
    messages_of(&worker);
    // Longer than any body.
    let nonsense: Vec<u8> = [1_u32, 1, 5000].map(u32::to_ne_bytes).concat();
    io::Write::write_all(&mut &play.front_end, &nonsense).unwrap();
    assert!(is_disconnected(&play));
    let play = Play::new();
    play.front_end.shutdown(Shutdown::Both).unwrap();
    assert!(is_disconnected(&play));
}

/// The worker gets none of them.
#[test]
fn descriptors_of_unknown_kinds_are_refused() {
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let (socket, _other) = UnixStream::pair().unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let named = File::create(directory.path().join("anon_inode:[eventfd]")).unwrap();
    let all = [
        ("eventfd", event()),
        ("memory", memory()),
        ("file", named),
        ("pipe", File::from(reader)),
        ("socket", File::from(OwnedFd::from(socket))),
        ("socket of TCP", File::from(OwnedFd::from(tcp))),
        ("device", File::open("/dev/null").unwrap()),
        ("directory", File::open("/").unwrap()),
        ("of the kernel", File::open("/proc/self/status").unwrap()),
        (
            "by path",
            rustix::fs::open("/", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty())
                .unwrap()
                .into(),
        ),
    ];
    let of_rings = &["eventfd", "pipe", "socket"][..];
    let of_memory = &["memory", "file"][..];
    for (code, expected) in [
        (code::SET_VRING_KICK, of_rings),
        (code::SET_VRING_CALL, of_rings),
        (code::SET_VRING_ERR, of_rings),
        (code::SET_LOG_FD, &["eventfd"]),
        (code::SET_MEM_TABLE, of_memory),
        (code::ADD_MEM_REG, of_memory),
        (code::SET_LOG_BASE, of_memory),
        (code::SET_INFLIGHT_FD, of_memory),
        (
            code::SET_DEVICE_STATE_FD,
            &["memory", "file", "pipe", "socket"],
        ),
        (code::SET_OWNER, &[]),
    ] {
        for (kind, file) in &all {
            let play = Play::new();
            let worker = play.worker();
            messages_of(&worker);
            play.say(code, &[0; 40], &[file]);
            if expected.contains(kind) {
                assert_eq!(hear(&worker).files.len(), 1, "{code:?}: {kind}");
            } else {
                assert!(is_disconnected(&play), "{code:?}: {kind}");
                let has_reply = io::Read::read(&mut &worker, &mut [0; 1]);
                assert_eq!(has_reply.unwrap(), 0, "{code:?}: {kind}");
            }
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_of_a_front_end_are_parsed_or_refused(
        messages in proptest::collection::vec(
            (0_u32..48, 0_u32..16, proptest::collection::vec(proptest::num::u8::ANY, 0..300)),
            1..20,
        ),
        cut in 0_usize..64,
    ) {
        let play = Play::new();
        let first = play.worker();
        messages_of(&first);
        let mut all = Vec::new();
        for (code, flags, body) in &messages {
            all.extend([*code, *flags, body.len() as u32].map(u32::to_ne_bytes).concat());
            all.extend(body);
        }
        all.truncate(all.len().saturating_sub(cut));
        io::Write::write_all(&mut &play.front_end, &all).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        drop(first);
        let second = play.worker();
        second.set_nonblocking(true).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        let mut bytes = [0; 65536];
        let _ = io::Read::read(&mut &second, &mut bytes);
    }
}

#[test]
fn a_worker_attached_after_the_front_end_has_gone_is_disconnected() {
    let play = Play::new();
    let start = Instant::now();
    play.front_end.shutdown(Shutdown::Both).unwrap();
    while !play.proxy.thread.as_ref().unwrap().is_finished() {
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut worker = play.worker();
    worker
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let has_reply = io::Read::read(&mut worker, &mut [0; 1]);
    assert_eq!(has_reply.unwrap(), 0, "its end, and nothing to wait for");
}
