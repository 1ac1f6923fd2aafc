//! Whether another program can take over from a supervisor: it is started, and reads what it would be given.

use super::handover::{Incoming, MountState, ShareState, Slot, State, receive};
use super::request::Request;
use crate::task::Task;
use crate::waiting;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, ExitCode};
use std::time::{Duration, Instant};
use thrufs::session::Journal;
use thrufs_hostdir::{Ledger, printable};
use thrufs_virtio::Journal as MachineJournal;

/// For the reply of the program.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

const YES: &[u8] = b"yes";
const REASON_BYTES_MAX: usize = 4096;

/// An upgrade that has begun.
#[derive(Debug)]
pub(crate) struct Upgrade {
    pub(crate) request: Request,
    stage: Stage,
    /// What a worker of the program has reported, if it failed.
    pub(crate) failure: Option<String>,
}

#[derive(Debug)]
enum Stage {
    /// The program reads what it would be given.
    Checking(Task<Result<(), String>>),
    /// A worker of it is to serve.
    Proving,
}

impl Upgrade {
    /// Has the program checked, which `start` starts [with one end](crate::process::start_with_socket) of
    /// [`put`](super::handover::put); `ours` is the other.
    pub(crate) fn begin(
        request: Request,
        ours: OwnedFd,
        start: impl FnOnce() -> io::Result<Child> + Send + 'static,
    ) -> io::Result<Upgrade> {
        let task = Task::start(move || ask(&ours, start))?;
        Ok(Upgrade {
            request,
            stage: Stage::Checking(task),
            failure: None,
        })
    }

    /// What to wait for, until [`checked`](Self::checked).
    pub(crate) fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        match &self.stage {
            Stage::Checking(task) => Some(task.as_fd()),
            Stage::Proving => None,
        }
    }

    /// The program of which a worker serves or is to serve.
    pub(crate) fn proving(&self) -> Option<PathBuf> {
        matches!(self.stage, Stage::Proving).then(|| self.request.program())
    }

    /// What the program has answered. Its worker is next.
    pub(crate) fn checked(&mut self) -> Result<(), String> {
        match std::mem::replace(&mut self.stage, Stage::Proving) {
            Stage::Checking(task) => task.finish().unwrap_or_else(|| Err("panic".to_owned())),
            Stage::Proving => Ok(()),
        }
    }
}

/// Starts the program and receives its answer.
fn ask(ours: &OwnedFd, start: impl FnOnce() -> io::Result<Child>) -> Result<(), String> {
    let mut child = start().map_err(|error| format!("the new program does not start: {error}"))?;
    let mut answer = [0; REASON_BYTES_MAX];
    let deadline = Some(Instant::now() + CHECK_TIMEOUT);
    let length = match waiting::readable([Some(ours.as_fd())], deadline) {
        [true] => {
            let mut receive = || recv(ours, &mut answer, RecvFlags::DONTWAIT);
            // A program that has not read all resets the connection: its answer comes after that error.
            receive()
                .or_else(|_| receive())
                .map_or(0, |(length, _)| length)
        }
        [false] => 0,
    };
    let _ = child.kill();
    let _ = child.wait();
    match &answer[..length] {
        YES => Ok(()),
        b"" => {
            let why = "the new program does not say that it can take over: it is another program, or older than \
                       this command";
            Err(why.to_owned())
        }
        why => Err(printable(&String::from_utf8_lossy(why))),
    }
}

/// The process (see [`Role::UpgradeCheck`]).
pub(crate) fn main() -> ExitCode {
    let Ok(socket) = io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    let read = receive(&socket).and_then(|(state, files)| match state {
        State::Mount(state) => check_mount(&state, files),
        State::Share(state) => check_share(&state, files),
    });
    let answer = match read {
        Ok(()) => YES.to_vec(),
        Err(error) => error.to_string().into_bytes(),
    };
    let answer = &answer[..answer.len().min(REASON_BYTES_MAX)];
    match send(&socket, answer, SendFlags::NOSIGNAL) {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Changes nothing of what the supervisor and its worker use.
fn check_mount(state: &MountState, mut files: Incoming) -> io::Result<()> {
    for slot in [
        Slot::Device,
        Slot::Source,
        Slot::StoreEnd,
        Slot::StoreSocket,
    ] {
        files.take(slot)?;
    }
    let journal = Journal::from_memory(files.take(Slot::Journal)?)?;
    Ledger::from(files.take(Slot::Ledger)?).check()?;
    let why = match () {
        () if !journal.has_session() => "its session has not begun",
        () if state.config.server.deaths_max == 0 => "it was mounted without resume=N",
        () => return Ok(()),
    };
    Err(io::Error::other(why))
}

/// The same of a share. What its machines have sent is not given to this process, whose end would wait for it.
fn check_share(state: &ShareState, mut files: Incoming) -> io::Result<()> {
    for slot in [Slot::Source, Slot::Listener] {
        files.take(slot)?;
    }
    for _ in &state.machines {
        let mut files = files.next_machine();
        MachineJournal::from_memory(files.take(Slot::Journal)?)?;
        Ledger::from(files.take(Slot::Ledger)?).check()?;
    }
    Ok(())
}
