//! The counters of one count, from start to stop.

use super::connection::Connection;
use super::servers;
use super::tracepoints::{Opcode, Tracepoints};
use crate::Outcome;
use crate::counter::{Counter, Scope};
use crate::results::Counts;
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::Path;
use std::time::Duration;

/// The counts are complete when no request came for this long.
const QUIET: Duration = Duration::from_millis(40);
/// Looks at most: other processes may use the mount.
const LOOKS_MAX: usize = 25;
/// Requests of opcodes for which there was no counter.
const OTHERS: &str = "others";

/// Counters that run.
pub struct Counting {
    requests: Requests,
    /// One for each thread that the servers had; none where no server is known.
    system_calls: Vec<Counter>,
    /// What they said when nothing of what is to be counted had begun.
    before: Tally,
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
    pub(super) fn start(mount: &Path, servers: &[Pid]) -> Outcome<Counting> {
        Counting::of(Connection::of(mount)?, servers)
    }

    pub(super) fn of(connection: Connection, servers: &[Pid]) -> Outcome<Counting> {
        let tracepoints = Tracepoints::find()?;
        let limit = allow_many_descriptors();
        // Before those that may take all the descriptors that there are.
        let system_calls = system_calls(servers, &tracepoints);
        let requests = Requests::of(connection, &tracepoints);
        // Children inherit the limit that was there.
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
    pub(super) fn stop(self, operations: u64) -> Outcome<Counts> {
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

    /// The counts once no request came for a while: those without a waiter (RELEASE) come late.
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
                // With very many processors: the rest is reported as one sum.
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

pub(super) fn numbers(list: &str) -> Option<Vec<u32>> {
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
