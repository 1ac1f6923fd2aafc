//! fio and our own loops do the same: as many operations, of as many bytes, on the same blocks, by as many system
//! calls. How fast they are is not asked here.

use crate::clock::Clock;
use crate::errand::Errand;
use crate::fio;
use crate::job::{Calls, Job, data, own};
use crate::mounted::skipped;
use crate::row::{self, Work};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// In memory, if that is there.
fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

fn errand(directory: &Path) -> Errand {
    let beneath = directory.join("measurement");
    fs::create_dir(&beneath).unwrap();
    Errand {
        seen: beneath.clone(),
        beneath,
        percent: 1,
        limit: Duration::from_secs(600),
        once: false,
        each: false,
    }
}

/// Pairs of jobs, by fio and by us, as the report shows them side by side.
fn pairs() -> Vec<(&'static str, &'static Job, &'static Job)> {
    let rows = row::listed("agreement").unwrap();
    let pairs = rows.chunks(2).map(|pair| {
        let (Work::Data(fio), Work::Data(own)) = (&pair[0].work, &pair[1].work) else {
            panic!("{} reads or writes", pair[0].name);
        };
        (pair[0].name, fio, own)
    });
    pairs.collect()
}

/// Read and write calls of this thread, and their bytes, as the kernel counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counted {
    reads: u64,
    writes: u64,
    bytes_read: u64,
    bytes_written: u64,
}

/// What the kernel has counted, and the length of the text in which it says so: to read it is to read.
struct Account {
    counted: Counted,
    text_bytes: u64,
}

impl Counted {
    fn now() -> Account {
        let text = fs::read_to_string("/proc/thread-self/io").unwrap();
        let value = |name: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().parse().unwrap()
        };
        Account {
            counted: Counted {
                reads: value("syscr:"),
                writes: value("syscw:"),
                bytes_read: value("rchar:"),
                bytes_written: value("wchar:"),
            },
            text_bytes: text.len() as u64,
        }
    }

    fn since(self, before: Counted) -> Counted {
        Counted {
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            bytes_read: self.bytes_read - before.bytes_read,
            bytes_written: self.bytes_written - before.bytes_written,
        }
    }
}

/// Of a loop of our own: operations, and what the kernel has counted for them.
fn counted(job: &Job, errand: &Errand) -> (u64, Counted) {
    let mut clock = Clock::start(errand.limit);
    let bytes = job.file_bytes(errand.percent);
    let first = Counted::now();
    let before = Counted::now();
    own::run(job, &errand.seen, bytes, errand.once, &mut clock).unwrap();
    let after = Counted::now();
    let mut counted = after.counted.since(before.counted);
    // The look before: as many calls as the one before that, of which each text tells the length.
    counted.reads -= before.counted.since(first.counted).reads;
    counted.bytes_read -= before.text_bytes;
    (clock.operations(), counted)
}

/// Of fio, the lines of its log of what it does: `TIME FILE ACTION OFFSET BYTES`; action, offset and bytes.
fn logged(job: &Job, errand: &Errand) -> Vec<(String, u64, u64)> {
    let bytes = job.file_bytes(errand.percent);
    let mut text = fio::job_file(job, bytes, errand.once, 600_000, false);
    text.push_str("write_iolog=actions\n");
    fs::write(errand.beneath.join("logged.fio"), text).unwrap();
    let status = Command::new("fio")
        .args(["--output=report", "logged.fio"])
        .current_dir(&errand.beneath)
        .status();
    assert!(status.unwrap().success());
    let log = fs::read_to_string(errand.beneath.join("actions")).unwrap();
    let transfer = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Older logs have no time in front.
        let [.., _, action, offset, bytes] = words[..] else {
            return None;
        };
        Some((action.to_owned(), offset.parse().ok()?, bytes.parse().ok()?))
    };
    log.lines().filter_map(transfer).collect()
}

