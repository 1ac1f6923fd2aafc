//! Queries of a mount's worker about callers: the program and the CPU of a process.
//!
//! The worker is alone in its PID namespace. Requests name callers as in the namespace of the supervisor,
//! which answers these queries and no others. Packets: a query is a letter, a number, and the caller; a
//! reply is the number, then the path of the program, or the CPU in digits, or nothing.

use crate::channel::packets_to_thread;
use parking_lot::Mutex;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{SendFlags, send};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

const PROGRAM: u8 = b'P';
const CPU: u8 = b'C';
const QUESTION_BYTES: usize = 9;
const NUMBER_BYTES: usize = 4;
const ANSWER_BYTES_MAX: usize = NUMBER_BYTES + 4096;

/// Without a reply in time, the caller is unknown.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Starts the replying thread. Returns the worker's end of its socket; the thread ends when that is
/// closed.
pub(crate) fn begin() -> io::Result<OwnedFd> {
    let theirs = packets_to_thread("thrufs-callers", |ours| while answer(&ours).is_ok() {})?;
    set_socket_timeout(&theirs, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
    Ok(theirs)
}

fn answer(worker: &OwnedFd) -> Result<(), Errno> {
    let mut question = [0; QUESTION_BYTES];
    let length = retry_on_intr(|| rustix::io::read(worker, &mut question))?;
    if length != QUESTION_BYTES {
        return Err(Errno::PIPE);
    }
    let [word, number @ .., c0, c1, c2, c3] = question;
    let caller = u32::from_ne_bytes([c0, c1, c2, c3]);
    let known = match word {
        PROGRAM => program_of(caller),
        CPU => cpu_of(caller).map(|cpu| cpu.to_string().into_bytes()),
        _ => None,
    };
    let mut answer = number.to_vec();
    answer.extend(known.unwrap_or_default());
    answer.truncate(ANSWER_BYTES_MAX);
    send(worker, &answer, SendFlags::NOSIGNAL).map(drop)
}

fn program_of(caller: u32) -> Option<Vec<u8>> {
    let path = format!("/proc/{caller}/exe");
    let link = rustix::fs::readlink(path, Vec::new()).ok()?;
    Some(link.into_bytes())
}

fn cpu_of(caller: u32) -> Option<usize> {
    let stat = std::fs::read(format!("/proc/{caller}/task/{caller}/stat")).ok()?;
    thrufs::serving::cpu_in_stat(&stat)
}

#[derive(Debug)]
pub(crate) struct Callers {
    asked: Mutex<u32>,
    socket: OwnedFd,
}

impl Callers {
    pub(crate) fn new(socket: OwnedFd) -> Callers {
        Callers {
            asked: Mutex::default(),
            socket,
        }
    }

    fn ask(&self, word: u8, caller: u32) -> Option<Vec<u8>> {
        if caller == 0 {
            return None;
        }
        let mut asked = self.asked.lock();
        *asked = asked.wrapping_add(1);
        let number = asked.to_ne_bytes();
        let mut question = [0; QUESTION_BYTES];
        question[0] = word;
        question[1..=NUMBER_BYTES].copy_from_slice(&number);
        question[1 + NUMBER_BYTES..].copy_from_slice(&caller.to_ne_bytes());
        // read(2) and write(2), which every seccomp filter allows.
        rustix::io::write(self.socket.as_fd(), &question).ok()?;
        let mut answer = vec![0; ANSWER_BYTES_MAX];
        loop {
            let length = retry_on_intr(|| rustix::io::read(&self.socket, &mut answer));
            let length = length.ok().filter(|length| *length >= NUMBER_BYTES)?;
            // Late replies to earlier queries are skipped.
            if answer[..NUMBER_BYTES] == number {
                let known = answer[NUMBER_BYTES..length].to_vec();
                return (!known.is_empty()).then_some(known);
            }
        }
    }
}

impl thrufs_hostdir::Programs for Callers {
    fn program(&self, caller: u32) -> Option<Vec<u8>> {
        self.ask(PROGRAM, caller)
    }
}

impl thrufs::session::Callers for Callers {
    fn cpu(&self, caller: u32) -> Option<usize> {
        let digits = String::from_utf8(self.ask(CPU, caller)?).ok()?;
        digits.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thrufs::session::Callers as _;
    use thrufs_hostdir::Programs;

    #[test]
    fn program_and_cpu_of_a_caller_are_found() {
        let callers = Callers::new(begin().unwrap());
        let me = std::process::id();
        let program = callers.program(me).unwrap();
        assert_eq!(
            program,
            std::env::current_exe()
                .unwrap()
                .into_os_string()
                .into_encoded_bytes()
        );
        assert!(callers.cpu(me).is_some());
        for unknown in [0, u32::MAX] {
            assert_eq!(callers.program(unknown), None);
            assert_eq!(callers.cpu(unknown), None);
        }
        assert_eq!(callers.ask(b'?', me), None);
        assert_eq!(callers.program(me), Some(program), "in step");
    }

    #[test]
    fn late_reply_is_not_taken_for_the_next() {
        let (ours, theirs) = crate::channel::packets().unwrap();
        let late = [&7_u32.to_ne_bytes()[..], b"/bin/late"].concat();
        send(&ours, &late, SendFlags::empty()).unwrap();
        let server = std::thread::spawn(move || answer(&ours));
        let callers = Callers::new(theirs);
        let program = callers.program(std::process::id()).unwrap();
        assert_ne!(program, b"/bin/late");
        server.join().unwrap().unwrap();
    }
}
