//! A file system beneath that takes its time for some files holds up nobody who wants others.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use thrufs_tests::caller::Process;
use thrufs_tests::connection::Connection;
use thrufs_tests::lower::{Ground, Lower};
use thrufs_tests::machine::{cpus, on_cpu};
use thrufs_tests::mounted::is_mounted;
use thrufs_tests::programs;
use thrufs_tests::server::Server;
use thrufs_tests::transport::must_skip_ring;

/// A hundred requests that nobody holds up take a fraction of it; what is slow takes several times
/// as long.
const PROMPT_MAX: Duration = Duration::from_millis(500);

/// By then, those who are slow are in the midst of it.
const UNDER_WAY: Duration = Duration::from_millis(300);

/// The slow file system, mounted where a ground has its source.
struct SlowSource<'a> {
    process: Option<Process>,
    ground: &'a Ground,
}

impl<'a> SlowSource<'a> {
    fn mount(ground: &'a Ground) -> Self {
        let source = ground.source().to_str().unwrap();
        let process = Process::start_program(&programs::slow_files(), &[source]);
        let slow = Self {
            process: Some(process),
            ground,
        };
        let line = slow.process.as_ref().map(Process::line);
        assert_eq!(line.as_deref(), Some("ok"));
        slow
    }

    fn unmount(mut self) {
        if let Some(process) = self.process.take() {
            process.finish();
        }
    }
}

impl Drop for SlowSource<'_> {
    fn drop(&mut self) {
        drop(self.process.take());
        if is_mounted(self.ground.source()) {
            let _ = unmount(self.ground.source(), UnmountFlags::DETACH);
        }
    }
}

/// How long a hundred looks at files take that answer at once.
fn time_of_a_hundred(mnt: &Path) -> Duration {
    let start = Instant::now();
    for turn in 0..100 {
        fs::symlink_metadata(mnt.join(format!("file-{}", turn % 10))).unwrap();
    }
    start.elapsed()
}

/// While processes run the helper with `slow` on one CPU, another there asks for other files.
fn slow_ones_hold_up_nobody(options: &str, slow: &[[&str; 2]]) {
    let ground = Ground::prepare(Lower::Default).unwrap();
    let source = SlowSource::mount(&ground);
    let server = Server::start(&ground, &format!("transport=uring,{options}"), None);
    let connection = Connection::of(ground.mnt());
    let cpu = cpus()[0];
    // What is carried out aside, as this is, must not leave a thread with room for two requests, one
    // of which would wait for the other.
    on_cpu(cpu, || rustix::fs::statvfs(ground.mnt()).unwrap());
    time_of_a_hundred(ground.mnt());
    let asking: Vec<Process> = slow
        .iter()
        .map(|[command, name]| {
            let path = ground.mnt().join(name);
            on_cpu(cpu, || Process::start(&[command, path.to_str().unwrap()]))
        })
        .collect();
    thread::sleep(UNDER_WAY);
    let took = on_cpu(cpu, || time_of_a_hundred(ground.mnt()));
    let early: Vec<_> = asking.iter().flat_map(Process::lines).collect();
    if took >= PROMPT_MAX {
        // So that those who ask can be killed.
        connection.abort();
    }
    assert!(took < PROMPT_MAX, "held up for {took:?}");
    assert!(early.is_empty(), "nothing was slow: {early:?}");
    for process in asking {
        assert_eq!(process.line(), "ok");
        process.finish();
    }
    server.stop();
    source.unmount();
}

const OPTIONS: [&str; 2] = ["cache=never", "cache=never,ring_depth=1"];

#[test]
fn a_slow_file_holds_up_nobody() {
    if must_skip_ring("a_slow_file_holds_up_nobody") {
        return;
    }
    for options in OPTIONS {
        slow_ones_hold_up_nobody(options, &[["stat", "slow-0"]]);
    }
}

#[test]
fn several_slow_files_hold_up_nobody() {
    if must_skip_ring("several_slow_files_hold_up_nobody") {
        return;
    }
    for options in OPTIONS {
        let slow = [["stat", "slow-0"], ["stat", "slow-1"], ["stat", "slow-2"]];
        slow_ones_hold_up_nobody(options, &slow);
    }
}

#[test]
fn slow_fsyncs_hold_up_nobody() {
    if must_skip_ring("slow_fsyncs_hold_up_nobody") {
        return;
    }
    for options in OPTIONS {
        // More than there are threads for those of whom nobody expects that they sleep.
        let names: Vec<String> = (0..8).map(|number| format!("sync-{number}")).collect();
        let slow: Vec<[&str; 2]> = names.iter().map(|name| ["sync", name.as_str()]).collect();
        slow_ones_hold_up_nobody(options, &slow);
    }
}
