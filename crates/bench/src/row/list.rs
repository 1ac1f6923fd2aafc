//! All rows, sets of them, and what there is to say of them.
//!
//! Names of data rows: what is in front says by which calls (`direct-`, `mmap-`; nothing for `pread` and
//! `pwrite`), what stands behind says what is different (`-fsync`, `-cold`). `-loop` tells them from those that
//! fio does (`bench/run.py`).

use super::{Loop, Row, Timed, Work};
use crate::data::{Job, KIB, MIB};
use crate::outcome::Outcome;
use crate::workload::{self as work, lists};

/// The rows that say most in the least time: none takes longer than some tenths of a second natively.
const QUICK: &str = "random-read-4k-loop read-1m-loop random-write-4k-loop write-1m-loop \
    mmap-random-read-4k-loop stat-warm stat-cold stat-missing find-stat-warm open-close small-file-read-cold \
    create-write-4k rename unlink";

const NOTE: &str = "
Sets: quick (the rows with *), full (all).
Names are 8,000, a file is 256 MiB, both times --percent. Data are in the cache of the file system
beneath and not in that of the mount, but where nothing is cached.
";

/// Names that are looked at in a row. No more, because some servers keep a descriptor for each.
const NAMES: usize = 8000;
/// Loops over what is cached go through it so often, or they would be over at once.
const REPEATS: usize = 20;

/// A value with some fields changed.
macro_rules! with {
    ($value:expr; $($field:ident = $new:expr),+) => {{
        let mut value = $value;
        $(value.$field = $new;)+
        value
    }};
}

/// In a new directory that is empty.
const NEW: Loop = Loop {
    operations: NAMES,
    repeats: 1,
    kept: None,
    make: |_| Ok(()),
    warm: None,
    run: |_, _| Ok(()),
};
/// Things that are looked at before they are used up.
const EMPTY: Loop = with!(NEW; make = work::make_empty_files, warm = Some(work::stat_each));
const ONE: Loop =
    with!(NEW; kept = Some("tree-one"), make = work::make_one_file, operations = 100_000);
const SMALL: Loop = with!(NEW; kept = Some("tree-small"), make = work::make_small_files);
const TREE: Loop = with!(NEW; kept = Some("tree-walk"), make = lists::make_tree);
/// Files beneath four directories of their own.
const CHAINS: Loop =
    with!(NEW; kept = Some("tree-chains"), make = work::make_chains, operations = 1500);

const fn run(it: Loop, run: Timed) -> Loop {
    with!(it; run = run)
}

/// Over and over what is cached above.
const fn warm(it: Loop, look: Timed, run: Timed) -> Loop {
    with!(it; warm = Some(look), repeats = REPEATS, run = run)
}

const READ: Job = Job {
    mapped: false,
    write: false,
    random: false,
    block_bytes: 4 * KIB,
    direct: false,
    fsync: false,
    cold: false,
    passes: 2,
};
const RANDOM: Job = with!(READ; random = true);
const MAPPED: Job = with!(RANDOM; mapped = true);
const READ_1M: Job = with!(READ; block_bytes = MIB, passes = 5);
/// Once through, since what is cold is so once.
const COLD: Job = with!(READ; cold = true, passes = 1);
const COLD_RANDOM: Job = with!(COLD; random = true);

const READING: &str = "Reading and writing";
const NAMING: &str = "Names and attributes";

const fn data(name: &'static str, about: &'static str, job: Job) -> Row {
    let (bytes, is_cold) = (job.block_bytes, job.cold);
    with!(append(name, about, bytes, NEW); cold = is_cold, work = Work::Data(job))
}

/// Writes a new file.
const fn append(name: &'static str, about: &'static str, bytes: u64, work: Loop) -> Row {
    with!(named(name, about, work); bytes = bytes, group = READING)
}

const fn named(name: &'static str, about: &'static str, work: Loop) -> Row {
    Row {
        name,
        about,
        group: NAMING,
        bytes: 0,
        cold: false,
        jobs: &[1],
        work: Work::Loop(work),
    }
}

const fn cold(name: &'static str, about: &'static str, work: Loop) -> Row {
    with!(named(name, about, work); cold = true)
}

const fn by_two(row: Row) -> Row {
    with!(row; jobs = &[1, 2])
}

/// So that each takes as few lines as it has to say.
macro_rules! rows {
    ($($kind:ident $($argument:expr),+;)*) => { [$($kind($($argument),+)),*] };
}

