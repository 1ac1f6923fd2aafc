//! Each method in process, on an executor that runs a task at once.

#[path = "../../abi/tests/wire/samples.rs"]
mod samples;

use crate::methods::methods;
use crate::{Async, AsyncFileSystem, Context, Task};
use std::ffi::OsString;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use thrufs::{
    Attributes, CopyArgs, DirectorySink, Entry, Errno, ExtendedAttributes, FileHandle,
    FileSystemStatistics, InitFlags, LockArgs, LockOwner, Negotiation, NewNode, NodeId, Opcode,
    OpenArgs, Opened, ReadArgs, ReleaseArgs, Result, SetAttr, WriteArgs,
};
use thrufs_abi::Reply;
use thrufs_testing::{Client, InProcess};

/// The call and the answer of each sample request.
const RECORDED: &str = include_str!("tests.recorded");

/// Fails all requests, but only those of the methods and types that are right for them.
#[derive(Default)]
struct Recording(Mutex<Vec<String>>);

impl Recording {
    fn note(&self, call: &str, arguments: impl std::fmt::Debug) {
        let mut calls = self.0.lock().unwrap();
        calls.push(format!("{call} {arguments:?}"));
    }
}

macro_rules! record {
    ($(
        $(#[$documentation:meta])*
        fn $method:ident($($argument:ident: $owned:ty $(= $lent:ty)?),* $(; $buffer:tt)?)
            -> $answer:ty $(= $result:ty)? $({ $default:expr })?;
    )*) => { $(
        async fn $method(&self, c: Context, $($argument: $owned),*) -> Result<$answer> {
            self.note(stringify!($method), (c.uid(), c.gid(), c.pid(), $($argument),*));
            Err(Errno::EDQUOT)
        }
    )* };
}

#[rustfmt::skip]
impl AsyncFileSystem for Recording {
    type Data = &'static [u8];

    record! {
        fn lookup(parent: NodeId, name: OsString) -> Entry;
        fn getattr(node: NodeId, handle: Option<FileHandle>) -> Attributes;
    }

    methods!(record);

    async fn read(&self, _: Context, n: NodeId, args: ReadArgs, size: usize) -> Result<&'static [u8]> {
        self.note("read", (n, args, size));
        Ok(b"bytes")
    }
    async fn readdir(&self, _: Context, n: NodeId, h: FileHandle, o: u64, sink: &mut DirectorySink<'_>) -> Result<()> {
        self.note("readdir", (n, h, o));
        let _ = sink.entry(9, 1, 8, b"first");
        panic!("as the test wants it")
    }
    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        negotiation.want(InitFlags::DO_READDIRPLUS | InitFlags::SETXATTR_EXT);
        Ok(())
    }
    fn forget(&self, node: NodeId, count: u64) {
        self.note("forget", (node, count));
    }
    fn release(&self, node: NodeId, args: ReleaseArgs) {
        self.note("release", (node, args));
    }
    fn releasedir(&self, node: NodeId, args: ReleaseArgs) {
        self.note("releasedir", (node, args));
    }
}

fn run(mut task: Task) {
    let mut context = std::task::Context::from_waker(Waker::noop());
    assert!(task.as_mut().poll(&mut context).is_ready());
}

fn connect(
    spawn: impl Fn(Task) + Send + Sync + 'static,
) -> (Arc<Recording>, Client<InProcess<Async<Recording>>>) {
    let fs = Arc::new(Recording::default());
    let served = Async::new(Arc::clone(&fs), spawn);
    (fs, Client::connect(Arc::new(served)).unwrap())
}

/// The calls for a request, and the reply: its error, or what it has.
fn ask(opcode: Opcode, spawn: impl Fn(Task) + Send + Sync + 'static) -> String {
    let (fs, client) = connect(spawn);
    let reply = client.transact(&samples::sample(opcode).finish());
    let reply = reply.as_deref().and_then(Reply::parse);
    let answer = reply.map_or("no reply".to_owned(), |reply| match reply.error {
        0 => reply.body.escape_ascii().to_string().replace("\\x00", "."),
        error => format!("{:?}", Errno::from_raw(-error)),
    });
    let calls = fs.0.lock().unwrap().join(", ");
    format!("{}: {calls} -> {answer}\n", opcode.name())
}

#[test]
fn each_request_calls_its_method_and_failures_are_logged() {
    let asks = |&opcode: &Opcode| ask(opcode, run);
    let lines: String = Opcode::ALL.iter().map(asks).collect();
    assert_eq!(lines, RECORDED);
    // Of the restricted kind, unlike the sample.
    let (fs, client) = connect(run);
    let ioctl = client.root().ioctl(NodeId(7), FileHandle(8), 9, b"in", 4);
    assert_eq!(ioctl.unwrap_err(), Errno::EDQUOT);
    let calls = fs.0.lock().unwrap();
    assert!(
        calls[0].ends_with("(8), 9, [105, 110, 0, 0], 2)"),
        "{calls:?}"
    );
    // What fails is logged. (In one test: which events are seen depends on the subscribers of other threads.)
    let (mut read, write) = std::io::pipe().unwrap();
    let log = tracing_subscriber::fmt().with_writer(Mutex::new(write));
    tracing::subscriber::with_default(log.finish(), || {
        ask(Opcode::Readdir, run);
        assert_eq!(ask(Opcode::Read, drop), "READ:  -> EIO\n");
    });
    let log = std::io::read_to_string(&mut read).unwrap();
    let line = |what, opcode| {
        log.lines()
            .any(|line| line.contains(what) && line.contains(opcode))
    };
    assert!(
        line("thrufs_async::adapter", "READDIR") && line("dropped", "READ"),
        "{log}"
    );
}
