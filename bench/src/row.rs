//! The rows of the table: what is measured, and running one measurement.

use crate::Outcome;
use crate::workload::{self, Place};
use std::io;
use std::path::Path;
use std::time::Instant;

/// One row.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Operations per measurement, before `--quick`.
    pub(crate) operations: usize,
    /// Bytes of one operation, when a rate of bytes is what people want to read; else 0.
    pub(crate) bytes: u64,
    /// Whether the kernel's caches are dropped before the clock starts.
    pub(crate) cold: bool,
    prepare: fn(&Place) -> io::Result<()>,
    run: fn(&Place) -> io::Result<()>,
}

const fn row(
    name: &'static str,
    operations: usize,
    bytes: u64,
    cold: bool,
    prepare: fn(&Place) -> io::Result<()>,
    run: fn(&Place) -> io::Result<()>,
) -> Row {
    Row {
        name,
        operations,
        bytes,
        cold,
        prepare,
        run,
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// All rows, in the order of the table.
pub(crate) const ROWS: &[Row] = &[
    row(
        "random-read-4k-cold",
        16384,
        4 * KIB,
        true,
        workload::one_file,
        workload::random_read_4k,
    ),
    row(
        "random-read-4k-warm",
        65536,
        4 * KIB,
        false,
        workload::one_file_read,
        workload::random_read_4k,
    ),
    row(
        "random-write-4k",
        16384,
        4 * KIB,
        false,
        workload::one_file,
        workload::random_write_4k,
    ),
    row(
        "append-4k",
        16384,
        4 * KIB,
        false,
        workload::nothing,
        workload::append_4k,
    ),
    row(
        "read-1m-cold",
        256,
        MIB,
        true,
        workload::one_big_file,
        workload::read_1m,
    ),
    row(
        "write-1m",
        256,
        MIB,
        false,
        workload::nothing,
        workload::write_1m,
    ),
    row(
        "open-close",
        20000,
        0,
        false,
        workload::one_file,
        workload::open_close,
    ),
    row(
        "stat-warm",
        100_000,
        0,
        false,
        workload::one_file,
        workload::stat_one,
    ),
    row(
        "stat-cold",
        5000,
        0,
        true,
        workload::many_files,
        workload::stat_each,
    ),
    row(
        "stat-birth-cold",
        5000,
        0,
        true,
        workload::many_files,
        workload::stat_each_birth,
    ),
    row(
        "stat-missing",
        5000,
        0,
        false,
        workload::nothing,
        workload::stat_missing,
    ),
    row(
        "list-cold",
        5000,
        0,
        true,
        workload::many_files,
        workload::list,
    ),
    row(
        "small-file-read-cold",
        3000,
        4 * KIB,
        true,
        workload::many_files,
        workload::read_each,
    ),
    row(
        "create",
        5000,
        0,
        false,
        workload::nothing,
        workload::create,
    ),
    row(
        "create-write-4k",
        3000,
        4 * KIB,
        false,
        workload::nothing,
        workload::create_write_4k,
    ),
    row("mkdir", 5000, 0, false, workload::nothing, workload::mkdir),
    row(
        "rename",
        5000,
        0,
        false,
        workload::many_files_seen,
        workload::rename,
    ),
    row(
        "unlink",
        5000,
        0,
        false,
        workload::many_files_seen,
        workload::unlink,
    ),
];

/// The names of all rows.
pub(crate) fn names() -> Vec<&'static str> {
    ROWS.iter().map(|row| row.name).collect()
}

/// The row of that name.
pub(crate) fn named(name: &str) -> Outcome<&'static Row> {
    ROWS.iter()
        .find(|row| row.name == name)
        .ok_or_else(|| format!("no row {name}; there are: {}", names().join(" ")))
}

/// `row NAME BENEATH SEEN PERCENT`: measures in this process and prints operations and
/// nanoseconds. `BENEATH` is a directory to be made, `SEEN` where it will be seen.
pub(crate) fn measure_here(arguments: &[String]) -> Outcome<()> {
    let [name, beneath, seen, percent] = arguments else {
        return Err("row NAME BENEATH SEEN PERCENT".to_owned());
    };
    let percent: usize = percent
        .parse()
        .map_err(|_| "PERCENT is a number".to_owned())?;
    let row = named(name)?;
    let nanoseconds = measure(row, Path::new(beneath), Path::new(seen), percent)
        .map_err(|error| format!("{name} at {seen}: {error}"))?;
    println!("{} {nanoseconds}", scaled(row.operations, percent));
    Ok(())
}

fn scaled(operations: usize, percent: usize) -> usize {
    (operations * percent / 100).max(16)
}

fn measure(row: &Row, beneath: &Path, seen: &Path, percent: usize) -> io::Result<u128> {
    std::fs::create_dir(beneath)?;
    let place =
        |name: &str, operations: usize| Place::new(beneath.join(name), seen.join(name), operations);
    let warm_up = place("warm-up", scaled(row.operations, percent) / 10 + 1)?;
    let real = place("measured", scaled(row.operations, percent))?;
    (row.prepare)(&warm_up)?;
    (row.prepare)(&real)?;
    if row.cold {
        drop_caches()?;
    }
    (row.run)(&warm_up)?;
    if row.cold {
        drop_caches()?;
    }
    let start = Instant::now();
    (row.run)(&real)?;
    let nanoseconds = start.elapsed().as_nanos();
    // Through the mount, so that no cache believes in what is gone; then all is forgotten, also by
    // servers that keep a descriptor for whatever the kernel remembers.
    std::fs::remove_dir_all(seen)?;
    drop_caches()?;
    Ok(nanoseconds)
}

/// Writes back and drops pages, names and inodes.
fn drop_caches() -> io::Result<()> {
    let synced = std::process::Command::new("sync").status()?;
    if !synced.success() {
        return Err(io::Error::other("sync failed"));
    }
    std::fs::write("/proc/sys/vm/drop_caches", "3")
}
