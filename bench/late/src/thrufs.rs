//! Thrufs: by futures on tokio, and by late answers that one thread with a queue gives.

use crate::file::{BYTES, LATENCY, NAME, VALID};
use std::ffi::OsString;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use thrufs::{
    Attr, Attributes, Context, Entry, Errno, FileHandle, FileSystem, Late, MountOptions, Name,
    Negotiation, NodeId, OpenArgs, OpenReplyFlags, Opened, ReadAnswer, ReadArgs, ReadReply, Result,
    SessionConfig, Transport, mount,
};
use thrufs_async::{Async, AsyncFileSystem};

fn attributes(node: NodeId) -> Attributes {
    let attr = match node {
        NodeId::ROOT => Attr::directory(1),
        node => Attr::file(node.0, BYTES),
    };
    let timeout = VALID;
    Attributes { attr, timeout }
}

fn found(name: &[u8]) -> Result<Entry> {
    match name == NAME.as_bytes() {
        true => Ok(Entry::new(attributes(NodeId(2)).attr, VALID)),
        false => Err(Errno::ENOENT),
    }
}

fn opened() -> Opened {
    let flags = OpenReplyFlags::DIRECT_IO | OpenReplyFlags::NOFLUSH;
    Opened {
        flags,
        ..Opened::default()
    }
}

struct Futures;

#[rustfmt::skip]
impl AsyncFileSystem for Futures {
    type Data = Vec<u8>;

    async fn lookup(&self, _: thrufs_async::Context, _: NodeId, name: OsString) -> Result<Entry> {
        found(name.as_encoded_bytes())
    }
    async fn getattr(&self, _: thrufs_async::Context, node: NodeId, _: Option<FileHandle>) -> Result<Attributes> {
        Ok(attributes(node))
    }
    async fn open(&self, _: thrufs_async::Context, _: NodeId, _: OpenArgs) -> Result<Opened> {
        Ok(opened())
    }
    async fn read(&self, _: thrufs_async::Context, _: NodeId, _: ReadArgs, size: usize) -> Result<Vec<u8>> {
        tokio::time::sleep(LATENCY).await;
        Ok(vec![1; size])
    }
}

type Waiting = (Instant, usize, Late<Vec<u8>>);

struct Queue(Mutex<Sender<Waiting>>);

#[rustfmt::skip]
impl FileSystem for Queue {
    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        negotiation.set_prompt(true);
        Ok(())
    }
    fn lookup(&self, _: &Context, _: NodeId, name: Name) -> Result<Entry> {
        found(name.as_bytes())
    }
    fn getattr(&self, _: &Context, node: NodeId, _: Option<FileHandle>) -> Result<Attributes> {
        Ok(attributes(node))
    }
    fn open(&self, _: &Context, _: NodeId, _: &OpenArgs) -> Result<Opened> {
        Ok(opened())
    }
    fn read(&self, context: &Context, _: NodeId, _: &ReadArgs, reply: ReadReply) -> Result<ReadAnswer> {
        let late = context.answer_later()?;
        let waiting = (Instant::now() + LATENCY, reply.size(), late);
        self.0.lock().unwrap().send(waiting).map_err(|_| Errno::EIO)?;
        Err(Errno::LATER)
    }
}

/// Over io_uring where the kernel has it, unless `TRANSPORT` is `dev`.
fn serve(fs: impl FileSystem, target: &str) {
    let is_dev = std::env::var("TRANSPORT").is_ok_and(|transport| transport == "dev");
    let transport = if is_dev {
        Transport::Dev
    } else {
        Transport::Uring
    };
    let config = SessionConfig {
        transport,
        ..SessionConfig::default()
    };
    let session = mount(fs, target, &MountOptions::new("late"), config).unwrap();
    session.join().unwrap();
}

pub fn serve_async(target: &str) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let tasks = runtime.handle().clone();
    serve(
        Async::new(Arc::new(Futures), move |task| drop(tasks.spawn(task))),
        target,
    );
}

pub fn serve_late(target: &str) {
    let (send, waiting) = channel::<Waiting>();
    std::thread::spawn(move || {
        for (due, size, late) in waiting {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            late.give(Ok(vec![1; size]));
        }
    });
    serve(Queue(Mutex::new(send)), target);
}
