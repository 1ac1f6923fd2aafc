//! `bench`: several servers side by side, in interleaved rounds.
//!
//! | module | content |
//! |---|---|
//! | `row` | the operations that are measured |
//! | `ground` | the test directory in each share |
//! | `load` | the sequence of requests of each operation |
//! | `drive` | keeps requests in flight on a queue for a sample |
//! | `report` | tables, and the raw figures |

mod drive;
mod ground;
mod load;
mod report;
mod row;

pub use row::row_names;

use super::{Connection, ToolError};
use crate::front_end::FIRST_REQUEST_QUEUE;
use ground::Ground;
use row::Row;
use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Barrier;
use std::time::Duration;

/// Arguments of `bench`.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The name of the [`Connection`]'s server in the report.
    pub name: String,
    /// Servers to compare with.
    pub against: Vec<Target>,
    /// Names or prefixes of rows. Empty for all.
    pub rows: Vec<String>,
    /// Samples of each row and target.
    pub rounds: u32,
    /// Duration of a sample.
    pub sample: Duration,
    /// Prefix of the temporary directory in each share.
    pub directory: String,
    /// The size of the file that is read and written.
    pub file_bytes: u64,
    /// The number of files in the directory that is listed.
    pub entries: u32,
    /// Where to write the raw figures.
    pub json: Option<PathBuf>,
}

impl Default for Bench {
    fn default() -> Bench {
        Bench {
            name: "thrufs".to_owned(),
            against: Vec::new(),
            rows: Vec::new(),
            rounds: 5,
            sample: Duration::from_millis(300),
            directory: "thrufs-bench".to_owned(),
            file_bytes: 64 << 20,
            entries: 10_000,
            json: None,
        }
    }
}

/// A server to compare with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name in the report.
    pub name: String,
    /// Its socket.
    pub socket: PathBuf,
}

impl FromStr for Target {
    type Err = String;

    /// `NAME=SOCKET`.
    fn from_str(text: &str) -> Result<Target, String> {
        match text.split_once('=') {
            Some((name, socket)) if !name.is_empty() && !socket.is_empty() => Ok(Target {
                name: name.to_owned(),
                socket: socket.into(),
            }),
            _ => Err(format!("`{text}` is not NAME=SOCKET")),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    operations: u64,
    nanoseconds: u64,
}

impl Sample {
    fn per_second(self) -> f64 {
        self.operations as f64 * 1e9 / self.nanoseconds.max(1) as f64
    }
}

/// The samples of a target in a row.
struct Series {
    row: &'static Row,
    target: usize,
    samples: Vec<Sample>,
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_a_name_and_a_socket() {
        let parsed: Target = "virtiofsd=/run/a=b".parse().unwrap();
        assert_eq!(parsed.name, "virtiofsd");
        assert_eq!(parsed.socket, PathBuf::from("/run/a=b"));
        for bad in ["", "name", "=/x", "name="] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
