//! Locks of fcntl that belong to a process.
//!
//! All threads of this program are one process, so every second party is another program.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::process::Signal;

use super::lock::{command, free, holder, one, range, two, waiter};
use super::prelude::*;
use crate::fence::record_lock::{self, Kind, Owner, Range, WHOLE};
use crate::helper;

pub(super) const CASES: &[Case] = cases! {
    write_lock_keeps_another_process_out:
        "file file; open @f file rw; lock @f process write; busy process {read,write} file;
         lock @f process unlock; free process write file",
    read_locks_go_together:
        "file file; open @f file rw; lock @f process read; free process read file;
         busy process write file",
    only_the_range_is_locked:
        "file file; open @f file rw; lock @f process write 10 10; free process write file 0 10;
         free process write file 20 0; busy process write file 19 1; busy process read file 0 11;
         busy process read file",
    own_locks_never_conflict,
    query_names_the_holder,
    query_names_the_holder_among_many,
    unlock_in_the_middle_splits:
        "file file; open @f file rw; lock @f process write 0 100; lock @f process unlock 40 20;
         free process write file 40 20; busy process write file 39 1;
         busy process write file 60 1; lock @f process read 0 100; free process read file 0 100;
         busy process write file 50 1",
    gone_when_any_descriptor_closes:
        "file file; open @{a,b} file rw; lock @a process write; busy process read file; close @b;
         free process write file",
    waiter_gets_it_on_release,
    wait_ends_with_a_signal,
    gone_when_the_holder_dies,
    waiting_in_a_circle_is_refused,
    seen_beneath [SharedRanges],
};

fn set(file: &File, kind: Kind, range: Range) -> std::io::Result<()> {
    record_lock::set(file.as_fd(), Owner::Process, kind, range, false)
}

fn query(kind: &str, path: &Path, range: Range) -> String {
    helper::output(&command("lock-query", "process", kind, path, range))
}

fn own_locks_never_conflict(env: &Env) {
    let (one, two) = two(env);
    set(&one, Kind::Write, WHOLE).unwrap();
    set(&two, Kind::Write, WHOLE).unwrap();
    assert_eq!(
        record_lock::query(two.as_fd(), Owner::Process, Kind::Write, WHOLE).unwrap(),
        None
    );
}

fn query_names_the_holder(env: &Env) {
    let (path, file) = one(env);
    assert_eq!(query("write", &path, WHOLE), "free");
    set(&file, Kind::Read, range(5, 7)).unwrap();
    let held = format!("held Read 5 7 {}", std::process::id());
    assert_eq!(query("write", &path, WHOLE), held);
    assert_eq!(query("read", &path, WHOLE), "free");
}

fn query_names_the_holder_among_many(env: &Env) {
    let (path, file) = one(env);
    set(&file, Kind::Read, range(0, 10)).unwrap();
    let holders: Vec<_> = [20, 40, 60]
        .into_iter()
        .map(|start| {
            let range = range(start, 10);
            let holder = holder("process", &path, range);
            (start, holder)
        })
        .collect();
    let query = |start| query("write", &path, range(start, 5));
    let own = format!("held Read 0 10 {}", std::process::id());
    assert_eq!(query(0), own);
    for (start, holder) in &holders {
        let held = format!("held Write {start} 10 {}", holder.id());
        assert_eq!(query(*start), held);
    }
    for (_, holder) in holders {
        holder.finish();
    }
    assert_eq!(query(20), "free");
    assert_eq!(query(0), own);
}

fn waiter_gets_it_on_release(env: &Env) {
    let (path, file) = one(env);
    set(&file, Kind::Write, WHOLE).unwrap();
    let waiter = waiter("process", &path, WHOLE);
    set(&file, Kind::Unlock, WHOLE).unwrap();
    assert_eq!(waiter.line(), "ok");
    fails(set(&file, Kind::Read, WHOLE), Errno::AGAIN);
    waiter.finish();
    set(&file, Kind::Read, WHOLE).unwrap();
}

fn wait_ends_with_a_signal(env: &Env) {
    let (path, file) = one(env);
    set(&file, Kind::Write, WHOLE).unwrap();
    let waiter = waiter("process", &path, WHOLE);
    waiter.signal(Signal::USR1);
    assert_eq!(
        waiter.line(),
        format!("errno {}", Errno::INTR.raw_os_error())
    );
    waiter.finish();
    // The cancelled wait takes no lock later.
    set(&file, Kind::Unlock, WHOLE).unwrap();
    set(&file, Kind::Write, WHOLE).unwrap();
}

fn gone_when_the_holder_dies(env: &Env) {
    let (path, file) = one(env);
    let holder = holder("process", &path, WHOLE);
    fails(set(&file, Kind::Read, WHOLE), Errno::AGAIN);
    holder.kill();
    record_lock::set(file.as_fd(), Owner::Process, Kind::Write, WHOLE, true).unwrap();
}

/// This process has one lock and another process the other, and each wants both.
fn waiting_in_a_circle_is_refused(env: &Env) {
    let (one, two) = (env.file("one", ""), env.file("two", ""));
    let (ours, theirs) = (env.open("one", OFlags::RDWR), env.open("two", OFlags::RDWR));
    set(&ours, Kind::Write, WHOLE).unwrap();
    let mut arguments = command("lock-two", "process", "write", &two, WHOLE);
    arguments.push(one.to_str().unwrap().to_owned());
    let other = helper::start(&arguments);
    for expected in ["waiting", "ok", "waiting"] {
        assert_eq!(other.line(), expected);
    }
    assert_eq!(other.line_within(Duration::from_millis(200)), None);
    let wait = record_lock::set(theirs.as_fd(), Owner::Process, Kind::Write, WHOLE, true);
    fails(wait, Errno::DEADLK);
    // The other process still waits, and gets it.
    set(&ours, Kind::Unlock, WHOLE).unwrap();
    assert_eq!(other.line(), "ok");
    other.finish();
    record_lock::set(theirs.as_fd(), Owner::Process, Kind::Write, WHOLE, true).unwrap();
}

fn seen_beneath(env: &Env) {
    env.file("file", "");
    let below = env.beneath("file");
    let file = env.open("file", OFlags::RDWR);
    set(&file, Kind::Write, range(3, 4)).unwrap();
    assert!(!free("process", "read", &below, range(6, 1)));
    assert!(free("process", "write", &below, range(7, 10)));
    set(&file, Kind::Unlock, WHOLE).unwrap();
    assert!(free("process", "write", &below, WHOLE));
    let holder = holder("process", &below, WHOLE);
    fails(set(&file, Kind::Read, WHOLE), Errno::AGAIN);
    holder.finish();
}
