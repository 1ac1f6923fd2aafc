//! Destinations of the log.
//!
//! Until the mount is ready, standard error. Afterwards, in the background: `log_file`; else standard
//! error if it is the journal; else nowhere. With `syslog`, syslog(3) from the beginning. A worker logs
//! through its supervisor ([`relay`]). SIGHUP has the log file opened again.

mod json;
mod rate;
mod syslog;

use crate::config::ServerConfig;
use crate::error::{StartupError, system, system_at};
use crate::lookup;
use crate::output::{report_as_json, write_report};
use crate::task::start_thread;
use crate::waiting;
use json::JsonLines;
use parking_lot::Mutex;
use rate::{LogRate, PIECE_BYTES_MAX};
use rustix::fs::{Mode, OFlags};
use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::Instant;
use syslog::Syslog;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::{EnvFilter, Registry, reload};

const DEFAULT: &str = "info";

const VARIABLE: &str = "THRUFS_LOG";

pub(crate) fn filter(config: &ServerConfig) -> Result<EnvFilter, StartupError> {
    let variable = || std::env::var(VARIABLE).ok();
    let given = config
        .log
        .clone()
        .or_else(|| variable().filter(|value| !value.is_empty()));
    let directives = given.unwrap_or(DEFAULT.to_owned());
    let wrong = |problem| StartupError::Log {
        directives: directives.clone(),
        problem,
    };
    // `EnvFilter` takes a word that is no level for a target, of which everything is logged.
    let words = directives.split(',').map(str::trim);
    for word in words.filter(|word| !word.is_empty() && !word.contains(['=', '['])) {
        let level = word.parse::<LevelFilter>();
        level.map_err(|_| wrong(format!("`{word}` is no level")))?;
    }
    EnvFilter::try_new(&directives).map_err(|error| wrong(error.to_string()))
}

/// Starts logging to standard error, or syslog. A worker's standard error is a pipe to its supervisor: a
/// worker that opens files by handle could open, from the descriptor of a log file, all files of its file
/// system.
pub(crate) fn begin_in_worker(config: &ServerConfig) -> Result<(), StartupError> {
    let (filter, level) = reload::Layer::new(filter(config)?);
    let syslog = config.syslog.then(Syslog::connect).transpose();
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_target(false)
        // They go to standard error, and panic when that is closed.
        .log_internal_errors(false);
    let (lines, unreached) = match syslog {
        Ok(Some(syslog)) => (lines.without_time().with_writer(syslog).boxed(), None),
        other => {
            let lines = lines.with_writer(|| StandardError);
            let lines = match config.log_json {
                true => {
                    report_as_json();
                    lines.event_format(JsonLines).boxed()
                }
                false => lines.boxed(),
            };
            (lines, other.err())
        }
    };
    let subscriber = tracing_subscriber::registry().with(filter).with(lines);
    // Fails only if a logger was set earlier in this process.
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        let _ = LEVEL.set(level);
    }
    if let Some(error) = unreached {
        tracing::warn!("cannot connect to syslog: {error}");
    }
    Ok(())
}

static LEVEL: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// From now on, this process logs what is at least as important as this.
pub(crate) fn set_level(level: &str) -> Result<(), String> {
    let known = level.parse::<LevelFilter>();
    let known = known.map_err(|_| format!("`{level}` is no level"))?;
    let filter = EnvFilter::new(known.to_string());
    let set = LEVEL.get().map(|handle| handle.reload(filter));
    set.transpose().map(drop).map_err(|error| error.to_string())
}

/// Of this process, once it [`is_limited`](limit), and of all whose logs it relays: peers make it start processes, and
/// each is written about.
static RATES: Mutex<Option<[LogRate; 2]>> = Mutex::new(None);

/// From now on, what this process logs is limited, and what its workers log together.
pub(crate) fn limit() {
    *RATES.lock() = Some([LogRate::new(Instant::now()), LogRate::new(Instant::now())]);
}

