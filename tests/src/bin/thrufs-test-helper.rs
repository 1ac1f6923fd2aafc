//! Another process, for tests: locks and signals belong to processes.
//!
//! ```text
//! load DIR NAME PAUSE                   makes, reads, moves and removes files NAME-* in DIR, over and
//!                                       over, with PAUSE microseconds between rounds. Prints the
//!                                       number of each round; after an error "errno N", and ends.
//!                                       Without `marker` in DIR, it prints "gone" and ends.
//! load-inside DIR NAME PAUSE            the same with DIR as the working directory
//! write-synced PATH                     writes blocks (see `acknowledged`), prints the count after
//!                                       each is synced; after an error "errno N", and ends
//! sync PATH                             writes a byte and syncs it, prints "ok" or "errno N"
//! race DIR SEED                         fights over names in DIR (see `race`) until standard input
//!                                       closes; prints the numbers of steps and of opens that were
//!                                       stale, or what went wrong.
//! close WHAT USAGE COUNT THROUGH BENEATH  uses a file THROUGH the mount, closes it and does WHAT
//!                                       (`execute`, `lease`) BENEATH (see `close`), COUNT times.
//!                                       Prints how often that did not succeed at once, and the
//!                                       median and longest delay in microseconds; or "errno N"
//! policy-race DIR ORIGINAL STATE SEED   see `policy_race`; prints what went wrong, or "ok"
//! storm DIR SEED USER                   does everything at random as USER with DIR as its root, until it is killed (see
//!                                       `storm`)
//! stat PATH...                          looks at each, prints "ok" or "errno N"
//! map PATH                              maps PATH, prints "ok", and does what each line says that comes
//!                                       by standard input: `load AT COUNT` prints bytes of the map,
//!                                       `store AT WORD` changes them and prints "ok"; `read AT COUNT FILE`
//!                                       reads FILE with O_DIRECT at AT into the map, there, `write AT
//!                                       COUNT FILE` the reverse; both print how many bytes, or "errno N"
//! ```
//!
//! And what `thrufs_testing::helper` has: locks, `append`, `hold`.

#![forbid(unsafe_code)]

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use libc::O_DIRECT;
use rustix::process::{Gid, Uid, chroot};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};
use thrufs_testing::fence::mapping::{Mapping, Sharing};
use thrufs_testing::helper::{self, report, say};
use thrufs_tests::acknowledged::write_and_sync;
use thrufs_tests::close::{self, Usage};
use thrufs_tests::policy_race;
use thrufs_tests::race::Racer;
use thrufs_tests::storm::Storm;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["load", dir, name, pause] => load(Path::new(dir), name, pause),
        ["load-inside", dir, name, pause] => load_inside(dir, name, pause),
        ["write-synced", path] => write_synced(path),
        ["read", path] => report(fs::read(path).map(drop)),
        ["sync", path] => report(sync(path)),
        ["race", dir, seed] => race(Path::new(dir), seed),
        ["close", what, usage, count, through, beneath] => {
            use_and_close(what, usage, count, [Path::new(through), Path::new(beneath)])
        }
        ["policy-race", directory, original, state, seed] => {
            policy_race::Racer::new(directory, original, state, seed)
                .map(|racer| println!("{}", racer.run()))
        }
        ["storm", dir, seed, user] => storm(Path::new(dir), seed, user),
        ["map", path] => map(Path::new(path)),
        ["stat", paths @ ..] => report(paths.iter().try_for_each(|path| stat(path))),
        other => helper::run(other),
    };
    if let Err(error) = done {
        eprintln!("thrufs-test-helper {args:?}: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn map(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    let mut map = Mapping::new(&file, bytes, Sharing::Shared)?;
    say("ok")?;
    let number = |text: &str| text.parse::<usize>().map_err(io::Error::other);
    for line in io::stdin().lines() {
        let line = line?;
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["load", at, count] => {
                let loaded = map.load(number(at)?, number(count)?);
                say(&String::from_utf8_lossy(&loaded))?;
            }
            ["store", at, word] => {
                map.store(number(at)?, word.as_bytes());
                say("ok")?;
            }
            [what @ ("read" | "write"), at, count, file] => {
                let range = number(at)?..number(at)? + number(count)?;
                let moved = move_directly(&mut map, what, range, Path::new(file));
                moved.map_or_else(|error| report(Err(error)), |count| say(&count.to_string()))?;
            }
            _ => return Err(io::Error::other(line)),
        }
    }
    Ok(())
}

