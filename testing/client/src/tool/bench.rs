//! `bench`: carries out the rows that lines of the input name, and answers each with how many operations took how
//! long. `bench/shares.py` has the rounds, the servers and the tables.
//!
//! A line is `MILLISECONDS ROW`. A row is one of `getattr`, `lookup`, `open-release`, `create-unlink`, `readdirplus`
//! (an operation is an entry), `small-read` and `small-load` (a whole file); or `read`, `write` or `load`, with
//! `random` or `sequential`, the bytes of an operation, the bytes from one to the next, and the bytes of the file that
//! are used. `load` goes through the DAX window. Each request queue has a thread, with one request in flight.

use super::ToolError;
use crate::dax::{DaxClient, DaxError};
use crate::front_end::{FIRST_REQUEST_QUEUE, FrontEnd, FrontEndConfig};
use rustix::fs::OFlags;
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use thrufs::Errno;
use thrufs_abi::NodeId;
use thrufs_testing::{Caller, Carrier, Client, Random};

/// Arguments of `bench`.
#[derive(Clone, Debug)]
pub struct Bench {
    /// Bytes of the file that is read and written.
    pub file_bytes: u64,
    /// Files in the directory that is listed.
    pub entries: u32,
}

/// Bytes of each file in the directory that is listed.
const SMALL_BYTES: u32 = 16 << 10;
const LARGE_BYTES: u32 = 1 << 20;
const READ: i32 = OFlags::RDONLY.bits().cast_signed();
const READ_WRITE: i32 = OFlags::RDWR.bits().cast_signed();
/// Names that `lookup` asks for in turn.
const LOOKED_UP: u64 = 64;

/// Measures the server row by row, as `input` names them.
///
/// # Errors
///
/// At the first row that is none or fails.
pub fn bench(
    socket: &Path,
    config: &FrontEndConfig,
    bench: &Bench,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    let front_end = super::connect(socket, config)?;
    let mounted = match front_end.window() {
        Some(_) => Client::mount_with_window(front_end),
        None => Client::mount(front_end),
    };
    let client =
        mounted.map_err(|error| ToolError::Session(socket.display().to_string(), error))?;
    let failed = |errno| ToolError::Row("files".to_owned(), errno);
    let files = Files::make(client.root(), bench).map_err(failed)?;
    let window = client.carrier().window();
    let dax = window.map(|window| DaxClient::new(client.root(), window));
    let measured = input.lines().try_for_each(|line| {
        let line = line?;
        let unknown = || ToolError::Usage(format!("`{line}` is no row"));
        let (time, row) = line.split_once(' ').ok_or_else(unknown)?;
        let time = Duration::from_millis(time.parse().map_err(|_| unknown())?);
        let row = Row::parse(row, bench.file_bytes).ok_or_else(unknown)?;
        let failed = |errno| ToolError::Row(line.clone(), errno);
        let (operations, time) = files
            .measure(&client, dax.as_ref(), row, time)
            .map_err(failed)?;
        writeln!(out, "{operations} {}", time.as_nanos())?;
        Ok(out.flush()?)
    });
    drop(dax);
    let removed = files.remove(client.root()).map_err(failed);
    client.unmount();
    measured.and(removed)
}

#[derive(Clone, Copy)]
enum Row {
    Getattr,
    Lookup,
    OpenRelease,
    CreateUnlink,
    Readdirplus,
    SmallRead,
    SmallLoad,
    Data(Data),
}

#[derive(Clone, Copy)]
struct Data {
    way: Way,
    is_random: bool,
    bytes: u32,
    step: u64,
    span: u64,
}

#[derive(Clone, Copy)]
enum Way {
    Read,
    Write,
    Load,
}

