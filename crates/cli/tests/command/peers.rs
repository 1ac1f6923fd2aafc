//! What the peers of a share's supervisor send, or do not: no other machine waits for it.

use crate::ground::share::{Place, get_features};
use crate::ground::{Ground, stop_process, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use thrufs_sys::fd_passing;

const OPTIONS: &str = "control=none,machines=6";

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
    stream.set_read_timeout(Some(crate::ground::LIMIT)).unwrap();
    stream
}

/// Each needs a worker of its own, one of which is started after this call.
fn others_are_served(place: &Place) {
    let served = |_| {
        let mut stream = connect(place);
        get_features(&mut stream);
        stream.read_exact(&mut [0; 20]).expect("an answer");
        stream
    };
    let _others: Vec<UnixStream> = (0..3).map(served).collect();
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
    let file = File::options()
        .append(true)
        .open(ground.mnt.join("file"))
        .unwrap();
    let place = Place::new();
    let share = place.share(OPTIONS);
    let stopped = Stopped::stop(ground.process("--worker"));
    let mut stream = connect(&place);
    get_features(&mut stream);
    stream.read_exact(&mut [0; 20]).unwrap();
    let call = message(SET_VRING_CALL, &1_u64.to_ne_bytes());
    send(&stream, &call, &[file.as_fd()]);
    // The proxy has the descriptor.
    get_features(&mut stream);
    let _ = stream.read(&mut [0; 20]);
    others_are_served(&place);
    drop(stream);
    others_are_served(&place);
    drop(stopped);
    share.ends_by(Signal::TERM);
    drop(file);
    unmount(&ground.mnt);
    mount.ends(0);
}
