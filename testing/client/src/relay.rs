//! A mount on this machine whose requests go to a vhost-user server.
//!
//! Requests are read from `/dev/fuse` and put on the queues unchanged, and replies are written back unchanged:
//! this machine's kernel acts as the guest's. So tests and programs reach a virtio-fs server by paths.
//!
//! ```text
//! programs ─► kernel ─► /dev/fuse ─► channel ─► request queue ─► server
//!                                       └─────► high-priority queue (FORGET, INTERRUPT)
//! ```
//!
//! | module | content |
//! |---|---|
//! | `greeting` | INIT, limited to what both ends and the queues support |
//! | `channel` | the thread of one request queue |
//! | `high_priority` | the high-priority queue, which all channels share |
//!
//! Each request queue has a thread with its own `/dev/fuse` descriptor, because a reply must be written to the
//! descriptor of its request. The thread owns its queue, keeps as many requests in flight as it has buffers,
//! and never waits for a particular one. The high-priority queue has a lock.
//!
//! The server is not trusted: a reply that the kernel would refuse becomes EIO, because otherwise its caller
//! would wait for ever.

mod channel;
mod error;
mod greeting;
mod high_priority;
mod shared;

pub use error::RelayError;
pub(crate) use error::system;

use crate::front_end::FrontEnd;
use channel::Channel;
use shared::Shared;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use thrufs::mount::{
    MountOptions, mount, mount_unprivileged, open_device, unmount, unmount_unprivileged,
};
use thrufs_abi::{NodeId, Opcode, RequestBuilder, Unique};
use thrufs_sys::fuse_dev;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// Interval of polling for the kernel's INIT.
const GREETING_POLL: Duration = Duration::from_millis(1);

/// The unique id of DESTROY: the kernel's are even and begin at 2.
const DESTROY_UNIQUE: Unique = Unique(u64::MAX - 1);

/// A mount served over a [`FrontEnd`]. Dropping it unmounts.
pub struct Relay {
    shared: Arc<Shared>,
    channels: Vec<JoinHandle<()>>,
}

/// Ends a [`Relay`] from another thread.
#[derive(Clone)]
pub struct RelayHandle(Arc<Shared>);

impl RelayHandle {
    /// Unmounts, lazily if the mount is busy: its users get errors then. Requests in flight are answered for
    /// some seconds.
    pub fn unmount(&self) {
        if self.0.is_ending() {
            // Another mount may be there by now.
            return;
        }
        if self.0.unmount(false).is_err() {
            let _ = self.0.unmount(true);
        }
        self.0.end();
    }
}

