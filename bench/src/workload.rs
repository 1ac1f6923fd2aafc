//! What is measured: one function per row, run in a process of its own on a directory.

use rustix::fs::{Advice, Mode, OFlags, fadvise};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A row of the table.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// What one operation is, in plural.
    pub(crate) unit: &'static str,
    run: fn(&Path, u32) -> Result<Measured, std::io::Error>,
    /// Operations in one measurement.
    operations: u32,
}

/// Operations done, and the time they took.
pub(crate) struct Measured {
    pub(crate) operations: u32,
    pub(crate) elapsed: Duration,
}

type Outcome = Result<Measured, std::io::Error>;

pub(crate) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "read 4k random",
        unit: "reads",
        run: read_random,
        operations: 16_384,
    },
    Workload {
        name: "write 4k random",
        unit: "writes",
        run: write_random,
        operations: 16_384,
    },
    Workload {
        name: "read 1 MiB",
        unit: "reads",
        run: read_large,
        operations: 256,
    },
    Workload {
        name: "write 1 MiB",
        unit: "writes",
        run: write_large,
        operations: 128,
    },
    Workload {
        name: "open+close",
        unit: "opens",
        run: open_close,
        operations: 10_000,
    },
    Workload {
        name: "stat cold",
        unit: "stats",
        run: stat_cold,
        operations: 10_000,
    },
    Workload {
        name: "stat warm",
        unit: "stats",
        run: stat_warm,
        operations: 50_000,
    },
    Workload {
        name: "stat missing",
        unit: "stats",
        run: stat_missing,
        operations: 10_000,
    },
    Workload {
        name: "create",
        unit: "files",
        run: create,
        operations: 5_000,
    },
    Workload {
        name: "create 4 KiB",
        unit: "files",
        run: create_small,
        operations: 5_000,
    },
    Workload {
        name: "read small",
        unit: "files",
        run: read_small,
        operations: 5_000,
    },
    Workload {
        name: "rename",
        unit: "renames",
        run: rename,
        operations: 5_000,
    },
    Workload {
        name: "unlink",
        unit: "files",
        run: unlink,
        operations: 5_000,
    },
    Workload {
        name: "walk cold",
        unit: "entries",
        run: walk,
        operations: 10_000,
    },
];

/// The size of the file that is read and written at random.
const FILE_BYTES: u64 = 64 << 20;
const FILES_PER_DIRECTORY: u32 = 1000;

impl Workload {
    /// The row of this name.
    pub(crate) fn find(name: &str) -> Option<&'static Workload> {
        WORKLOADS.iter().find(|workload| workload.name == name)
    }

    /// Runs it in an empty directory, which is removed afterwards.
    pub(crate) fn run(&self, parent: &Path) -> Outcome {
        let place = parent.join("measured");
        fs::create_dir(&place)?;
        let outcome = (self.run)(&place, self.operations);
        fs::remove_dir_all(&place)?;
        outcome
    }
}

fn timed(operations: u32, mut work: impl FnMut(u32) -> std::io::Result<()>) -> Outcome {
    let start = Instant::now();
    for number in 0..operations {
        work(number)?;
    }
    Ok(Measured {
        operations,
        elapsed: start.elapsed(),
    })
}

/// Numbers that look random and are the same in every run.
fn scattered(number: u32, below: u64) -> u64 {
    let mut value = u64::from(number).wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (value ^ (value >> 31)) % below
}

fn drop_names() -> std::io::Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "2")
}

fn large_file(place: &Path) -> std::io::Result<File> {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(place.join("large"))?;
    let block = vec![0x5a; 1 << 20];
    for offset in (0..FILE_BYTES).step_by(block.len()) {
        file.write_all_at(&block, offset)?;
    }
    Ok(file)
}

