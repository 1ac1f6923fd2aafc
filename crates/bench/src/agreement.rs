//! How far fio and our own loops agree: `agreement DIR [ROUNDS]` does each row of the set of that name by both in
//! turns, natively in a directory, and prints the ratios of the loop's rate to fio's.
//!
//! That both do the same (operations, bytes, blocks, system calls) is what the tests are about. What is left is what
//! they do in between: fio keeps account of every block.

use crate::Outcome;
use crate::errand::Errand;
use crate::machine;
use crate::results::statistics::Middle;
use crate::row::{self, Row};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

const ROUNDS: usize = 11;
/// No measurement takes longer.
const LIMIT: Duration = Duration::from_secs(5);

/// See the module.
///
/// # Errors
///
/// What could not be measured; there being no fio.
pub(crate) fn measure(arguments: &[String]) -> Outcome<()> {
    let (directory, rounds) = match arguments {
        [directory] => (directory, ROUNDS),
        [directory, rounds] => {
            let rounds = rounds.parse();
            (directory, rounds.map_err(|_| "ROUNDS is a number")?)
        }
        _ => return Err("agreement DIR [ROUNDS]".to_owned()),
    };
    let version = crate::fio::version().ok_or("there is no fio to compare with")?;
    let scratch = Path::new(directory).join(format!("agreement-{}", machine::random_name()?));
    let made = std::fs::create_dir(&scratch);
    made.map_err(|error| format!("{}: {error}", scratch.display()))?;
    let outcome = compare_all(&scratch, rounds, version).map_err(|error| error.to_string());
    let removed = std::fs::remove_dir_all(&scratch);
    outcome.and(removed.map_err(|error| format!("{} stays: {error}", scratch.display())))
}

fn compare_all(scratch: &Path, rounds: usize, version: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "fio {version}, {rounds} rounds\n")?;
    writeln!(
        out,
        "| row | loop, per second | fio, per second | loop / fio | spread |"
    )?;
    writeln!(out, "|---|---|---|---|---|")?;
    for row in row::listed("agreement").map_err(io::Error::other)? {
        if let Some(by_fio) = row.by_fio() {
            writeln!(out, "{}", compare(row, by_fio, scratch, rounds)?)?;
        }
    }
    Ok(())
}

/// A line of the table.
fn compare(own: &Row, by_fio: &Row, scratch: &Path, rounds: usize) -> io::Result<String> {
    let (mut own_rates, mut fio_rates, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        // Each is the first as often as the other.
        let (own, fio) = if round % 2 == 0 {
            let own = rate(own, scratch)?;
            (own, rate(by_fio, scratch)?)
        } else {
            let fio = rate(by_fio, scratch)?;
            (rate(own, scratch)?, fio)
        };
        own_rates.push(own);
        fio_rates.push(fio);
        ratios.push(own / fio);
    }
    let middle = |rates| Middle::of(rates).ok_or_else(|| io::Error::other("no rounds"));
    let (own_rate, fio_rate, ratio) = (middle(own_rates)?, middle(fio_rates)?, middle(ratios)?);
    Ok(format!(
        "| {} | {:.0} | {:.0} | {:.2} | {:.2} to {:.2} |",
        by_fio.name, own_rate.median, fio_rate.median, ratio.median, ratio.least, ratio.greatest
    ))
}

/// Operations in a second.
fn rate(row: &Row, scratch: &Path) -> io::Result<f64> {
    let place = scratch.join("measurement");
    std::fs::create_dir(&place)?;
    let errand = Errand {
        beneath: place.clone(),
        seen: place.clone(),
        percent: 100,
        limit: LIMIT,
        once: false,
        each: false,
    };
    let mut prepared = row.prepare(&errand)?;
    let done = row.run(&errand, &mut prepared)?;
    std::fs::remove_dir_all(place)?;
    Ok(done.operations as f64 * 1e9 / (done.end - done.start) as f64)
}

#[cfg(test)]
mod tests;
