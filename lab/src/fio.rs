//! Jobs that [`fio`](https://fio.readthedocs.io) does: it is what others publish figures by, and it has
//! asynchronous I/O. What counts is fio's own time from the first block to the last, and to the end of the fsync
//! where there is one; its start does not count. It starts while things are prepared, and waits at the first block
//! ([`waiting`]), so that several begin at once.
//!
//! fio is given a job file, which people can repeat by hand ([`job`]), and says what it has done in JSON
//! ([`said`]).

mod job;
mod said;
mod waiting;

pub(crate) use job::FioJob;

use std::io;
use std::process::Command;
use std::sync::OnceLock;
use thrufs_bench::Outcome;
use thrufs_bench::clock::now;
use thrufs_bench::job::data;
use thrufs_bench::lower::run;
use thrufs_bench::results::Group;
use thrufs_bench::row::{Needs, Program, Ready};
use thrufs_bench::task::{self, Task};
use waiting::Waiting;

/// Older ones are taken for missing: their JSON has other fields.
const MAJOR_MIN: u32 = 3;
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

#[cfg(test)]
mod tests {
    use super::usable;

    #[test]
    fn an_old_fio_is_taken_for_none() {
        assert_eq!(usable("fio-3.33\n").as_deref(), Some("3.33"));
        assert_eq!(usable("fio-3.36-12-gabc").as_deref(), Some("3.36-12-gabc"));
        assert_eq!(usable("fio-2.21"), None);
        assert_eq!(usable("something else"), None);
        assert_eq!(usable(""), None);
    }
}
