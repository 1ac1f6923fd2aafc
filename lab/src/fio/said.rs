//! What fio says that it has done.

use super::Done;
use serde::Deserialize;

/// Why there is no figure.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) why: String,
    /// The system's error number, where fio has one.
    pub(super) errno: Option<i32>,
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
pub(super) fn done(said: &str) -> Result<Done, Problem> {
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
            why: std::io::Error::from_raw_os_error(job.error).to_string(),
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

#[cfg(test)]
mod tests {
    use super::{done, latencies};
    use crate::fio::Done;

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
}
