//! Rows that `fio` runs: it is what others publish figures by, and has asynchronous I/O. What counts
//! is fio's own time from the first block to the last, and to the end of the fsync where there is one;
//! its start does not count.
//!
//! All contestants use one file of random bytes, under a name of its own for each measurement. What
//! is buffered finds it in the cache beneath, and not in that above: how fast the disk is, is not the
//! question. `O_DIRECT` finds it in neither.

use crate::Outcome;
use crate::archive;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What fio is told.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) engine: &'static str,
    pub(crate) pattern: &'static str,
    pub(crate) block_bytes: u64,
    pub(crate) depth: u32,
    pub(crate) direct: bool,
    pub(crate) fsync_on_close: bool,
    /// How often the file is gone through, so that it takes about a second natively. fio opens it
    /// anew each time.
    pub(crate) passes: u64,
}

/// Size of the file, before `--quick`.
const FILE_BYTES: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
/// No measurement takes longer, not counting an fsync at the end.
const SECONDS_MAX: u32 = 2;
/// The same for contestants that cache above. They are slower, and their second pass would be
/// another matter than their first, so they have one.
const SECONDS_MAX_ONCE: u32 = 1;

/// Fields of version 3 of the terse output, from 0; kilobytes are KiB.
const ERROR: usize = 4;
const READ_KIB: usize = 5;
const READ_MILLISECONDS: usize = 8;
const WRITTEN_KIB: usize = 46;
const WRITE_MILLISECONDS: usize = 49;

/// What fio has done.
#[derive(Debug, PartialEq)]
pub(crate) struct Done {
    pub(crate) bytes: u64,
    pub(crate) nanoseconds: u64,
}

/// Installs it where it is missing.
pub(crate) fn install() -> Outcome<()> {
    match Command::new("fio").arg("--version").output() {
        Ok(_) => Ok(()),
        Err(_) => archive::install(&["fio"]),
    }
}

/// The file of this size in `lower`, made if it is not there.
fn data(lower: &Path, bytes: u64) -> io::Result<PathBuf> {
    let path = lower.join("fio-data");
    if fs::metadata(&path).is_ok_and(|data| data.len() == bytes) {
        return Ok(path);
    }
    let mut file = File::create(&path)?;
    // Not zeros, which a file system may keep for nothing. The same megabyte is as good as another.
    let piece = random(MIB as usize)?;
    for _ in 0..bytes / MIB {
        file.write_all(&piece)?;
    }
    file.sync_all()?;
    Ok(path)
}

fn random(bytes: usize) -> io::Result<Vec<u8>> {
    let mut piece = vec![0; bytes];
    io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut piece)?;
    Ok(piece)
}

impl Job {
    /// Puts the file into the new directory `place` of a source, and into the cache.
    pub(crate) fn prepare(&self, place: &Path, percent: usize) -> io::Result<()> {
        let lower = place.ancestors().nth(2);
        let lower = lower.ok_or_else(|| io::Error::other("a directory of a source"))?;
        let path = data(lower, size(percent))?;
        fs::hard_link(&path, place.join("file"))?;
        if !self.direct {
            io::copy(&mut File::open(&path)?, &mut io::sink())?;
        }
        Ok(())
    }

    /// Runs fio on the file where it is seen; `once` for contestants that cache above.
    pub(crate) fn run(&self, seen: &Path, percent: usize, once: bool) -> io::Result<Done> {
        let output = self.command(seen, percent, once).output();
        let output = output.map_err(|error| io::Error::other(format!("fio: {error}")))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        let failed = |why: &str| {
            let complaint = complaint.trim().replace('\n', "; ");
            Err(io::Error::other(format!("fio: {why}: {complaint}")))
        };
        if !output.status.success() {
            return failed(&output.status.to_string());
        }
        match parse(&said) {
            Ok(done) => Ok(done),
            Err(why) => failed(why),
        }
    }

