//! Whether bytes should go between `/dev/fuse` and files through a pipe (`splice(2)`) or through
//! memory: a server as small as can be, that does either, with one file.
//!
//! * `read` and `write`: the file from front to back, in requests as large as the kernel makes them.
//! * `small`: requests without data. A server that wants to splice the data of writes has to take
//!   every request through the pipe, because what it is shows afterwards.
//!
//! The file lies in the caches beneath, and every measurement has a mount of its own: what is timed
//! is the way between the two.

use crate::Outcome;
use crate::lower::Lower;
use rustix::io::{Errno, IoSlice};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;
use thrufs::mount::{MountOptions, mount, open_device, unmount};
use thrufs_abi::layout::{
    Attr, AttrOut, EntryOut, InHeader, InitIn, InitOut, OpenOut, OutHeader, ReadIn, WriteIn,
    WriteOut,
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

const FILE_BYTES: u64 = 256 << 20;
const PIECE: usize = 1 << 20;
const SMALL_REQUESTS: u64 = 30_000;
/// What a pipe may hold without privilege, one page of it for headers.
const PIPE_BYTES: usize = 1 << 20;
const WRITE_BYTES_MAX: u32 = 512 << 10;
const WRITE_HEAD: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// The opcodes and flags of `linux/fuse.h` that the server knows.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const INIT: u32 = 26;
const BATCH_FORGET: u32 = 42;
const ASYNC_READ: u32 = 1;
const BIG_WRITES: u32 = 1 << 5;
const MAX_PAGES: u32 = 1 << 22;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Row {
    Read,
    Write,
    Small,
}

/// Compares the two in every row, on every lower file system.
pub(crate) fn run(rounds: usize, lowers: &[Lower], work: &Path) -> Outcome<()> {
    println!("\n| | copied | spliced / copied |\n|---|---|---|");
    for lower in lowers {
        let beneath = lower.set_up(work)?;
        let file = beneath.join("file");
        std::fs::write(&file, vec![1; FILE_BYTES as usize]).map_err(|error| error.to_string())?;
        for (row, name) in [
            (Row::Read, "read"),
            (Row::Write, "write"),
            (Row::Small, "small"),
        ] {
            let point = work.join(format!("splice-{}-{name}", lower.name()));
            std::fs::create_dir(&point).map_err(|error| error.to_string())?;
            let (mut copied, mut ratios) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                let rate = |spliced| {
                    measure(&file, &point, row, spliced)
                        .map_err(|error| format!("{name}, spliced {spliced}: {error}"))
                };
                let (copy, splice) = (rate(false)?, rate(true)?);
                copied.push(copy);
                ratios.push(splice / copy);
            }
            let rate = if row == Row::Small {
                format!("{:.0} k/s", median(&mut copied) / 1e3)
            } else {
                format!("{:.2} GB/s", median(&mut copied) / 1e9)
            };
            let ratio = median(&mut ratios);
            println!(
                "| {name}, {} below | {rate} | {ratio:.2} [{:.2} to {:.2}] |",
                lower.name(),
                ratios[0],
                ratios[ratios.len() - 1]
            );
        }
    }
    Ok(())
}

/// Sorts them, too.
fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Bytes or requests in a second.
fn measure(file: &Path, point: &Path, row: Row, spliced: bool) -> io::Result<f64> {
    let lower = OpenOptions::new().read(true).write(true).open(file)?;
    let (device, _) = open_device().map_err(io::Error::other)?;
    let server = Server {
        device: device.try_clone()?,
        lower,
        replies_spliced: spliced && row == Row::Read,
        requests_spliced: spliced && row != Row::Read,
        pipe: Pipe::new()?,
        buffer: vec![0; WRITE_HEAD + PIECE],
    };
    let serving = std::thread::spawn(move || server.serve());
    let options = MountOptions::new("thrufs-bench");
    mount(device.as_fd(), point, &options).map_err(io::Error::other)?;
    drop(device);
    let rate = ask(&point.join("file"), row);
    unmount(point, true).map_err(io::Error::other)?;
    serving
        .join()
        .map_err(|_| io::Error::other("the server panicked"))??;
    rate
}

fn ask(file: &Path, row: Row) -> io::Result<f64> {
    let file = OpenOptions::new().read(true).write(true).open(file)?;
    let mut buffer = vec![2; PIECE];
    let start = Instant::now();
    let mut done = 0;
    match row {
        Row::Read => {
            while done < FILE_BYTES {
                file.read_exact_at(&mut buffer, done)?;
                done += PIECE as u64;
            }
        }
        Row::Write => {
            while done < FILE_BYTES {
                file.write_all_at(&buffer, done)?;
                done += PIECE as u64;
            }
        }
        Row::Small => {
            while done < SMALL_REQUESTS {
                file.metadata()?;
                done += 1;
            }
        }
    }
    Ok(done as f64 / start.elapsed().as_secs_f64())
}

struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Pipe {
    fn new() -> io::Result<Pipe> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setpipe_size(&writer, PIPE_BYTES)?;
        Ok(Pipe { reader, writer })
    }
}

struct Server {
    device: OwnedFd,
    lower: File,
    replies_spliced: bool,
    requests_spliced: bool,
    pipe: Pipe,
    buffer: Vec<u8>,
}

impl Server {
    fn serve(mut self) -> io::Result<()> {
        loop {
            let length = match self.take() {
                Ok(length) => length,
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(()),
                Err(Errno::INTR | Errno::NOENT) => continue,
                Err(error) => return Err(error.into()),
            };
            self.answer(length)?;
        }
    }

