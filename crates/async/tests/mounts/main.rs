//! Real mounts over both transports, whose futures run on one thread of tokio.
#![allow(clippy::unwrap_used)]

#[path = "../../../core/tests/ground/mod.rs"]
mod ground;
#[path = "../../examples/store.rs"]
#[allow(dead_code, reason = "an example has a `main`")]
mod store;

use ground::{can_mount, has_ring};
use std::ffi::OsString;
use std::fs::File;
use std::future::pending;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use thrufs::{
    Attr, Attributes, Entry, Errno, FileHandle, MountOptions, NodeId, OpenArgs, OpenReplyFlags,
    Opened, ReadArgs, Result, SessionConfig, SessionHandle, Transport, mount,
};
use thrufs_async::{Async, AsyncFileSystem, Context};
use thrufs_testing::wait_until;
use tokio::sync::Semaphore;

/// What `ground` mounts by default.
const OVER: Transport = Transport::Dev;

const VALID: Duration = Duration::from_secs(3600);

/// How many reads are out at once.
const MANY: usize = 1_000;

const NAMES: [&str; 4] = ["", "held", "panics", "endless"];

/// Files whose reads do what their names say.
struct Files {
    /// Reads that were begun.
    begun: AtomicUsize,
    gate: Semaphore,
}

#[rustfmt::skip]
impl AsyncFileSystem for Files {
    type Data = Vec<u8>;

    async fn lookup(&self, _: Context, _: NodeId, name: OsString) -> Result<Entry> {
        let place = NAMES.iter().position(|known| name == *known).ok_or(Errno::ENOENT)?;
        Ok(Entry::new(Attr::file(1 + place as u64, MANY as u64), VALID))
    }
    async fn getattr(&self, _: Context, _: NodeId, _: Option<FileHandle>) -> Result<Attributes> {
        Ok(Attributes { attr: Attr::directory(1), timeout: VALID })
    }
    async fn open(&self, _: Context, _: NodeId, _: OpenArgs) -> Result<Opened> {
        let flags = OpenReplyFlags::DIRECT_IO | OpenReplyFlags::NOFLUSH;
        Ok(Opened { flags, ..Opened::default() })
    }
    async fn read(&self, context: Context, node: NodeId, args: ReadArgs, size: usize) -> Result<Vec<u8>> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        match NAMES[node.0 as usize - 1] {
            "held" => self.gate.acquire().await.unwrap().forget(),
            "endless" => context.interruptible(pending::<Result<()>>()).await?,
            name => panic!("{name}, as the test wants it"),
        }
        Ok(vec![args.offset as u8; size])
    }
}

/// Serves `make()` over each transport, by futures on one thread of tokio, and runs a case.
fn over_each<F: AsyncFileSystem>(
    late_max: usize,
    make: impl Fn() -> F,
    case: impl Fn(&F, &Path, &SessionHandle),
) {
    for transport in [Transport::Dev, Transport::Uring] {
        if !can_mount() || transport == Transport::Uring && !has_ring() {
            continue;
        }
        let config = SessionConfig {
            transport,
            late_max,
            ..SessionConfig::default()
        };
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_time().build().unwrap();
        let (fs, tasks) = (Arc::new(make()), runtime.handle().clone());
        let served = Async::new(Arc::clone(&fs), move |task| drop(tasks.spawn(task)));
        let directory = tempfile::tempdir().unwrap();
        let options = MountOptions::new("async");
        let session = mount(served, directory.path(), &options, config).unwrap();
        case(&fs, directory.path(), &session.handle());
        assert_eq!(session.handle().metrics().late_dropped, 0);
    }
}

fn files() -> Files {
    let (begun, gate) = (AtomicUsize::new(0), Semaphore::new(0));
    Files { begun, gate }
}

fn wait_for(fs: &Files, number: usize) {
    let begun = || fs.begun.load(Ordering::SeqCst);
    wait_until("reads are under way", || begun() >= number);
    assert_eq!(begun(), number);
}

/// Reads `number` different bytes at once, while `case` runs, and checks them.
fn reading(root: &Path, number: usize, case: impl FnOnce()) {
    let file = File::open(root.join("held")).unwrap();
    let read = |at: usize| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at as u64).unwrap();
        assert_eq!(byte[0], at as u8);
    };
    std::thread::scope(|scope| {
        for at in 0..number {
            let thread = std::thread::Builder::new().stack_size(64 << 10);
            thread.spawn_scoped(scope, move || read(at)).unwrap();
        }
        case();
    });
}

#[test]
fn a_thousand_reads_are_under_way_on_one_thread() {
    over_each(MANY, files, |fs, root, session| {
        reading(root, MANY, || {
            wait_for(fs, MANY);
            let snapshot = session.metrics();
            assert_eq!((snapshot.late, snapshot.blocked), (1_000, 0), "{snapshot}");
            fs.gate.add_permits(MANY);
        });
    });
}

#[test]
fn no_more_futures_than_late_max_are_under_way() {
    over_each(2, files, |fs, root, session| {
        reading(root, 3, || {
            wait_until("the third waits", || session.metrics().blocked == 1);
            wait_for(fs, 2);
            fs.gate.add_permits(3);
        });
    });
}

#[test]
fn a_future_ends_when_its_client_is_killed_or_when_it_panics() {
    over_each(MANY, files, |fs, root, _| {
        let mut cat = Command::new("cat")
            .arg(root.join("endless"))
            .spawn()
            .unwrap();
        wait_for(fs, 1);
        cat.kill().unwrap();
        wait_until("it ends", || cat.try_wait().unwrap().is_some());
        let panics = std::fs::read(root.join("panics"));
        assert_eq!(panics.unwrap_err().raw_os_error(), Some(5));
    });
}

#[test]
fn the_example_stores_objects() {
    let make = || {
        let mut fs = store::ObjectFs::default();
        fs.store.latency = Duration::from_millis(5);
        fs
    };
    over_each(MANY, make, |_, root, _| {
        let content = |number: usize| vec![number as u8; 300_000];
        let paths: Vec<_> = (10..30)
            .map(|number| root.join(number.to_string()))
            .collect();
        for writes in [true, false] {
            std::thread::scope(|scope| {
                for (number, path) in paths.iter().enumerate() {
                    scope.spawn(move || match writes {
                        true => std::fs::write(path, content(number)).unwrap(),
                        false => assert!(std::fs::read(path).unwrap() == content(number)),
                    });
                }
            });
        }
        let listed = std::fs::read_dir(root).unwrap();
        assert!(listed.map(|entry| entry.unwrap().path()).eq(paths));
    });
}
