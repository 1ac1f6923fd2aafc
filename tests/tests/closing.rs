//! A close that is done when it returns: another process finds no open file of the server in its way
//! directly afterwards. What waits for RELEASE, which is asynchronous, comes later; its delay is reported.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use thrufs_tests::guard::Detach;

use rustix::fs::{FlockOperation, flock};
use rustix::mount::UnmountFlags;
use thrufs_sys::closing::close;
use thrufs_testing::process::Process;
use thrufs_tests::lower::{Ground, Lower};
use thrufs_tests::mount_point::is_mounted;
use thrufs_tests::mounted::Mounted;
use thrufs_tests::programs;
use thrufs_tests::server::Server;
use thrufs_tests::transport::over_each;

const WAYS: [&str; 4] = [
    "",
    "nopassthrough",
    "nopassthrough,cache=never",
    "locks=shared",
];

/// Limit of what RELEASE does after close(2) has returned, also on a busy machine.
const LATE_MAX: Duration = Duration::from_secs(30);

fn on_each_way(lower: Lower, ways: &[&str], body: impl Fn(&Mounted, &str)) {
    over_each(|transport| {
        for way in ways {
            let mut mounted = Mounted::start_on(lower, &transport.with(way)).unwrap();
            body(&mounted, &format!("{transport} {way}"));
            mounted.stop().unwrap();
        }
    });
}

/// How many did not succeed at once, and the median and longest delay.
fn delays(mounted: &Mounted, what: &str, usage: &str, count: usize) -> (usize, Duration, Duration) {
    let through = mounted.mnt().join("file");
    let beneath = mounted.source().join("file");
    let (through, beneath) = (through.to_str().unwrap(), beneath.to_str().unwrap());
    let count = count.to_string();
    let said = programs::run_helper(&["close", what, usage, &count, through, beneath]);
    let numbers: Vec<u64> = said
        .split(' ')
        .filter_map(|number| number.parse().ok())
        .collect();
    let [late, median, longest] = numbers[..] else {
        panic!("{said}");
    };
    let micros = Duration::from_micros;
    (late as usize, micros(median), micros(longest))
}

/// `THRUFS_SOAK_ROUNDS` says how many by hand.
fn rounds(usual: usize) -> usize {
    thrufs_test_report::number("THRUFS_SOAK_ROUNDS", usual as u64) as usize
}

#[test]
fn what_was_written_can_be_executed_beneath() {
    on_each_way(Lower::Tmpfs, &WAYS, |mounted, name| {
        for (usage, count) in [("write", 300), ("change", 100)] {
            let (late, _, longest) = delays(mounted, "execute", usage, rounds(count));
            assert_eq!(
                late, 0,
                "{name}, {usage}: not at once, up to {longest:?} late"
            );
        }
    });
}

#[test]
fn a_lease_can_be_taken_beneath_when_a_writer_has_closed() {
    on_each_way(Lower::Tmpfs, &WAYS, |mounted, name| {
        for usage in ["write", "change"] {
            let (late, _, longest) = delays(mounted, "lease", usage, rounds(200));
            assert_eq!(
                late, 0,
                "{name}, {usage}: not at once, up to {longest:?} late"
            );
        }
    });
}

#[test]
fn a_lease_can_be_taken_beneath_when_a_reader_has_closed() {
    on_each_way(Lower::Tmpfs, &WAYS, |mounted, name| {
        let (late, median, longest) = delays(mounted, "lease", "read", rounds(200));
        eprintln!("{name}: {late} of 200 late, median {median:?}, longest {longest:?}");
        if name.contains("nopassthrough") {
            // The server's file is closed at RELEASE: a FLUSH for every reader would cost too much.
            assert!(longest < LATE_MAX);
        } else {
            assert_eq!(late, 0, "{name}: up to {longest:?} late");
        }
    });
}

#[track_caller]
fn delay_until(mut done: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    if done() {
        return Duration::ZERO;
    }
    while !done() {
        assert!(start.elapsed() < LATE_MAX, "not within {LATE_MAX:?}");
    }
    start.elapsed()
}

/// Prints the delays, and returns the shortest.
fn say(name: &str, what: &str, mut delays: Vec<Duration>) -> Duration {
    delays.sort();
    let (median, longest) = (delays[delays.len() / 2], delays[delays.len() - 1]);
    let late = delays.iter().filter(|delay| !delay.is_zero()).count();
    let count = delays.len();
    eprintln!("{name}: {what}: {late} of {count} late, median {median:?}, longest {longest:?}");
    delays[0]
}

/// Waits until the server has received the last RELEASE.
#[track_caller]
fn wait_for_releases(mounted: &Mounted) {
    let is_done = || {
        let mut ctl = Command::new(programs::thrufs().unwrap());
        let said = ctl.arg("ctl").arg(mounted.mnt()).arg("statistics").output();
        let said = said.unwrap();
        let text = String::from_utf8_lossy(&said.stdout);
        assert!(
            said.status.success() && text.contains("open_files="),
            "{said:?}"
        );
        text.contains("open_files=0 ")
    };
    delay_until(is_done);
}

fn free_bytes(mounted: &Mounted) -> u64 {
    let space = rustix::fs::statvfs(mounted.outside()).unwrap();
    space.f_bfree * space.f_frsize
}

