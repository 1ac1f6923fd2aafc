//! A file system with calls that a test can hold, and mounts of it.
#![allow(dead_code, reason = "each test file uses a part of this")]

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};
use thrufs::layout::Attr;
use thrufs::{
    Attributes, Context, DirectorySink, Entry, Errno, Features, FileHandle, FileSystem, Generation,
    InitFlags, LockArgs, MountOptions, MountedSession, Name, Negotiation, NodeId, Notifier,
    OpenArgs, OpenReplyFlags, Opened, ReadAnswer, ReadArgs, ReadReply, Result, Services,
    SessionConfig, Unique,
};

pub const VALID: Duration = Duration::from_secs(3600);

/// Longer than any timeout of a test.
const HELD_AT_MOST: Duration = Duration::from_secs(120);

/// The names in the root. Each is a file; the node is its place here and two.
pub const NAMES: [&str; 6] = ["plain", "other", "slow", "held", "locked", "panics"];

pub fn node_of(name: &str) -> NodeId {
    let place = NAMES
        .iter()
        .position(|other| *other == name)
        .expect("a name of the stage");
    NodeId(place as u64 + 2)
}

/// Holds threads until it is opened.
#[derive(Default)]
pub struct Gate {
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Gate {
    /// Waits until it is open, with a limit for a failed test that itself waits for the held thread.
    pub fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        self.changed.notify_all();
        let _open = self
            .changed
            .wait_timeout_while(state, HELD_AT_MOST, |state| !state.1)
            .unwrap();
    }

    pub fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }

    /// Waits until this many have come.
    pub fn wait_for(&self, threads: usize) {
        let state = self.state.lock().unwrap();
        let timeout = Duration::from_secs(60);
        let (state, waited) = self
            .changed
            .wait_timeout_while(state, timeout, |state| state.0 < threads)
            .unwrap();
        assert!(!waited.timed_out(), "only {} of {threads} came", state.0);
    }
}

#[derive(Default)]
pub struct Stage {
    pub content: Mutex<Vec<u8>>,
    pub gone: Mutex<Vec<String>>,
    pub gate: Gate,
    pub calls: Mutex<HashMap<&'static str, usize>>,
    pub forgotten: Mutex<Vec<NodeId>>,
    pub retrieved: Mutex<Vec<(Unique, u64, Vec<u8>)>>,
    pub notifier: OnceLock<Notifier>,
    pub destroyed: OnceLock<()>,
    pub refuse: bool,
}

impl Stage {
    pub fn with(content: &[u8]) -> Arc<Stage> {
        Arc::new(Stage {
            content: Mutex::new(content.to_vec()),
            ..Stage::default()
        })
    }

    pub fn count(&self, call: &'static str) -> usize {
        self.calls.lock().unwrap().get(call).copied().unwrap_or(0)
    }

    fn called(&self, call: &'static str) {
        *self.calls.lock().unwrap().entry(call).or_default() += 1;
    }

    pub fn notifier(&self) -> &Notifier {
        self.notifier.get().expect("started")
    }

    fn attr(&self, node: NodeId) -> Attr {
        let mode = if node == NodeId::ROOT {
            0o040_755
        } else {
            0o100_644
        };
        let size = self.content.lock().unwrap().len() as u64;
        Attr {
            ino: node.0,
            mode,
            nlink: 1,
            size,
            blksize: 4096,
            ..Attr::default()
        }
    }
}

/// A stage that the test shares with the session.
pub struct Shared(pub Arc<Stage>);