impl Row {
    fn parse(text: &str, file_bytes: u64) -> Option<Row> {
        let words: Vec<&str> = text.split(' ').collect();
        Some(match words[..] {
            ["getattr"] => Row::Getattr,
            ["lookup"] => Row::Lookup,
            ["open-release"] => Row::OpenRelease,
            ["create-unlink"] => Row::CreateUnlink,
            ["readdirplus"] => Row::Readdirplus,
            ["small-read"] => Row::SmallRead,
            ["small-load"] => Row::SmallLoad,
            [way, order @ ("random" | "sequential"), bytes, step, span] => {
                let data = Data {
                    way: match way {
                        "read" => Way::Read,
                        "write" => Way::Write,
                        "load" => Way::Load,
                        _ => return None,
                    },
                    is_random: order == "random",
                    bytes: bytes.parse().ok()?,
                    step: step.parse().ok()?,
                    span: span.parse().ok()?,
                };
                let fits = (1..=LARGE_BYTES).contains(&data.bytes)
                    && data.step >= data.bytes.into()
                    && (data.step..=file_bytes).contains(&data.span);
                fits.then_some(Row::Data(data))?
            }
            _ => return None,
        })
    }
}

/// What is measured, in a directory of its own.
struct Files {
    directory: String,
    top: NodeId,
    many: NodeId,
    small: Vec<NodeId>,
    data: NodeId,
    fh: u64,
}

fn small_name(number: u64) -> String {
    format!("file-{number:06}.img")
}

/// A request queue of a front end.
struct OnQueue<'a>(&'a FrontEnd, u16);

impl Carrier for OnQueue<'_> {
    fn transact(&self, request: &[u8], reply_bytes_max: usize) -> Vec<u8> {
        let OnQueue(front_end, queue) = self;
        let reply = front_end.exchange_on(*queue, request, reply_bytes_max);
        reply.unwrap_or_default()
    }
}

impl Files {
    fn make(root: Caller<'_, FrontEnd>, bench: &Bench) -> Result<Files, Errno> {
        // Two clients may use the same directory.
        let directory = format!("thrufs-bench-{}", std::process::id());
        let top = NodeId(
            root.mkdir(NodeId::ROOT, directory.as_bytes(), 0o755)?
                .nodeid,
        );
        let many = NodeId(root.mkdir(top, b"many", 0o755)?.nodeid);
        let data = file(root, top, "data.img", bench.file_bytes)?;
        let small = (0..bench.entries.into())
            .map(|number| file(root, many, &small_name(number), SMALL_BYTES.into()))
            .collect::<Result<_, Errno>>()?;
        let fh = root.open(data, READ_WRITE)?.fh;
        Ok(Files {
            directory,
            top,
            many,
            small,
            data,
            fh,
        })
    }

    fn remove(&self, root: Caller<'_, FrontEnd>) -> Result<(), Errno> {
        root.release(self.data, self.fh)?;
        root.unlink(self.top, b"data.img")?;
        for number in 0..self.small.len() as u64 {
            root.unlink(self.many, small_name(number).as_bytes())?;
        }
        root.rmdir(self.top, b"many")?;
        root.rmdir(NodeId::ROOT, self.directory.as_bytes())
    }

    /// The operations of all queues, and the time of the slowest.
    fn measure(
        &self,
        client: &Client<FrontEnd>,
        dax: Option<&DaxClient<'_, FrontEnd>>,
        row: Row,
        time: Duration,
    ) -> Result<(u64, Duration), Errno> {
        let front_end = client.carrier();
        let queues = front_end.request_queues();
        let start = Barrier::new(queues.into());
        let on_queue = |number: u16| {
            let queue = OnQueue(front_end, FIRST_REQUEST_QUEUE + number);
            let client = client.beside(queue);
            let mut load = Load {
                files: self,
                caller: client.root(),
                dax,
                number: 0,
                random: Random(u64::from(number)),
                name: format!("new-{number}"),
                buffer: vec![0x5a; LARGE_BYTES as usize],
            };
            start.wait();
            let (begin, mut operations) = (Instant::now(), 0);
            while begin.elapsed() < time {
                operations += load.operation(row)?;
            }
            Ok((operations, begin.elapsed()))
        };
        let results: Vec<Result<(u64, Duration), Errno>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..queues)
                .map(|number| scope.spawn(move || on_queue(number)))
                .collect();
            let ended = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
            ended.map(|it| it.unwrap_or(Err(Errno::EIO))).collect()
        });
        results
            .into_iter()
            .try_fold((0, Duration::ZERO), |(sum, longest), result| {
                let (operations, time) = result?;
                Ok((sum + operations, longest.max(time)))
            })
    }
}

