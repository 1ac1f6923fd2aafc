//! Operations on names per second, for comparisons in a guest: fio measures reads and writes.

use std::fs::{self, File};
use std::hint::black_box;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

const ENTRIES: usize = 10_000;

/// Operations between two looks at the clock.
const BATCH: u32 = 16;

pub const ROWS: [&str; 4] = ["stat", "open-close", "create-unlink", "readdir-10000"];

/// Operations per second of `row` in `directory`, measured for about `time`. Listing counts entries.
/// InvalidInput for an unknown row.
pub fn measure(row: &str, directory: &Path, time: Duration) -> io::Result<f64> {
    let file = directory.join("file");
    fs::write(&file, "content")?;
    let made = directory.join("made");
    match row {
        "stat" => rate(time, 1, || {
            black_box(rustix::fs::stat(&file)?);
            Ok(())
        }),
        "open-close" => rate(time, 1, || File::open(&file).map(drop)),
        "create-unlink" => rate(time, 1, || {
            File::create_new(&made)?;
            fs::remove_file(&made)
        }),
        "readdir-10000" => {
            let list = directory.join("list");
            fill(&list)?;
            rate(time, ENTRIES, || match fs::read_dir(&list)?.count() {
                ENTRIES => Ok(()),
                count => Err(io::Error::other(format!("{count} entries"))),
            })
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "no such row")),
    }
}

fn fill(list: &Path) -> io::Result<()> {
    let whole = list.join("whole");
    if whole.exists() {
        return Ok(());
    }
    fs::create_dir_all(list)?;
    for entry in 1..ENTRIES {
        File::create(list.join(format!("entry-{entry:05}")))?;
    }
    File::create(whole).map(drop)
}

fn rate(
    time: Duration,
    each: usize,
    mut operation: impl FnMut() -> io::Result<()>,
) -> io::Result<f64> {
    // Warm: names, pages, whatever is made once.
    operation()?;
    let start = Instant::now();
    let mut count = 0_u32;
    loop {
        for _ in 0..BATCH {
            operation()?;
            count += 1;
            // Listings are long.
            if each > 1 && start.elapsed() >= time {
                break;
            }
        }
        let elapsed = start.elapsed();
        if elapsed >= time {
            return Ok(f64::from(count) * each as f64 / elapsed.as_secs_f64());
        }
    }
}