impl FileSystem for Shared {
    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        negotiation.want(InitFlags::FLOCK_LOCKS | InitFlags::EXPLICIT_INVAL_DATA);
        if self.0.refuse {
            Err(Errno::EACCES)
        } else {
            Ok(())
        }
    }

    fn started(&self, _: &Features, services: Services) {
        let _ = self.0.notifier.set(services.notifier);
    }

    fn destroy(&self) {
        self.0.destroyed.set(()).expect("called once");
    }

    fn lookup(&self, _: &Context<'_>, _: NodeId, name: Name<'_>) -> Result<Entry> {
        self.0.called("lookup");
        let gone = self.0.gone.lock().unwrap();
        let found = NAMES
            .iter()
            .find(|known| known.as_bytes() == name.as_bytes())
            .filter(|known| !gone.iter().any(|gone| gone == *known));
        let Some(name) = found else {
            return Err(Errno::ENOENT);
        };
        let node = node_of(name);
        Ok(Entry {
            node,
            generation: Generation(0),
            attr: self.0.attr(node),
            entry_timeout: VALID,
            // The slow one is asked each time.
            attr_timeout: if *name == "slow" {
                Duration::ZERO
            } else {
                VALID
            },
        })
    }

    fn forget(&self, node: NodeId, count: u64) {
        for _ in 0..count {
            self.0.forgotten.lock().unwrap().push(node);
        }
    }

    fn getattr(&self, _: &Context<'_>, node: NodeId, _: Option<FileHandle>) -> Result<Attributes> {
        self.0.called("getattr");
        if node == node_of("slow") {
            // Unexpectedly: without `require_blocking`.
            self.0.gate.pass();
        }
        Ok(Attributes {
            attr: self.0.attr(node),
            timeout: VALID,
        })
    }

    fn open(&self, _: &Context<'_>, node: NodeId, _: &OpenArgs) -> Result<Opened> {
        assert_ne!(node, node_of("panics"), "as the test wants it");
        let flags = OpenReplyFlags::KEEP_CACHE | OpenReplyFlags::NOFLUSH;
        Ok(Opened {
            flags,
            ..Opened::default()
        })
    }

    fn read(
        &self,
        context: &Context<'_>,
        node: NodeId,
        args: &ReadArgs,
        reply: ReadReply<'_>,
    ) -> Result<ReadAnswer> {
        if node == node_of("held") {
            context.require_blocking()?;
            self.0.called("read");
            self.0.gate.pass();
        } else {
            self.0.called("read");
        }
        let content = self.0.content.lock().unwrap();
        Ok(reply.bytes(&content[content.len().min(args.offset as usize)..]))
    }

    fn readdir(
        &self,
        _: &Context<'_>,
        _: NodeId,
        _: FileHandle,
        offset: u64,
        sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        for (next, name) in (1..).zip(NAMES).skip(offset as usize) {
            if !sink.entry(node_of(name).0, next, 8, name.as_bytes()) {
                break;
            }
        }
        Ok(())
    }

    fn setlk(&self, context: &Context<'_>, _: NodeId, lock: &LockArgs, wait: bool) -> Result<()> {
        if lock.kind == libc::F_UNLCK as u32 {
            return Ok(());
        }
        if !wait {
            return Err(Errno::EAGAIN);
        }
        context.require_blocking()?;
        self.0.called("waiting for a lock");
        context.interruptible(|_| {
            // A lock that is never released: a sleep that only a signal ends.
            let (reader, _writer) = rustix::pipe::pipe()?;
            rustix::io::read(&reader, &mut [0; 1])?;
            Ok(())
        })
    }

    fn retrieved(&self, _: NodeId, cookie: Unique, offset: u64, data: &[u8]) {
        self.0
            .retrieved
            .lock()
            .unwrap()
            .push((cookie, offset, data.to_vec()));
    }
}

/// A mounted stage, with its directory.
pub struct Mount {
    pub stage: Arc<Stage>,
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
fn has_ring() -> bool {
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
    pub fn new(stage: &Arc<Stage>, config: SessionConfig) -> Option<Mount> {
        Mount::with_options(stage, config, &MountOptions::new("stage"))
    }

    pub fn with_options(
        stage: &Arc<Stage>,
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
        let session = thrufs::mount(Shared(Arc::clone(stage)), directory.path(), options, config);
        let session = session.unwrap();
        let handle = session.handle();
        let carrier = handle.carrier().expect("after INIT");
        let is_ring = matches!(carrier, thrufs::Carrier::Uring { .. });
        assert_eq!(is_ring, over_ring, "{carrier}");
        Some(Mount {
            stage: Arc::clone(stage),
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
        self.stage.gate.open();
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
    let stage = Stage::with(b"content");
    let Some(mount) = Mount::new(&stage, config) else {
        return;
    };
    let snapshot = std::thread::scope(|scope| {
        let held = scope.spawn(|| std::fs::read(mount.path("held")).unwrap());
        stage.gate.wait_for(1);
        ask(&mount);
        let snapshot = mount.metrics();
        stage.gate.open();
        assert_eq!(held.join().unwrap(), b"content");
        snapshot
    });
    assert_eq!(snapshot.deferred, 1, "{snapshot}");
    eventually("it is back", || mount.metrics().blocked == 0);
}

/// Waits, with a generous limit, until `condition` holds.
#[track_caller]
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether something is mounted on `path`.
pub fn is_mounted(path: &std::path::Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    mounts
        .lines()
        .any(|line| line.split(' ').nth(1) == path.to_str())
}
