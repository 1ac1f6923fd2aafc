//! A file system of one file that allocates nothing and reports counters of its threads.

use crate::ground::Guest;
use std::sync::Arc;
use std::time::Duration;
use thrufs::layout::Attr;
use thrufs::{
    Attributes, Context, Entry, FileHandle, FileSystem, Generation, LowerFile, Name, NoWait,
    NodeId, Opcode, ReadAnswer, ReadArgs, ReadReply, Result, WriteArgs, WriteSource,
};
use thrufs_abi::layout::{AttrOut, GetattrIn};

const VALID: Duration = Duration::from_secs(1);

/// The node whose size and blocks are counters of the serving thread.
const COUNTS: NodeId = NodeId(9);

pub struct Still {
    lower: Arc<LowerFile>,
    counts: fn() -> Result<(u64, u64)>,
}

impl Still {
    pub fn make(counts: fn() -> Result<(u64, u64)>) -> std::io::Result<Arc<Still>> {
        let lower = tempfile::tempfile()?;
        lower.set_len(1 << 20)?;
        let lower = Arc::new(LowerFile::new(lower.into(), NoWait::Memory));
        Ok(Arc::new(Still { lower, counts }))
    }
}

pub fn counts(guest: &mut Guest) -> std::result::Result<(u64, u64), i32> {
    let request = guest.request(Opcode::Getattr, COUNTS.0);
    let out: AttrOut = guest.ask(request.arg(&GetattrIn::default()))?;
    Ok((out.attr.size, out.attr.blocks))
}

impl FileSystem for Still {
    fn lookup(&self, _: &Context<'_>, _: NodeId, _: Name<'_>) -> Result<Entry> {
        Ok(Entry {
            node: NodeId(2),
            generation: Generation(0),
            attr: Attr::default(),
            entry_timeout: VALID,
            attr_timeout: VALID,
        })
    }

    fn getattr(&self, _: &Context<'_>, node: NodeId, _: Option<FileHandle>) -> Result<Attributes> {
        let mut attr = Attr::default();
        if node == COUNTS {
            (attr.size, attr.blocks) = (self.counts)()?;
        }
        Ok(Attributes {
            attr,
            timeout: VALID,
        })
    }

    fn read(
        &self,
        _: &Context<'_>,
        node: NodeId,
        args: &ReadArgs,
        reply: ReadReply<'_>,
    ) -> Result<ReadAnswer> {
        if node == NodeId(3) {
            return Ok(reply.bytes(&[7; 4096]));
        }
        Ok(reply.file(Arc::clone(&self.lower), args.offset))
    }

    fn write(
        &self,
        _: &Context<'_>,
        _: NodeId,
        args: &WriteArgs,
        source: WriteSource<'_>,
    ) -> Result<usize> {
        source.write_to(&self.lower, args.offset)
    }
}
