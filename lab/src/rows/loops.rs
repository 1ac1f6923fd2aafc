//! Loops of our own that the suites need besides those of `thrufs bench`.

use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use thrufs_bench::clock::Clock;
use thrufs_bench::job::{Cache, Calls, Job, KIB, MIB};
use thrufs_bench::results::Group;
use thrufs_bench::row::{
    Loop, LoopDirectory, OF_CHAINS, OF_ONE_FILE, OF_SMALL_FILES, OF_TREE, REPEATS, Row,
};
use thrufs_bench::workload::lists::{self, Ask};
use thrufs_bench::workload::{self, Place};

const PLAIN: Job = Job::PLAIN;
const DIRECT: Job = Job {
    direct: true,
    ..PLAIN
};
const MAPPED: Job = Job {
    calls: Calls::Mmap,
    ..PLAIN
};
const WARM: Job = Job {
    cache: Cache::Above,
    ..PLAIN
};

/// Looks at symbolic links to a name that is not there.
const OF_LINKS: Loop = Loop {
    directory: LoopDirectory::Kept("tree-links"),
    make: make_links,
    ..Loop::NEW
};

pub(super) const ROWS: [Row; 18] = [
    Row::data("random-read-4k-warm", WARM.random()),
    Row::cold_data("read-4k-cold", PLAIN),
    Row::cold_data("random-read-4k-cold", PLAIN.random()),
    Row::cold_data("read-128k-cold", PLAIN.blocks(128 * KIB)),
    Row::cold_data("mmap-random-read-4k-cold", MAPPED.random()),
    Row::cold_data("direct-read-1m-cold", DIRECT.blocks(MIB)),
    Row::warm(
        "lookup-warm",
        Loop {
            title: "stat of a deep path, cached",
            about: "One operation is lstat(2) of a file beneath four directories of its own. All were asked for before.",
            warm: Some(workload::stat_each_chain),
            repeats: REPEATS,
            run: workload::stat_each_chain,
            ..OF_CHAINS
        },
    ),
    Row::warm(
        "readlink-warm",
        Loop {
            title: "readlink, cached",
            about: "One operation is readlink(2) of one of 8,000 symbolic links. All were read before.",
            warm: Some(read_each_link),
            repeats: REPEATS,
            run: read_each_link,
            ..OF_LINKS
        },
    ),
    Row::cold(
        "readlink-cold",
        Loop {
            title: "readlink, nothing cached",
            about: "One operation is readlink(2) of a symbolic link that was not read yet, in a directory of 8,000.",
            run: read_each_link,
            ..OF_LINKS
        },
    ),
    Row::cold(
        "find-cold",
        Loop {
            title: "walk a tree, nothing cached",
            about: "One operation is a name in a tree of 8,000 in some 200 directories, as find(1) comes by it.",
            run: find,
            ..OF_TREE
        },
    ),
    Row::warm(
        "find-warm",
        Loop {
            title: "walk a tree, cached",
            about: "One operation is a name in a tree of 8,000 in some 200 directories that was walked through before.",
            warm: Some(lists::find_stat),
            repeats: REPEATS,
            run: find,
            ..OF_TREE
        },
    ),
    Row::warm(
        "stat-one-warm",
        Loop {
            title: "stat of one file, cached",
            about: "One operation is lstat(2) of one file, over and over.",
            operations: 200_000,
            run: stat_one,
            ..OF_ONE_FILE
        },
    ),
    Row::cold(
        "stat-birth-cold",
        Loop {
            title: "stat with the time of birth, nothing cached",
            about: "One operation is statx(2), with the time of birth, of a file that was not looked up yet, in a \
                directory of 8,000. A server that does not know it is asked once.",
            run: stat_each_birth,
            ..OF_SMALL_FILES
        },
    ),
    Row::warm(
        "small-file-read-warm",
        Loop {
            title: "read small files, cached",
            about: "One operation is open(2), read(2) and close(2) of one of 8,000 files of 4 KiB. All were read before.",
            warm: Some(workload::read_each),
            repeats: REPEATS,
            run: workload::read_each,
            ..OF_SMALL_FILES
        },
    ),
    Row {
        more_jobs: true,
        ..Row::looped(
            "open-close-write",
            Loop {
                title: "open for writing and close",
                about: "One operation is open(2) of one file with O_RDWR | O_CREAT, and close(2), over and over.",
                operations: 100_000,
                run: open_close_write,
                ..OF_ONE_FILE
            },
        )
    },
    Row {
        bytes: MIB,
        ..Row::looped(
            "append-1m",
            Loop {
                title: "write a new file, 1 MiB",
                about: "One operation is write(2) of 1 MiB at the end of a file that was made for it.",
                group: Group::Data,
                operations: 256,
                inodes: 0,
                run: append_1m,
                ..Loop::NEW
            },
        )
    },
    Row::looped(
        "create",
        Loop {
            title: "create",
            about: "One operation is open(2) with O_CREAT | O_EXCL of a new name, and close(2).",
            run: create,
            ..Loop::NEW
        },
    ),
    Row::looped(
        "rmdir",
        Loop {
            title: "rmdir",
            about: "One operation is rmdir(2) of an empty directory that was looked at before.",
            make: make_directories,
            warm: Some(stat_directories),
            run: rmdir,
            ..Loop::NEW
        },
    ),
];

fn find(place: &Place, clock: &mut Clock) -> io::Result<()> {
    lists::find(place, Ask::Name, clock)
}

fn stat_one(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let name = place.seen.join("file");
    clock.through(0..place.operations, |_| {
        Ok(rustix::fs::lstat(&name).map(drop)?)
    })
}

/// By `statx(2)`, with the time of birth. A server that does not know it is not asked again.
fn stat_each_birth(place: &Place, clock: &mut Clock) -> io::Result<()> {
    clock.through(place.files(&place.seen), |name| {
        fs::symlink_metadata(name).map(drop)
    })
}

/// To read and write, as programs do that do not know whether the file is there.
fn open_close_write(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let name = place.seen.join("file");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    clock.through(0..place.operations, |_| options.open(&name).map(drop))
}

fn append_1m(place: &Place, clock: &mut Clock) -> io::Result<()> {
    workload::append(1 << 20, place, clock)
}

fn create(place: &Place, clock: &mut Clock) -> io::Result<()> {
    clock.through(place.new_names(), |name| File::create_new(name).map(drop))
}

fn make_directories(place: &Place) -> io::Result<()> {
    let names = place.numbered(&place.beneath, "directory");
    names.iter().try_for_each(fs::create_dir)
}

fn stat_directories(place: &Place, clock: &mut Clock) -> io::Result<()> {
    workload::stat_all(&place.numbered(&place.seen, "directory"), clock)
}

fn rmdir(place: &Place, clock: &mut Clock) -> io::Result<()> {
    clock.through(place.numbered(&place.seen, "directory"), fs::remove_dir)
}

/// # Errors
///
/// [`io::ErrorKind::Unsupported`] where there are no links; see symlink(2) for the errors that mean that.
fn make_links(place: &Place) -> io::Result<()> {
    for name in place.numbered(&place.beneath, "link") {
        match rustix::fs::symlink("made-somewhere", name) {
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "no symbolic links",
                ));
            }
            outcome => outcome?,
        }
    }
    Ok(())
}

fn read_each_link(place: &Place, clock: &mut Clock) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(64);
    clock.through(place.numbered(&place.seen, "link"), |name| {
        let target = rustix::fs::readlink(name, std::mem::take(&mut buffer))?;
        buffer = target.into_bytes();
        Ok(())
    })
}