impl Relay {
    /// Mounts on the directory `target`: as root with `allow_other`, as another user through `fusermount3`.
    /// The kernel checks permissions, as in a guest. `name` is the source in the mount table. Returns when
    /// INIT is answered.
    ///
    /// # Errors
    ///
    /// When INIT or the mount fails. Nothing is left mounted.
    pub fn mount(front_end: FrontEnd, target: &Path, name: &str) -> Result<Relay, RelayError> {
        let system_error = system::<io::Error>;
        let eventfd =
            EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK).map_err(system_error("make an event"))?;
        let unprivileged = !rustix::process::geteuid().is_root();
        let options = MountOptions {
            subtype: Some("thrufs-client".to_owned()),
            allow_other: !unprivileged,
            ..MountOptions::new(name)
        };
        let device = if unprivileged {
            let device = mount_unprivileged(target, &options)?;
            greet(&device, &front_end).inspect_err(|_| {
                let _ = unmount_unprivileged(target, true);
            })?;
            device
        } else {
            mount_and_greet(&front_end, target, &options)?
        };
        let shared = Arc::new(Shared {
            front_end,
            target: target.to_owned(),
            unprivileged,
            ends: AtomicBool::new(false),
            eventfd,
            failure: Mutex::new(None),
        });
        let mut relay = Relay {
            shared,
            channels: Vec::new(),
        };
        // From here on, a failure unmounts by drop.
        relay.start(device)?;
        Ok(relay)
    }

    fn start(&mut self, device: OwnedFd) -> Result<(), RelayError> {
        let count = self.shared.front_end.request_queues();
        let mut devices = Vec::new();
        for _ in 1..count {
            let cloned = fuse_dev::clone_channel(device.as_fd());
            devices.push(cloned.map_err(system("open another channel"))?);
        }
        devices.push(device);
        for (number, device) in devices.into_iter().enumerate() {
            let shared = Arc::clone(&self.shared);
            let started = std::thread::Builder::new()
                .name(format!("thrufs-relay-{number}"))
                .spawn(move || {
                    if let Err(error) = Channel::serve(&shared, device, number as u16) {
                        shared.fail(error);
                    }
                });
            self.channels
                .push(started.map_err(system("start a thread"))?);
        }
        Ok(())
    }

    /// A handle to unmount from another thread.
    #[must_use]
    pub fn handle(&self) -> RelayHandle {
        RelayHandle(Arc::clone(&self.shared))
    }

    /// Waits for the unmount and ends the session with the server.
    ///
    /// # Errors
    ///
    /// When the server has disconnected or failed, which unmounts too.
    pub fn wait(mut self) -> Result<(), RelayError> {
        self.join();
        let mut failure = self.shared.failure.lock();
        let failure = failure.as_mut().map_or(None, |failure| failure.take());
        failure.map_or(Ok(()), Err)
    }

    /// With the threads the last `/dev/fuse` descriptor closes, and the kernel fails pending requests.
    fn join(&mut self) {
        for channel in self.channels.drain(..) {
            let _ = channel.join();
        }
        let failed = self.shared.failure.lock();
        if failed.is_ok_and(|failed| failed.is_some()) {
            let _ = self.shared.unmount(true);
            return;
        }
        let destroy = RequestBuilder::new(Opcode::Destroy, DESTROY_UNIQUE, NodeId(0)).finish();
        // Fails when the server has gone.
        let _ = self.shared.front_end.exchange(&destroy, 16);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if !self.channels.is_empty() {
            self.handle().unmount();
            self.join();
        }
    }
}

/// Mounts as root, on another thread: mount(2) may wait for the reply to INIT (`FUSE_DEV_IOC_SYNC_INIT`).
fn mount_and_greet(
    front_end: &FrontEnd,
    target: &Path,
    options: &MountOptions,
) -> Result<OwnedFd, RelayError> {
    let (device, _waits) = open_device()?;
    std::thread::scope(|scope| {
        let mounter = scope.spawn(|| mount(&device, target, options));
        let greeted = greet_while(&device, front_end, || !mounter.is_finished());
        if greeted.is_err() {
            // An invalid reply aborts the connection, and with it the mount call that waits for INIT.
            let _ = rustix::io::write(&device, &[0; 16]);
        }
        let mounted = mounter
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match (mounted, greeted) {
            (Ok(()), Ok(())) => Ok(()),
            (Ok(()), Err(error)) => {
                let _ = unmount(target, true);
                Err(error)
            }
            (Err(_), Err(error @ (RelayError::Greeting(_) | RelayError::Refused(_)))) => Err(error),
            (Err(error), _) => Err(error.into()),
        }
    })?;
    Ok(device)
}

fn greet(device: &OwnedFd, front_end: &FrontEnd) -> Result<(), RelayError> {
    greet_while(device, front_end, || true)
}

/// Reads INIT and answers it with the server's reply. Fails when none comes and `goes_on` is false.
fn greet_while(
    device: &OwnedFd,
    front_end: &FrontEnd,
    goes_on: impl Fn() -> bool,
) -> Result<(), RelayError> {
    let limits = greeting::Limits::of(front_end)?;
    rustix::io::ioctl_fionbio(device, true).map_err(system("change the device"))?;
    let mut request = vec![0; greeting::REQUEST_BYTES_MAX];
    let length = loop {
        let waits = goes_on();
        match rustix::io::read(device, &mut request[..]) {
            Ok(length) => break length,
            Err(_) if waits => std::thread::sleep(GREETING_POLL),
            Err(errno) => return Err(system("read INIT")(errno)),
        }
    };
    let reply = greeting::pass(front_end, &request[..length], limits)?;
    rustix::io::write(device, &reply.bytes).map_err(system("answer INIT"))?;
    reply.outcome
}
