//! Jobs that [`fio`](https://fio.readthedocs.io) does: it is what others publish figures by, and it has
//! asynchronous I/O. What counts is fio's own time from the first block to the last, and to the end of the fsync
//! where there is one; its start does not count. It starts while things are prepared, and waits at the first block
//! ([`waiting`]), so that several begin at once.
//!
//! fio is given a job file, which people can repeat by hand ([`job_file`]), and says what it has done in JSON
//! ([`said`]).

mod said;
mod waiting;

pub(crate) use waiting::Waiting;

use crate::Outcome;
use crate::job::{Calls, Job, data};
use crate::lower::run;
use std::io;
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Older ones are taken for missing: their JSON has other fields.
pub(crate) const MAJOR_MIN: u32 = 3;
/// How fio calls the file of latencies: `PREFIX_lat.1.log`.
const LATENCIES: &str = "latency";

/// What fio has done.
#[derive(Debug, PartialEq)]
pub(crate) struct Done {
    pub(crate) operations: u64,
    pub(crate) nanoseconds: u64,
    /// Of each operation, where that was asked for.
    pub(crate) each: Vec<u64>,
}

/// The version, if there is a fio that is new enough: `3.33`.
pub(crate) fn version() -> Option<&'static str> {
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

/// Installs it where it is missing.
pub(crate) fn install() -> Outcome<()> {
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

/// What fio is given for a job, to be run in a directory that has a `file` of so many bytes (`file_bytes`).
/// It stops after `limit_ms` milliseconds, done or not. With `each` it writes down the time of every operation.
pub(crate) fn job_file(
    job: &Job,
    file_bytes: u64,
    once: bool,
    limit_ms: u128,
    each: bool,
) -> String {
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
        job.title(),
        data::NAME,
        job.calls.name(),
        job.block_bytes,
        job.depth
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

fn read_output(job: &Job, output: &Output) -> io::Result<Done> {
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
fn missing(job: &Job, errno: Option<i32>, said: &str) -> Option<String> {
    const EPERM: i32 = 1;
    const EINVAL: i32 = 22;
    const ENOSYS: i32 = 38;
    let name = job.calls.name();
    if said.contains("not loadable") {
        return Some(format!("this fio has no {name}"));
    }
    if job.direct && said.contains("does not support direct=1") {
        return Some("no direct I/O (O_DIRECT)".to_owned());
    }
    match errno {
        Some(EINVAL) if job.direct => Some("no direct I/O (O_DIRECT)".to_owned()),
        Some(ENOSYS | EPERM) if job.calls == Calls::IoUring => {
            Some("the kernel does not let this process use io_uring".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{job_file, missing, usable};
    use crate::job::{Calls, Job};

    #[test]
    fn a_job_file_says_all_of_the_job() {
        let job = Job {
            calls: Calls::Libaio,
            depth: 64,
            direct: true,
            fsync: true,
            ..Job::PLAIN.random().write()
        };
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
    fn what_the_machine_does_not_have_is_no_failure() {
        let direct = Job {
            direct: true,
            ..Job::PLAIN
        };
        let says = "fio: looks like your file system does not support direct=1/buffered=0";
        assert!(missing(&direct, Some(22), says).is_some());
        assert!(missing(&direct, Some(22), "").is_some());
        assert!(missing(&Job::PLAIN, Some(22), "").is_none());
        assert!(missing(&direct, Some(5), "Input/output error").is_none());
        let ring = Job {
            calls: Calls::IoUring,
            ..Job::PLAIN
        };
        assert!(missing(&ring, Some(1), "").is_some());
        assert!(missing(&ring, None, "fio: engine io_uring not loadable").is_some());
    }
}
