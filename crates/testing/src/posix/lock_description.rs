//! Locks of fcntl that belong to an open file description (OFD).

use std::os::fd::AsFd;

use super::lock::{eventually, range, two, waiter};
use super::prelude::*;
use crate::fence::record_lock::{self, Kind, Owner, Range, WHOLE};

pub(super) const CASES: &[Case] = cases! {
    conflict_within_a_process:
        "file file; open @{a,b} file rw; lock @a description write;
         EAGAIN lock @b description {write,read}; lock @a description unlock;
         lock @b description write",
    read_locks_go_together:
        "file file; open @{a,b} file rw; lock @{a,b} description read;
         EAGAIN lock @b description write; lock @a description unlock; lock @b description write",
    ranges_are_independent:
        "file file; open @{a,b} file rw; lock @a description write 0 10;
         lock @b description write 10 0; EAGAIN lock @a description read 1099511627776 1;
         EAGAIN lock @b description read 9 1",
    query_shows_the_range,
    shared_by_copies_of_the_descriptor:
        "file file; open @{a,b} file rw; dup @c @a; lock @{a,c} description write;
         lock @c description unlock; lock @b description write",
    closing_another_descriptor_keeps_it:
        "file file; open @{a,b} file rw; lock @a description write; open file rw;
         EAGAIN lock @b description read",
    gone_with_the_last_descriptor:
        "file file; open @{a,b} file rw; dup @c @a; lock @a description write; close @a;
         EAGAIN lock @b description read; close @c; eventually lock @b description write",
    conflicts_with_locks_of_processes:
        "file file; open @{a,b} file rw; lock @a description write; EAGAIN lock @b process read;
         busy {process,description} read file",
    waiter_gets_it_on_release,
    seen_beneath [SharedRanges]:
        "file file; open @f file rw; open @b ^file rw; lock @f description write 5 5;
         EAGAIN lock @b description read 9 1; lock @b description write 10 1;
         EAGAIN lock @f description read 10 1",
};

fn set(file: &File, kind: Kind, range: Range) -> std::io::Result<()> {
    record_lock::set(file.as_fd(), Owner::Description, kind, range, false)
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