    /// Takes a request; of a spliced WRITE, the data stay in the pipe.
    fn take(&mut self) -> rustix::io::Result<usize> {
        if !self.requests_spliced {
            return rustix::io::read(&self.device, &mut self.buffer);
        }
        let most = WRITE_HEAD + WRITE_BYTES_MAX as usize;
        let flags = SpliceFlags::empty();
        let length = splice(&self.device, None, &self.pipe.writer, None, most, flags)?;
        let head = length.min(WRITE_HEAD);
        let mut have = 0;
        while have < head {
            have += rustix::io::read(&self.pipe.reader, &mut self.buffer[have..head])?;
        }
        let opcode = InHeader::ref_from_prefix(&self.buffer).map_or(0, |(header, _)| header.opcode);
        while opcode != WRITE && have < length {
            have += rustix::io::read(&self.pipe.reader, &mut self.buffer[have..length])?;
        }
        Ok(length)
    }

    fn answer(&mut self, length: usize) -> io::Result<()> {
        let (header, rest) = InHeader::read_from_prefix(&self.buffer[..length.max(WRITE_HEAD)])
            .map_err(|_| io::Error::other("short request"))?;
        let unique = header.unique;
        match header.opcode {
            INIT => {
                let (asked, _) =
                    InitIn::read_from_prefix(rest).map_err(|_| io::Error::other("short INIT"))?;
                let mut out = InitOut::new_zeroed();
                (out.major, out.minor) = (7, asked.minor.min(45));
                out.max_readahead = asked.max_readahead;
                out.flags = asked.flags & (ASYNC_READ | BIG_WRITES | MAX_PAGES);
                out.max_write = WRITE_BYTES_MAX;
                out.max_pages = (WRITE_BYTES_MAX / 4096) as u16;
                self.reply(unique, &out)
            }
            LOOKUP => {
                let mut out = EntryOut::new_zeroed();
                (out.nodeid, out.entry_valid) = (2, 60);
                out.attr = attributes(2);
                self.reply(unique, &out)
            }
            GETATTR => {
                let mut out = AttrOut::new_zeroed();
                out.attr = attributes(header.nodeid);
                self.reply(unique, &out)
            }
            OPEN => self.reply(unique, &OpenOut::new_zeroed()),
            READ => {
                let (asked, _) =
                    ReadIn::read_from_prefix(rest).map_err(|_| io::Error::other("short READ"))?;
                self.read(unique, asked.offset, asked.size as usize)
            }
            WRITE => {
                let (asked, _) =
                    WriteIn::read_from_prefix(rest).map_err(|_| io::Error::other("short WRITE"))?;
                self.write(unique, asked.offset, asked.size as usize)
            }
            FORGET | BATCH_FORGET => Ok(()),
            RELEASE => self.send(unique, 0, &[]),
            _ => self.send(unique, -Errno::NOSYS.raw_os_error(), &[]),
        }
    }

    fn read(&mut self, unique: u64, mut offset: u64, size: usize) -> io::Result<()> {
        let size = size.min(FILE_BYTES.saturating_sub(offset) as usize);
        if !self.replies_spliced {
            let bytes = &mut self.buffer[..size];
            self.lower.read_exact_at(bytes, offset)?;
            return self.send(unique, 0, &self.buffer[..size]);
        }
        let header = out_header(unique, 0, size);
        rustix::io::write(&self.pipe.writer, header.as_bytes())?;
        let flags = SpliceFlags::empty();
        let mut left = size;
        while left > 0 {
            let writer = &self.pipe.writer;
            left -= splice(&self.lower, Some(&mut offset), writer, None, left, flags)?;
        }
        let whole = size_of::<OutHeader>() + size;
        let sent = splice(&self.pipe.reader, None, &self.device, None, whole, flags)?;
        if sent == whole {
            Ok(())
        } else {
            Err(io::Error::other("a reply in pieces"))
        }
    }

    fn write(&mut self, unique: u64, mut offset: u64, size: usize) -> io::Result<()> {
        if self.requests_spliced {
            let mut left = size;
            while left > 0 {
                let flags = SpliceFlags::empty();
                let reader = &self.pipe.reader;
                left -= splice(reader, None, &self.lower, Some(&mut offset), left, flags)?;
            }
        } else {
            let bytes = &self.buffer[WRITE_HEAD..WRITE_HEAD + size];
            self.lower.write_all_at(bytes, offset)?;
        }
        let mut out = WriteOut::new_zeroed();
        out.size = size as u32;
        self.reply(unique, &out)
    }

    fn reply(&self, unique: u64, body: &(impl IntoBytes + Immutable)) -> io::Result<()> {
        self.send(unique, 0, body.as_bytes())
    }

    fn send(&self, unique: u64, error: i32, body: &[u8]) -> io::Result<()> {
        let header = out_header(unique, error, body.len());
        let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(body)];
        match rustix::io::writev(&self.device, &parts) {
            // Whoever asked is gone.
            Err(Errno::NOENT) => Ok(()),
            sent => Ok(sent.map(drop)?),
        }
    }
}

fn out_header(unique: u64, error: i32, body: usize) -> OutHeader {
    let mut header = OutHeader::new_zeroed();
    header.len = (size_of::<OutHeader>() + body) as u32;
    (header.error, header.unique) = (error, unique);
    header
}

/// Of the root and of the only file. Never remembered, so that every `fstat` asks.
fn attributes(node: u64) -> Attr {
    let mut attributes = Attr::new_zeroed();
    (attributes.ino, attributes.nlink) = (node, 1);
    if node == 1 {
        attributes.mode = 0o40_755;
    } else {
        (attributes.mode, attributes.size) = (0o100_644, FILE_BYTES);
    }
    attributes
}
