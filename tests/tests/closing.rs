//! A close that is done when it returns: another process finds no open file of the server in its way
//! directly afterwards. What waits for RELEASE, which is asynchronous, comes later.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use rustix::fs::flock;
use thrufs_sys::closing::close;
use thrufs_tests::prelude::*;

const WAYS: [&str; 4] = [
    "",
    "nopassthrough",
    "nopassthrough,cache=never",
    "locks=shared",
];

/// Limit of what RELEASE does after close(2) has returned, also on a busy machine.
const LATE_MAX: Duration = Duration::from_secs(30);

/// How many did not succeed at once, and the longest delay.
fn delays(mounted: &Mounted, what: &str, usage: &str, count: usize) -> (u64, Duration) {
    let [beneath, through] = [mounted.source(), mounted.mnt()].map(|it| it.join("file"));
    let (through, beneath) = (through.to_str().unwrap(), beneath.to_str().unwrap());
    let count = count.to_string();
    let said = programs::run_helper(&["close", what, usage, &count, through, beneath]);
    let numbers = said.split(' ').filter_map(|number| number.parse().ok());
    let numbers: Vec<u64> = numbers.collect();
    let [late, _, longest] = numbers[..] else {
        panic!("{said}");
    };
    (late, Duration::from_micros(longest))
}

/// `THRUFS_SOAK_ROUNDS` says how many by hand.
fn rounds(usual: usize) -> usize {
    thrufs_test_report::number("THRUFS_SOAK_ROUNDS", usual as u64) as usize
}

#[test]
fn what_was_written_can_be_executed_beneath_and_a_lease_be_taken() {
    for (what, usage, count) in [
        ("execute", "write", 300),
        ("execute", "change", 100),
        ("lease", "write", 200),
        ("lease", "change", 200),
        ("lease", "read", 200),
    ] {
        on_each(Lower::Tmpfs, &WAYS, |mounted, options| {
            let (late, longest) = delays(mounted, what, usage, rounds(count));
            let said = format!("{what} after {usage}: {late} late, up to {longest:?}");
            if usage == "read" && options.contains("nopassthrough") {
                // The server's file is closed at RELEASE: a FLUSH for every reader would cost too much.
                assert!(longest < LATE_MAX, "{said}");
            } else {
                assert_eq!(late, 0, "{said}");
            }
        });
    }
}

/// Waits for what RELEASE does. Returns whether it had to.
#[track_caller]
fn is_late(mut is_done: impl FnMut() -> bool) -> bool {
    let is_late = !is_done();
    wait_until("released", is_done);
    is_late
}

fn free_bytes(mounted: &Mounted) -> u64 {
    let space = rustix::fs::statvfs(mounted.outside()).unwrap();
    space.f_bfree * space.f_frsize
}

#[test]
fn blocks_of_a_removed_file_are_free() {
    const BYTES: usize = 4 << 20;
    for lower in [Lower::Tmpfs, Lower::Ext4, Lower::Overlay] {
        on_each(lower, &["", "nopassthrough"], |mounted, _| {
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
            for _ in 0..20 {
                drop(write());
                wait_until("closed", || {
                    mounted.ctl("statistics").contains("open_files=0 ")
                });
                assert!(!is_free());
                fs::remove_file(&path).unwrap();
                // Overlayfs frees them in its own time.
                assert!(!is_late(is_free) || lower == Lower::Overlay, "not open");
                let file = write();
                fs::remove_file(&path).unwrap();
                assert!(!is_free());
                drop(file);
                wait_until("closed when removed", is_free);
                drop(write());
                fs::write(mounted.mnt().join("new"), b"small").unwrap();
                fs::rename(mounted.mnt().join("new"), &path).unwrap();
                wait_until("replaced", is_free);
            }
        });
    }
}

/// RELEASE carries the unlock of flock(2).
#[test]
fn a_waiter_for_a_lock_beneath_goes_on() {
    let ways = ["locks=shared", "locks=shared,nopassthrough"];
    on_each(Lower::Tmpfs, &ways, |mounted, _| {
        let path = mounted.mnt().join("file");
        fs::write(&path, b"content").unwrap();
        let beneath = File::open(mounted.source().join("file")).unwrap();
        for _ in 0..50 {
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            flock(&file, FlockOperation::LockExclusive).unwrap();
            let attempt = || flock(&beneath, FlockOperation::NonBlockingLockExclusive).is_ok();
            assert!(!attempt(), "it is locked");
            drop(file);
            wait_until("unlocked", attempt);
            flock(&beneath, FlockOperation::Unlock).unwrap();
        }
    });
}

/// Unmounts as soon as that is possible, and returns when.
#[track_caller]
fn unmount_idle(submount: Detach<&Path>) -> Duration {
    let start = Instant::now();
    while let Err(error) = rustix::mount::unmount(submount.0, UnmountFlags::empty()) {
        assert_eq!(error, rustix::io::Errno::BUSY);
        assert!(start.elapsed() < LATE_MAX, "it stays busy");
        // A busy loop would delay the release.
        thread::sleep(Duration::from_micros(50));
    }
    std::mem::forget(submount);
    start.elapsed()
}

#[test]
fn a_mount_beneath_can_be_unmounted() {
    on_each(Lower::Tmpfs, &WAYS, |mounted, _| {
        // Names are cached: a fresh one each time.
        let place = |name: &str| {
            let at = mounted.source().join(name);
            fs::create_dir(&at).unwrap();
            (at, mounted.mnt().join(name))
        };
        let [mut written, mut walked] = [LATE_MAX; 2];
        for round in 0..20 {
            let (at, through) = place(&format!("written-{round}"));
            let submount = Detach::tmpfs(&*at);
            fs::create_dir(through.join("dir")).unwrap();
            let file = File::create(through.join("dir/file")).unwrap();
            file.write_all_at(b"content", 0).unwrap();
            let busy = rustix::mount::unmount(&at, UnmountFlags::empty());
            assert!(busy.is_err(), "a file is open");
            drop(file);
            written = written.min(unmount_idle(submount));

            let (at, through) = place(&format!("walked-{round}"));
            let submount = Detach::tmpfs(&*at);
            fs::create_dir_all(at.join("one/two")).unwrap();
            fs::write(at.join("one/two/file"), b"content").unwrap();
            assert_eq!(fs::read(through.join("one/two/file")).unwrap(), b"content");
            assert_eq!(fs::read_dir(through.join("one/two")).unwrap().count(), 1);
            walked = walked.min(unmount_idle(submount));
        }
        // By the last release: by idleness, after a quarter of a second, none would be that fast.
        for fastest in [written, walked] {
            assert!(fastest < Duration::from_millis(200), "{fastest:?}");
        }
        // Without any open file: by idleness.
        let (at, through) = place("looked-at");
        let submount = Detach::tmpfs(&*at);
        fs::write(at.join("file"), b"content").unwrap();
        assert_eq!(fs::metadata(through.join("file")).unwrap().len(), 7);
        unmount_idle(submount);
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
