//! Mounts of files in memory, some of whose requests a test can hold.
#![allow(dead_code, reason = "each test file uses a part of this")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thrufs::{
    InitFlags, MountOptions, MountedSession, NodeId, Opcode, OpenReplyFlags, Result, SessionConfig,
};
use thrufs_testing::memory::{Asked, File, Files, MemoryFs, Settings};
use thrufs_testing::wait_until;

pub const VALID: Duration = Duration::from_secs(3600);

/// The names in the root. Each is a file; the node is its place here and two.
pub const NAMES: [&str; 6] = ["plain", "other", "slow", "held", "locked", "panics"];

pub fn node_of(name: &str) -> NodeId {
    let place = NAMES
        .iter()
        .position(|other| *other == name)
        .expect("a name of a file");
    NodeId(place as u64 + 2)
}

/// Files of this content. Attributes of the slow one are asked for each time, and wait for the gate; so do reads of
/// the held one.
pub fn files_with(content: &[u8]) -> Arc<Files> {
    served(content, false)
}

/// The same; INIT is refused.
pub fn refusing() -> Arc<Files> {
    served(b"", true)
}

fn served(content: &[u8], refuses: bool) -> Arc<Files> {
    let files = Files::new(Settings {
        wants: InitFlags::FLOCK_LOCKS | InitFlags::EXPLICIT_INVAL_DATA,
        open_flags: OpenReplyFlags::KEEP_CACHE | OpenReplyFlags::NOFLUSH,
        refuses,
        names_valid: VALID,
        hook: Some(Box::new(hook)),
        ..Settings::default()
    });
    for name in NAMES {
        set(&files, name, content);
    }
    files
}

pub fn set(files: &Files, name: &str, content: &[u8]) {
    let valid = if name == "slow" {
        Duration::ZERO
    } else {
        VALID
    };
    let file = File::with(content);
    files.put(name, File { valid, ..file });
}

fn hook(asked: &Asked<'_>) -> Result<()> {
    match asked.opcode {
        // Unexpectedly: without `require_blocking`.
        Opcode::Getattr if asked.is_about("slow") => asked.files.gate.pass(),
        Opcode::Read if asked.is_about("held") => asked.wait()?,
        Opcode::Open => assert!(!asked.is_about("panics"), "as the test wants it"),
        _ => {}
    }
    Ok(())
}

/// A session of the files that the test has.
pub fn serve(files: &Arc<Files>) -> MemoryFs {
    files.serve_known(&NAMES)
}

pub fn is_destroyed(files: &Files) -> bool {
    files.destroyed.load(Ordering::SeqCst) == 1
}

/// Mounted files, with their directory.
pub struct Mount {
    pub files: Arc<Files>,
    pub session: Option<MountedSession>,
    directory: tempfile::TempDir,
}

/// Whether file systems can be mounted here; reports a skipped test otherwise.
pub fn can_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    let device = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    if root && device.is_ok() {
        return true;
    }
    thrufs_test_report::skipped("mounting needs root and /dev/fuse");
    false
}

/// The defaults, over the transport of this program.
pub fn plain() -> SessionConfig {
    SessionConfig {
        transport: crate::OVER,
        ..SessionConfig::default()
    }
}

/// Whether the kernel offers io_uring; reports a skipped test otherwise.
pub fn has_ring() -> bool {
    let switch = std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    if switch.is_ok_and(|switch| switch.trim() == "Y") {
        return true;
    }
    thrufs_test_report::skipped(
        "no FUSE over io_uring; write Y to /sys/module/fuse/parameters/enable_uring (Linux 6.14)",
    );
    false
}

/// One thread that reads requests from `/dev/fuse`, in all test programs.
pub fn one_reader() -> SessionConfig {
    let threads = thrufs::Threads {
        readers: std::num::NonZeroUsize::new(1),
        ..thrufs::Threads::default()
    };
    SessionConfig {
        threads,
        transport: thrufs::Transport::Dev,
        ..SessionConfig::default()
    }
}

impl Mount {
    pub fn new(files: &Arc<Files>, config: SessionConfig) -> Option<Mount> {
        Mount::with_options(files, config, &MountOptions::new("files"))
    }

    pub fn with_options(
        files: &Arc<Files>,
        config: SessionConfig,
        options: &MountOptions,
    ) -> Option<Mount> {
        let over_ring = config.transport == thrufs::Transport::Uring;
        if !can_mount() || over_ring && !has_ring() {
            return None;
        }
        let directory = tempfile::Builder::new()
            .prefix("thrufs-core-")
            .tempdir()
            .unwrap();
        let session = thrufs::mount(serve(files), directory.path(), options, config);
        let session = session.unwrap();
        let handle = session.handle();
        let carrier = handle.carrier().expect("after INIT");
        let is_ring = matches!(carrier, thrufs::Carrier::Uring { .. });
        assert_eq!(is_ring, over_ring, "{carrier}");
        Some(Mount {
            files: Arc::clone(files),
            session: Some(session),
            directory,
        })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn root(&self) -> &std::path::Path {
        self.directory.path()
    }

    pub fn session(&self) -> &MountedSession {
        self.session.as_ref().expect("mounted")
    }

    pub fn metrics(&self) -> thrufs::Snapshot {
        self.session().handle().metrics()
    }
}

impl Drop for Mount {
    /// Unmounts before the directory is removed with its contents.
    fn drop(&mut self) {
        self.files.gate.open();
        drop(self.session.take());
        while is_mounted(self.root()) {
            rustix::mount::unmount(self.root(), rustix::mount::UnmountFlags::DETACH).unwrap();
        }
    }
}

/// A deferred request leaves its thread at once, so that the requests of `ask` are served meanwhile. (On a
/// busy machine another thread may count as stuck; that is not checked.)
#[track_caller]
pub fn check_deferred_read(config: SessionConfig, ask: impl FnOnce(&Mount)) {
    let files = files_with(b"content");
    let Some(mount) = Mount::new(&files, config) else {
        return;
    };
    let snapshot = std::thread::scope(|scope| {
        let held = scope.spawn(|| std::fs::read(mount.path("held")).unwrap());
        files.gate.wait_for(1);
        ask(&mount);
        let snapshot = mount.metrics();
        files.gate.open();
        assert_eq!(held.join().unwrap(), b"content");
        snapshot
    });
    assert_eq!(snapshot.deferred, 1, "{snapshot}");
    wait_until("it is back", || mount.metrics().blocked == 0);
}

/// Whether something is mounted on `path`.
pub fn is_mounted(path: &std::path::Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    mounts
        .lines()
        .any(|line| line.split(' ').nth(1) == path.to_str())
}