    fn command(&self, seen: &Path, percent: usize, once: bool) -> Command {
        let bytes = size(percent);
        let (passes, seconds) = if once {
            (1, SECONDS_MAX_ONCE)
        } else {
            (self.passes, SECONDS_MAX)
        };
        let mut command = Command::new("fio");
        command
            // Whatever else it writes goes with the directory.
            .current_dir(std::env::temp_dir())
            .args(["--name=row", "--thread=1", "--allow_file_create=0"])
            // It would drop what is cached beneath natively, and above through a mount.
            .arg("--invalidate=0")
            // No clock is read for each block, nor a map of blocks kept: fio's own time dilutes.
            .args(["--gtod_reduce=1", "--random_generator=lfsr"])
            .args(["--output-format=terse", "--terse-version=3", "--eta=never"])
            .arg(format!("--filename={}", seen.join("file").display()))
            .arg(format!("--ioengine={}", self.engine))
            .arg(format!("--rw={}", self.pattern))
            .arg(format!("--bs={}", self.block_bytes))
            .arg(format!("--iodepth={}", self.depth))
            .arg(format!("--direct={}", u8::from(self.direct)))
            .arg(format!(
                "--fsync_on_close={}",
                u8::from(self.fsync_on_close)
            ))
            .arg(format!("--size={bytes}"))
            .arg(format!("--io_size={}", bytes * passes))
            .arg(format!("--runtime={seconds}"));
        command
    }
}

/// Whole megabytes, at least one.
fn size(percent: usize) -> u64 {
    (FILE_BYTES * percent as u64 / 100 / MIB).max(1) * MIB
}

fn parse(said: &str) -> Result<Done, &'static str> {
    let line = said.lines().find(|line| line.starts_with("3;"));
    let fields: Vec<&str> = line.ok_or("no figures")?.split(';').collect();
    let number = |at: usize| -> Result<u64, &'static str> {
        let field = fields.get(at).ok_or("figures are missing")?;
        field.parse().map_err(|_| "figures that are none")
    };
    if number(ERROR)? != 0 {
        return Err("an error among the figures");
    }
    let kib = number(READ_KIB)? + number(WRITTEN_KIB)?;
    let milliseconds = number(READ_MILLISECONDS)? + number(WRITE_MILLISECONDS)?;
    if kib == 0 || milliseconds == 0 {
        return Err("nothing was read or written");
    }
    Ok(Done {
        bytes: kib * 1024,
        nanoseconds: milliseconds * 1_000_000,
    })
}

#[cfg(test)]
mod tests {
    use super::{Done, parse, size};

    /// A line with these fields, and zeros elsewhere.
    fn line(set: &[(usize, &str)]) -> String {
        let mut fields = vec!["0"; 130];
        fields[0] = "3";
        for (at, text) in set {
            fields[*at] = text;
        }
        fields.join(";")
    }

    #[test]
    fn figures_of_reads_and_of_writes_are_found() {
        let done = |bytes, nanoseconds| Ok(Done { bytes, nanoseconds });
        assert_eq!(
            parse(&line(&[(5, "65536"), (8, "30")])),
            done(64 << 20, 30_000_000)
        );
        let notes = format!("a note\n{}\n", line(&[(46, "131072"), (49, "316")]));
        assert_eq!(parse(&notes), done(128 << 20, 316_000_000));
    }

    #[test]
    fn what_fio_could_not_do_is_no_figure() {
        assert!(parse("").is_err());
        assert!(parse("3;fio").is_err());
        assert!(parse(&line(&[])).is_err());
        assert!(parse(&line(&[(5, "4"), (8, "0")])).is_err());
        assert!(parse(&line(&[(5, "0"), (8, "30")])).is_err());
        assert!(parse(&line(&[(4, "5"), (5, "65536"), (8, "30")])).is_err());
        assert!(parse(&line(&[(5, "many"), (8, "30")])).is_err());
    }

    #[test]
    fn a_file_is_whole_megabytes() {
        assert_eq!(size(100), 1 << 30);
        assert_eq!(size(10), 102 << 20);
        assert_eq!(size(0), 1 << 20);
    }
}
