//! Mounting by the options of 0.16, and sessions.

use crate::Notifier;
use crate::filesystem::{Bridge, Filesystem};
use parking_lot::Mutex;
use std::io;
use std::ops::Deref;
use std::path::Path;
use thrufs_fuser as new;
use thrufs_fuser::{Config, SessionACL, SessionUnmounter};

macro_rules! options {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// An option of a mount (`mount(8)`, `mount.fuse3(8)`).
        #[derive(Debug, Eq, PartialEq, Hash, Clone)]
        #[allow(clippy::upper_case_acronyms)]
        pub enum MountOption {
            /// The source in `/proc/mounts`.
            FSName(String),
            /// The subtype there.
            Subtype(String),
            /// Any other, as a word.
            CUSTOM(String),
            /// Everybody may use the mount.
            AllowOther,
            /// Root and the user who mounts may use it.
            AllowRoot,
            $($(#[$doc])* $name,)*
        }

        impl MountOption {
            /// What 0.18 has for it, besides who may use the mount.
            fn option(&self) -> Option<new::MountOption> {
                Some(match self {
                    MountOption::AllowOther | MountOption::AllowRoot => return None,
                    MountOption::FSName(name) => new::MountOption::FSName(name.clone()),
                    MountOption::Subtype(name) => new::MountOption::Subtype(name.clone()),
                    MountOption::CUSTOM(word) => new::MountOption::CUSTOM(word.clone()),
                    $(MountOption::$name => new::MountOption::$name,)*
                })
            }
        }
    };
}

options! {
    /// `fusermount3` unmounts when the process ends.
    AutoUnmount
    /// The kernel checks permissions.
    DefaultPermissions
    /// `dev`
    Dev
    /// `nodev`
    NoDev
    /// `suid`
    Suid
    /// `nosuid`
    NoSuid
    /// `ro`
    RO
    /// `rw`
    RW
    /// `exec`
    Exec
    /// `noexec`
    NoExec
    /// `atime`
    Atime
    /// `noatime`
    NoAtime
    /// `dirsync`: no effect on FUSE.
    DirSync
    /// `sync`
    Sync
    /// `async`
    Async
}

fn config(options: &[MountOption]) -> Config {
    let has = |option| options.contains(&option);
    let mut config = Config::default();
    config.acl = match () {
        () if has(MountOption::AllowRoot) => SessionACL::RootAndOwner,
        // The helper unmounts for no mount of one user alone.
        () if has(MountOption::AllowOther) || has(MountOption::AutoUnmount) => SessionACL::All,
        () => SessionACL::Owner,
    };
    config.mount_options = options.iter().filter_map(MountOption::option).collect();
    config
}

/// A file system that is mounted. Dropping it unmounts.
#[derive(Debug)]
pub struct Session<FS: Filesystem + Send + 'static>(Option<new::Session<Bridge<FS>>>);

impl<FS: Filesystem + Send + 'static> Session<FS> {
    /// Mounts. Requests are answered from then on, by threads of the library, one at a time.
    ///
    /// # Errors
    /// `InvalidInput` for options; what keeps the mount from being made; the error of [`Filesystem::init`].
    pub fn new<P: AsRef<Path>>(
        filesystem: FS,
        mountpoint: P,
        options: &[MountOption],
    ) -> io::Result<Session<FS>> {
        let filesystem = Bridge(Mutex::new(filesystem));
        let session = new::Session::new(filesystem, mountpoint, &config(options))?;
        Ok(Session(Some(session)))
    }

    /// Waits until it is unmounted. A second time, it returns at once.
    ///
    /// # Errors
    /// What ended it otherwise.
    pub fn run(&mut self) -> io::Result<()> {
        self.0.take().map_or(Ok(()), new::Session::run)
    }

    /// Unmounts. What keeps it from that is logged.
    pub fn unmount(&mut self) {
        if let Some(Err(error)) = self.0.as_mut().map(new::Session::unmount) {
            tracing::warn!(%error, "cannot unmount");
        }
    }

    /// What unmounts it, from any thread.
    ///
    /// # Panics
    /// After [`run`](Self::run).
    pub fn unmount_callable(&mut self) -> SessionUnmounter {
        self.running().unmount_callable()
    }

    /// Sends notifications.
    ///
    /// # Panics
    /// After [`run`](Self::run).
    pub fn notifier(&self) -> Notifier {
        let session = self.0.as_ref().expect("it has not ended");
        Notifier(session.notifier())
    }

    /// Goes on in the background, until that is dropped.
    ///
    /// # Errors
    /// When there is no thread.
    ///
    /// # Panics
    /// After [`run`](Self::run).
    pub fn spawn(mut self) -> io::Result<BackgroundSession> {
        let session = self.0.take().expect("it has not ended");
        Ok(BackgroundSession(session.spawn()?))
    }

    fn running(&mut self) -> &mut new::Session<Bridge<FS>> {
        self.0.as_mut().expect("it has not ended")
    }
}

/// A session that is served in the background. Dropping it unmounts.
#[derive(Debug)]
pub struct BackgroundSession(new::BackgroundSession);

/// For the field `guard`.
impl Deref for BackgroundSession {
    type Target = new::BackgroundSession;

    fn deref(&self) -> &new::BackgroundSession {
        &self.0
    }
}

impl BackgroundSession {
    /// Serves a session in the background.
    ///
    /// # Errors
    /// When there is no thread.
    pub fn new<FS: Filesystem + Send + 'static>(
        session: Session<FS>,
    ) -> io::Result<BackgroundSession> {
        session.spawn()
    }

    /// Unmounts, and waits for the end.
    ///
    /// # Panics
    /// When the session failed.
    pub fn join(self) {
        self.0.umount_and_join().expect("the session ended well");
    }

    /// Sends notifications.
    pub fn notifier(&self) -> Notifier {
        Notifier(self.0.notifier())
    }
}

/// Mounts, and serves until it is unmounted.
///
/// # Errors
/// As [`Session::new`] and [`Session::run`].
pub fn mount2<FS: Filesystem + Send + 'static, P: AsRef<Path>>(
    filesystem: FS,
    mountpoint: P,
    options: &[MountOption],
) -> io::Result<()> {
    Session::new(filesystem, mountpoint, options)?.run()
}

/// Mounts, and serves in the background until that is dropped.
///
/// # Errors
/// As [`Session::new`].
pub fn spawn_mount2<FS: Filesystem + Send + 'static, P: AsRef<Path>>(
    filesystem: FS,
    mountpoint: P,
    options: &[MountOption],
) -> io::Result<BackgroundSession> {
    Session::new(filesystem, mountpoint, options)?.spawn()
}
