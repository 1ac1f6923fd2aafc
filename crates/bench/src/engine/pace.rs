//! How much work a directory can take: on a slow one, files are fewer and smaller, so that three rounds take minutes.

use crate::plan::PERCENT;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Making the 8,000 files of a row, natively, is to take no longer; and writing the file of 256 MiB, with the fsync.
const TREE_MAX: Duration = Duration::from_millis(400);
const FILE_MAX: Duration = Duration::from_secs(2);
/// How long each is tried.
const TRIAL_MAX: Duration = Duration::from_millis(500);
/// Few, so that most runs of one directory are alike.
const STEPS: [u32; 6] = [PERCENT, 20, 10, 5, 2, 1];

/// Work of a measurement, in hundredths of the usual; tried in a new directory in `place`.
pub(super) fn of(place: &Path) -> io::Result<u32> {
    let directory = place.join("pace");
    fs::create_dir(&directory)?;
    let name = |number: u32| directory.join(format!("file-{number}"));
    let file = each(200, |number| {
        File::create_new(name(number))?.write_all(&[7; 4096])
    })?;
    let mut big = File::create_new(directory.join("big"))?;
    let piece = vec![7; 1 << 20];
    let piece = each(16, |_| big.write_all(&piece).and_then(|()| big.sync_data()))?;
    fs::remove_dir_all(&directory)?;
    Ok(percent(file, piece))
}

/// The average time of an operation that is done so often, if there is time.
fn each(count: u32, mut operation: impl FnMut(u32) -> io::Result<()>) -> io::Result<Duration> {
    let start = Instant::now();
    for done in 0..count {
        operation(done)?;
        if start.elapsed() > TRIAL_MAX {
            return Ok(start.elapsed() / (done + 1));
        }
    }
    Ok(start.elapsed() / count)
}

/// By the time that a small file takes, and a mebibyte.
fn percent(file: Duration, piece: Duration) -> u32 {
    let fits = |step: &u32| file * 80 * *step <= TREE_MAX && piece * 256 * *step / 100 <= FILE_MAX;
    STEPS.into_iter().find(fits).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::{of, percent};
    use crate::plan::PERCENT;
    use std::time::Duration;

    #[test]
    fn a_slow_directory_gets_less_work() {
        let micros = Duration::from_micros;
        assert_eq!(percent(micros(30), micros(500)), PERCENT);
        assert_eq!(percent(micros(300), micros(500)), 10);
        assert_eq!(percent(micros(30), micros(50_000)), 10);
        assert_eq!(percent(micros(20_000), micros(500)), 1);
        let place = tempfile::tempdir().unwrap();
        assert!(of(place.path()).unwrap() >= 1);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
