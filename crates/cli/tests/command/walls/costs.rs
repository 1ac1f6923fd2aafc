//! System calls of a share's worker per request, to find files by descriptor, by name and by handle.

use super::Share;
use crate::ground::skipped;
use rustix::process::Pid;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;
use thrufs::NodeId;

const FILES: u64 = 600;

const CALLS: [libc::c_long; 6] = [
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_statx,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_close,
];

/// An instance of tracefs(5), mounted for this alone, that records these calls of a process.
struct Trace {
    place: TempDir,
    instance: PathBuf,
}

impl Trace {
    fn of(process: Pid) -> Option<Trace> {
        let place = TempDir::with_prefix("thrufs-walls-").unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tracefs", place.path(), "tracefs", flags, None).ok()?;
        let instance = place
            .path()
            .join(format!("instances/thrufs-{}", std::process::id()));
        let trace = Trace { place, instance };
        fs::create_dir(&trace.instance).ok()?;
        let tasks = fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).unwrap();
        let threads = tasks.map(|task| task.unwrap().file_name().into_string().unwrap());
        let filter = CALLS.map(|call| format!("id == {call}")).join(" || ");
        let event = "events/raw_syscalls/sys_enter";
        for (file, text) in [
            ("buffer_size_kb", "4096"),
            ("options/event-fork", "1"),
            ("set_event_pid", &threads.collect::<Vec<_>>().join(" ")),
            (&format!("{event}/filter"), &filter),
            (&format!("{event}/enable"), "1"),
        ] {
            fs::write(trace.instance.join(file), text).ok()?;
        }
        Some(trace)
    }

    fn sum(&self) -> u64 {
        let text = fs::read_to_string(self.instance.join("trace")).unwrap();
        text.matches("sys_enter: NR ").count() as u64
    }

    /// Calls per file, in tenths.
    fn tenths_for_each(&self, work: impl FnOnce()) -> u64 {
        let before = self.sum();
        work();
        (self.sum() - before) * 10 / FILES
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = fs::write(self.instance.join("events/enable"), "0");
        let _ = fs::remove_dir(&self.instance);
        crate::ground::unmount(self.place.path());
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
    let trace = Trace::of(share.worker)?;
    let mut nodes = Vec::new();
    let first = trace.tenths_for_each(|| {
        for name in &names {
            let found = root.lookup(directory, name.as_bytes()).unwrap();
            nodes.push(NodeId(found.nodeid));
        }
    });
    let again = trace.tenths_for_each(|| {
        for name in &names {
            root.lookup(directory, name.as_bytes()).unwrap();
        }
    });
    let attributes = trace.tenths_for_each(|| {
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
            return skipped("no tracefs");
        };
        println!("`{options}`: {counted:?} tenths of calls");
        for (counted, expected) in counted.into_iter().zip(expected) {
            // The first and the last few differ.
            let differs = counted.abs_diff(expected);
            assert!(differs <= 2, "`{options}`: {counted}, not {expected}");
        }
    }
}
