//! `window`: reads of a file by requests, and by a DAX window, in turns.

use super::connection::Connection;
use super::error::ToolError;
use super::share::failed;
use crate::dax::{DAX_RANGE_BYTES, DaxClient, DaxError, SETUPMAPPING_READ};
use crate::front_end::{FrontEnd, FrontEndConfig, Window, WindowConfig};
use rustix::fs::OFlags;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thrufs::Errno;
use thrufs_abi::NodeId;
use thrufs_abi::layout::{RemovemappingOne, SetupmappingIn};
use thrufs_testing::{Caller, Client};

const SMALL: usize = 4096;
const LARGE: usize = 1 << 20;
/// Files of the row with small files, of [`SMALL`] times four bytes.
const SMALL_FILES: usize = 500;
const FLAGS: i32 = OFlags::RDWR.union(OFlags::CREATE).bits().cast_signed();

/// Arguments of `window`.
#[derive(Clone, Debug)]
pub struct WindowBench {
    /// How often each row is measured.
    pub rounds: u32,
    /// For how long, each time.
    pub sample: Duration,
    /// Whether the front end behaves as QEMU 11.1, instead of as specified.
    pub as_qemu: bool,
    /// Where to write every sample, as JSON.
    pub json: Option<PathBuf>,
}

impl Default for WindowBench {
    fn default() -> WindowBench {
        WindowBench {
            rounds: 5,
            sample: Duration::from_millis(500),
            as_qemu: false,
            json: None,
        }
    }
}

/// A row: reads of `bytes` from the first `ranges` of the file.
struct Row {
    name: String,
    bytes: usize,
    ranges: u64,
    is_random: bool,
}

/// Operations a second, of each round.
struct Series {
    row: String,
    by_request: Vec<f64>,
    by_window: Vec<f64>,
}

struct File<'a> {
    caller: Caller<'a, FrontEnd>,
    node: NodeId,
    fh: u64,
}

pub(crate) fn run(
    connection: &Connection,
    bench: &WindowBench,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    let config = FrontEndConfig {
        window: Some(match bench.as_qemu {
            true => WindowConfig::as_qemu(),
            false => WindowConfig::as_specified(),
        }),
        ..connection.config()
    };
    let connected = FrontEnd::connect(&connection.socket, &config);
    let front_end = connected.map_err(|source| ToolError::Connect {
        socket: connection.socket.clone(),
        source,
    })?;
    let mounted = Client::mount_with_window(front_end);
    let client = mounted.map_err(|source| ToolError::Mount {
        socket: connection.socket.clone(),
        source,
    })?;
    let window = client.carrier().window().cloned();
    let window = window.filter(|window| window.size() > 0);
    let window = window.ok_or_else(|| {
        ToolError::Usage("the server has no DAX window: thrufs share --dax-window SIZE".to_owned())
    })?;
    let name = format!("thrufs-window-{}.img", std::process::id());
    let file = make(&client, &name, 2 * window.size())?;
    let measured = measure(&client, &window, &file, bench);
    let removed = client.root().unlink(NodeId::ROOT, name.as_bytes());
    let (series, set_ups) = measured?;
    removed.map_err(|errno| failed(&name, errno))?;
    client.unmount();
    report(&series, &set_ups, bench, window.size(), out)
}

/// A file of so many bytes, open. It is looked up when it has its size: then the server says whether it is mapped.
fn make<'a>(client: &'a Client<FrontEnd>, name: &str, bytes: u64) -> Result<File<'a>, ToolError> {
    let caller = client.root();
    let failed = |errno| failed(name, errno);
    let created = caller.create(NodeId::ROOT, name.as_bytes(), FLAGS, 0o644);
    let (entry, open) = created.map_err(failed)?;
    let node = NodeId(entry.nodeid);
    let data: Vec<u8> = (0..LARGE).map(|at| (at * 7 + at / 251) as u8).collect();
    let mut offset = 0;
    while offset < bytes {
        let part = &data[..LARGE.min((bytes - offset) as usize)];
        let written = caller.write(node, open.fh, offset, part, 0);
        offset += u64::from(written.map_err(failed)?);
    }
    caller.release(node, open.fh).map_err(failed)?;
    caller.forget(node, 1);
    let entry = caller
        .lookup(NodeId::ROOT, name.as_bytes())
        .map_err(failed)?;
    let node = NodeId(entry.nodeid);
    let open = caller.open(node, OFlags::RDWR.bits().cast_signed());
    Ok(File {
        caller,
        node,
        fh: open.map_err(failed)?.fh,
    })
}

