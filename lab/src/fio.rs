//! Jobs that [`fio`](https://fio.readthedocs.io) does: it is what others publish figures by, and it has
//! asynchronous I/O. What counts is fio's own time from the first block to the last, and to the end of the fsync
//! where there is one; its start does not count. It starts while things are prepared, and waits at the first block
//! ([`waiting`]), so that several begin at once.
//!
//! fio is given a job file, which people can repeat by hand ([`job_file`]), and says what it has done in JSON
//! ([`said`]).

mod said;
mod waiting;

use std::io;
use std::process::{Command, Output};
use std::sync::OnceLock;
use thrufs_bench::Outcome;
use thrufs_bench::clock::now;
use thrufs_bench::job::{Calls, Job, KIB, MIB, data};
use thrufs_bench::lower::run;
use thrufs_bench::results::Group;
use thrufs_bench::row::{Needs, Program, Ready};
use thrufs_bench::task::{self, Task};
use waiting::Waiting;

/// Older ones are taken for missing: their JSON has other fields.
const MAJOR_MIN: u32 = 3;
/// How fio calls the file of latencies: `PREFIX_lat.1.log`.
const LATENCIES: &str = "latency";

/// What fio does to the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FioJob {
    pub(crate) job: Job,
    /// Operations in flight, by libaio; where there is none, the job says by which calls.
    pub(crate) depth: Option<u32>,
}

/// What fio has done.
#[derive(Debug, PartialEq)]
struct Done {
    operations: u64,
    nanoseconds: u64,
    /// Of each operation, where that was asked for.
    each: Vec<u64>,
}

impl FioJob {
    /// The job of a row: in front stands by which calls (`direct-`, `aio16-`, `mmap-`), then the order and the size
    /// of an operation, and behind what is different (`-fsync`, `-xattr`).
    ///
    /// # Panics
    ///
    /// For a name of another form: they are this program's own.
    pub(crate) fn named(name: &str) -> FioJob {
        let (mut job, mut depth) = (Job::PLAIN, None);
        for word in name.split('-') {
            match word {
                "direct" => job.direct = true,
                "mmap" => job.calls = Calls::Mmap,
                "random" => job.random = true,
                "read" => job.write = false,
                "write" => job.write = true,
                "4k" => job = job.blocks(4 * KIB),
                "1m" => job = job.blocks(MIB),
                "fsync" => job.fsync = true,
                "xattr" => job.attribute = true,
                _ => {
                    let number = word
                        .strip_prefix("aio")
                        .and_then(|number| number.parse().ok());
                    depth = Some(number.unwrap_or_else(|| panic!("{name}: {word}?")));
                    job.direct = true;
                }
            }
        }
        FioJob { job, depth }
    }

    /// As fio calls it.
    fn calls(&self) -> &'static str {
        self.depth.map_or(self.job.calls.name(), |_| "libaio")
    }
}

impl Program for FioJob {
    fn title(&self) -> String {
        let depth = self
            .depth
            .map_or(String::new(), |depth| format!(" depth {depth}"));
        format!("{}, fio {}{depth}", self.job.title(), self.calls())
    }

    fn about(&self) -> String {
        format!(
            "One operation is one block of a file of 256 MiB: {}.",
            self.title()
        )
    }

    fn group(&self) -> Group {
        Group::Data
    }

    fn engine(&self) -> String {
        format!("fio {}", self.calls())
    }

    fn fetch(&self) -> Outcome<()> {
        match version() {
            Some(_) => Ok(()),
            None => run(Command::new("apt-get").args([
                "-qq",
                "-y",
                "--no-install-recommends",
                "install",
                "fio",
            ])),
        }
    }

    fn missing(&self) -> Option<String> {
        let is_missing = version().is_none();
        is_missing.then(|| format!("there is no fio {MAJOR_MIN} or later"))
    }

    fn needs(&self, percent: usize) -> Needs {
        self.job.needs(percent)
    }

    fn kept(&self, percent: usize) -> Option<String> {
        Some(self.job.kept(percent))
    }

    fn prepare(&self, task: &Task) -> io::Result<Ready> {
        let job = *self;
        let claim = data::prepare(&job.job, task, "", task.percent)?;
        let waiting = Waiting::start(&job, task)?;
        Ok(Box::new(move |task| {
            let _claim = claim;
            // Its time is its own; where on the clock it was is not known to the millisecond.
            let start = now();
            let done = waiting.run(&job, task)?;
            Ok(task::Done {
                operations: done.operations,
                start,
                end: start + done.nanoseconds,
                each: done.each,
            })
        }))
    }
}

/// The version, if there is a fio that is new enough: `3.33`.
fn version() -> Option<&'static str> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let output = Command::new("fio").arg("--version").output().ok()?;
        usable(&String::from_utf8_lossy(&output.stdout))
    });
    found.as_deref()
}

/// Of what `fio --version` says: `fio-3.33`, `fio-3.33-dirty`.
fn usable(said: &str) -> Option<String> {
    let version = said.trim().strip_prefix("fio-")?;
    let major: u32 = version.split('.').next()?.parse().ok()?;
    (major >= MAJOR_MIN).then(|| version.to_owned())
}

