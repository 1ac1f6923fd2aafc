//! The server under test, a process of its own: what this process changed beneath would not be reported to
//! itself. Answers are delayed at random, where a change may come between what was read and its answer.

use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::io::BufRead;
use std::process::ExitCode;
use std::sync::Mutex;
use thrufs::session::Transport;
use thrufs::{
    Attributes, Context, DirectorySink, Entry, ExtendedAttributes, Features, FileHandle,
    FileSystem, FileSystemStatistics, LockArgs, LockOwner, MountOptions, Name, Negotiation,
    OpenArgs, Opened, ReadAnswer, ReadArgs, ReadReply, ReleaseArgs, Result, Services,
    SessionConfig, WriteArgs, WriteSource, mount,
};
use thrufs_hostdir::{Config, FileHandles, FollowMode, HostDir, Locks, Resources};
use thrufs_tests::prelude::*;

/// Environment variable with an [`Order`].
pub const ORDER: &str = "THRUFS_SOAK_SERVE";

/// Kept for a day, so that what is stale stays visible.
const DAY: Duration = Duration::from_secs(86_400);

/// How long a barrier may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Longest delay of a request.
const DELAY_MAX_US: usize = 6000;

/// What is served, and how.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub source: PathBuf,
    pub mnt: PathBuf,
    pub ring: bool,
    pub passthrough: bool,
    pub file_handles: FileHandles,
    pub follow: FollowMode,
    pub seed: u64,
}

/// Delays one in four of some requests before, and as many after they are carried out.
struct Delayed {
    host: Arc<HostDir>,
    random: Mutex<Random>,
}

impl Delayed {
    fn sleep(&self) {
        let mut random = self.random.lock().unwrap();
        if random.once_in(4) {
            // Most are short.
            let most = DELAY_MAX_US >> random.below(6);
            let delay = random.below(most);
            drop(random);
            thread::sleep(Duration::from_micros(delay as u64));
        }
    }

    fn around<T>(&self, work: impl FnOnce() -> T) -> T {
        self.sleep();
        let answer = work();
        self.sleep();
        answer
    }
}

macro_rules! passed_on {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $answer:ty)?;)*) => {$(
        fn $name(&self, $($argument: $type),*) $(-> $answer)? {
            self.host.$name($($argument),*)
        }
    )*};
}

macro_rules! delayed {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $name(&self, context: &Context<'_>, $($argument: $type),*) -> $answer {
            self.around(|| self.host.$name(context, $($argument),*))
        }
    )*};
}

impl FileSystem for Delayed {
    delayed! {
        fn lookup(parent: NodeId, name: Name<'_>) -> Result<Entry>;
        fn getattr(node: NodeId, handle: Option<FileHandle>) -> Result<Attributes>;
        fn statx(
            node: NodeId, handle: Option<FileHandle>, flags: u32, mask: u32
        ) -> Result<ExtendedAttributes>;
        fn open(node: NodeId, args: &OpenArgs) -> Result<Opened>;
        fn opendir(node: NodeId, args: &OpenArgs) -> Result<Opened>;
        fn read(node: NodeId, args: &ReadArgs, reply: ReadReply<'_>) -> Result<ReadAnswer>;
        fn write(node: NodeId, args: &WriteArgs, data: WriteSource<'_>) -> Result<usize>;
        fn setlk(node: NodeId, lock: &LockArgs, wait: bool) -> Result<()>;
        fn readdir(
            node: NodeId, handle: FileHandle, offset: u64, sink: &mut DirectorySink<'_>
        ) -> Result<()>;
        fn getxattr(node: NodeId, name: &CStr, buffer: &mut [u8]) -> Result<usize>;
    }

    passed_on! {
        fn may_be_mounted(options: &MountOptions) -> std::result::Result<(), &'static str>;
        fn init(negotiation: &mut Negotiation) -> Result<()>;
        fn started(features: &Features, services: Services);
        fn destroy();
        fn forget(node: NodeId, count: u64);
        fn readlink(context: &Context<'_>, node: NodeId, buffer: &mut [u8]) -> Result<usize>;
        fn listxattr(context: &Context<'_>, node: NodeId, buffer: &mut [u8]) -> Result<usize>;
        fn statfs(context: &Context<'_>, node: NodeId) -> Result<FileSystemStatistics>;
        fn release(context: &Context<'_>, node: NodeId, args: &ReleaseArgs);
        fn releasedir(context: &Context<'_>, node: NodeId, args: &ReleaseArgs);
        fn flush(
            context: &Context<'_>, node: NodeId, handle: FileHandle, owner: LockOwner
        ) -> Result<()>;
        fn lseek(
            context: &Context<'_>, node: NodeId, handle: FileHandle, offset: u64, whence: u32
        ) -> Result<u64>;
    }
}

/// Serves until standard input ends. A line on it asks for a barrier.
pub fn serve(order: &str) -> ExitCode {
    let order: Order = serde_json::from_str(order).unwrap();
    let config = Config {
        follow: order.follow,
        follow_timeout: DAY,
        passthrough: order.passthrough,
        file_handles: order.file_handles,
        locks: Locks::Shared,
        ..Config::default()
    };
    let host = HostDir::open(&order.source, config, Resources::default()).unwrap();
    let host = Arc::new(host);
    let served = Delayed {
        host: Arc::clone(&host),
        random: Mutex::new(Random(order.seed)),
    };
    let session = SessionConfig {
        transport: if order.ring {
            Transport::Uring
        } else {
            Transport::Dev
        },
        ..SessionConfig::default()
    };
    let session = mount(served, &order.mnt, &MountOptions::new("soak"), session).unwrap();
    let mut output = io::stdout().lock();
    let carrier = session.handle().carrier().cloned();
    writeln!(output, "serving {carrier:?}").unwrap();
    for line in io::stdin().lock().lines() {
        let words = match line.as_deref() {
            Ok("settle") if host.settle(PATIENCE).is_ok() => "settled".to_owned(),
            Ok("settle") => "late".to_owned(),
            Ok("figures") => format!("{:?}", host.statistics().following),
            _ => break,
        };
        writeln!(output, "{words}").unwrap();
    }
    session.unmount().unwrap();
    ExitCode::SUCCESS
}
