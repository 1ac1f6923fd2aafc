//! Counts what an operation costs, in a measurement of its own that is not timed: the requests that a
//! mount sends, by opcode, and the system calls that its server's processes make. Works for every FUSE
//! server, needs root and tracefs.
//!
//! * **Requests** are those that pass the tracepoint `fuse:fuse_request_send` with the mount's connection:
//!   a counter for each opcode on each processor. On the ring a request that nobody waits for (RELEASE,
//!   reading ahead) passes it too, as far as the lab's test `requests_are_counted_over_the_ring` shows. FORGET never
//!   does: the kernel does not count it as a request.
//! * **System calls** are those that pass `raw_syscalls:sys_enter` in any thread of the server's processes,
//!   of their children, and in what they start meanwhile. What the kernel does for a server without being
//!   called (the ring's task work) is none.
//!
//! Counters have no buffers: they are exact, however busy the machine is. What else uses the mount in the
//! meantime is counted as well.

pub(crate) mod outside;
pub(crate) mod servers;
mod tracepoints;

use crate::Outcome;
use crate::results::Counts;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::Path;
use std::time::Duration;
use thrufs_sys::counter::{Counter, Scope};
use tracepoints::{Opcode, Tracepoints};

/// For so long nothing may have been sent before what was counted is believed to be all of it.
const QUIET: Duration = Duration::from_millis(40);
/// How often that is looked at, at most: somebody else may use the mount.
const LOOKS_MAX: usize = 25;
/// Requests of opcodes for which there was no counter.
const OTHERS: &str = "others";

/// The number by which the kernel knows a FUSE mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connection(u32);

impl Connection {
    /// Of what is mounted at `mount`, or above it. Sends no request.
    pub(crate) fn of(mount: &Path) -> Outcome<Connection> {
        let failed = |error: Errno| format!("{}: {error}", mount.display());
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let stat = statx(CWD, mount, flags, StatxFlags::empty()).map_err(failed)?;
        // As the kernel itself packs it: twenty bits of minor, above them the major, which is zero unless
        // it is a FUSE mount of a block device.
        Ok(Connection((stat.stx_dev_major << 20) | stat.stx_dev_minor))
    }
}

/// Counters that run.
pub struct Counting {
    requests: Requests,
    /// One for each thread that the servers had; none where no server is known.
    system_calls: Vec<Counter>,
    /// What they said when nothing of what is to be counted had begun.
    before: Tally,
}

/// A count that runs, wherever it does.
pub enum Running {
    /// In this process.
    Here(Counting),
    /// See `outside`.
    Outside,
}

impl Running {
    /// Begins to count the requests of what is mounted at `mount`, and the system calls of `servers`, their
    /// threads and children. Where none are given, those that serve the mount are looked for, here and in the
    /// namespace that the run has left; where none are found, no system calls are counted.
    ///
    /// # Errors
    /// As a text: why counting cannot be had here. It is so for all mounts of a run, then.
    pub fn start(mount: &Path, servers: &[Pid]) -> Outcome<Running> {
        if !servers.is_empty() {
            return Counting::start(mount, servers).map(Running::Here);
        }
        if outside::start(mount)? {
            return Ok(Running::Outside);
        }
        let servers = servers::of_connection(Connection::of(mount)?);
        Counting::start(mount, &servers).map(Running::Here)
    }

    /// Ends, and says what `operations` operations have cost.
    ///
    /// # Errors
    /// Whoever counts outside has gone.
    pub fn stop(self, operations: u64) -> Outcome<Counts> {
        match self {
            Running::Here(counting) => counting.stop(operations),
            Running::Outside => outside::stop(operations),
        }
    }
}

/// The counters of requests.
struct Requests {
    /// Of every opcode: one on each processor.
    all: Vec<Counter>,
    by_opcode: Vec<(Opcode, Vec<Counter>)>,
}

/// What the counters say at one time.
#[derive(Default)]
struct Tally {
    all: u64,
    /// In the order of the counters.
    by_opcode: Vec<u64>,
    system_calls: u64,
}

impl Counting {
    /// Begins to count the requests of what is mounted at `mount`, and the system calls of `servers`, their
    /// threads and children; without any, no system calls are counted.
    ///
    /// # Errors
    /// As a text: why counting cannot be had here. It is so for all mounts of a run, then.
    fn start(mount: &Path, servers: &[Pid]) -> Outcome<Counting> {
        Counting::of(Connection::of(mount)?, servers)
    }

    fn of(connection: Connection, servers: &[Pid]) -> Outcome<Counting> {
        let tracepoints = Tracepoints::find()?;
        let limit = allow_many_descriptors();
        // Before those that may take all the descriptors that there are.
        let system_calls = system_calls(servers, &tracepoints);
        let requests = Requests::of(connection, &tracepoints);
        // Whoever is started from now on has the limit that he would have had.
        let _ = setrlimit(Resource::Nofile, limit);
        let mut counting = Counting {
            system_calls: system_calls?,
            requests: requests?,
            before: Tally::default(),
        };
        for counter in counting.counters() {
            counter
                .enable()
                .map_err(|error| refused("requests", error))?;
        }
        counting.before = counting.settled()?;
        Ok(counting)
    }

