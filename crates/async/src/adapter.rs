//! A file system of futures as a [`FileSystem`].
//!
//! Each method takes its request with [`answer_later`](thrufs::Context::answer_later), copies what the request lends,
//! and has the executor run one task. The task owns the request, the arguments and a share of the file system, lends
//! the latter to the method's future, and gives its answer. When the task is dropped, so is the request, which is
//! then answered with EIO.

use crate::context::Context;
use crate::file_system::AsyncFileSystem;
use crate::methods::methods;
use std::ffi::{CStr, OsStr, OsString};
use std::future::poll_fn;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use thrufs::{
    Attributes, CopyArgs, Data, DirectorySink, Entry, Errno, ExtendedAttributes, Features,
    FileHandle, FileSystem, FileSystemStatistics, Late, LateAnswer, LockArgs, LockOwner,
    MountOptions, Name, Negotiation, NewNode, NodeId, Opcode, OpenArgs, Opened, ReadAnswer,
    ReadArgs, ReadReply, ReleaseArgs, Result, Services, SetAttr, WriteArgs, WriteSource,
};

/// What answers one request, for an executor to run to its end.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A file system of futures as a [`thrufs::FileSystem`], to be mounted or served.
pub struct Async<F> {
    fs: Arc<F>,
    spawn: Box<dyn Fn(Task) + Send + Sync>,
}

impl<F: AsyncFileSystem> Async<F> {
    /// Serves `fs` by tasks that `spawn` has an executor run: with tokio, `move |task| { handle.spawn(task); }`.
    ///
    /// `spawn` is called on threads that read requests, and returns at once. No more than
    /// [`SessionConfig::late_max`](thrufs::SessionConfig::late_max) tasks of a session are under way. A task is to be
    /// dropped when the executor ends, which fails its request.
    pub fn new(fs: Arc<F>, spawn: impl Fn(Task) + Send + Sync + 'static) -> Async<F> {
        Async {
            fs,
            spawn: Box::new(spawn),
        }
    }

    /// Takes the request, and has what `start` returns answer it.
    fn spawn<T: LateAnswer, R, W: Future<Output = ()> + Send + 'static>(
        &self,
        context: &thrufs::Context<'_>,
        start: impl FnOnce(Arc<F>, Context, Late<T>) -> W,
    ) -> Result<R> {
        let late = context.answer_later()?;
        let context = Context::new(context, &late);
        (self.spawn)(Box::pin(start(Arc::clone(&self.fs), context, late)));
        Err(Errno::LATER)
    }

    /// The same, where the result of the future is the answer.
    fn answer<T: LateAnswer, R, W: Future<Output = Result<T>> + Send + 'static>(
        &self,
        context: &thrufs::Context<'_>,
        start: impl FnOnce(Arc<F>, Context) -> W,
    ) -> Result<R> {
        let opcode = context.opcode();
        self.spawn(context, |fs, context, late| {
            let work = start(fs, context);
            async move { late.give(unless_it_panics(opcode, work).await) }
        })
    }
}

/// Runs `work`; `EIO` when it panics, so that an executor that does not catch panics goes on.
async fn unless_it_panics<T>(opcode: Opcode, work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut work = pin!(work);
    poll_fn(|task| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(task)));
        polled.unwrap_or_else(|_| {
            let opcode = opcode.name();
            tracing::error!(opcode, "a future panicked: EIO");
            Poll::Ready(Err(Errno::EIO))
        })
    })
    .await
}

/// What a request lends, as its future owns it.
trait Own<T> {
    fn own(self) -> T;
}

macro_rules! own {
    ($([$($generic:tt)*] $lent:ty => $owned:ty: |$value:ident| $copy:expr;)*) => { $(
        impl<$($generic)*> Own<$owned> for $lent {
            fn own(self) -> $owned {
                let $value = self;
                $copy
            }
        }
    )* };
}

own! {
    [T] T => T: |value| value;
    [T: Copy] &T => T: |value| *value;
    [] &CStr => OsString: |name| OsStr::from_bytes(name.to_bytes()).to_owned();
    [] Name<'_> => OsString: |name| name.as_cstr().own();
    [] &[u8] => Vec<u8>: |data| data.to_owned();
    [] &mut [u8] => Vec<u8>: |data| data.to_owned();
    [] WriteSource<'_> => Vec<u8>: |source| {
        let mut data = vec![0; source.len()];
        let length = source.copy_to(&mut data);
        data.truncate(length);
        data
    };
}

macro_rules! first {
    ($type:ty $(, $other:ty)?) => {
        $type
    };
}

macro_rules! adapt {
    ($(
        $(#[$documentation:meta])*
        fn $method:ident($($argument:ident: $owned:ty $(= $lent:ty)?),* $(; $buffer:tt)?)
            -> $answer:ty $(= $result:ty)? $({ $default:expr })?;
    )*) => { $(
        fn $method(
            &self,
            context: &thrufs::Context<'_>,
            $($argument: first!($($lent,)? $owned),)*
            $($buffer: &mut [u8])?
        ) -> Result<first!($($result,)? $answer)> {
            self.answer(context, |fs, context| {
                $(let $argument: $owned = $argument.own();)*
                async move { fs.$method(context, $($argument),*).await }
            })
        }
    )* };
}

impl<F: AsyncFileSystem> FileSystem for Async<F> {
    fn may_be_mounted(&self, options: &MountOptions) -> std::result::Result<(), &'static str> {
        self.fs.may_be_mounted(options)
    }

    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        negotiation.set_prompt(true);
        self.fs.init(negotiation)
    }

    fn started(&self, features: &Features, services: Services) {
        self.fs.started(features, services);
    }

    fn destroy(&self) {
        self.fs.destroy();
    }

    fn forget(&self, node: NodeId, count: u64) {
        self.fs.forget(node, count);
    }

    fn release(&self, _: &thrufs::Context<'_>, node: NodeId, args: &ReleaseArgs) {
        self.fs.release(node, *args);
    }

    fn releasedir(&self, _: &thrufs::Context<'_>, node: NodeId, args: &ReleaseArgs) {
        self.fs.releasedir(node, *args);
    }

    adapt! {
        fn lookup(parent: NodeId, name: OsString = Name<'_>) -> Entry;
        fn getattr(node: NodeId, handle: Option<FileHandle>) -> Attributes;
    }

    methods!(adapt);

    fn read(
        &self,
        context: &thrufs::Context<'_>,
        node: NodeId,
        args: &ReadArgs,
        reply: ReadReply<'_>,
    ) -> Result<ReadAnswer> {
        let (args, size) = (*args, reply.size());
        self.answer(context, |fs, context| async move {
            fs.read(context, node, args, size).await.map(Data)
        })
    }

    fn readdir(
        &self,
        context: &thrufs::Context<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        _: &mut DirectorySink<'_>,
    ) -> Result<()> {
        let opcode = context.opcode();
        self.spawn(context, |fs, context, late| async move {
            let mut sink = late.sink();
            let work = fs.readdir(context, node, handle, offset, &mut sink);
            let result = unless_it_panics(opcode, work).await;
            late.give_sink(sink, result);
        })
    }
}
