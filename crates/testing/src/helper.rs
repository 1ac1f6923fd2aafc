//! Commands of a case's second process: the test program, started again.
//!
//! ```text
//! lock-try  OWNER KIND PATH START LEN   takes a lock or not, prints "ok" or "errno N", ends
//! lock-hold OWNER KIND PATH START LEN   prints "waiting", takes the lock (blocking), prints "ok" or
//!                                       "errno N", holds it until standard input closes.
//!                                       SIGUSR1 interrupts the wait.
//! lock-two OWNER KIND PATH START LEN SECOND  the same, and then of the file SECOND besides
//! lock-query OWNER KIND PATH START LEN  prints "free" or "held KIND START LEN PID"
//! append PATH TEXT COUNT                appends TEXT and a newline COUNT times, one write each
//! hold PATH                             opens PATH for reading and writing, prints "ok", holds it
//! ```
//!
//! OWNER is `process`, `description` (OFD) or `flock`; KIND is `read` or `write`.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::iter::once;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

use rustix::fs::FlockOperation;

use crate::fence::interrupt::interrupt_on_usr1;
use crate::fence::record_lock::{self, Kind, Owner, Range};
use crate::process::Process;

pub(crate) const MARK: &str = "--as-another-process";

/// Runs the command and returns the exit code for `main`, in a process that a case has started. `None` in others.
pub fn run_if_started() -> Option<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [MARK, command @ ..] = arguments.as_slice() else {
        return None;
    };
    Some(match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{command:?}: {error}");
            ExitCode::FAILURE
        }
    })
}

/// Starts this program again with a command.
#[track_caller]
pub(crate) fn start<S: AsRef<OsStr>>(command: &[S]) -> Process {
    let command = command.iter().map(AsRef::as_ref);
    let arguments: Vec<&OsStr> = once(OsStr::new(MARK)).chain(command).collect();
    Process::start(&program(), &arguments)
}

/// The same, waits for its end and returns its output.
#[track_caller]
pub(crate) fn output<S: AsRef<OsStr>>(command: &[S]) -> String {
    start(command).output()
}

pub(crate) fn program() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// Runs a command.
///
/// # Errors
///
/// For an unknown command, invalid arguments or an error of the file. A refused lock is printed, no error.
pub fn run(command: &[&str]) -> io::Result<()> {
    match command {
        ["lock-try", rest @ ..] => lock_try(rest),
        ["lock-hold", rest @ ..] => lock_hold(rest),
        ["lock-two", owner, kind, path, start, len, second] => lock_two(
            &[owner, kind, path, start, len],
            &[owner, kind, second, start, len],
        ),
        ["lock-query", rest @ ..] => lock_query(rest),
        ["append", path, text, count] => append(path, text, count),
        ["hold", path] => hold(path),
        other => Err(io::Error::other(format!("unknown command {other:?}"))),
    }
}

struct Request {
    file: File,
    /// None for flock.
    owner: Option<Owner>,
    kind: Kind,
    range: Range,
}

impl Request {
    fn parse(args: &[&str]) -> io::Result<Self> {
        let [owner, kind, path, start, len] = args else {
            return Err(io::Error::other("OWNER KIND PATH START LEN"));
        };
        let owner = match *owner {
            "process" => Some(Owner::Process),
            "description" => Some(Owner::Description),
            "flock" => None,
            _ => return Err(io::Error::other("OWNER")),
        };
        let kind = match *kind {
            "read" => Kind::Read,
            "write" => Kind::Write,
            _ => return Err(io::Error::other("KIND")),
        };
        let number = |text: &str| text.parse().map_err(io::Error::other);
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let range = Range {
            start: number(start)?,
            len: number(len)?,
        };
        Ok(Self {
            file,
            owner,
            kind,
            range,
        })
    }

    fn take(&self, wait: bool) -> io::Result<()> {
        let Some(owner) = self.owner else {
            let operation = match (self.kind, wait) {
                (Kind::Read, true) => FlockOperation::LockShared,
                (Kind::Read, false) => FlockOperation::NonBlockingLockShared,
                (_, true) => FlockOperation::LockExclusive,
                (_, false) => FlockOperation::NonBlockingLockExclusive,
            };
            return Ok(rustix::fs::flock(&self.file, operation)?);
        };
        record_lock::set(self.file.as_fd(), owner, self.kind, self.range, wait)
    }
}

/// Prints "ok" or the errno.
pub fn report(result: io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) => say("ok"),
        Err(error) => say(&format!("errno {}", error.raw_os_error().unwrap_or(0))),
    }
}

/// Prints a line at once.
pub fn say(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

fn wait_for_end_of_input() -> io::Result<()> {
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}

fn lock_try(args: &[&str]) -> io::Result<()> {
    let request = Request::parse(args)?;
    report(request.take(false))
}

fn lock_hold(args: &[&str]) -> io::Result<()> {
    interrupt_on_usr1()?;
    let request = Request::parse(args)?;
    say("waiting")?;
    report(request.take(true))?;
    wait_for_end_of_input()
}

fn lock_two(first: &[&str], second: &[&str]) -> io::Result<()> {
    let requests = [Request::parse(first)?, Request::parse(second)?];
    for request in &requests {
        say("waiting")?;
        report(request.take(true))?;
    }
    wait_for_end_of_input()
}

fn lock_query(args: &[&str]) -> io::Result<()> {
    let request = Request::parse(args)?;
    let owner = request.owner.unwrap_or(Owner::Process);
    match record_lock::query(request.file.as_fd(), owner, request.kind, request.range)? {
        None => say("free"),
        Some(held) => say(&format!(
            "held {:?} {} {} {}",
            held.kind, held.range.start, held.range.len, held.pid
        )),
    }
}

fn append(path: &str, text: &str, count: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    let count: u32 = count.parse().map_err(io::Error::other)?;
    let line = format!("{text}\n");
    for _ in 0..count {
        // One write each: that is what O_APPEND makes atomic.
        if file.write(line.as_bytes())? != line.len() {
            return Err(io::Error::other("short write"));
        }
    }
    Ok(())
}

fn hold(path: &str) -> io::Result<()> {
    let _file = OpenOptions::new().read(true).write(true).open(path)?;
    say("ok")?;
    wait_for_end_of_input()
}