fn forget_pages(file: &File) -> std::io::Result<()> {
    file.sync_data()?;
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

fn read_random(place: &Path, operations: u32) -> Outcome {
    let file = large_file(place)?;
    forget_pages(&file)?;
    fadvise(&file, 0, None, Advice::Random)?;
    let mut block = [0; 4096];
    timed(operations, |number| {
        file.read_exact_at(&mut block, scattered(number, FILE_BYTES / 4096) * 4096)
    })
}

fn write_random(place: &Path, operations: u32) -> Outcome {
    let file = large_file(place)?;
    file.sync_data()?;
    let block = [0xa5; 4096];
    timed(operations, |number| {
        file.write_all_at(&block, scattered(number, FILE_BYTES / 4096) * 4096)
    })
}

fn read_large(place: &Path, operations: u32) -> Outcome {
    let file = large_file(place)?;
    let mut block = vec![0; 1 << 20];
    let per_pass = (FILE_BYTES >> 20) as u32;
    let mut elapsed = Duration::ZERO;
    for _ in 0..operations / per_pass {
        forget_pages(&file)?;
        elapsed += timed(per_pass, |number| {
            file.read_exact_at(&mut block, u64::from(number) << 20)
        })?
        .elapsed;
    }
    Ok(Measured {
        operations,
        elapsed,
    })
}

fn write_large(place: &Path, operations: u32) -> Outcome {
    let file = large_file(place)?;
    let block = vec![0xa5; 1 << 20];
    timed(operations, |number| {
        file.write_all_at(&block, u64::from(number % 64) << 20)
    })
}

fn open_close(place: &Path, operations: u32) -> Outcome {
    let path = place.join("file");
    fs::write(&path, "x")?;
    File::open(&path)?;
    timed(operations, |_| File::open(&path).map(drop))
}

fn files(place: &Path, count: u32) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for number in 0..count {
        let directory = place.join(format!("d{}", number / FILES_PER_DIRECTORY));
        if number % FILES_PER_DIRECTORY == 0 {
            fs::create_dir(&directory)?;
        }
        paths.push(directory.join(format!("file{number}")));
    }
    Ok(paths)
}

fn made(place: &Path, count: u32) -> std::io::Result<Vec<PathBuf>> {
    let paths = files(place, count)?;
    paths
        .iter()
        .try_for_each(|path| File::create(path).map(drop))?;
    Ok(paths)
}

fn stat_cold(place: &Path, operations: u32) -> Outcome {
    let paths = made(place, operations)?;
    drop_names()?;
    timed(operations, |number| {
        fs::metadata(&paths[number as usize]).map(drop)
    })
}

fn stat_warm(place: &Path, operations: u32) -> Outcome {
    let paths = made(place, 1000)?;
    paths
        .iter()
        .try_for_each(|path| fs::metadata(path).map(drop))?;
    timed(operations, |number| {
        fs::metadata(&paths[number as usize % 1000]).map(drop)
    })
}

fn stat_missing(place: &Path, operations: u32) -> Outcome {
    let paths = files(place, operations)?;
    timed(operations, |number| {
        match fs::metadata(&paths[number as usize]) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(std::io::Error::other("it is there")),
        }
    })
}

fn create(place: &Path, operations: u32) -> Outcome {
    let paths = files(place, operations)?;
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    timed(operations, |number| {
        rustix::fs::open(&paths[number as usize], flags, Mode::from_raw_mode(0o644))?;
        Ok(())
    })
}

fn create_small(place: &Path, operations: u32) -> Outcome {
    let paths = files(place, operations)?;
    let content = [0x5a; 4096];
    timed(operations, |number| {
        fs::write(&paths[number as usize], content)
    })
}

fn read_small(place: &Path, operations: u32) -> Outcome {
    let paths = files(place, operations)?;
    for path in &paths {
        fs::write(path, [0x5a; 4096])?;
    }
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    timed(operations, |number| {
        fs::read(&paths[number as usize]).map(drop)
    })
}

fn rename(place: &Path, operations: u32) -> Outcome {
    let paths = made(place, operations)?;
    timed(operations, |number| {
        let path = &paths[number as usize];
        fs::rename(path, path.with_extension("new"))
    })
}

fn unlink(place: &Path, operations: u32) -> Outcome {
    let paths = made(place, operations)?;
    timed(operations, |number| {
        fs::remove_file(&paths[number as usize])
    })
}

fn walk(place: &Path, operations: u32) -> Outcome {
    made(place, operations)?;
    drop_names()?;
    let start = Instant::now();
    let mut seen = 0;
    for directory in fs::read_dir(place)? {
        for entry in fs::read_dir(directory?.path())? {
            entry?.metadata()?;
            seen += 1;
        }
    }
    Ok(Measured {
        operations: seen,
        elapsed: start.elapsed(),
    })
}
