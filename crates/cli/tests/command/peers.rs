//! What the peers of a share's supervisor send, or do not: no other machine waits for it.

use crate::ground::prelude::*;
use crate::ground::share::{Place, get_features};
use crate::ground::{stop_process, unmount};
use rustix::net::SendFlags;
use std::io::{Error, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use thrufs::InitFlags;
use thrufs_sys::fd_passing;

const OPTIONS: &str = "control=none,machines=6";

const GET_FEATURES: u32 = 1;
const SET_VRING_CALL: u32 = 13;

fn message(request: u32, body: &[u8]) -> Vec<u8> {
    let header = [request, 1, body.len() as u32];
    [&header.map(u32::to_ne_bytes).concat(), body].concat()
}

fn send(stream: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) {
    let sent = fd_passing::send(stream.as_fd(), bytes, files);
    assert_eq!(sent, Ok(bytes.len()));
}

fn connect(place: &Place) -> UnixStream {
    let stream = UnixStream::connect(&place.socket).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Returns when it is served.
fn connected(place: &Place) -> UnixStream {
    let mut stream = connect(place);
    get_features(&mut stream);
    stream.read_exact(&mut [0; 20]).expect("an answer");
    stream
}

/// Each needs a worker of its own, one of which is started after this call.
fn others_are_served(place: &Place) {
    let _others: Vec<UnixStream> = (0..3).map(|_| connected(place)).collect();
}

/// A socket whose last close(2) takes longer than a test: its peer does not read.
fn lingering() -> (TcpStream, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    rustix::net::sockopt::set_socket_linger(&stream, Some(10 * LIMIT)).unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 1 << 16]).is_ok() {}
    (stream, listener)
}

/// A stopped process, which is resumed on drop.
struct Stopped(Pid);