    /// Ends, when nothing is under way any more, and says what `operations` operations have cost.
    ///
    /// # Errors
    /// None is known.
    fn stop(self, operations: u64) -> Outcome<Counts> {
        let (before, after) = (&self.before, self.settled()?);
        let names = self.requests.by_opcode.iter();
        let names = names.map(|(opcode, _)| opcode.name.as_str());
        let counted = (after.by_opcode.iter()).zip(&before.by_opcode);
        let counted = counted.map(|(after, before)| after - before);
        let mut requests: BTreeMap<String, u64> = names.map(str::to_owned).zip(counted).collect();
        requests.retain(|_, count| *count > 0);
        let others = (after.all - before.all).saturating_sub(requests.values().sum());
        if others > 0 {
            requests.insert(OTHERS.to_owned(), others);
        }
        let known = !self.system_calls.is_empty();
        Ok(Counts {
            operations,
            requests: Some(requests),
            system_calls: known.then(|| after.system_calls - before.system_calls),
        })
    }

    /// What was counted when nothing more came for a while: what nobody waits for (RELEASE) comes later.
    fn settled(&self) -> Outcome<Tally> {
        let now = || Ok::<_, String>((sum(&self.requests.all)?, sum(&self.system_calls)?));
        let mut before = now()?;
        for _ in 0..LOOKS_MAX {
            std::thread::sleep(QUIET);
            let after = now()?;
            if after == before {
                break;
            }
            before = after;
        }
        self.tally()
    }

    fn tally(&self) -> Outcome<Tally> {
        let opcodes = self.requests.by_opcode.iter();
        Ok(Tally {
            by_opcode: opcodes
                .map(|(_, counters)| sum(counters))
                .collect::<Outcome<_>>()?,
            // After those that it holds as well.
            all: sum(&self.requests.all)?,
            system_calls: sum(&self.system_calls)?,
        })
    }

    fn counters(&self) -> impl Iterator<Item = &Counter> {
        let opcodes = self.requests.by_opcode.iter();
        (self.requests.all.iter())
            .chain(opcodes.flat_map(|(_, counters)| counters))
            .chain(&self.system_calls)
    }
}

fn system_calls(servers: &[Pid], tracepoints: &Tracepoints) -> Outcome<Vec<Counter>> {
    let number = tracepoints.system_call()?;
    let mut counters = Vec::new();
    for thread in servers::families(servers)
        .into_iter()
        .flat_map(servers::threads)
    {
        match Counter::of_tracepoint(number, Scope::Thread(thread)) {
            Ok(counter) => counters.push(counter),
            // It has ended.
            Err(Errno::SRCH) => {}
            Err(error) => return Err(refused("system calls", error)),
        }
    }
    Ok(counters)
}

impl Requests {
    fn of(connection: Connection, tracepoints: &Tracepoints) -> Outcome<Requests> {
        let number = tracepoints.request()?;
        let processors = processors()?;
        let counters = |filter: String| -> Result<Vec<Counter>, Errno> {
            let filter = CString::new(filter).map_err(|_| Errno::INVAL)?;
            let one = |&processor: &u32| {
                let counter = Counter::of_tracepoint(number, Scope::Processor(processor))?;
                counter.set_filter(&filter)?;
                Ok(counter)
            };
            processors.iter().map(one).collect()
        };
        let Connection(connection) = connection;
        let all = counters(format!("connection == {connection}"))
            .map_err(|error| refused("requests", error))?;
        let mut by_opcode = Vec::new();
        for opcode in tracepoints.opcodes()? {
            let filter = format!("connection == {connection} && opcode == {}", opcode.number);
            match counters(filter) {
                Ok(counters) => by_opcode.push((opcode, counters)),
                // With very many processors: what is left is told together.
                Err(Errno::MFILE | Errno::NFILE) => break,
                Err(error) => return Err(refused("requests", error)),
            }
        }
        Ok(Requests { all, by_opcode })
    }
}

fn refused(what: &str, error: Errno) -> String {
    match error {
        Errno::ACCESS | Errno::PERM => {
            format!("counting {what} needs root (or CAP_PERFMON): {error}")
        }
        _ => format!("{what} cannot be counted: {error}"),
    }
}

fn sum(counters: &[Counter]) -> Outcome<u64> {
    let mut sum = 0;
    for counter in counters {
        sum += counter
            .count()
            .map_err(|error| format!("a counter cannot be read: {error}"))?;
    }
    Ok(sum)
}

/// The processors that are switched on, from a list as `0-3,6`.
fn processors() -> Outcome<Vec<u32>> {
    const FILE: &str = "/sys/devices/system/cpu/online";
    let text = std::fs::read_to_string(FILE).map_err(|error| format!("{FILE}: {error}"))?;
    numbers(text.trim()).ok_or_else(|| format!("{FILE} says {}", text.trim()))
}

fn numbers(list: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        all.extend(first..=last);
    }
    Some(all)
}

/// A counter is a descriptor, and there is one for each opcode and processor. Gives the limit that there was.
fn allow_many_descriptors() -> Rlimit {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Without it there are fewer opcodes by name.
    let _ = setrlimit(Resource::Nofile, raised);
    limit
}

#[cfg(test)]
mod tests;
