//! Mounting and serving.

use crate::adapter::{Adapter, Shared};
use crate::{Config, Filesystem, Notifier, SessionACL};
use std::error::Error;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thrufs::{MountFailure, MountedSession, SessionConfig, SessionError, SessionHandle};

/// How long an unmount waits while the mount is in use, and how often it tries.
const IN_USE_WAIT: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// An error with the kind of the system's error that it comes from.
fn io_error(error: impl Error + Send + Sync + 'static) -> io::Error {
    let mut source: Option<&(dyn Error + 'static)> = Some(&error);
    let mut kind = io::ErrorKind::Other;
    while let Some(cause) = source {
        if let Some(cause) = cause.downcast_ref::<io::Error>() {
            kind = cause.kind();
        }
        source = cause.source();
    }
    io::Error::new(kind, error)
}

/// A file system that is mounted.
#[derive(Debug)]
pub struct Session<FS: Filesystem> {
    served: Served<FS>,
    mount: Mount,
}

#[derive(Debug)]
enum Served<FS: Filesystem> {
    Mounted(MountedSession),
    /// Of a device that another has mounted.
    Device(Box<thrufs::Session<Adapter<FS>>>),
}

impl<FS: Filesystem> Session<FS> {
    /// Mounts. Requests are answered from then on, by threads of the library.
    ///
    /// # Errors
    /// `InvalidInput` for options; what keeps the mount from being made; the error of [`Filesystem::init`].
    pub fn new<P: AsRef<Path>>(
        filesystem: FS,
        mountpoint: P,
        options: &Config,
    ) -> io::Result<Session<FS>> {
        let mount_options = options.mount_options()?;
        let config = session_config(options)?;
        let shared = Shared::new(filesystem, options.acl, config.threads.readers);
        let target = std::path::absolute(mountpoint)?;
        let mounted = thrufs::mount(
            Adapter(Arc::clone(&shared)),
            &target,
            &mount_options,
            config,
        );
        let mounted =
            mounted.map_err(|failure| shared.refusal().unwrap_or_else(|| io_error(failure)))?;
        Ok(Session {
            mount: Mount::of(mounted.handle(), Some(target)),
            served: Served::Mounted(mounted),
        })
    }

    /// Serves an open `/dev/fuse`, which another mounts and unmounts. Waits for INIT.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn from_fd(
        filesystem: FS,
        fd: OwnedFd,
        acl: SessionACL,
        config: Config,
    ) -> io::Result<Session<FS>> {
        let config = session_config(&config)?;
        let shared = Shared::new(filesystem, acl, config.threads.readers);
        let session =
            thrufs::Session::new(Adapter(Arc::clone(&shared)), fd, config).map_err(io_error)?;
        if let Err(error) = session.handshake() {
            return Err(shared.refusal().unwrap_or_else(|| io_error(error)));
        }
        Ok(Session {
            mount: Mount::of(session.handle(), None),
            served: Served::Device(Box::new(session)),
        })
    }

    /// Waits until it is unmounted.
    ///
    /// # Errors
    /// What ended it otherwise.
    pub fn run(self) -> io::Result<()> {
        self.served.run()
    }

    /// Goes on in the background, until that is dropped.
    ///
    /// # Errors
    /// When there is no thread.
    pub fn spawn(self) -> io::Result<BackgroundSession> {
        let Session { served, mount } = self;
        let guard = std::thread::Builder::new()
            .name("thrufs-fuser".to_owned())
            .spawn(move || served.run())?;
        Ok(BackgroundSession {
            guard,
            mount: UnmountOnDrop(mount),
        })
    }

    /// Unmounts.
    ///
    /// # Errors
    /// EBUSY when it is in use.
    pub fn unmount(&mut self) -> io::Result<()> {
        self.mount.unmount()
    }

    /// What unmounts it, from any thread.
    pub fn unmount_callable(&mut self) -> SessionUnmounter {
        SessionUnmounter(self.mount.clone())
    }

    /// Sends notifications.
    pub fn notifier(&self) -> Notifier {
        Notifier(self.mount.handle.notifier())
    }
}

fn session_config(config: &Config) -> io::Result<SessionConfig> {
    let readers = NonZeroUsize::new(config.n_threads.unwrap_or(1));
    let readers =
        readers.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no threads"))?;
    let mut session = SessionConfig::default();
    session.threads.readers = Some(readers);
    Ok(session)
}

impl<FS: Filesystem> Served<FS> {
    fn run(self) -> io::Result<()> {
        let ended = match self {
            Served::Mounted(mounted) => mounted.join(),
            Served::Device(session) => session.run(),
        };
        ended
            .map(drop)
            .map_err(|error: SessionError| io_error(error))
    }
}

/// Unmounts a session, from any thread.
#[derive(Debug)]
pub struct SessionUnmounter(Mount);

impl SessionUnmounter {
    /// Unmounts.
    ///
    /// # Errors
    /// EBUSY when it is in use.
    pub fn unmount(&mut self) -> io::Result<()> {
        self.0.unmount()
    }
}

/// A session that is served in the background. Dropping it unmounts.
#[derive(Debug)]
pub struct BackgroundSession {
    /// The thread that waits for its end.
    pub guard: JoinHandle<io::Result<()>>,
    mount: UnmountOnDrop,
}

impl BackgroundSession {
    /// Unmounts, and waits for the end.
    ///
    /// # Errors
    /// EBUSY when it is in use; as [`Session::run`].
    pub fn umount_and_join(self) -> io::Result<()> {
        self.mount.0.unmount()?;
        self.join()
    }

    /// Waits until it is unmounted.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn join(self) -> io::Result<()> {
        let BackgroundSession {
            guard,
            mount: _mount,
        } = self;
        let panicked = |_| Err(io::Error::other("the session's thread panicked"));
        guard.join().unwrap_or_else(panicked)
    }

    /// Sends notifications.
    pub fn notifier(&self) -> Notifier {
        Notifier(self.mount.0.handle.notifier())
    }
}

/// A mount, for who unmounts it.
#[derive(Clone, Debug)]
struct Mount {
    handle: SessionHandle,
    target: Option<PathBuf>,
    unprivileged: bool,
}

impl Mount {
    fn of(handle: SessionHandle, target: Option<PathBuf>) -> Mount {
        let unprivileged = !rustix::process::geteuid().is_root();
        Mount {
            handle,
            target,
            unprivileged,
        }
    }

    /// Tries for half a second: a program that lists all mounts uses each for a moment.
    fn unmount(&self) -> io::Result<()> {
        let Some(target) = &self.target else {
            return Ok(());
        };
        let deadline = Instant::now() + IN_USE_WAIT;
        loop {
            // Another file system may be mounted there by now.
            if self.handle.is_ending() {
                return Ok(());
            }
            let unmounted = if self.unprivileged {
                thrufs::mount::unmount_unprivileged(target, false)
            } else {
                thrufs::mount::unmount(target, false)
            };
            match unmounted {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(io_error(MountFailure::from(error)));
                }
                Err(_) => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }
}

#[derive(Debug)]
struct UnmountOnDrop(Mount);

impl Drop for UnmountOnDrop {
    fn drop(&mut self) {
        if let Err(error) = self.0.unmount() {
            tracing::debug!(%error, "in use: unmounting lazily");
            // Who waits for the end unmounts; users of the mount get ENOTCONN.
            self.0.handle.shutdown();
        }
    }
}
