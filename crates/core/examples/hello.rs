//! A file system with one file: `cargo run -p thrufs --example hello -- MOUNTPOINT`, until it is unmounted.
use std::time::Duration;
use thrufs::{
    Attr, Attributes, Context, DirectorySink, Entry, FileHandle, FileSystem, MountOptions, Name,
    NodeId, ReadAnswer, ReadArgs, ReadReply, Result, SessionConfig, mount,
};

const TEXT: &[u8] = b"Hello, world\n";
const VALID: Duration = Duration::from_secs(60);

fn attr(node: NodeId) -> Attr {
    match node {
        NodeId::ROOT => Attr::directory(1),
        _ => Attr::file(2, TEXT.len() as u64),
    }
}

struct Hello;

#[rustfmt::skip]
impl FileSystem for Hello {
    fn lookup(&self, _: &Context, _parent: NodeId, name: Name) -> Result<Entry> {
        if name.as_bytes() != b"hello" { return Ok(Entry::negative(VALID)); }
        Ok(Entry::new(attr(NodeId(2)), VALID))
    }
    fn getattr(&self, _: &Context, node: NodeId, _: Option<FileHandle>) -> Result<Attributes> {
        Ok(Attributes { attr: attr(node), timeout: VALID })
    }
    fn read(&self, _: &Context, _: NodeId, args: &ReadArgs, reply: ReadReply) -> Result<ReadAnswer> {
        Ok(reply.bytes(TEXT.get(args.offset as usize..).unwrap_or_default()))
    }
    fn readdir(&self, _: &Context, _: NodeId, _: FileHandle, offset: u64, sink: &mut DirectorySink) -> Result<()> {
        let _full = offset == 0 && !sink.entry(2, 1, 0, b"hello");
        Ok(())
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let target = std::env::args().nth(1).ok_or("usage: hello MOUNTPOINT")?;
    let options = MountOptions::new("hello");
    mount(Hello, target, &options, SessionConfig::default())?.join()?;
    Ok(())
}