impl Stopped {
    fn stop(process: Pid) -> Stopped {
        stop_process(process);
        Stopped(process)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// Closing a file of FUSE waits for its server, and execve(2) closes what the process has open.
#[test]
fn descriptor_of_a_file_system_that_does_not_answer_delays_no_other_machine() {
    let Some(ground) = Ground::new() else { return };
    let mount = ground.mount_in_foreground(&["-o", "control=none,nopassthrough"]);
    let place = Place::new();
    let share = place.share(OPTIONS);
    let mut stream = connected(&place);
    let file = ground.mnt.join("file");
    let file = File::options().append(true).open(file).unwrap();
    let call = message(SET_VRING_CALL, &1_u64.to_ne_bytes());
    send(&stream, &call, &[file.as_fd()]);
    // The proxy has the descriptor, and has perhaps disconnected.
    let _ = stream.write_all(&message(GET_FEATURES, &[]));
    let _ = stream.read(&mut [0; 20]);
    // Other tests start processes, which close it as well.
    drop(file);
    let stopped = Stopped::stop(ground.process("--worker"));
    others_are_served(&place);
    drop(stream);
    others_are_served(&place);
    drop(stopped);
    share.ends_by(Signal::TERM);
    unmount(&ground.mnt);
    mount.ends(0);
}

/// The last close(2) of a socket closes what is in its queue.
#[test]
fn socket_that_lingers_in_a_queue_delays_no_other_machine() {
    let place = Place::new();
    let share = place.share(OPTIONS);
    let stream = connected(&place);
    let (lingering, _unread) = lingering();
    // Longer than any body.
    let malformed = [1_u32, 1, 5000].map(u32::to_ne_bytes).concat();
    let stopped = Stopped::stop(share.pid());
    send(&stream, &malformed, &[]);
    send(&stream, &[0; 12], &[lingering.as_fd()]);
    drop((lingering, stopped));
    others_are_served(&place);
    // As well in that of a connection that was not accepted yet, and in one that sends no message.
    for bytes in [&[0; 1][..], &[0; 12]] {
        let (lingering, _unread) = self::lingering();
        let stopped = Stopped::stop(share.pid());
        let stream = connect(&place);
        send(&stream, bytes, &[lingering.as_fd()]);
        drop((lingering, stream, stopped));
        others_are_served(&place);
    }
    share.ends_by(Signal::TERM);
}

#[test]
fn connections_that_send_no_whole_message_delay_no_machine_and_take_no_place() {
    for (count, begin) in [(20, &[][..]), (6, &[1])] {
        let place = Place::new();
        let share = place.share(OPTIONS);
        // Each may be silent for ten seconds.
        let silent = |_| {
            let stream = connect(&place);
            send(&stream, begin, &[]);
            stream
        };
        let _silent: Vec<UnixStream> = (0..count).map(silent).collect();
        others_are_served(&place);
        share.ends_by(Signal::TERM);
    }
}

/// poll(2) calls it readable, and recv(2) has nothing.
#[test]
fn connection_with_an_out_of_band_byte_delays_no_machine() {
    let place = Place::new();
    let share = place.share(OPTIONS);
    let mut stream = connect(&place);
    rustix::net::send(&stream, &[1], SendFlags::OOB).unwrap();
    others_are_served(&place);
    let is_reset = |error: Error| error.kind() == ErrorKind::ConnectionReset;
    let ended = stream.read(&mut [0]);
    let is_disconnected = matches!(ended, Ok(0)) || ended.is_err_and(is_reset);
    assert!(is_disconnected);
    share.ends_by(Signal::TERM);
}

/// More messages than its socket holds.
#[test]
fn worker_that_reads_no_messages_delays_no_other_machine() {
    const MESSAGES: usize = 600;
    let place = Place::new();
    let share = place.share_with_log(OPTIONS);
    let worker = place.worker();
    let _stream = connected(&place);
    let _stopped = Stopped::stop(worker);
    for _ in 0..MESSAGES {
        share.signal_and_wait(Signal::USR1);
    }
    others_are_served(&place);
    share.ends_by(Signal::TERM);
}

/// A front end that connects again and again, for which the supervisor writes a line as long as a path each time.
#[test]
fn front_end_does_not_fill_the_log() {
    const CONNECTIONS: usize = 100;
    const LOG_BYTES_MAX: usize = 300 << 10;
    let place = Place::new();
    let share = place.share_with_log(OPTIONS);
    let mut path = place.socket.with_file_name("long");
    path.extend([&"n\u{1b}[2J\u{9b}".repeat(35); 15]);
    fs::create_dir_all(&path).unwrap();
    let directory = File::open(&path).unwrap();
    let call = message(SET_VRING_CALL, &1_u64.to_ne_bytes());
    for _ in 0..CONNECTIONS {
        let mut stream = connected(&place);
        send(&stream, &call, &[directory.as_fd()]);
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it is disconnected");
    }
    let log = place.log();
    assert!(log.contains("a descriptor of an unknown kind (/"));
    assert!(!log.contains(['\u{1b}', '\u{9b}']));
    assert!(log.len() < LOG_BYTES_MAX, "{} bytes", log.len());
    share.ends_by(Signal::TERM);
}

/// A guest that mounts again and again has its worker log a few lines each time.
#[test]
fn guest_does_not_fill_the_log() {
    const MOUNTS: usize = 1000;
    const LOG_BYTES_MAX: usize = 320 << 10;
    let place = Place::new();
    let share = place.share_with_log(OPTIONS);
    let mut client = place.mount();
    for _ in 0..MOUNTS {
        // It lacks what the server would use, which is logged.
        let front_end = client.unmount();
        client = Client::over_offering(front_end, 38, InitFlags::empty()).unwrap();
    }
    client.unmount();
    place.wait_for_log("were left out of the log");
    let length = place.log().len();
    assert!(length < LOG_BYTES_MAX, "{length} bytes");
    share.ends_by(Signal::TERM);
}
