//! Where the log goes.
//!
//! Until the mount stands, standard error. Afterwards, in the background: the file that was asked
//! for; else standard error if that is the journal's; else nowhere.
//! Or from the beginning, if that was asked for, the system's log. A worker's goes where its supervisor's
//! does, by way of it ([`relay`]).

mod syslog;

use crate::config::ServerConfig;
use crate::error::{CommandError, system};
use crate::task::start_thread;
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;
use syslog::Syslog;
use tracing_subscriber::EnvFilter;

/// What is logged when neither option nor environment says it.
const DEFAULT: &str = "info";

/// As much as a pipe has, so that lines are passed on whole.
const RELAYED_BYTES_MAX: usize = 64 << 10;

/// The variable that says what to log.
const VARIABLE: &str = "THRUFS_LOG";

/// What to log, checked.
///
/// # Errors
///
/// Directives that cannot be.
pub(crate) fn filter(config: &ServerConfig) -> Result<EnvFilter, CommandError> {
    let from_environment = || {
        std::env::var(VARIABLE)
            .ok()
            .filter(|value| !value.is_empty())
    };
    let directives = config
        .log
        .clone()
        .or_else(from_environment)
        .unwrap_or(DEFAULT.to_owned());
    EnvFilter::try_new(&directives).map_err(|error| CommandError::Log {
        directives,
        problem: error.to_string(),
    })
}

/// Begins to log to standard error, or the system's log. That is all for a worker, whose standard error is a
/// pipe to its supervisor: from a file that it held, one that opens files by handle could open all others.
///
/// # Errors
///
/// Directives that cannot be.
pub(crate) fn begin_in_worker(config: &ServerConfig) -> Result<(), CommandError> {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter(config)?)
        .with_ansi(false)
        .with_target(false)
        // To standard error, which panics where that is gone.
        .log_internal_errors(false);
    let syslog = config.syslog.then(Syslog::connect).transpose();
    let (begun, unreached) = match syslog {
        Ok(Some(syslog)) => {
            let subscriber = subscriber.without_time().with_writer(syslog).finish();
            (tracing::subscriber::set_global_default(subscriber), None)
        }
        other => {
            let subscriber = subscriber.with_writer(io::stderr).finish();
            let begun = tracing::subscriber::set_global_default(subscriber);
            (begun, other.err())
        }
    };
    // The only other logger there could be is one that was begun earlier in this process.
    let _ = begun;
    if let Some(error) = unreached {
        tracing::warn!("cannot connect to syslog: {error}");
    }
    Ok(())
}

/// Begins to pass on what comes by the pipe that it returns, which is to be standard output and error of a
/// process, to those of this one; until nobody has the pipe.
///
/// # Errors
///
/// No descriptors, no threads.
pub(crate) fn relay() -> io::Result<(OwnedFd, JoinHandle<()>)> {
    let (ours, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let relay = start_thread("thrufs-log", move || {
        let mut bytes = vec![0; RELAYED_BYTES_MAX];
        let mut pipe = File::from(ours);
        while let Ok(length @ 1..) = pipe.read(&mut bytes) {
            // What cannot be written must not hold up the process.
            let _ = io::stderr().write_all(&bytes[..length]);
        }
    })?;
    Ok((theirs, relay))
}

/// The log of one process.
#[derive(Debug)]
pub(crate) struct Log {
    file: Option<OwnedFd>,
    /// Opened while it is in view; not in the foreground.
    null: Option<OwnedFd>,
}

impl Log {
    /// Begins to log to standard error, or in the foreground at once to the file.
    ///
    /// # Errors
    ///
    /// A file that cannot be opened, directives that cannot be.
    pub(crate) fn begin(config: &ServerConfig) -> Result<Log, CommandError> {
        begin_in_worker(config)?;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let null = || rustix::fs::open("/dev/null", flags, Mode::empty());
        let null = (!config.foreground).then(null).transpose();
        let log = Log {
            file: open(config)?,
            null: null.map_err(system("open /dev/null"))?,
        };
        if config.foreground
            && let Some(file) = &log.file
        {
            rustix::stdio::dup2_stderr(file).map_err(system("redirect the log"))?;
        }
        Ok(log)
    }

    /// Leaves the terminal: standard output and error belong to whoever waits for the mount.
    ///
    /// # Errors
    ///
    /// None that is known.
    pub(crate) fn leave_the_terminal(&self) -> Result<(), CommandError> {
        let Some(null) = &self.null else {
            return Ok(());
        };
        rustix::stdio::dup2_stdout(null).map_err(system("detach from the terminal"))?;
        let log = match &self.file {
            Some(file) => file.as_fd(),
            None if is_journal() => return Ok(()),
            None => null.as_fd(),
        };
        rustix::stdio::dup2_stderr(log).map_err(system("detach from the terminal"))
    }
}

fn open(config: &ServerConfig) -> Result<Option<OwnedFd>, CommandError> {
    let Some(path) = &config.log_file else {
        return Ok(None);
    };
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o640)).map_err(|errno| {
        CommandError::LogFile {
            path: path.clone(),
            source: errno.into(),
        }
    })?;
    Ok(Some(file))
}

/// Whether standard error goes to systemd's journal (systemd.exec(5), `JOURNAL_STREAM`).
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    let stat = rustix::fs::fstat(io::stderr().as_fd());
    stat.is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}
