//! `auto_unmount`: a third process, which takes the mount away when its supervisor was killed.
//!
//! It holds nothing of the mount but the file that aborts its connection, parses nothing, and waits for
//! the supervisor to say that all is done, or to be gone. As long as the supervisor lives, it takes a dead
//! mount away itself.

use crate::channel::{Channel, Message};
use crate::config::MountConfig;
use crate::error::{CommandError, system};
use crate::log::Log;
use crate::mounting::{self, Target};
use crate::process::{Process, Role};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use thrufs_sys::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SignalFd};

/// How long to look for a dead mount. Its worker ends when its supervisor does, and with it the
/// connection, if that was not aborted.
const DEATH_TIMEOUT: Duration = Duration::from_secs(10);

const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Such a process, as its supervisor sees it.
#[derive(Debug)]
pub(crate) struct AutoUnmount(Process);

impl AutoUnmount {
    /// Starts it, if that was asked for.
    ///
    /// # Errors
    ///
    /// No descriptors, no processes.
    pub(crate) fn start_if_wanted(
        config: &MountConfig,
    ) -> Result<Option<AutoUnmount>, CommandError> {
        if !config.auto_unmount {
            return Ok(None);
        }
        let process = Process::start(Role::AutoUnmount, config.paths())
            .map_err(system("start the auto_unmount process"))?;
        let serve = Message::Serve(Box::new(config.clone()), Vec::new());
        let heard = process.channel.send(&serve);
        heard.map_err(system("send to the auto_unmount process"))?;
        Ok(Some(AutoUnmount(process)))
    }

    /// Passes something on: the file that aborts, that it is time to leave the terminal.
    pub(crate) fn tell(&self, message: &Message) {
        let _ = self.0.channel.send(message);
    }
}

impl Drop for AutoUnmount {
    /// The supervisor comes to its end, and has left what it was to leave.
    fn drop(&mut self) {
        self.tell(&Message::Stop);
        let _ = self.0.wait();
    }
}

/// The process (see [`Role::AutoUnmount`]).
pub(crate) fn main() -> ExitCode {
    let Ok(supervisor) = Channel::of_this_process() else {
        return ExitCode::FAILURE;
    };
    // What ends the others ends it in its turn: signals to the terminal's group, or a service's.
    let signals = SignalFd::block_and_open(&[SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1]);
    let _ = rustix::process::setsid();
    let Ok(Some(Message::Serve(config, _))) = supervisor.receive() else {
        return ExitCode::FAILURE;
    };
    let (Ok(_signals), Ok(log)) = (signals, Log::begin(&config.server)) else {
        return ExitCode::FAILURE;
    };
    let _ = std::env::set_current_dir("/");
    let mut target = Target {
        mountpoint: config.mountpoint,
        device: None,
        privileged: mounting::is_privileged(),
    };
    let mut abort = None;
    loop {
        match supervisor.receive() {
            Ok(Some(Message::Mounted(file))) => {
                target.device = mounting::device_number(&target.mountpoint);
                abort = file;
            }
            Ok(Some(Message::Background)) => drop(log.leave_the_terminal()),
            Ok(Some(Message::Stop)) => return ExitCode::SUCCESS,
            Ok(Some(other)) => tracing::debug!(?other, "unexpected message to auto_unmount"),
            Ok(None) | Err(_) => break,
        }
    }
    take_away(&target, abort);
    ExitCode::FAILURE
}

fn take_away(target: &Target, abort: Option<OwnedFd>) {
    let mountpoint = target.mountpoint.display();
    if let Some(file) = abort {
        let _ = thrufs::mount::abort_by(file);
    }
    let deadline = Instant::now() + DEATH_TIMEOUT;
    // Without a number, it may not have been mounted yet.
    while target.device.is_none() || target.is_mounted() {
        if !target.dead().is_empty() {
            match target.unmount_dead() {
                Ok(()) => tracing::error!("the supervisor died: unmounted {mountpoint}"),
                Err(error) => tracing::error!("the supervisor died: {error}"),
            }
            return;
        }
        if Instant::now() >= deadline {
            return;
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
}