#[test]
fn blocks_of_a_removed_file_are_free() {
    const BYTES: usize = 4 << 20;
    for lower in [Lower::Tmpfs, Lower::Ext4, Lower::Overlay] {
        on_each_way(lower, &WAYS[..2], |mounted, name| {
            let path = mounted.mnt().join("file");
            let content = vec![b'x'; BYTES];
            let write = || {
                let mut file = File::create(&path).unwrap();
                file.write_all(&content).unwrap();
                file.sync_all().unwrap();
                file
            };
            let wanted = free_bytes(mounted) - (1 << 20);
            let is_free = || free_bytes(mounted) >= wanted;
            let (mut closed, mut open, mut replaced) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..20 {
                drop(write());
                wait_for_releases(mounted);
                assert!(!is_free());
                fs::remove_file(&path).unwrap();
                closed.push(delay_until(is_free));
                let file = write();
                fs::remove_file(&path).unwrap();
                assert!(!is_free());
                drop(file);
                open.push(delay_until(is_free));
                drop(write());
                fs::write(mounted.mnt().join("new"), b"small").unwrap();
                fs::rename(mounted.mnt().join("new"), &path).unwrap();
                replaced.push(delay_until(is_free));
            }
            let name = format!("{name} on {}", lower.name());
            let late = closed.iter().filter(|delay| !delay.is_zero()).count();
            say(&name, "removed when closed", closed);
            // Overlayfs frees them in its own time.
            if lower != Lower::Overlay {
                assert_eq!(late, 0, "{name}: blocks of a file that was not open");
            }
            say(&name, "closed when removed", open);
            say(&name, "replaced", replaced);
        });
    }
}

#[test]
fn a_waiter_for_a_lock_beneath_goes_on() {
    let ways = ["locks=shared", "locks=shared,nopassthrough"];
    on_each_way(Lower::Tmpfs, &ways, |mounted, name| {
        let path = mounted.mnt().join("file");
        fs::write(&path, b"content").unwrap();
        let beneath = File::open(mounted.source().join("file")).unwrap();
        let mut delays = Vec::new();
        for _ in 0..50 {
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            flock(&file, FlockOperation::LockExclusive).unwrap();
            let attempt = || flock(&beneath, FlockOperation::NonBlockingLockExclusive).is_ok();
            assert!(!attempt(), "it is locked");
            drop(file);
            delays.push(delay_until(attempt));
            flock(&beneath, FlockOperation::Unlock).unwrap();
        }
        // RELEASE carries the unlock of flock(2).
        say(name, "flock", delays);
    });
}

fn unmounts(at: &Path) -> bool {
    match rustix::mount::unmount(at, UnmountFlags::empty()) {
        Ok(()) => true,
        Err(rustix::io::Errno::BUSY) => {
            // A busy loop would delay the release.
            thread::sleep(Duration::from_micros(50));
            false
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_mount_beneath_can_be_unmounted() {
    on_each_way(Lower::Tmpfs, &WAYS, |mounted, name| {
        // Names are cached: a fresh one each time.
        let place = |name: &str| {
            let at = mounted.source().join(name);
            fs::create_dir(&at).unwrap();
            (at, mounted.mnt().join(name))
        };
        let (mut written, mut walked) = (Vec::new(), Vec::new());
        for round in 0..20 {
            let (at, through) = place(&format!("written-{round}"));
            let submount = Detach::tmpfs(&at);
            fs::create_dir(through.join("dir")).unwrap();
            let file = File::create(through.join("dir/file")).unwrap();
            file.write_all_at(b"content", 0).unwrap();
            assert!(!unmounts(submount.0), "a file is open");
            drop(file);
            written.push(delay_until(|| unmounts(submount.0)));

            let (at, through) = place(&format!("walked-{round}"));
            let submount = Detach::tmpfs(&at);
            fs::create_dir_all(at.join("one/two")).unwrap();
            fs::write(at.join("one/two/file"), b"content").unwrap();
            assert_eq!(fs::read(through.join("one/two/file")).unwrap(), b"content");
            assert_eq!(fs::read_dir(through.join("one/two")).unwrap().count(), 1);
            walked.push(delay_until(|| unmounts(submount.0)));
        }
        // By the last release: by idleness, after a quarter of a second, none would be that fast.
        for fastest in [
            say(name, "written", written),
            say(name, "walked and read", walked),
        ] {
            assert!(fastest < Duration::from_millis(200), "{fastest:?}");
        }
        // Without any open file: by idleness.
        let (at, through) = place("looked-at");
        let submount = Detach::tmpfs(&at);
        fs::write(at.join("file"), b"content").unwrap();
        assert_eq!(fs::metadata(through.join("file")).unwrap().len(), 7);
        let start = Instant::now();
        while !unmounts(submount.0) {
            assert!(start.elapsed() < LATE_MAX, "it stays busy");
        }
        eprintln!("{name}: looked at: {:?} late", start.elapsed());
    });
}

/// A file system beneath that reports its error only at close(2).
#[test]
fn an_error_of_the_close_beneath_is_reported() {
    over_each(|transport| {
        let ground = Ground::prepare(Lower::Default).unwrap();
        let source = ground.source().to_str().unwrap();
        let other = Process::start(&programs::slow_files(), &[source]);
        assert_eq!(other.line(), "ok");
        {
            let server = Server::start(&ground, &transport.with(""), None);
            let open = |name: &str| {
                let path = ground.mnt().join(name);
                OpenOptions::new().write(true).open(path).unwrap()
            };
            let good = open("file-0");
            (&good).write_all(b"content").unwrap();
            assert_eq!(close(good.into()), Ok(()));
            let full = open("full-0");
            (&full).write_all(b"content").unwrap();
            let copy = full.try_clone().unwrap();
            assert_eq!(close(copy.into()), Err(rustix::io::Errno::NOSPC));
            (&full).write_all(b"more").unwrap();
            assert_eq!(close(full.into()), Err(rustix::io::Errno::NOSPC));
            server.stop();
        }
        other.finish();
        if is_mounted(ground.source()) {
            let _ = rustix::mount::unmount(ground.source(), UnmountFlags::DETACH);
        }
    });
}