/// What fio is given for a job, to be run in a directory that has a `file` of so many bytes (`file_bytes`).
/// It stops after `limit_ms` milliseconds, done or not. With `each` it writes down the time of every operation.
fn job_file(fio: &FioJob, file_bytes: u64, once: bool, limit_ms: u128, each: bool) -> String {
    let job = &fio.job;
    let read_or_write = if job.write { "write" } else { "read" };
    let pattern = if job.random {
        format!("rand{read_or_write}")
    } else {
        read_or_write.to_owned()
    };
    let io_bytes = file_bytes * u64::from(job.passes(once));
    let flag = |is: bool| u8::from(is);
    let mut text = format!(
        "; {}\n[row]\nfilename={}\nioengine={}\nrw={pattern}\nbs={}\niodepth={}\n",
        fio.title(),
        data::NAME,
        fio.calls(),
        job.block_bytes,
        fio.depth.unwrap_or(1)
    );
    text.push_str(&format!(
        "direct={}\nfsync_on_close={}\nsize={file_bytes}\nio_size={io_bytes}\nruntime={limit_ms}ms\n",
        flag(job.direct),
        flag(job.fsync)
    ));
    text.push_str(
        "; In the process that is there, on the file that is there.\n\
         thread=1\nallow_file_create=0\n\
         ; Or it would drop what is cached beneath natively, and above through a mount.\n\
         invalidate=0\n\
         ; Every block once before any comes again, without keeping a map of blocks.\n\
         random_generator=lfsr\n\
         ; Blocks are copied to and from whole pages, or the processor takes longer over it.\n\
         iomem_align=4096\n",
    );
    text.push_str(&if each {
        format!("write_lat_log={LATENCIES}\nlog_avg_msec=0\ndisable_clat=1\ndisable_slat=1\n")
    } else {
        "; No clock is read for each block: fio's own time dilutes.\ngtod_reduce=1\n".to_owned()
    });
    text
}

fn read_output(job: &FioJob, output: &Output) -> io::Result<Done> {
    let report = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    match said::done(&report) {
        Ok(done) if output.status.success() => Ok(done),
        outcome => {
            let errno = outcome.as_ref().err().and_then(|problem| problem.errno);
            let why = outcome.map_or_else(|problem| problem.why, |_| output.status.to_string());
            // What comes before the JSON on standard output is part of the complaint.
            let before = report.split('{').next().unwrap_or_default();
            let said = format!("{} {}", complaint.trim(), before.trim());
            if let Some(missing) = missing(job, errno, &said) {
                return Err(io::Error::new(io::ErrorKind::Unsupported, missing));
            }
            let said = said.trim().replace('\n', "; ");
            Err(io::Error::other(format!("fio: {why}: {said}")))
        }
    }
}

/// What the kernel or the file system does not have, if that is why fio could not do it.
fn missing(fio: &FioJob, errno: Option<i32>, said: &str) -> Option<String> {
    const EINVAL: i32 = 22;
    let (is_direct, name) = (fio.job.direct, fio.calls());
    if said.contains("not loadable") {
        return Some(format!("this fio has no {name}"));
    }
    if is_direct && said.contains("does not support direct=1") {
        return Some("no direct I/O (O_DIRECT)".to_owned());
    }
    (is_direct && errno == Some(EINVAL)).then(|| "no direct I/O (O_DIRECT)".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{FioJob, job_file, missing, usable};

    #[test]
    fn a_job_file_says_all_of_the_job() {
        let job = FioJob::named("aio64-random-write-4k-fsync");
        let text = job_file(&job, 1 << 20, false, 300, false);
        for line in [
            "filename=file",
            "ioengine=libaio",
            "rw=randwrite",
            "bs=4096",
            "iodepth=64",
            "direct=1",
            "fsync_on_close=1",
            "size=1048576",
            "io_size=2097152",
            "runtime=300ms",
            "gtod_reduce=1",
            "iomem_align=4096",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        let once = job_file(&job, 1 << 20, true, 300, true);
        assert!(once.contains("\nio_size=1048576\n"));
        assert!(once.contains("write_lat_log") && !once.contains("gtod_reduce"));
    }

    #[test]
    fn an_old_fio_is_taken_for_none() {
        assert_eq!(usable("fio-3.33\n").as_deref(), Some("3.33"));
        assert_eq!(usable("fio-3.36-12-gabc").as_deref(), Some("3.36-12-gabc"));
        assert_eq!(usable("fio-2.21"), None);
        assert_eq!(usable("something else"), None);
        assert_eq!(usable(""), None);
    }

    #[test]
    fn missing_features_of_the_machine_are_no_failures() {
        let direct = FioJob::named("direct-read-4k");
        let says = "fio: looks like your file system does not support direct=1/buffered=0";
        assert!(missing(&direct, Some(22), says).is_some());
        assert!(missing(&direct, Some(22), "").is_some());
        assert!(missing(&FioJob::named("read-4k"), Some(22), "").is_none());
        assert!(missing(&direct, Some(5), "Input/output error").is_none());
        assert!(missing(&direct, None, "fio: engine libaio not loadable").is_some());
    }
}
