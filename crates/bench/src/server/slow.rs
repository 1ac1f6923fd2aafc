//! A case that is known to be slow: a file system that is another one, and sleeps in what it was told to.
//! By it the reports are tested: they have to find it.

use crate::Outcome;
use std::ffi::CStr;
use std::io;
use std::time::Duration;
use thrufs::{
    Attributes, Context, CopyArgs, DirectorySink, Entry, ExtendedAttributes, Features, FileHandle,
    FileSystem, FileSystemStatistics, LockArgs, LockOwner, MountOptions, Name, Negotiation,
    NewNode, NodeId, OpenArgs, Opened, ReadAnswer, ReadArgs, ReadReply, ReleaseArgs, Result,
    Services, SetAttr, Unique, WriteArgs, WriteSource,
};

/// How long to sleep in which requests. Written as `LOOKUP=200,READ=1000`: opcodes without `FUSE_`, and
/// microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delays(Vec<(&'static str, Duration)>);

impl Delays {
    /// # Errors
    /// For what is not written so, and for opcodes that have no method of their own.
    pub(crate) fn parse(text: &str) -> Outcome<Delays> {
        let one = |part: &str| {
            let (opcode, microseconds) = part.split_once('=')?;
            let method = METHODS
                .iter()
                .find(|method| method.eq_ignore_ascii_case(opcode))?;
            let microseconds = microseconds.parse().ok()?;
            Some((*method, Duration::from_micros(microseconds)))
        };
        let delays: Option<Vec<_>> = text.split(',').map(one).collect();
        delays.map(Delays).ok_or_else(|| {
            let methods = METHODS.join(" ").to_uppercase();
            format!("{text}: OPCODE=MICROSECONDS, where OPCODE is one of {methods}")
        })
    }

    /// Sleeps if that is to be slow.
    fn wait(&self, method: &str) {
        if let Some((_, delay)) = self.0.iter().find(|(slow, _)| *slow == method) {
            std::thread::sleep(*delay);
        }
    }
}

/// The other one, with its delays.
pub(crate) struct Slowed<F> {
    inner: F,
    delays: Delays,
}

impl<F> Slowed<F> {
    pub(crate) fn new(inner: F, delays: Delays) -> Self {
        Slowed { inner, delays }
    }
}

/// What can be slow is called and slowed in one way; the rest is handed on.
macro_rules! slowed {
    ($($method:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {
        const METHODS: &[&str] = &[$(stringify!($method)),*];

        impl<F: FileSystem> FileSystem for Slowed<F> {
            fn may_be_mounted(&self, options: &MountOptions) -> std::result::Result<(), &'static str> {
                self.inner.may_be_mounted(options)
            }

            fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
                self.inner.init(negotiation)
            }

            fn started(&self, features: &Features, services: Services) {
                self.inner.started(features, services);
            }

            fn destroy(&self) {
                self.inner.destroy();
            }

            fn save(&self, sink: &mut dyn io::Write) -> io::Result<()> {
                self.inner.save(sink)
            }

            fn restore(&self, source: &mut dyn io::Read) -> io::Result<()> {
                self.inner.restore(source)
            }

            fn recover(&self) -> io::Result<()> {
                self.inner.recover()
            }

            fn forget(&self, node: NodeId, count: u64) {
                self.inner.forget(node, count);
            }

            fn retrieved(&self, node: NodeId, cookie: Unique, offset: u64, data: &[u8]) {
                self.inner.retrieved(node, cookie, offset, data);
            }

            $(fn $method(&self, context: &Context<'_>, $($argument: $kind),*) -> $answer {
                self.delays.wait(stringify!($method));
                self.inner.$method(context, $($argument),*)
            })*
        }
    };
}