/// Standard error, where what peers and names of files say controls no terminal.
struct StandardError;

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let admitted = match &mut *RATES.lock() {
            Some([own, _]) => own.admit(bytes, Instant::now()),
            None => Some(0),
        };
        match admitted {
            None => return Ok(bytes.len()),
            Some(0) => {}
            Some(lines) => write_report(&omitted(lines))?,
        }
        write_report(&String::from_utf8_lossy(bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

fn omitted(lines: u64) -> String {
    format!("{lines} lines were left out of the log: there are too many\n")
}

/// Starts a thread that relays the log of a process to standard error, at a limited [rate], until it has `ended`. Others may
/// hold the pipe longer: a worker under a guest's control may have passed it on.
pub(crate) fn relay(pipe: OwnedFd, ended: OwnedFd) -> io::Result<JoinHandle<()>> {
    start_thread("thrufs-log", move || {
        let mut bytes = vec![0; PIECE_BYTES_MAX];
        let mut rate = LogRate::new(Instant::now());
        let mut has_ended = false;
        while !has_ended {
            has_ended = waiting::readable([Some(pipe.as_fd()), Some(ended.as_fd())], None)[1];
            // What it has written before its end fits into the pipe.
            let now = Some(Instant::now());
            if waiting::readable([Some(pipe.as_fd())], now)[0] {
                let Ok(length @ 1..) = rustix::io::read(&pipe, &mut bytes) else {
                    break;
                };
                let (lines, now) = (&bytes[..length], Instant::now());
                let admitted = match &mut *RATES.lock() {
                    Some([_, all]) => rate.admit_of(all, lines, now),
                    None => rate.admit(lines, now),
                };
                if let Some(omitted) = admitted {
                    say_omitted(omitted);
                    // A failed write must not block the child.
                    let _ = write_report(&String::from_utf8_lossy(lines));
                }
            }
        }
        say_omitted(rate.take_omitted());
    })
}

fn say_omitted(lines: u64) {
    if lines > 0 {
        tracing::warn!("{lines} lines of a worker were left out of the log: it logs too much");
    }
}

#[derive(Debug)]
pub(crate) struct Log {
    file: Option<OwnedFd>,
    /// /dev/null, opened while it is visible; `None` in the foreground.
    null: Option<OwnedFd>,
}

impl Log {
    /// Starts logging to standard error, or in the foreground to the file.
    pub(crate) fn begin(config: &ServerConfig) -> Result<Log, StartupError> {
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

    /// Opens a log file again, which may have been renamed. Without the new one, the old one stays. Returns whether there
    /// is one.
    pub(crate) fn reopen(&self, config: &ServerConfig) -> Result<bool, String> {
        // What these lead to depends on what is open.
        let leads_on = |path: &PathBuf| path.starts_with("/dev") || path.starts_with("/proc");
        if config.log_file.as_ref().is_none_or(leads_on) {
            return Ok(false);
        }
        let stays = |why: &dyn Display| format!("the log stays where it was: {why}");
        match open(config).map(|file| file.as_ref().map(rustix::stdio::dup2_stderr)) {
            Ok(Some(Err(errno))) => Err(stays(&errno)),
            Ok(_) => Ok(true),
            Err(error) => Err(stays(&error)),
        }
    }

    /// Goes on where an earlier program of this process has logged.
    pub(crate) fn resume(config: &ServerConfig) -> Result<Log, StartupError> {
        begin_in_worker(config)?;
        let (file, null) = (None, None);
        Ok(Log { file, null })
    }

    /// Redirects standard output and error, which belong to the launcher's user.
    pub(crate) fn leave_the_terminal(&self) -> Result<(), StartupError> {
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

fn open(config: &ServerConfig) -> Result<Option<OwnedFd>, StartupError> {
    let Some(path) = &config.log_file else {
        return Ok(None);
    };
    let opened = lookup::open_log(path, Mode::from_raw_mode(0o640));
    let file = opened.map_err(system_at("append to the log file", path))?;
    Ok(Some(file))
}

/// Whether standard error is systemd's journal (systemd.exec(5), `JOURNAL_STREAM`).
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    let stat = rustix::fs::fstat(io::stderr().as_fd());
    stat.is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    #[test]
    fn log_of_a_process_ends_with_it_though_others_hold_the_pipe() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        let (ours, _held) = pipe().unwrap();
        relay(ours, ended).unwrap().join().unwrap();
        child.wait().unwrap();
    }
}
