//! What fio says that it has done.

use super::job::FioJob;
use serde::Deserialize;
use std::io;
use std::process::Output;

/// What fio has done.
#[derive(Debug, PartialEq)]
pub(super) struct Done {
    pub(super) operations: u64,
    pub(super) nanoseconds: u64,
    /// Of each operation, where that was asked for.
    pub(super) each: Vec<u64>,
}

/// Why there is no figure.
#[derive(Debug)]
struct Problem {
    why: String,
    /// The system's error number, where fio has one.
    errno: Option<i32>,
}

#[derive(Deserialize)]
struct Report {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    error: i32,
    read: Direction,
    write: Direction,
}

#[derive(Deserialize)]
struct Direction {
    total_ios: u64,
    /// Milliseconds.
    runtime: u64,
}

/// Reads the JSON, before which there may be notes.
fn done(said: &str) -> Result<Done, Problem> {
    let problem = |why: &str| Problem {
        why: why.to_owned(),
        errno: None,
    };
    let start = said.find('{').ok_or_else(|| problem("no figures"))?;
    // After it there may be notes as well.
    let mut reports = serde_json::Deserializer::from_str(&said[start..]).into_iter::<Report>();
    let report = reports.next().ok_or_else(|| problem("no figures"))?;
    let report = report.map_err(|error| problem(&format!("figures that are none: {error}")))?;
    let job = report.jobs.first().ok_or_else(|| problem("no job"))?;
    if job.error != 0 {
        return Err(Problem {
            why: io::Error::from_raw_os_error(job.error).to_string(),
            errno: Some(job.error),
        });
    }
    let operations = job.read.total_ios + job.write.total_ios;
    let milliseconds = job.read.runtime + job.write.runtime;
    if operations == 0 || milliseconds == 0 {
        return Err(problem("nothing was read or written, or in no time"));
    }
    Ok(Done {
        operations,
        nanoseconds: milliseconds * 1_000_000,
        each: Vec::new(),
    })
}

/// Nanoseconds of each operation: the second column of the log.
pub(super) fn latencies(log: &str) -> Vec<u64> {
    log.lines()
        .filter_map(|line| line.split(',').nth(1)?.trim().parse().ok())
        .collect()
}

/// What a run of it has done.
///
/// # Errors
///
/// [`io::ErrorKind::Unsupported`] for what the kernel or the file system does not have; any other is a failure,
/// with what fio has said.
pub(super) fn read_output(job: &FioJob, output: &Output) -> io::Result<Done> {
    let report = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    match done(&report) {
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
    use super::{Done, done, latencies, missing};
    use crate::fio::FioJob;

    fn report(error: i32, read: (u64, u64), write: (u64, u64)) -> String {
        let direction =
            |(ios, ms): (u64, u64)| serde_json::json!({"total_ios": ios, "runtime": ms, "bw": 1});
        let job = serde_json::json!({
            "jobname": "row", "error": error,
            "read": direction(read), "write": direction(write),
        });
        serde_json::json!({"fio version": "fio-3.33", "jobs": [job]}).to_string()
    }

    #[test]
    fn figures_of_reads_and_of_writes_are_found() {
        let figures = |operations, nanoseconds| Done {
            operations,
            nanoseconds,
            each: Vec::new(),
        };
        let read = report(0, (16384, 30), (0, 0));
        assert_eq!(done(&read).unwrap(), figures(16384, 30_000_000));
        let write = format!("fio: a note\n{}\nanother\n", report(0, (0, 0), (128, 316)));
        assert_eq!(done(&write).unwrap(), figures(128, 316_000_000));
    }

    #[test]
    fn an_error_of_fio_gives_no_figure() {
        for said in [
            String::new(),
            "fio: no".to_owned(),
            "{}".to_owned(),
            "{\"jobs\": []}".to_owned(),
            report(0, (0, 0), (0, 0)),
            report(0, (4, 0), (0, 0)),
        ] {
            let problem = done(&said).unwrap_err();
            assert_eq!(problem.errno, None, "{said}");
        }
        assert_eq!(
            done(&report(22, (1, 1), (0, 0))).unwrap_err().errno,
            Some(22)
        );
    }

    #[test]
    fn a_log_of_latencies_has_one_in_each_line() {
        assert_eq!(
            latencies("0, 1874, 0, 4096, 0, 0\n0, 641, 1, 4096, 4096, 0\n"),
            [1874, 641]
        );
        assert!(latencies("").is_empty());
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