fn rows(window_bytes: u64) -> Vec<Row> {
    let ranges = window_bytes / DAX_RANGE_BYTES;
    let row = |name: &str, bytes, ranges: u64, is_random| Row {
        name: name.to_owned(),
        bytes,
        ranges: ranges.max(1),
        is_random,
    };
    vec![
        row("random 4 KiB, half of the window", SMALL, ranges / 2, true),
        row("random 4 KiB, the whole window", SMALL, ranges, true),
        row("random 4 KiB, twice the window", SMALL, 2 * ranges, true),
        row(
            "sequential 4 KiB, half of the window",
            SMALL,
            ranges / 2,
            false,
        ),
        row(
            "sequential 4 KiB, twice the window",
            SMALL,
            2 * ranges,
            false,
        ),
        row(
            "sequential 1 MiB, half of the window",
            LARGE,
            ranges / 2,
            false,
        ),
        row(
            "sequential 1 MiB, twice the window",
            LARGE,
            2 * ranges,
            false,
        ),
    ]
}

fn measure(
    client: &Client<FrontEnd>,
    window: &Window,
    file: &File<'_>,
    bench: &WindowBench,
) -> Result<(Vec<Series>, Vec<Duration>), ToolError> {
    let dax = DaxClient::new(client.root(), window);
    let mut all = Vec::new();
    for row in rows(window.size()) {
        let mut series = Series::of(&row.name);
        let mut buffer = vec![0; row.bytes];
        let mut offsets = Offsets::of(&row);
        let mut by_window = |time| {
            rate(time, || {
                let read = dax.load(file.node, offsets.next(), &mut buffer);
                read.map_err(|error| dax_failed(&row.name, &error))
            })
        };
        let mut others = Offsets::of(&row);
        let mut by_request = |time| {
            rate(time, || {
                let read = file
                    .caller
                    .read(file.node, file.fh, others.next(), row.bytes as u32);
                read.map(drop).map_err(|errno| failed(&row.name, errno))
            })
        };
        // Warm-up.
        by_window(bench.sample / 5)?;
        by_request(bench.sample / 5)?;
        for _ in 0..bench.rounds {
            series.by_request.push(by_request(bench.sample)?);
            series.by_window.push(by_window(bench.sample)?);
        }
        all.push(series);
    }
    dax.remove(file.node)
        .map_err(|error| dax_failed("remove", &error))?;
    all.push(small_files(client, window, bench)?);
    Ok((all, set_ups(file)?))
}

