//! Counting for mounts that were there before a run. The run lives in a namespace of processes of its own, in
//! which their servers have no numbers: a thread of the process that makes the namespaces has stayed outside,
//! and does it for the run.
//!
//! They speak in lines of JSON over a pair of sockets. There is one count at a time.

use super::connection::Connection;
use super::counters::Counting;
use super::servers;
use crate::Outcome;
use crate::results::Counts;
use rustix::io::{FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Tells the run which descriptor the socket is.
const SOCKET: &str = "THRUFS_BENCH_COUNTER";

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Order {
    Start { connection: u32 },
    Stop { operations: u64 },
}

/// The answer; a start has none.
type Reply = Result<Option<Counts>, String>;

/// The run's end, until the run has it.
pub(crate) struct Offer(OwnedFd);

impl Offer {
    /// Leaves a thread behind, where this one is now.
    ///
    /// # Errors
    /// No sockets, no threads.
    pub(crate) fn make() -> std::io::Result<Offer> {
        let (ours, theirs) = UnixStream::pair()?;
        std::thread::Builder::new()
            .name("thrufs-counter".to_owned())
            .spawn(move || serve(&ours))?;
        Ok(Offer(theirs.into()))
    }

    /// Lets a process have it, which is about to be started.
    pub(crate) fn give(&self, command: &mut Command) -> std::io::Result<()> {
        fcntl_setfd(&self.0, FdFlags::empty())?;
        command.env(SOCKET, self.0.as_raw_fd().to_string());
        Ok(())
    }
}

/// Until the run has ended.
fn serve(stream: &UnixStream) {
    let mut counting = None;
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let reply = match serde_json::from_str(&line) {
            Ok(order) => carry_out(order, &mut counting),
            Err(error) => Err(error.to_string()),
        };
        if say(stream, &reply).is_err() {
            return;
        }
    }
}

fn carry_out(order: Order, counting: &mut Option<Counting>) -> Reply {
    match order {
        Order::Start { connection } => {
            let connection = Connection(connection);
            let servers = servers::of_connection(connection);
            *counting = Some(Counting::of(connection, &servers)?);
            Ok(None)
        }
        Order::Stop { operations } => {
            let counting = counting.take().ok_or("nothing was started")?;
            counting.stop(operations).map(Some)
        }
    }
}

fn say(mut stream: &UnixStream, what: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_string(what)?;
    line.push('\n');
    stream.write_all(line.as_bytes())
}

/// The run's end of it.
struct Outside {
    replies: BufReader<UnixStream>,
}

/// None where no thread has stayed outside.
fn outside() -> Option<&'static Mutex<Outside>> {
    static OUTSIDE: OnceLock<Option<Mutex<Outside>>> = OnceLock::new();
    let connected = OUTSIDE.get_or_init(|| {
        let number = std::env::var(SOCKET).ok()?;
        let socket = thrufs_sys::inherited::take(number.parse().ok()?).ok()?;
        Some(Mutex::new(Outside {
            replies: BufReader::new(UnixStream::from(socket)),
        }))
    });
    connected.as_ref()
}

/// Takes the socket, so that no child inherits it.
pub(crate) fn connect() {
    let _ = outside();
}

fn ask(order: Order) -> Option<Reply> {
    let mut outside = outside()?.lock().unwrap_or_else(PoisonError::into_inner);
    let asked = say(outside.replies.get_ref(), &order);
    let mut line = String::new();
    let answered = asked.and_then(|()| outside.replies.read_line(&mut line));
    Some(match answered {
        Ok(_) => serde_json::from_str(&line).unwrap_or_else(|error| Err(error.to_string())),
        Err(error) => Err(error.to_string()),
    })
}

/// Begins, if there is a thread outside.
pub(super) fn start(mount: &Path) -> Outcome<bool> {
    let Connection(connection) = Connection::of(mount)?;
    match ask(Order::Start { connection }) {
        None => Ok(false),
        Some(reply) => reply.map(|_| true),
    }
}

/// Ends it.
pub(super) fn stop(operations: u64) -> Outcome<Counts> {
    let reply = ask(Order::Stop { operations }).ok_or("no process counts outside")?;
    reply?.ok_or_else(|| "no counts".to_owned())
}