/// By one call with `O_DIRECT`, between the same places of the map and of the file.
fn move_directly(
    map: &mut Mapping,
    what: &str,
    range: Range<usize>,
    path: &Path,
) -> io::Result<usize> {
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .custom_flags(O_DIRECT)
        .open(path)?;
    let at = range.start as u64;
    match what {
        "read" => map.read_from(range, file, at),
        _ => map.write_to(range, file, at),
    }
}

fn storm(dir: &Path, seed: &str, user: &str) -> io::Result<()> {
    let number = |text: &str| text.parse::<u32>().map_err(io::Error::other);
    let (seed, user) = (number(seed)?, number(user)?);
    // So that `..` leads nowhere else.
    chroot(dir)?;
    std::env::set_current_dir("/")?;
    if user != 0 {
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(user));
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
    }
    let mut storm = Storm::new(seed.into());
    loop {
        storm.step();
    }
}

/// Some pages more than one request of 128 KiB takes.
const LOAD_BYTES: usize = 200_000;

fn load_inside(dir: &str, name: &str, pause: &str) -> io::Result<()> {
    std::env::set_current_dir(dir)?;
    load(Path::new("."), name, pause)
}

fn load(dir: &Path, name: &str, pause: &str) -> io::Result<()> {
    let pause = Duration::from_micros(pause.parse().map_err(io::Error::other)?);
    for round in 1_u64.. {
        if !dir.join("marker").try_exists().unwrap_or(true) {
            return say("gone");
        }
        if let Err(error) = one_round(dir, name, round) {
            // Not from the kernel: wrong content.
            return match error.raw_os_error() {
                Some(_) => report(Err(error)),
                None => Err(error),
            };
        }
        say(&round.to_string())?;
        thread::sleep(pause);
    }
    Ok(())
}

fn one_round(dir: &Path, name: &str, round: u64) -> io::Result<()> {
    let (first, second) = (
        dir.join(format!("{name}-{round}")),
        dir.join(format!("{name}-moved")),
    );
    let content = round.to_le_bytes().repeat(LOAD_BYTES / 8);
    fs::write(&first, &content)?;
    if fs::read(&first)? != content {
        return Err(io::Error::other("other content than was written"));
    }
    fs::rename(&first, &second)?;
    let found = fs::metadata(&second)?.len();
    if found != content.len() as u64 {
        return Err(io::Error::other(format!("{found} bytes")));
    }
    fs::read_dir(dir)?.try_for_each(|entry| entry.map(drop))?;
    fs::remove_file(&second)
}

fn write_synced(path: &str) -> io::Result<()> {
    let error = write_and_sync(Path::new(path), |count| {
        // A reader that is gone shows at the end.
        let _ = say(&count.to_string());
    });
    report(Err(error))
}

fn sync(path: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(b"x")?;
    file.sync_all()
}

fn race(dir: &Path, seed: &str) -> io::Result<()> {
    let seed = seed.parse().map_err(io::Error::other)?;
    let mut racer = Racer::new(dir, seed);
    let ended = Arc::new(AtomicBool::new(false));
    thread::spawn({
        let ended = Arc::clone(&ended);
        move || {
            let _ = io::stdin().read_to_end(&mut Vec::new());
            ended.store(true, Ordering::Relaxed);
        }
    });
    let mut steps = 0_u64;
    while !ended.load(Ordering::Relaxed) {
        if let Err(wrong) = racer.step() {
            return say(&format!("after {steps} steps: {wrong}"));
        }
        steps += 1;
    }
    say(&format!("{steps} {}", racer.stale()))
}

fn use_and_close(what: &str, usage: &str, count: &str, paths: [&Path; 2]) -> io::Result<()> {
    let usage = Usage::named(usage).ok_or_else(|| io::Error::other("USAGE"))?;
    let count = count.parse().map_err(io::Error::other)?;
    let [through, beneath] = paths;
    let late = match what {
        "execute" => close::execute(count, usage, through, beneath),
        "lease" => close::lease(count, usage, through, beneath),
        _ => return Err(io::Error::other("WHAT")),
    };
    match late {
        Ok(late) => {
            let number = late.iter().filter(|delay| !delay.is_zero()).count();
            let micros = |delay: Option<&Duration>| delay.map_or(0, Duration::as_micros);
            let (median, longest) = (micros(late.get(late.len() / 2)), micros(late.last()));
            say(&format!("{number} {median} {longest}"))
        }
        Err(error) => report(Err(error)),
    }
}

fn stat(path: &str) -> io::Result<()> {
    fs::symlink_metadata(path).map(drop)
}
