//! System calls of a share's worker per request, to find files by descriptor, by name and by handle.

use super::Share;
use super::counter::Counter;
use crate::ground::prelude::*;
use std::ffi::CString;

const FILES: u64 = 600;

const CALLS: [libc::c_long; 6] = [
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_statx,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_close,
];

/// The tracepoint of all system calls. tracefs is mounted only for this.
fn number_of_tracepoint() -> Option<u64> {
    let place = TempDir::with_prefix("thrufs-walls-").unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("tracefs", place.path(), "tracefs", flags, None).ok()?;
    let number = fs::read_to_string(place.path().join("events/raw_syscalls/sys_enter/id"));
    ground::unmount(place.path());
    number.ok()?.trim().parse().ok()
}

struct Counters(Vec<Counter>);

impl Counters {
    fn of(process: Pid) -> Option<Counters> {
        let number = number_of_tracepoint()?;
        let filter = CALLS.map(|call| format!("id == {call}")).join(" || ");
        let filter = CString::new(filter).unwrap();
        let tasks = fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).unwrap();
        let counters = tasks.map(|task| {
            let thread: i32 = task.unwrap().file_name().to_str().unwrap().parse().unwrap();
            let thread = Pid::from_raw(thread).unwrap();
            let counter = Counter::of_tracepoint(number, thread).ok()?;
            counter.set_filter(&filter).ok()?;
            counter.enable().ok()?;
            Some(counter)
        });
        counters.collect::<Option<Vec<_>>>().map(Counters)
    }

    fn sum(&self) -> u64 {
        self.0.iter().map(|counter| counter.count().unwrap()).sum()
    }

    /// Calls per file, in tenths.
    fn tenths_for_each(&self, work: impl FnOnce()) -> u64 {
        let before = self.sum();
        work();
        (self.sum() - before) * 10 / FILES
    }
}

/// Tenths of calls for a first lookup, a repeated one, and attributes.
fn counted(options: &str) -> Option<[u64; 3]> {
    let share = Share::new(options);
    let many = share.place.dir.join("many");
    fs::create_dir(&many).unwrap();
    let names: Vec<String> = (0..FILES).map(|number| format!("file{number}")).collect();
    for name in &names {
        fs::write(many.join(name), "").unwrap();
    }
    let client = share.place.mount();
    let root = client.root();
    let directory = root.walk("many").unwrap();
    let counters = Counters::of(share.worker)?;
    let mut nodes = Vec::new();
    let first = counters.tenths_for_each(|| {
        for name in &names {
            let found = root.lookup(directory, name.as_bytes()).unwrap();
            nodes.push(NodeId(found.nodeid));
        }
    });
    let again = counters.tenths_for_each(|| {
        for name in &names {
            root.lookup(directory, name.as_bytes()).unwrap();
        }
    });
    let attributes = counters.tenths_for_each(|| {
        for node in &nodes {
            root.getattr(*node).unwrap();
        }
    });
    Some([first, again, attributes])
}

#[test]
fn system_calls_to_find_files_match_the_documentation() {
    if !rustix::process::geteuid().is_root() {
        return skipped("counting system calls needs root");
    }
    // Documented in docs/adr/0003-inodes-by-handle.md.
    for (options, expected) in [
        // open and statx; close for a known file; only statx.
        ("", [20, 30, 10]),
        // close of an evicted descriptor; open by name, and two statx.
        ("descriptors=16", [30, 30, 40]),
        // Handle and attributes; the first time, open by handle.
        ("inode_file_handles=prefer", [20, 20, 20]),
        ("inode_file_handles=prefer,descriptors=16", [20, 20, 30]),
    ] {
        let Some(counted) = counted(options) else {
            return skipped("no tracefs, or no counters");
        };
        println!("`{options}`: {counted:?} tenths of calls");
        for (counted, expected) in counted.into_iter().zip(expected) {
            // The first and the last few differ.
            let differs = counted.abs_diff(expected);
            assert!(differs <= 2, "`{options}`: {counted}, not {expected}");
        }
    }
}
