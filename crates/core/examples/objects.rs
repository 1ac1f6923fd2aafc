//! Objects of a slow store as files: `cargo run -p thrufs --example objects -- MOUNTPOINT`, until it is unmounted.
//!
//! The client of the store is asynchronous: `ask` returns at once, and the answer comes a tenth of a second later, on
//! the client's thread. So the methods below take their requests with `answer_later` and return `LATER`. However many
//! requests are under way, no thread waits for any of them.
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use thrufs::{
    Attr, Attributes, Context, DirectorySink, Entry, Errno, FileHandle, FileSystem, Late,
    MountOptions, Name, Negotiation, NodeId, ReadAnswer, ReadArgs, ReadReply, Result,
    SessionConfig, mount,
};

const VALID: Duration = Duration::from_secs(60);
const LATENCY: Duration = Duration::from_millis(100);

type Objects = BTreeMap<String, Vec<u8>>;
type Answer = Box<dyn FnOnce(&Objects) + Send>;

/// What would be a connection to the store: all answers come from one thread.
struct Client(Mutex<Sender<(Instant, Answer)>>);

impl Client {
    fn connect(objects: Objects) -> Client {
        let (ask, asked) = channel::<(Instant, Answer)>();
        std::thread::spawn(move || {
            for (due, answer) in asked {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                answer(&objects);
            }
        });
        Client(Mutex::new(ask))
    }

    /// Has `answer` called with the objects, later. If the connection is lost, `answer` is dropped instead.
    fn ask(&self, answer: impl FnOnce(&Objects) + Send + 'static) {
        if let Ok(ask) = self.0.lock() {
            let _ = ask.send((Instant::now() + LATENCY, Box::new(answer)));
        }
    }
}

/// One directory. The nodes of its files are their places, after the root's.
pub struct ObjectFs(Client);

fn attr(node: NodeId, size: usize) -> Attr {
    match node {
        NodeId::ROOT => Attr::directory(1),
        node => Attr::file(node.0, size as u64),
    }
}

fn object(objects: &Objects, node: NodeId) -> Result<&Vec<u8>> {
    let object = objects.values().nth(node.0.saturating_sub(2) as usize);
    object.ok_or(Errno::ESTALE)
}

impl ObjectFs {
    /// A file for each object, by its key.
    pub fn new(objects: Objects) -> ObjectFs {
        ObjectFs(Client::connect(objects))
    }
}

#[rustfmt::skip]
impl FileSystem for ObjectFs {
    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        // No method sleeps: over io_uring, a thread may take several requests at once.
        negotiation.set_prompt(true);
        Ok(())
    }

    fn lookup(&self, context: &Context, _parent: NodeId, name: Name) -> Result<Entry> {
        let late = context.answer_later()?;
        let name = String::from_utf8_lossy(name.as_bytes()).into_owned();
        self.0.ask(move |objects| {
            let mut nodes = (2..).zip(objects);
            let found = nodes.find(|(_, (key, _))| **key == name);
            late.give(Ok(found.map_or(Entry::negative(VALID), |(node, (_, data))| {
                Entry::new(attr(NodeId(node), data.len()), VALID)
            })));
        });
        Err(Errno::LATER)
    }

    fn getattr(&self, context: &Context, node: NodeId, _: Option<FileHandle>) -> Result<Attributes> {
        if node == NodeId::ROOT {
            // What is known is answered at once.
            return Ok(Attributes { attr: attr(node, 0), timeout: VALID });
        }
        let late = context.answer_later()?;
        self.0.ask(move |objects| {
            let data = object(objects, node);
            late.give(data.map(|data| Attributes { attr: attr(node, data.len()), timeout: VALID }));
        });
        Err(Errno::LATER)
    }

    fn read(&self, context: &Context, node: NodeId, args: &ReadArgs, reply: ReadReply) -> Result<ReadAnswer> {
        let late: Late<Vec<u8>> = context.answer_later()?;
        let (start, length) = (args.offset as usize, reply.size());
        self.0.ask(move |objects| {
            // The program that reads was signalled, perhaps killed: it waits for any answer.
            if late.is_interrupted() {
                return late.give(Err(Errno::EINTR));
            }
            late.give(object(objects, node).map(|data| {
                let rest = data.get(start..).unwrap_or_default();
                rest[..rest.len().min(length)].to_vec()
            }));
        });
        Err(Errno::LATER)
    }

    fn readdir(&self, context: &Context, _: NodeId, _: FileHandle, offset: u64, _: &mut DirectorySink) -> Result<()> {
        let late = context.answer_later()?;
        self.0.ask(move |objects| {
            late.list(|sink| {
                for (next, name) in (1..).zip(objects.keys()).skip(offset as usize) {
                    if !sink.entry(next + 1, next, 0, name.as_bytes()) {
                        break;
                    }
                }
                Ok(())
            });
        });
        Err(Errno::LATER)
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let target = std::env::args().nth(1).ok_or("usage: objects MOUNTPOINT")?;
    let object = |number| {
        (
            format!("object-{number}"),
            format!("This is object {number}.\n").into(),
        )
    };
    let fs = ObjectFs::new((1..=100).map(object).collect());
    mount(
        fs,
        target,
        &MountOptions::new("objects"),
        SessionConfig::default(),
    )?
    .join()?;
    Ok(())
}
