//! `auto_unmount`: a third process, which unmounts after the supervisor was killed.
//!
//! It holds nothing of the mount but the file that aborts its connection, parses nothing, and waits until
//! the supervisor ends. A supervisor that is alive unmounts a dead mount itself.

use crate::channel::{Order, ToParent};
use crate::config::MountConfig;
use crate::error::{StartupError, system};
use crate::log::Log;
use crate::mounting::{self, MountTarget};
use crate::process::{Process, Role};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use thrufs_sys::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SignalFd};

/// How long to wait for the mount to be dead. The worker ends when its supervisor does, and with it a
/// connection that was not aborted.
const DEATH_TIMEOUT: Duration = Duration::from_secs(10);

const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// The supervisor's handle of the process.
#[derive(Debug)]
pub(crate) struct AutoUnmount(Process);

impl AutoUnmount {
    pub(crate) fn start_if_wanted(
        config: &MountConfig,
    ) -> Result<Option<AutoUnmount>, StartupError> {
        if !config.auto_unmount {
            return Ok(None);
        }
        let process = Process::start(Role::AutoUnmount, config.paths())
            .map_err(system("start the auto_unmount process"))?;
        let serve = Order::Serve(Box::new(config.clone()), Vec::new());
        let sent = process.channel.send(&serve);
        sent.map_err(system("send to the auto_unmount process"))?;
        Ok(Some(AutoUnmount(process)))
    }

    pub(crate) fn send(&self, message: &Order) {
        let _ = self.0.channel.send(message);
    }
}

impl Drop for AutoUnmount {
    /// The supervisor has ended regularly: nothing to unmount.
    fn drop(&mut self) {
        self.send(&Order::Stop);
        let _ = self.0.wait();
    }
}

/// The process (see [`Role::AutoUnmount`]).
pub(crate) fn main() -> ExitCode {
    let Ok(supervisor) = ToParent::of_this_process() else {
        return ExitCode::FAILURE;
    };
    // A signal to the terminal's or the service's process group must not end it before the others.
    let signals = SignalFd::block_and_open(&[SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1]);
    let _ = rustix::process::setsid();
    let Ok(Some(Order::Serve(config, _))) = supervisor.receive() else {
        return ExitCode::FAILURE;
    };
    let (Ok(_signals), Ok(log)) = (signals, Log::begin(&config.server)) else {
        return ExitCode::FAILURE;
    };
    let _ = std::env::set_current_dir("/");
    let mut target = MountTarget {
        mountpoint: config.mountpoint.clone(),
        mounted: None,
    };
    let mut abort = None;
    loop {
        match supervisor.receive() {
            Ok(Some(Order::Mounted(mut file))) => {
                target.mounted = mounting::fuse_on(&target.mountpoint);
                abort = file.pop();
            }
            Ok(Some(Order::Background)) => drop(log.leave_the_terminal()),
            // The supervisor says if it fails.
            Ok(Some(Order::ReopenLog)) => drop(log.reopen(&config.server)),
            Ok(Some(Order::Stop)) => return ExitCode::SUCCESS,
            Ok(Some(other)) => tracing::debug!(?other, "unexpected message to auto_unmount"),
            Ok(None) | Err(_) => break,
        }
    }
    unmount_after_death(&target, abort);
    ExitCode::FAILURE
}

fn unmount_after_death(target: &MountTarget, abort: Option<OwnedFd>) {
    let mountpoint = target.mountpoint.display();
    if let Some(file) = abort {
        let _ = thrufs::mount::abort_by(file);
    }
    let deadline = Instant::now() + DEATH_TIMEOUT;
    // Without a device number, the mount may not exist yet.
    while target.mounted.is_none() || target.is_mounted() {
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
