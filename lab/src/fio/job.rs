//! A job, and the job file for it.

use thrufs_bench::job::{Calls, Job, KIB, MIB, data};
use thrufs_bench::row::Program;

/// How fio calls the file of latencies: `PREFIX_lat.1.log`.
pub(super) const LATENCIES: &str = "latency";

/// What fio does to the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FioJob {
    pub(crate) job: Job,
    /// Operations in flight, by libaio; where there is none, the job says by which calls.
    pub(crate) depth: Option<u32>,
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
    pub(super) fn calls(&self) -> &'static str {
        self.depth.map_or(self.job.calls.name(), |_| "libaio")
    }
}

/// What fio is given for a job, to be run in a directory that has a `file` of so many bytes (`file_bytes`).
/// It stops after `limit_ms` milliseconds, done or not. With `each` it writes down the time of every operation.
pub(super) fn job_file(
    fio: &FioJob,
    file_bytes: u64,
    once: bool,
    limit_ms: u128,
    each: bool,
) -> String {
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

#[cfg(test)]
mod tests {
    use super::{FioJob, job_file};

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
}
