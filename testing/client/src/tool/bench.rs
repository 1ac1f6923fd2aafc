//! `bench`: several servers side by side, in interleaved rounds.
//!
//! | module | content |
//! |---|---|
//! | `arguments` | which servers, which rows, how much |
//! | `row` | the operations that are measured |
//! | `ground` | the test directory in each share |
//! | `load` | the sequence of requests of each operation |
//! | `drive` | keeps requests in flight on a queue for a sample |
//! | `sample` | what was done in which time |
//! | `report` | tables, and the raw figures |

mod arguments;
mod drive;
mod ground;
mod load;
mod report;
mod row;
mod sample;

pub use arguments::{Bench, Target};
pub use row::row_names;

use super::connection::Connection;
use super::error::ToolError;
use crate::front_end::FIRST_REQUEST_QUEUE;
use ground::Ground;
use row::Row;
use sample::{Sample, Series};
use std::io::Write;
use std::sync::Barrier;
use std::time::Duration;

pub(crate) fn run(
    connection: &Connection,
    bench: &Bench,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    let rows = row::chosen(&bench.rows)?;
    if bench.rounds == 0 || bench.entries == 0 || bench.file_bytes < row::LARGEST_TRANSFER {
        return Err(ToolError::Usage(
            "there must be a round, an entry and a file of at least 2 MiB".to_owned(),
        ));
    }
    let mut targets = vec![Target {
        name: bench.name.clone(),
        socket: connection.socket.clone(),
    }];
    targets.extend_from_slice(&bench.against);
    let mut grounds = Vec::new();
    for (index, target) in targets.iter().enumerate() {
        let connection = Connection {
            socket: target.socket.clone(),
            ..connection.clone()
        };
        grounds.push(Ground::prepare(&connection, target, bench, index)?);
    }
    let measured = measure(&grounds, &rows, bench);
    let cleared = grounds.into_iter().try_for_each(Ground::clear);
    let series = measured?;
    cleared?;
    report::table(&targets, &series, bench, out)?;
    if let Some(path) = &bench.json {
        let text = report::json(&targets, &series, bench, connection);
        std::fs::write(path, text).map_err(|source| ToolError::Local {
            path: path.clone(),
            source,
        })?;
    }
    Ok(())
}

fn measure(
    grounds: &[Ground],
    rows: &[&'static Row],
    bench: &Bench,
) -> Result<Vec<Series>, ToolError> {
    let mut series: Vec<Series> = rows
        .iter()
        .flat_map(|row| (0..grounds.len()).map(move |target| (*row, target)))
        .map(|(row, target)| Series {
            row,
            target,
            samples: Vec::new(),
        })
        .collect();
    for one in &series {
        // Warm-up.
        sample(&grounds[one.target], one.row, bench.sample / 10)?;
    }
    for round in 0..bench.rounds {
        for per_row in series.chunks_mut(grounds.len()) {
            // Alternating order, so that no position has an advantage.
            if round % 2 == 1 {
                per_row.reverse();
            }
            for one in per_row.iter_mut() {
                let sample = sample(&grounds[one.target], one.row, bench.sample)?;
                one.samples.push(sample);
            }
            if round % 2 == 1 {
                per_row.reverse();
            }
        }
    }
    Ok(series)
}

/// A sample of a row, with a thread for each request queue.
fn sample(ground: &Ground, row: &Row, time: Duration) -> Result<Sample, ToolError> {
    let queues = ground.share().client().carrier().request_queues();
    let start = Barrier::new(queues.into());
    let one = |number: u16| {
        let queue = FIRST_REQUEST_QUEUE + number;
        drive::drive(ground, row, queue, time, &start)
    };
    let results: Vec<_> = if queues == 1 {
        vec![one(0)]
    } else {
        let one = &one;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..queues)
                .map(|number| scope.spawn(move || one(number)))
                .collect();
            let ended = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
            ended
                .map(|result| result.unwrap_or_else(|_| Err("a thread panicked".to_owned())))
                .collect()
        })
    };
    let mut whole = Sample::default();
    for result in results {
        let done = result.map_err(|problem| ToolError::Bench {
            target: ground.name().to_owned(),
            row: row.name.to_owned(),
            problem,
        })?;
        ground.settle(&done.lookups);
        whole.operations += done.sample.operations;
        whole.nanoseconds = whole.nanoseconds.max(done.sample.nanoseconds);
    }
    Ok(whole)
}
