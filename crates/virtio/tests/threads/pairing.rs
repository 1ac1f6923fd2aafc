//! Pairing: the thread of a queue is bound to the CPU of a lone caller, in the class SCHED_IDLE.

use crate::alone;
use crate::ground::{ALL_FEATURES, Guest, PATIENCE, Serving, end, memory, sessions};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use thrufs_virtio::{Caller, ConnectionOptions, Device, DeviceConfig, DeviceHandle};

/// Whether a thread can be paired here; reports a skip otherwise.
fn can_pair() -> bool {
    let can = thrufs_sys::sched::may_leave_idle();
    if !can {
        thrufs_test_report::skipped("threads of this user cannot leave the idle class");
    }
    can
}

fn me() -> Caller {
    let open = |file| File::open(format!("/proc/thread-self/{file}")).unwrap();
    Caller {
        stat: open("stat"),
        schedstat: open("schedstat"),
    }
}

fn begin(callers: Vec<Caller>) -> (Serving, Guest, DeviceHandle) {
    let files = memory(|_| ());
    let device = Device::new(sessions(&files), DeviceConfig::default()).unwrap();
    let handle = device.handle();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let serving = std::thread::spawn(move || {
        let options = ConnectionOptions {
            callers,
            ..ConnectionOptions::default()
        };
        device.serve_with(theirs, options)
    });
    let mut guest = Guest::new(ours, 2, ALL_FEATURES);
    guest.set_up();
    guest.init().unwrap();
    (serving, guest, handle)
}

fn getattr(guest: &mut Guest) {
    let request = guest.getattr(1);
    guest.tell_any(request);
}

/// The process's only queue thread: one test runs at a time.
fn queue_thread() -> Pid {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let found = tasks.map(Result::unwrap).find(|task| {
        let name = std::fs::read_to_string(task.path().join("comm"));
        name.is_ok_and(|name| name.trim() == "thrufs-queue-1")
    });
    let name = found.expect("a thread serves").file_name();
    Pid::from_raw(name.to_str().unwrap().parse().unwrap()).unwrap()
}

/// `SCHED_IDLE`, by the field of its policy.
fn gives_way(thread: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", thread.as_raw_nonzero()));
    let stat = stat.unwrap();
    let after_name = &stat[stat.rfind(')').unwrap() + 2..];
    after_name.split(' ').nth(41 - 3) == Some("5")
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
    }
}

#[test]
#[ignore = "soak: whether threads are paired depends on the scheduler"]
fn the_queue_s_thread_follows_a_lone_caller_s_cpu() {
    let _alone = alone();
    if !can_pair() {
        return;
    }
    let allowed = sched_getaffinity(None).unwrap();
    let (serving, mut guest, handle) = begin(vec![me()]);
    let thread = queue_thread();
    assert_eq!(sched_getaffinity(Some(thread)).unwrap(), allowed);
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .collect();
    for cpu in cpus {
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only).unwrap();
        until("served where it is asked", || {
            getattr(&mut guest);
            gives_way(thread) && sched_getaffinity(Some(thread)) == Ok(only)
        });
    }
    assert!(handle.metrics().pairs > 0);
    sched_setaffinity(None, &allowed).unwrap();
    until("unpaired without requests", || {
        std::thread::sleep(Duration::from_millis(2));
        !gives_way(thread) && sched_getaffinity(Some(thread)) == Ok(allowed)
    });
    end(serving, guest);
}

#[test]
fn without_known_callers_the_queue_s_thread_is_not_paired() {
    let _alone = alone();
    let (serving, mut guest, handle) = begin(Vec::new());
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(50) {
        getattr(&mut guest);
    }
    assert_eq!(handle.metrics().pairs, 0);
    end(serving, guest);
}
