//! A measuring process: what it does, and, seen from the run, its start, replies and end.

use crate::outcome::Outcome;
use crate::plan::PlannedRow;
use crate::results::Absence;
use crate::row::{LIMIT, Row, list};
use crate::stop::Stop;
use crate::target::RunningTarget;
use crate::task::{Done, Task};
use serde::{Deserialize, Serialize};
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdout, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long one that was killed may take to end.
const ENDING_MAX: Duration = Duration::from_secs(10);
/// What has said all that it has to say ends within a moment.
const LEAVING_MAX: Duration = Duration::from_millis(200);

/// What it says, a line each; or what is said of it.
#[derive(Serialize, Deserialize)]
pub(super) enum Said {
    Ready,
    Done(Done),
    Absent(Absence),
    /// It has ended, or time is over.
    Nothing,
    /// It has not, but the run is to end.
    Stopped,
}

/// `row ORDER`: what one of the processes does. The order is a row's name and a task.
pub(crate) fn run(order: &str) -> Outcome<ExitCode> {
    let order = serde_json::from_str(order).map_err(|error| error.to_string())?;
    let (row, task): (String, Task) = order;
    let said = in_step(list::by_name(&row)?, &task).map_or_else(
        |error| {
            Said::Absent(Absence {
                failed: error.kind() != io::ErrorKind::Unsupported,
                why: error.to_string().replace('\n', "; "),
            })
        },
        Said::Done,
    );
    say(&said).map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn in_step(row: &'static Row, task: &Task) -> io::Result<Done> {
    std::fs::create_dir(&task.beneath)?;
    let ready = row.prepare(task)?;
    // All is prepared; the others are waited for.
    say(&Said::Ready)?;
    io::stdin().read_to_end(&mut Vec::new())?;
    ready(task)
}

fn say(said: &Said) -> io::Result<()> {
    let line = serde_json::to_string(said).map_err(io::Error::other)?;
    let mut output = io::stdout().lock();
    writeln!(output, "{line}")?;
    output.flush()
}

/// A process, seen from the run.
pub(super) struct JobProcess {
    process: Child,
    output: ChildStdout,
    /// What it has said since its last line.
    rest: Vec<u8>,
    /// The time was over.
    too_slow: bool,
    status: Option<ExitStatus>,
    task: Task,
}

impl JobProcess {
    pub(super) fn spawn(
        planned: PlannedRow,
        target: &RunningTarget,
        (round, job): (u32, u32),
        percent: u32,
        waiting: PipeReader,
    ) -> io::Result<JobProcess> {
        // A name that was never used: no cache may remember it as gone.
        let name = planned.row.name;
        let directory = format!("{name}-{}-{round}-{job}", planned.jobs);
        let task = Task {
            beneath: target.source().join(&directory),
            seen: target.seen().join(&directory),
            job,
            percent: percent as usize,
            limit: LIMIT,
            once: target.caches_above(),
        };
        let order = serde_json::to_string(&(name, &task)).map_err(io::Error::other)?;
        let mut command = crate::outcome::again("row", &order);
        let mut process = command.stdin(waiting).stdout(Stdio::piped()).spawn()?;
        Ok(JobProcess {
            output: process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?,
            process,
            rest: Vec::new(),
            too_slow: false,
            status: None,
            task,
        })
    }

    /// Waits for the next thing that it says.
    pub(super) fn says(&mut self, stop: &Stop, until: Instant) -> io::Result<Said> {
        let mut piece = [0; 4096];
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Ok(serde_json::from_slice(&line).unwrap_or(Said::Nothing));
            }
            match stop.wait(self.output.as_fd(), until)? {
                [_, true] => return Ok(Said::Stopped),
                [false, false] => {
                    self.too_slow = true;
                    return Ok(Said::Nothing);
                }
                [true, false] => match self.output.read(&mut piece)? {
                    0 => return Ok(Said::Nothing),
                    length => self.rest.extend_from_slice(&piece[..length]),
                },
            }
        }
    }

    /// Why it has no figures.
    pub(super) fn why_not(&mut self) -> String {
        self.end();
        match self.status {
            _ if self.too_slow => "it took too long".to_owned(),
            Some(status) => format!("a measurement ended without figures: {status}"),
            None => "a measurement does not end".to_owned(),
        }
    }

    /// Ends it: by force, unless it is about to. One that cannot be ended is left alone: it waits for a
    /// server that does not answer, and ends with that.
    pub(super) fn end(&mut self) {
        let start = Instant::now();
        while self.status.is_none() && start.elapsed() < ENDING_MAX {
            if start.elapsed() > LEAVING_MAX || self.too_slow {
                self.kill();
            }
            match self.process.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_micros(300)),
                Ok(status) => self.status = status,
                Err(_) => return,
            }
        }
    }

    /// Ends it by force, and does not wait for that.
    pub(super) fn kill(&mut self) {
        let _ = self.process.kill();
    }

    /// Removes its files, through the mount, so that no cache shows what is gone.
    pub(super) fn clean_up(&self) -> io::Result<()> {
        match std::fs::remove_dir_all(&self.task.seen) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}
