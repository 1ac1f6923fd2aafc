use super::backend_channel::{MAP, hear_request, map, opened, reply_to};
use super::*;
use rustix::net::sockopt::set_socket_send_buffer_size;
use std::io::{Read, Write};
use thrufs_testing::wait_until;
use wire::VERSION;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

impl Play {
    /// Another proxy goes on.
    fn resumed(self) -> Play {
        let state = self.proxy.suspend(soon()).unwrap();
        let gone = self.proxy.hold(soon()).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotConnected);
        Play {
            proxy: VhostProxy::resume(state, self.journal.clone()).unwrap(),
            ..self
        }
    }
}

fn bytes_of(code: code, body: &[u8]) -> Vec<u8> {
    let header = [code.into(), VERSION, body.len() as u32];
    [&header.map(u32::to_ne_bytes).concat(), body].concat()
}

#[test]
fn what_the_front_end_has_set_and_half_a_message_are_resumed() {
    let play = Play::new();
    let first = play.worker();
    messages_of(&first);
    play.say(code::SET_FEATURES, &5_u64.to_le_bytes(), &[]);
    let table = [&words([2, 0])[..], &[1; 32], &[2; 32]].concat();
    play.say(code::SET_MEM_TABLE, &table, &[&memory(), &memory()]);
    play.say(code::SET_VRING_NUM, &words([1, 64]), &[]);
    play.say(code::SET_VRING_KICK, &words([1, 0]), &[&event()]);
    play.say(code::GET_QUEUE_NUM, &[], &[]);
    (0..5).for_each(|_| drop(hear(&first)));
    // After the message without a reply, the first part of another, with its descriptor.
    let call = bytes_of(code::SET_VRING_CALL, &words([1, 0]));
    let file = event();
    thrufs_sys::fd_passing::send(play.front_end.as_fd(), &call[..13], &[file.as_fd()]).unwrap();
    drop(first);
    let play = play.resumed();
    let second = play.worker();
    let messages = messages_of(&second);
    let expected = [
        code::SET_FEATURES,
        code::SET_MEM_TABLE,
        code::SET_VRING_NUM,
        code::SET_VRING_KICK,
    ];
    assert_eq!(codes(&messages), expected);
    assert_eq!(messages[1].body, table);
    assert_eq!((messages[1].files.len(), messages[3].files.len()), (2, 1));
    assert_eq!(hear(&second).request(), Some(code::GET_QUEUE_NUM));
    reply(&second, code::GET_QUEUE_NUM, &3_u64.to_le_bytes());
    assert_eq!(hear(&play.front_end).u64_at(0), Some(3));
    // The proxy reads it now, in part.
    wait_until("the half to be read", || {
        rustix::io::ioctl_fionread(&play.proxy.front_end) == Ok(0)
    });
    drop(second);
    let play = play.resumed();
    (&play.front_end).write_all(&call[13..]).unwrap();
    let third = play.worker();
    assert_eq!(messages_of(&third).len(), 4);
    let whole = hear(&third);
    assert_eq!(whole.request(), Some(code::SET_VRING_CALL));
    assert_eq!((whole.body, whole.files.len()), (words([1, 0]), 1));
    assert!(play.proxy.is_connected());
}

/// The reply to a request of a worker of the last program is not taken for one to a request of this one.
#[test]
fn the_back_end_channel_and_its_outstanding_request_are_resumed() {
    let (play, worker, ends) = opened();
    map(&ends.worker, 1);
    hear_request(&ends.front_end, MAP, 1);
    drop((worker, ends.worker));
    let play = play.resumed();
    let (_worker, channel) = play.worker_with_channel();
    let channel = channel.unwrap();
    map(&channel, 2);
    reply_to(&ends.front_end, MAP, 7);
    hear_request(&ends.front_end, MAP, 2);
    reply_to(&ends.front_end, MAP, 8);
    assert_eq!(hear(&channel).u64_at(0), Some(8));
}

