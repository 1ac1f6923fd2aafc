//! Locks of fcntl that belong to an open file description (OFD).

use std::os::fd::AsFd;

use super::lock::{eventually, free, range, two, waiter};
use super::prelude::*;
use crate::fence::record_lock::{self, Kind, Owner, Range, WHOLE};

pub(super) const CASES: &[Case] = cases! {
    conflict_within_a_process,
    read_locks_go_together,
    ranges_are_independent,
    query_shows_the_range,
    shared_by_copies_of_the_descriptor,
    closing_another_descriptor_keeps_it,
    gone_with_the_last_descriptor,
    conflicts_with_locks_of_processes,
    waiter_gets_it_on_release,
    seen_beneath [SharedLocks],
};

fn set(file: &File, kind: Kind, range: Range) -> std::io::Result<()> {
    record_lock::set(file.as_fd(), Owner::Description, kind, range, false)
}

fn conflict_within_a_process(env: &Env) {
    let (one, two) = two(env);
    set(&one, Kind::Write, WHOLE).unwrap();
    fails(set(&two, Kind::Write, WHOLE), Errno::AGAIN);
    fails(set(&two, Kind::Read, WHOLE), Errno::AGAIN);
    set(&one, Kind::Unlock, WHOLE).unwrap();
    set(&two, Kind::Write, WHOLE).unwrap();
}

fn read_locks_go_together(env: &Env) {
    let (one, two) = two(env);
    set(&one, Kind::Read, WHOLE).unwrap();
    set(&two, Kind::Read, WHOLE).unwrap();
    fails(set(&two, Kind::Write, WHOLE), Errno::AGAIN);
    set(&one, Kind::Unlock, WHOLE).unwrap();
    set(&two, Kind::Write, WHOLE).unwrap();
}

fn ranges_are_independent(env: &Env) {
    let (one, two) = two(env);
    set(&one, Kind::Write, range(0, 10)).unwrap();
    set(&two, Kind::Write, range(10, 0)).unwrap();
    fails(set(&one, Kind::Read, range(1 << 40, 1)), Errno::AGAIN);
    fails(set(&two, Kind::Read, range(9, 1)), Errno::AGAIN);
}

fn query_shows_the_range(env: &Env) {
    let (one, two) = two(env);
    set(&one, Kind::Write, range(100, 50)).unwrap();
    let query =
        |range| record_lock::query(two.as_fd(), Owner::Description, Kind::Read, range).unwrap();
    let held = query(WHOLE).unwrap();
    assert_eq!(
        (held.kind, held.range, held.pid),
        (Kind::Write, range(100, 50), -1)
    );
    assert_eq!(query(range(0, 100)), None);
}

fn shared_by_copies_of_the_descriptor(env: &Env) {
    let (one, two) = two(env);
    let copy = one.try_clone().unwrap();
    set(&one, Kind::Write, WHOLE).unwrap();
    set(&copy, Kind::Write, WHOLE).unwrap();
    set(&copy, Kind::Unlock, WHOLE).unwrap();
    set(&two, Kind::Write, WHOLE).unwrap();
}

fn closing_another_descriptor_keeps_it(env: &Env) {
    let (one, two) = two(env);
    set(&one, Kind::Write, WHOLE).unwrap();
    // A lock of the process would be gone after this.
    drop(env.open("file", OFlags::RDWR));
    fails(set(&two, Kind::Read, WHOLE), Errno::AGAIN);
}

fn gone_with_the_last_descriptor(env: &Env) {
    let (one, two) = two(env);
    let copy = one.try_clone().unwrap();
    set(&one, Kind::Write, WHOLE).unwrap();
    drop(one);
    fails(set(&two, Kind::Read, WHOLE), Errno::AGAIN);
    drop(copy);
    eventually(|| set(&two, Kind::Write, WHOLE).is_ok());
}

fn conflicts_with_locks_of_processes(env: &Env) {
    let (one, two) = two(env);
    set(&one, Kind::Write, WHOLE).unwrap();
    let own = record_lock::set(two.as_fd(), Owner::Process, Kind::Read, WHOLE, false);
    fails(own, Errno::AGAIN);
    let path = env.path("file");
    assert!(!free("process", "read", &path, WHOLE));
    assert!(!free("description", "read", &path, WHOLE));
}

fn waiter_gets_it_on_release(env: &Env) {
    let (one, _) = two(env);
    set(&one, Kind::Write, WHOLE).unwrap();
    let waiter = waiter("description", &env.path("file"), WHOLE);
    set(&one, Kind::Unlock, WHOLE).unwrap();
    assert_eq!(waiter.line(), "ok");
    fails(set(&one, Kind::Read, WHOLE), Errno::AGAIN);
    waiter.finish();
    eventually(|| set(&one, Kind::Write, WHOLE).is_ok());
}

fn seen_beneath(env: &Env) {
    let (above, _) = two(env);
    let below = open(&env.beneath("file"), OFlags::RDWR).unwrap();
    set(&above, Kind::Write, range(5, 5)).unwrap();
    fails(set(&below, Kind::Read, range(9, 1)), Errno::AGAIN);
    set(&below, Kind::Write, range(10, 1)).unwrap();
    fails(set(&above, Kind::Read, range(10, 1)), Errno::AGAIN);
}