/// Small files, each read once, and set up for that.
fn small_files(
    client: &Client<FrontEnd>,
    window: &Window,
    bench: &WindowBench,
) -> Result<Series, ToolError> {
    let names: Vec<String> = (0..SMALL_FILES)
        .map(|number| format!("thrufs-window-{}-{number}.img", std::process::id()))
        .collect();
    let files: Result<Vec<File<'_>>, ToolError> = names
        .iter()
        .map(|name| make(client, name, 4 * SMALL as u64))
        .collect();
    let (files, dax) = (files?, DaxClient::new(client.root(), window));
    let mut series = Series::of("small files of 16 KiB, each once");
    let mut buffer = vec![0; 4 * SMALL];
    for _ in 0..bench.rounds {
        let begun = Instant::now();
        for file in &files {
            let read = file.caller.read(file.node, file.fh, 0, buffer.len() as u32);
            read.map_err(|errno| failed("small file", errno))?;
        }
        series
            .by_request
            .push(SMALL_FILES as f64 / begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        for file in &files {
            let read = dax.load(file.node, 0, &mut buffer);
            read.map_err(|error| dax_failed("small file", &error))?;
        }
        series
            .by_window
            .push(SMALL_FILES as f64 / begun.elapsed().as_secs_f64());
        for file in &files {
            dax.remove(file.node)
                .map_err(|error| dax_failed("remove", &error))?;
        }
    }
    for (name, file) in names.iter().zip(&files) {
        let removed = file.caller.unlink(NodeId::ROOT, name.as_bytes());
        removed.map_err(|errno| failed(name, errno))?;
    }
    Ok(series)
}

/// How long SETUPMAPPINGs take, sorted.
fn set_ups(file: &File<'_>) -> Result<Vec<Duration>, ToolError> {
    let arg = SetupmappingIn {
        fh: u64::MAX,
        len: DAX_RANGE_BYTES,
        flags: SETUPMAPPING_READ,
        ..SetupmappingIn::default()
    };
    let one = RemovemappingOne {
        moffset: 0,
        len: DAX_RANGE_BYTES,
    };
    let mut times = Vec::new();
    for _ in 0..2000 {
        let begun = Instant::now();
        let set_up = file.caller.setup_mapping(file.node, &arg);
        times.push(begun.elapsed());
        let removed = set_up.and_then(|()| file.caller.remove_mapping(file.node, &[one]));
        removed.map_err(|errno| failed("SETUPMAPPING", errno))?;
    }
    times.sort();
    Ok(times)
}

/// Operations a second.
fn rate(time: Duration, mut one: impl FnMut() -> Result<(), ToolError>) -> Result<f64, ToolError> {
    let (begun, mut done) = (Instant::now(), 0_u32);
    while begun.elapsed() < time {
        // The clock costs as much as a load.
        for _ in 0..16 {
            one()?;
        }
        done += 16;
    }
    Ok(f64::from(done) / begun.elapsed().as_secs_f64())
}

struct Offsets {
    steps: u64,
    bytes: u64,
    state: u64,
    is_random: bool,
}

impl Offsets {
    fn of(row: &Row) -> Offsets {
        Offsets {
            steps: row.ranges * DAX_RANGE_BYTES / row.bytes as u64,
            bytes: row.bytes as u64,
            state: 1,
            is_random: row.is_random,
        }
    }

    fn next(&mut self) -> u64 {
        self.state = match self.is_random {
            true => self
                .state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1),
            false => self.state + 1,
        };
        let number = if self.is_random {
            self.state >> 33
        } else {
            self.state
        };
        number % self.steps * self.bytes
    }
}

impl Series {
    fn of(row: &str) -> Series {
        Series {
            row: row.to_owned(),
            by_request: Vec::new(),
            by_window: Vec::new(),
        }
    }
}

fn dax_failed(what: &str, error: &DaxError) -> ToolError {
    let errno = match error {
        DaxError::Request(errno) => *errno,
        DaxError::Window(_) => Errno::EIO,
    };
    failed(what, errno)
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn report(
    series: &[Series],
    set_ups: &[Duration],
    bench: &WindowBench,
    window_bytes: u64,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    writeln!(
        out,
        "| row | READ, thousand/s | window, thousand/s | ratio |\n|---|---|---|---|"
    )?;
    for one in series {
        let (request, window) = (median(&one.by_request), median(&one.by_window));
        let ratio = window / request;
        let [request, window] = [request, window].map(|rate| rate / 1000.0);
        writeln!(
            out,
            "| {} | {request:.1} | {window:.1} | {ratio:.2} |",
            one.row
        )?;
    }
    let percentile = |percent: usize| {
        let at = set_ups.len() * percent / 100;
        set_ups.get(at).map_or(0, Duration::as_micros)
    };
    let (p50, p99) = (percentile(50), percentile(99));
    writeln!(
        out,
        "\nSETUPMAPPING: p50 {p50} µs, p99 {p99} µs; window {} MiB",
        window_bytes >> 20
    )?;
    let Some(path) = &bench.json else {
        return Ok(());
    };
    let rows: Vec<serde_json::Value> = series
        .iter()
        .map(|one| {
            serde_json::json!({
                "row": one.row,
                "read_per_s": one.by_request,
                "window_per_s": one.by_window,
            })
        })
        .collect();
    let value = serde_json::json!({
        "window_bytes": window_bytes,
        "as_qemu": bench.as_qemu,
        "set_up_us": { "p50": p50, "p99": p99 },
        "rows": rows,
    });
    std::fs::write(path, format!("{value:#}\n")).map_err(|source| ToolError::Local {
        path: path.clone(),
        source,
    })
}
