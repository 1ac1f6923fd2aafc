//! Inside one measuring process: the command that it receives and its replies.

use crate::Outcome;
use crate::results::Absence;
use crate::row::{self, Row};
use crate::task::{Done, Task};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

/// What it has to do.
#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) row: String,
    pub(super) task: Task,
    /// The processor that it has to stay on, if it matters.
    pub(super) processor: Option<usize>,
}

/// What it says, a line each.
#[derive(Serialize, Deserialize)]
pub(super) enum Reply {
    Ready,
    Done(Done),
    Absent(Absence),
}

/// `row ORDER`: what one of the processes does.
///
/// # Errors
///
/// An order that is none.
pub(crate) fn measure_here(arguments: &[String]) -> Outcome<()> {
    let [order] = arguments else {
        return Err("row ORDER".to_owned());
    };
    let order: Order = serde_json::from_str(order).map_err(|error| error.to_string())?;
    let row = row::named(&order.row)?;
    if let Some(processor) = order.processor {
        stay_on(processor)?;
    }
    let reply = match in_step(row, &order.task) {
        Ok(done) => Reply::Done(done),
        Err(error) => Reply::Absent(Absence {
            failed: error.kind() != io::ErrorKind::Unsupported,
            why: error.to_string().replace('\n', "; "),
        }),
    };
    say(&reply).map_err(|error| error.to_string())
}

fn in_step(row: &'static Row, task: &Task) -> io::Result<Done> {
    std::fs::create_dir(&task.beneath)?;
    let ready = row.prepare(task)?;
    // All is prepared; the others are waited for.
    say(&Reply::Ready)?;
    io::stdin().read_to_end(&mut Vec::new())?;
    ready(task)
}

fn say(reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_string(reply).map_err(io::Error::other)?;
    line.push('\n');
    let mut output = io::stdout().lock();
    output.write_all(line.as_bytes())?;
    output.flush()
}

/// Keeps this process on one processor.
///
/// # Errors
///
/// There is no such processor.
pub fn stay_on(number: usize) -> Outcome<()> {
    let mut set = CpuSet::new();
    set.set(number);
    sched_setaffinity(None, &set).map_err(|error| format!("cannot stay on CPU {number}: {error}"))
}
