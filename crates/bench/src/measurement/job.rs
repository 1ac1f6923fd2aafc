//! One measuring process, seen from the run: starts it, reads its replies, ends it and cleans up after it.
//! What it does inside is in [`order`](super::order).

use super::order::{Order, Reply};
use super::question::{Amount, Measured, Question, absent};
use crate::programs;
use crate::results::Absence;
use crate::row::Row;
use crate::stop::{First, Stop};
use crate::target::RunningTarget;
use crate::task::{Done, Task};
use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdout, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long one that was killed may take to end.
const ENDING_MAX: Duration = Duration::from_secs(10);

/// A process.
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

/// What it has said.
pub(super) enum Said {
    Ready,
    Done(Done),
    Absent(Absence),
    /// It has ended, or time is over.
    Nothing,
    /// It has not, but the run is to end.
    Stopped,
}

impl JobProcess {
    pub(super) fn spawn(
        row: &Row,
        target: &RunningTarget,
        amount: Amount,
        job: usize,
        waiting: PipeReader,
    ) -> io::Result<JobProcess> {
        let Amount {
            question,
            jobs,
            round,
            percent,
            ..
        } = amount;
        // A name that was never used: no cache may remember it as gone.
        let name = row.name;
        let directory = format!("{name}-{question:?}-{jobs}-{round}-{job}");
        let task = Task {
            beneath: target.source().join(&directory),
            seen: target.seen_at(job).join(&directory),
            percent,
            limit: amount.limit,
            once: target.caches_above(),
            each: question == Question::Latency,
        };
        let order = Order {
            row: name.to_owned(),
            task,
            processor: target.processor(job),
        };
        let text = serde_json::to_string(&order).map_err(io::Error::other)?;
        let mut process = programs::again("row")
            .arg(text)
            .stdin(waiting)
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(JobProcess {
            process,
            output,
            rest: Vec::new(),
            too_slow: false,
            status: None,
            task: order.task,
        })
    }

    /// Waits for the next thing that it says.
    pub(super) fn says(&mut self, stop: &Stop, until: Instant) -> io::Result<Said> {
        let mut piece = vec![0; 64 << 10];
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Ok(match serde_json::from_slice(&line) {
                    Ok(Reply::Ready) => Said::Ready,
                    Ok(Reply::Done(done)) => Said::Done(done),
                    Ok(Reply::Absent(absence)) => Said::Absent(absence),
                    Err(_) => Said::Nothing,
                });
            }
            match stop.wait(self.output.as_fd(), until)? {
                First::Stopped => return Ok(Said::Stopped),
                First::TimeIsOver => {
                    self.too_slow = true;
                    return Ok(Said::Nothing);
                }
                First::Readable => match self.output.read(&mut piece)? {
                    0 => return Ok(Said::Nothing),
                    length => self.rest.extend_from_slice(&piece[..length]),
                },
            }
        }
    }

    /// Why it has no figures.
    pub(super) fn why_not(&mut self) -> Measured {
        if self.too_slow {
            return absent(true, "it took too long");
        }
        self.end();
        match self.status {
            Some(status) => absent(
                true,
                &format!("a measurement ended without figures: {status}"),
            ),
            None => absent(true, "a measurement does not end"),
        }
    }

    /// Ends it: by force, unless it is about to. One that cannot be ended is left alone: it waits for a
    /// server that does not answer, and ends with that.
    pub(super) fn end(&mut self) {
        let start = Instant::now();
        while self.status.is_none() && start.elapsed() < ENDING_MAX {
            // What has said all that it has to say ends within a moment.
            if start.elapsed() > Duration::from_millis(200) || self.too_slow {
                let _ = self.process.kill();
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

    /// Removes its files, through the mount, so that no cache shows what is gone. The floor shows
    /// files that are not there, and removes none.
    pub(super) fn clean_up(&self) -> io::Result<()> {
        let removed = match std::fs::remove_dir_all(&self.task.seen) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        if self.task.beneath.exists() {
            std::fs::remove_dir_all(&self.task.beneath)?;
        }
        removed
    }
}