slowed! {
    lookup(parent: NodeId, name: Name<'_>) -> Result<Entry>;
    getattr(node: NodeId, handle: Option<FileHandle>) -> Result<Attributes>;
    statx(node: NodeId, handle: Option<FileHandle>, flags: u32, mask: u32) -> Result<ExtendedAttributes>;
    setattr(node: NodeId, set: &SetAttr) -> Result<Attributes>;
    readlink(node: NodeId, buffer: &mut [u8]) -> Result<usize>;
    symlink(parent: NodeId, name: Name<'_>, target: &CStr) -> Result<Entry>;
    mknod(parent: NodeId, name: Name<'_>, new: &NewNode) -> Result<Entry>;
    mkdir(parent: NodeId, name: Name<'_>, new: &NewNode) -> Result<Entry>;
    unlink(parent: NodeId, name: Name<'_>) -> Result<()>;
    rmdir(parent: NodeId, name: Name<'_>) -> Result<()>;
    rename(parent: NodeId, name: Name<'_>, new_parent: NodeId, new_name: Name<'_>, flags: u32) -> Result<()>;
    link(node: NodeId, new_parent: NodeId, new_name: Name<'_>) -> Result<Entry>;
    open(node: NodeId, args: &OpenArgs) -> Result<Opened>;
    create(parent: NodeId, name: Name<'_>, new: &NewNode, args: &OpenArgs) -> Result<(Entry, Opened)>;
    tmpfile(parent: NodeId, new: &NewNode, args: &OpenArgs) -> Result<(Entry, Opened)>;
    read(node: NodeId, args: &ReadArgs, reply: ReadReply<'_>) -> Result<ReadAnswer>;
    write(node: NodeId, args: &WriteArgs, data: WriteSource<'_>) -> Result<usize>;
    flush(node: NodeId, handle: FileHandle, owner: LockOwner) -> Result<()>;
    release(node: NodeId, args: &ReleaseArgs) -> ();
    fsync(node: NodeId, handle: FileHandle, data_only: bool) -> Result<()>;
    opendir(node: NodeId, args: &OpenArgs) -> Result<Opened>;
    readdir(node: NodeId, handle: FileHandle, offset: u64, sink: &mut DirectorySink<'_>) -> Result<()>;
    releasedir(node: NodeId, args: &ReleaseArgs) -> ();
    fsyncdir(node: NodeId, handle: FileHandle, data_only: bool) -> Result<()>;
    statfs(node: NodeId) -> Result<FileSystemStatistics>;
    syncfs(node: NodeId) -> Result<()>;
    setxattr(node: NodeId, name: &CStr, value: &[u8], flags: u32, clear_set_group_id: bool) -> Result<()>;
    getxattr(node: NodeId, name: &CStr, buffer: &mut [u8]) -> Result<usize>;
    listxattr(node: NodeId, buffer: &mut [u8]) -> Result<usize>;
    removexattr(node: NodeId, name: &CStr) -> Result<()>;
    access(node: NodeId, mask: u32) -> Result<()>;
    getlk(node: NodeId, lock: &LockArgs) -> Result<Option<LockArgs>>;
    setlk(node: NodeId, lock: &LockArgs, wait: bool) -> Result<()>;
    fallocate(node: NodeId, handle: FileHandle, offset: u64, length: u64, mode: u32) -> Result<()>;
    lseek(node: NodeId, handle: FileHandle, offset: u64, whence: u32) -> Result<u64>;
    copy_file_range(node: NodeId, copy: &CopyArgs) -> Result<u64>;
    ioctl(node: NodeId, handle: FileHandle, command: u32, data: &mut [u8], input_length: usize) -> Result<(i32, usize)>;
    poll(node: NodeId, handle: FileHandle, events: u32) -> Result<u32>;
    bmap(node: NodeId, block: u64, block_bytes: u32) -> Result<u64>;
}

#[cfg(test)]
mod tests {
    use super::{Delays, METHODS};
    use crate::mounted::{Mounted, each, lstat};
    use std::time::{Duration, Instant};

    #[test]
    fn delays_are_read_and_what_is_none_is_refused() {
        let delays = Delays::parse("GETATTR=200,read=5").unwrap();
        let (slow, slower) = (Duration::from_micros(200), Duration::from_micros(5));
        assert_eq!(delays, Delays(vec![("getattr", slow), ("read", slower)]));
        for text in [
            "",
            "GETATTR",
            "GETATTR=",
            "GETATTR=soon",
            "FORGET=1",
            "NONE=1",
        ] {
            assert!(Delays::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_told_to_be_slow_is_and_nothing_else() {
        let Some(mounted) = Mounted::start(&["serve", "slow:LOOKUP=20000"]) else {
            return;
        };
        for number in 0..10 {
            let name = mounted.source().join(format!("file-{number}"));
            std::fs::write(name, "").unwrap();
        }
        let time = |work: &dyn Fn()| {
            let start = Instant::now();
            work();
            start.elapsed()
        };
        let cold = time(&|| each(&mounted, 10, lstat)());
        assert!(cold >= Duration::from_millis(200), "{cold:?}");
        // Another request: the shortest of many is not slow, however busy the machine is.
        let opened = (0..10)
            .map(|_| time(&|| drop(std::fs::File::open(mounted.point().join("file-0")).unwrap())));
        let shortest = opened.min().unwrap();
        assert!(shortest < Duration::from_millis(20), "{shortest:?}");
    }

    /// One that is not would answer with its default.
    #[test]
    fn every_method_of_a_file_system_is_handed_on() {
        let text = include_str!("../../../core/src/file_system.rs");
        let methods = text.lines().filter_map(|line| {
            let name = line.strip_prefix("    fn ")?;
            name.split(['(', '<']).next()
        });
        let own = include_str!("slow.rs");
        let mut count = 0;
        for method in methods {
            count += 1;
            let by_hand = own.contains(&format!("            fn {method}(&self"));
            assert!(METHODS.contains(&method) || by_hand, "{method}");
        }
        assert!(count > 40, "{count}");
    }
}
