//! Mounting and serving in one call, for programs that are only a file system.

use crate::file_system::FileSystem;
use crate::mount::{AutoUnmount, MountError, MountOptions, mount_by_helper, open_device};
use crate::session::{End, Session, SessionConfig, SessionError, SessionHandle};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long an unmount waits while the mount is in use, and how often it tries.
const IN_USE_WAIT: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Why [`mount`] failed.
#[derive(Debug, thiserror::Error)]
pub enum MountFailure {
    /// Mounting failed.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The session did not start.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// A file system that is mounted and served by threads of this process, until it is dropped or unmounted.
///
/// Dropping unmounts. When the process is killed, the mount stays and answers ENOTCONN, unless
/// [`MountOptions::auto_unmount`] is set.
#[derive(Debug)]
pub struct MountedSession {
    target: PathBuf,
    handle: SessionHandle,
    server: Option<JoinHandle<Result<End, SessionError>>>,
    unprivileged: bool,
    /// Dropped once the mount is gone.
    auto_unmount: Option<AutoUnmount>,
}

/// Mounts `fs` on `target` and serves it. Returns once the mount answers.
///
/// Root mounts directly, any other user through `fusermount3`.
///
/// # Errors
/// See [`MountFailure`]. Nothing is mounted then.
pub fn mount<F: FileSystem>(
    fs: F,
    target: impl AsRef<Path>,
    options: &MountOptions,
    config: SessionConfig,
) -> Result<MountedSession, MountFailure> {
    // The working directory may be another at the unmount.
    let target = std::path::absolute(target.as_ref()).map_err(|source| MountError::Target {
        path: target.as_ref().to_owned(),
        source,
    })?;
    if let Err(why) = fs.may_be_mounted(options) {
        return Err(MountError::Refused { path: target, why }.into());
    }
    let unprivileged = !rustix::process::geteuid().is_root();
    let (session, auto_unmount) = if unprivileged || options.auto_unmount {
        let (device, helper) = mount_by_helper(&target, options, options.auto_unmount)?;
        let session = Session::new(fs, device, config)?;
        session.handshake().inspect_err(|_| {
            let _ = unmount(&target, unprivileged, true);
        })?;
        (session, helper)
    } else {
        (mount_and_handshake(fs, &target, options, config)?, None)
    };
    let handle = session.handle();
    let server = std::thread::Builder::new()
        .name("thrufs-session".to_owned())
        .spawn(move || session.run())
        .map_err(SessionError::Start)
        .inspect_err(|_| drop(unmount(&target, unprivileged, true)))?;
    Ok(MountedSession {
        target,
        handle,
        server: Some(server),
        unprivileged,
        auto_unmount,
    })
}

/// Mounts on this thread while another answers INIT, for which the mount may wait.
fn mount_and_handshake<F: FileSystem>(
    fs: F,
    target: &Path,
    options: &MountOptions,
    config: SessionConfig,
) -> Result<Session<F>, MountFailure> {
    let (device, _waits) = open_device()?;
    let session = Session::new(fs, device, config)?;
    std::thread::scope(|scope| {
        let handshake = scope.spawn(|| session.handshake().map(drop));
        let mounted = crate::mount::mount(session.device(), target, options);
        if mounted.is_err() {
            session.handle().shutdown();
        }
        let answered = handshake.join().unwrap_or_else(|_| {
            Err(SessionError::Start(io::Error::other(
                "the file system panicked when it started",
            )))
        });
        match (mounted, answered) {
            (Ok(()), Ok(())) => Ok(()),
            // A mount that waited for INIT fails because INIT failed.
            (_, Err(error @ SessionError::Init(_))) => {
                let _ = crate::mount::unmount(target, true);
                Err(MountFailure::Session(error))
            }
            (Err(error), _) => Err(error.into()),
            (Ok(()), Err(error)) => {
                let _ = crate::mount::unmount(target, true);
                Err(error.into())
            }
        }
    })?;
    Ok(session)
}

fn unmount(target: &Path, unprivileged: bool, lazy: bool) -> Result<(), MountError> {
    if unprivileged {
        crate::mount::unmount_unprivileged(target, lazy)
    } else {
        crate::mount::unmount(target, lazy)
    }
}

impl MountedSession {
    /// A handle of the session.
    pub fn handle(&self) -> SessionHandle {
        self.handle.clone()
    }

    /// The mount point.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Waits until it is unmounted, or until [`SessionHandle::shutdown`], which unmounts it too. After any
    /// other end (aborted, or an error) the mount stays and answers ENOTCONN, unless
    /// [`MountOptions::auto_unmount`] is set.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn join(mut self) -> Result<End, SessionError> {
        let result = self.served();
        match &result {
            _ if self.auto_unmount.is_some() || self.handle.was_shut_down() => {
                self.clean_up(&result);
            }
            // The connection lives and is not read: requests would wait for ever.
            Err(SessionError::Stuck(_)) if !self.unprivileged => {
                let _ = crate::mount::abort_mounted(&self.target);
            }
            _ => {}
        }
        result
    }

    fn wait(&mut self) -> Result<End, SessionError> {
        let result = self.served();
        self.clean_up(&result);
        result
    }

    fn served(&mut self) -> Result<End, SessionError> {
        match self.server.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(SessionError::Start(io::Error::other(
                "the session's thread panicked",
            ))),
            None => Err(SessionError::Misuse),
        }
    }

    /// Unmounts what is still mounted, after an end that was asked for.
    fn clean_up(&self, result: &Result<End, SessionError>) {
        let unmounted = match result {
            Ok(End::Unmounted) => return,
            // The connection lives and is not read: requests would wait for ever.
            Err(SessionError::Stuck(_)) if !self.unprivileged => {
                crate::mount::unmount_by_force(&self.target)
            }
            Err(SessionError::Stuck(_)) => unmount(&self.target, self.unprivileged, true),
            // The device is closed. If another file system is mounted here by now, it answers and is left
            // alone. (Attributes of a dead mount may be cached; statfs(2) is not.)
            _ => match rustix::fs::statfs(&self.target) {
                // Over io_uring the last requests are cancelled, this one among them.
                Err(
                    rustix::io::Errno::NOTCONN
                    | rustix::io::Errno::CONNABORTED
                    | rustix::io::Errno::CANCELED,
                ) => unmount(&self.target, self.unprivileged, true),
                _ => return,
            },
        };
        if let Err(error) = unmounted {
            tracing::warn!(%error, "cannot unmount a dead mount");
        }
    }

    /// Unmounts and waits for the end. A mount in use is tried for half a second: a program that lists all
    /// mounts uses each for a moment.
    ///
    /// # Errors
    /// [`MountFailure::Mount`] when it is in use; it is then unmounted lazily, and its users get `ENOTCONN`, as
    /// when it is dropped.
    pub fn unmount(mut self) -> Result<End, MountFailure> {
        let deadline = Instant::now() + IN_USE_WAIT;
        while let Err(error) = unmount(&self.target, self.unprivileged, false) {
            if !error.is_busy() || Instant::now() >= deadline {
                return Err(error.into());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(self.wait()?)
    }
}

impl Drop for MountedSession {
    fn drop(&mut self) {
        let Some(server) = &self.server else { return };
        if !server.is_finished()
            && let Err(error) = unmount(&self.target, self.unprivileged, false)
        {
            tracing::debug!(%error, "in use: unmounting lazily");
            let _ = unmount(&self.target, self.unprivileged, true);
            // Processes that use it get ENOTCONN from now on.
            self.handle.shutdown();
        }
        let _ = self.wait();
    }
}