/// How often fio has made a system call on so many bytes, by strace.
fn traced(job: &Job, errand: &Errand) -> Option<u64> {
    let call = match (job.calls, job.write) {
        (Calls::Psync, false) => "pread64",
        (Calls::Psync, true) => "pwrite64",
        _ => return None,
    };
    let bytes = job.file_bytes(errand.percent);
    let text = fio::job_file(job, bytes, errand.once, 600_000, false);
    fs::write(errand.beneath.join("traced.fio"), text).unwrap();
    let status = Command::new("strace")
        .args(["-f", "-o", "trace", "-e"])
        .arg(format!("trace={call}"))
        .args(["fio", "--output=report", "traced.fio"])
        .current_dir(&errand.beneath)
        .status();
    // Without strace there is nothing to compare with.
    assert!(status.ok()?.success());
    let trace = fs::read_to_string(errand.beneath.join("trace")).unwrap();
    let ends = format!(" = {}", job.block_bytes);
    Some(trace.lines().filter(|line| line.ends_with(&ends)).count() as u64)
}

fn by_fio_alone(job: &Job, errand: &Errand) -> fio::Done {
    let waiting = fio::Waiting::start(job, errand).unwrap();
    waiting.run(job, errand).unwrap()
}

#[test]
fn operations_and_bytes_are_the_same() {
    if fio::version().is_none() {
        return skipped("there is no fio");
    }
    for (name, by_fio, by_us) in pairs() {
        let directory = directory();
        let errand = errand(directory.path());
        let _claim = data::prepare(by_fio, &errand, "", errand.percent).unwrap();
        let (operations, counted) = counted(by_us, &errand);
        let done = by_fio_alone(by_fio, &errand);
        assert_eq!(done.operations, operations, "{name}");
        let bytes = operations * by_us.block_bytes;
        let expected = match (by_us.calls, by_us.write) {
            (Calls::Mmap, _) => Counted::default(),
            (_, false) => Counted {
                reads: operations,
                bytes_read: bytes,
                ..Counted::default()
            },
            (_, true) => Counted {
                writes: operations,
                bytes_written: bytes,
                ..Counted::default()
            },
        };
        assert_eq!(counted, expected, "{name}");
        if let Some(calls) = traced(by_fio, &errand) {
            assert_eq!(calls, counted.reads + counted.writes, "{name}");
        }
    }
}

/// Where what was read once lies in the cache above.
#[test]
fn the_file_is_gone_through_once_where_the_second_time_is_cheaper() {
    if fio::version().is_none() {
        return skipped("there is no fio");
    }
    for (name, by_fio, by_us) in pairs().into_iter().take(2) {
        let directory = directory();
        let mut errand = errand(directory.path());
        errand.once = true;
        let _claim = data::prepare(by_fio, &errand, "", errand.percent).unwrap();
        let blocks = by_us.file_bytes(errand.percent) / by_us.block_bytes;
        assert_eq!(counted(by_us, &errand).0, blocks, "{name}");
        assert_eq!(by_fio_alone(by_fio, &errand).operations, blocks, "{name}");
    }
}

#[test]
fn blocks_and_their_order_are_the_same() {
    if fio::version().is_none() {
        return skipped("there is no fio");
    }
    for (name, by_fio, by_us) in pairs() {
        let directory = directory();
        let errand = errand(directory.path());
        let _claim = data::prepare(by_fio, &errand, "", errand.percent).unwrap();
        let actions = logged(by_fio, &errand);
        let what = if by_fio.write { "write" } else { "read" };
        for (action, _, bytes) in &actions {
            assert_eq!(
                (action.as_str(), *bytes),
                (what, by_us.block_bytes),
                "{name}"
            );
        }
        let ours = by_us.offsets(by_us.file_bytes(errand.percent));
        let theirs: Vec<u64> = actions.iter().map(|(_, offset, _)| *offset).collect();
        assert_eq!(theirs.len(), ours.len() * by_us.passes as usize, "{name}");
        for pass in theirs.chunks(ours.len()) {
            if !by_us.random {
                assert_eq!(pass, ours, "{name}");
                continue;
            }
            // Each has an order of its own, in which a block seldom follows the one before it in the file.
            for order in [pass, ours.as_slice()] {
                let mut sorted = order.to_vec();
                sorted.sort_unstable();
                sorted.dedup();
                assert_eq!(sorted.len(), order.len(), "{name}: every block once");
                let next = |two: &&[u64]| two[0] + by_us.block_bytes == two[1];
                let neighbours = order.windows(2).filter(next).count();
                assert!(
                    neighbours * 20 < order.len(),
                    "{name}: {neighbours} in a row"
                );
            }
        }
    }
}