static ROWS: [Row; 31] = rows! {
    data "random-read-4k-loop", "pread(2) of 4 KiB in random order", RANDOM;
    data "read-1m-loop", "pread(2) of 1 MiB in order", READ_1M;
    data "random-write-4k-loop", "pwrite(2) of 4 KiB in random order, over what is there", with!(RANDOM; write = true);
    data "write-1m-loop", "pwrite(2) of 1 MiB in order, over what is there", with!(READ_1M; write = true);
    data "write-4k-fsync-loop", "pwrite(2) of 4 KiB in order, and fsync(2) at close",
        with!(READ; write = true, fsync = true);
    data "mmap-random-read-4k-loop", "reads of 4 KiB in random order, in a shared mapping", MAPPED;
    data "direct-random-read-4k-loop", "pread(2) of 4 KiB in random order, O_DIRECT", with!(RANDOM; direct = true);
    data "random-read-4k-cold", "pread(2) of 4 KiB in random order, nothing cached", COLD_RANDOM;
    data "read-128k-cold", "pread(2) of 128 KiB in order, nothing cached", with!(COLD; block_bytes = 128 * KIB);
    data "read-1m-cold", "pread(2) of 1 MiB in order, nothing cached", with!(COLD; block_bytes = MIB);
    data "direct-read-1m-cold", "pread(2) of 1 MiB in order, O_DIRECT, nothing cached",
        with!(COLD; block_bytes = MIB, direct = true);
    append "append-4k", "write(2) of 4 KiB at the end of a new file", 4 * KIB,
        with!(NEW; operations = 65_536, run = work::append_4k);
    append "append-1m", "write(2) of 1 MiB at the end of a new file", MIB,
        with!(NEW; operations = 256, run = work::append_1m);
    named "stat-warm", "lstat(2) of files in a directory, all asked for before",
        warm(SMALL, work::stat_each, work::stat_each);
    cold "stat-cold", "lstat(2) of files in a directory, nothing cached", run(SMALL, work::stat_each);
    named "stat-one-warm", "lstat(2) of one file, over and over", run(ONE, work::stat_one);
    named "stat-missing", "lstat(2) of names that are not there", run(NEW, work::stat_missing);
    by_two cold("lookup-cold", "lstat(2) of files beneath four directories of their own, nothing cached: five lookups",
        run(CHAINS, work::stat_each_chain));
    cold "readdir-cold", "names of one directory, as ls lists them, nothing cached", run(SMALL, lists::list);
    cold "find-cold", "names in a tree of some 200 directories, as find comes by them, nothing cached",
        run(TREE, lists::find);
    named "find-warm", "names in a tree of some 200 directories, walked through before",
        warm(TREE, lists::find_stat, lists::find);
    cold "find-stat-cold", "names in a tree and lstat(2) of each, as find -size does, nothing cached",
        run(TREE, lists::find_stat);
    named "find-stat-warm", "names in a tree and lstat(2) of each, all looked at before",
        warm(TREE, lists::find_stat, lists::find_stat);
    by_two named("open-close", "open(2) for reading and close(2) of one file, as open1 of will-it-scale does",
        run(ONE, work::open_close));
    cold "small-file-read-cold", "open(2), read(2), close(2) of files of 4 KiB, nothing cached",
        run(SMALL, work::read_each);
    named "small-file-read-warm", "open(2), read(2), close(2) of files of 4 KiB, all read before",
        warm(SMALL, work::read_each, work::read_each);
    named "create", "open(2) with O_CREAT | O_EXCL of new names, and close(2)", run(NEW, work::create);
    named "create-write-4k", "open(2) of new names, write(2) of 4 KiB, close(2)", run(NEW, work::create_write_4k);
    named "rename", "rename(2) of files that were looked at before, in their directory", run(EMPTY, work::rename);
    named "unlink", "unlink(2) of empty files that were looked at before", run(EMPTY, work::unlink);
    named "mkdir", "mkdir(2) of new names", run(NEW, work::mkdir);
};

/// All rows, those about data first.
pub(crate) fn all() -> impl Iterator<Item = &'static Row> {
    ROWS.iter()
}

/// The rows of a set, if it is the name of one.
pub(super) fn set(name: &str) -> Option<Vec<&'static Row>> {
    match name {
        "quick" => Some(all().filter(|row| is_quick(row)).collect()),
        "full" => Some(all().collect()),
        _ => None,
    }
}

fn is_quick(row: &Row) -> bool {
    QUICK.split_whitespace().any(|quick| quick == row.name)
}

/// The row of that name; else, those that are like it.
pub(crate) fn by_name(name: &str) -> Outcome<&'static Row> {
    let like = |row: &&Row| !name.is_empty() && row.name.contains(name);
    all().find(|row| row.name == name).ok_or_else(|| {
        let like: Vec<&str> = all().filter(like).map(|row| row.name).take(6).collect();
        let there = if like.is_empty() { "" } else { "; there are " };
        let like = like.join(", ");
        format!("no row {name}{there}{like}; `thrufs bench --list` has all rows and sets")
    })
}

/// The rows of a list of names of rows and sets, separated by commas; each once, where it is named first.
pub(crate) fn listed(names: &str) -> Outcome<Vec<&'static Row>> {
    let mut rows: Vec<&'static Row> = Vec::new();
    let mut add = |row: &'static Row| {
        if !rows.iter().any(|found| found.name == row.name) {
            rows.push(row);
        }
    };
    for name in names.split(',') {
        match set(name) {
            Some(set) => set.into_iter().for_each(&mut add),
            None => add(by_name(name)?),
        }
    }
    Ok(rows)
}

/// For people: a line for each row, or for those in a list of names.
pub(crate) fn text(names: Option<&str>) -> Outcome<String> {
    let line = |row: &Row| {
        let mark = if is_quick(row) { "*" } else { " " };
        format!("{mark} {:<28} {}\n", row.name, row.about)
    };
    let rows = listed(names.unwrap_or("full"))?;
    Ok(rows.into_iter().map(line).collect::<String>() + NOTE)
}