/// A file of so many bytes. It is looked up when it has its size: then the server says whether it is mapped.
fn file(
    root: Caller<'_, FrontEnd>,
    parent: NodeId,
    name: &str,
    bytes: u64,
) -> Result<NodeId, Errno> {
    let (entry, open) = root.create(parent, name.as_bytes(), READ_WRITE, 0o644)?;
    let (node, data) = (NodeId(entry.nodeid), vec![0x5a; LARGE_BYTES as usize]);
    let mut offset = 0;
    while offset < bytes {
        let part = &data[..data.len().min((bytes - offset) as usize)];
        offset += u64::from(root.write(node, open.fh, offset, part, 0)?);
    }
    root.release(node, open.fh)?;
    root.forget(node, 1);
    Ok(NodeId(root.lookup(parent, name.as_bytes())?.nodeid))
}

/// The operations of one thread.
struct Load<'a, C: Carrier> {
    files: &'a Files,
    caller: Caller<'a, C>,
    dax: Option<&'a DaxClient<'a, FrontEnd>>,
    /// Of the next operation.
    number: u64,
    random: Random,
    name: String,
    buffer: Vec<u8>,
}

impl<C: Carrier> Load<'_, C> {
    /// Carries out an operation, and returns what it counts.
    fn operation(&mut self, row: Row) -> Result<u64, Errno> {
        let (files, caller) = (self.files, self.caller);
        let number = self.number % files.small.len() as u64;
        self.number += 1;
        match row {
            Row::Getattr => caller.getattr(files.data).map(drop)?,
            Row::Lookup => {
                let name = small_name(number % LOOKED_UP);
                caller.lookup(files.many, name.as_bytes()).map(drop)?;
            }
            Row::OpenRelease => {
                let fh = caller.open(files.data, READ)?.fh;
                caller.release(files.data, fh)?;
            }
            Row::CreateUnlink => {
                let flags = READ_WRITE | OFlags::EXCL.bits().cast_signed();
                let (entry, open) = caller.create(files.top, self.name.as_bytes(), flags, 0o644)?;
                caller.release(NodeId(entry.nodeid), open.fh)?;
                caller.unlink(files.top, self.name.as_bytes())?;
                caller.forget(NodeId(entry.nodeid), 1);
            }
            Row::Readdirplus => return Ok(caller.list(files.many, true)?.len() as u64),
            Row::SmallRead | Row::SmallLoad => {
                let node = files.small[number as usize];
                let fh = caller.open(node, READ)?.fh;
                match row {
                    Row::SmallRead => caller.read(node, fh, 0, SMALL_BYTES).map(drop)?,
                    _ => self.load(node, 0, SMALL_BYTES)?,
                }
                caller.release(node, fh)?;
            }
            Row::Data(data) => self.transfer(data)?,
        }
        Ok(1)
    }

    fn transfer(&mut self, data: Data) -> Result<(), Errno> {
        let places = (data.span / data.step) as usize;
        let place = match data.is_random {
            true => self.random.below(places),
            false => self.number as usize % places,
        };
        let (offset, bytes) = (place as u64 * data.step, data.bytes);
        let Files { data: node, fh, .. } = *self.files;
        let done = match data.way {
            Way::Read => self.caller.read(node, fh, offset, bytes)?.len() as u32,
            Way::Write => {
                let part = &self.buffer[..bytes as usize];
                self.caller.write(node, fh, offset, part, 0)?
            }
            Way::Load => self.load(node, offset, bytes).map(|()| bytes)?,
        };
        (done == bytes).then_some(()).ok_or(Errno::EPROTO)
    }

    fn load(&mut self, node: NodeId, offset: u64, bytes: u32) -> Result<(), Errno> {
        let dax = self.dax.ok_or(Errno::EOPNOTSUPP)?;
        let loaded = dax.load(node, offset, &mut self.buffer[..bytes as usize]);
        loaded.map_err(|error| match error {
            DaxError::Request(errno) => errno,
            DaxError::Window(_) => Errno::EIO,
        })
    }
}