#[test]
fn a_front_end_that_is_held_waits_and_tells_whether_it_migrates() {
    let play = Play::new();
    let worker = play.worker();
    messages_of(&worker);
    assert!(!play.proxy.hold(soon()).unwrap());
    play.proxy.release();
    assert!(play.proxy.take_served() && !play.proxy.take_served());
    let features = |log: u64| (log << 26).to_le_bytes();
    for (message, body, files, migrates) in [
        (code::SET_FEATURES, &features(0)[..], None, false),
        (code::SET_FEATURES, &features(1), None, true),
        (code::SET_FEATURES, &features(0), None, false),
        (code::SET_DEVICE_STATE_FD, &[0; 8], Some(memory()), true),
        (code::GET_QUEUE_NUM, &[], None, true),
        (code::SET_VRING_KICK, &words([0, 0]), Some(event()), false),
    ] {
        play.say(message, body, &files.iter().collect::<Vec<_>>());
        hear(&worker);
        if [code::SET_DEVICE_STATE_FD, code::GET_QUEUE_NUM].contains(&message) {
            reply(&worker, message, &0_u64.to_le_bytes());
            hear(&play.front_end);
        }
        assert_eq!(play.proxy.hold(soon()).unwrap(), migrates, "{message:?}");
        play.say(code::SET_OWNER, &[], &[]);
        // What it sends to the proxy is not read, which would be before this is answered.
        play.proxy.hold(soon()).unwrap();
        worker.set_nonblocking(true).unwrap();
        let read = (&worker).read(&mut [0]).unwrap_err();
        assert_eq!(read.kind(), io::ErrorKind::WouldBlock, "{message:?}");
        worker.set_nonblocking(false).unwrap();
        play.proxy.release();
        assert_eq!(hear(&worker).request(), Some(code::SET_OWNER));
    }
}

#[test]
fn a_guest_migrates_on_by_the_next_proxy() {
    let play = Play::new();
    let worker = play.worker();
    messages_of(&worker);
    play.say(code::SET_DEVICE_STATE_FD, &[0; 8], &[&memory()]);
    hear(&worker);
    reply(&worker, code::SET_DEVICE_STATE_FD, &0_u64.to_le_bytes());
    hear(&play.front_end);
    drop(worker);
    assert!(play.resumed().proxy.hold(soon()).unwrap());
}

#[test]
fn a_front_end_that_reads_no_reply_is_not_waited_for_and_goes_on() {
    let play = Play::new();
    let worker = play.worker();
    messages_of(&worker);
    set_socket_send_buffer_size(&play.proxy.front_end, 1).unwrap();
    let answer = [7; 4096];
    for _ in 0..8 {
        play.say(code::GET_CONFIG, &[], &[]);
    }
    let answers = |worker: UnixStream| {
        std::thread::spawn(move || {
            let mut reader = Reader::default();
            loop {
                match reader.read(&worker) {
                    Ok(Some(_)) => reply(&worker, code::GET_CONFIG, &answer),
                    Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                    Err(_) => return,
                }
            }
        })
    };
    let answered = answers(worker.try_clone().unwrap());
    let is_blocked = || {
        let soon = Instant::now() + Duration::from_millis(10);
        play.proxy.hold(soon).map_err(|error| error.kind()) == Err(io::ErrorKind::TimedOut)
    };
    assert!((0..6000).any(|_| {
        play.proxy.release();
        is_blocked()
    }));
    worker.shutdown(Shutdown::Both).unwrap();
    answered.join().unwrap();
    let late = play.proxy.suspend(Instant::now()).unwrap_err();
    assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    play.proxy.release();
    let front_end = play.front_end.try_clone().unwrap();
    let heard = std::thread::spawn(move || {
        (0..8).for_each(|_| assert_eq!(hear(&front_end).body, answer));
    });
    // What was asked in vain is not done later.
    let next = play.worker();
    messages_of(&next);
    let answered = answers(next.try_clone().unwrap());
    heard.join().unwrap();
    assert!(play.proxy.is_connected());
    next.shutdown(Shutdown::Both).unwrap();
    answered.join().unwrap();
}

#[test]
fn states_that_no_proxy_has_had_are_refused() {
    let (one, _other) = UnixStream::pair().unwrap();
    let record = |kind: u32, length: u32, files: u32| {
        let words = [kind, 0, 0, length, files].map(u32::to_ne_bytes);
        [&words.concat()[..], &[0; 4]].concat()
    };
    for (bytes, is_valid) in [
        (record(3, 4, 1), true),
        (vec![], false),
        (vec![3; 7], false),
        (record(9, 4, 1), false),
        (record(3, 5, 1), false),
        (record(3, 4, 2), false),
        (record(3, 4, 0), false),
        (record(2, 4, 1), false),
    ] {
        let files = vec![one.try_clone().unwrap().into()];
        let state = ProxyState { bytes, files };
        let shown = format!("{state:?}");
        let resumed = VhostProxy::resume(state, Journal::new().unwrap());
        assert_eq!(resumed.is_ok(), is_valid, "{shown}");
    }
}
