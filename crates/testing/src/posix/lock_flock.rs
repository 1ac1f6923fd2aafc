//! Locks of flock.

use rustix::fs::{FlockOperation, flock};

use super::lock::{eventually, holder, one, waiter};
use super::prelude::*;
use crate::fence::record_lock::WHOLE;

pub(super) const CASES: &[Case] = cases! {
    exclusive_keeps_all_out:
        "file file; open @{a,b} file rw; flock @a write; EAGAIN flock @b {write,read};
         flock @a unlock; flock @b write",
    shared_lets_shared_in:
        "file file; open @{a,b} file rw; flock @{a,b} read; open @c file r;
         EAGAIN flock @c write; flock @a unlock; EAGAIN flock @c write; flock @b unlock;
         flock @c write",
    belongs_to_the_open_file:
        "file file; open @{a,b} file rw; dup @c @a; flock @{a,c} write; close @a;
         EAGAIN flock @b write; flock @c unlock; flock @b write",
    conversion:
        "file file; open @{a,b} file rw; flock @a write; flock @a read; flock @b read; close @b;
         eventually flock @a write",
    gone_with_the_last_descriptor:
        "file file; open @{a,b} file rw; flock @a write; close @a; eventually flock @b write",
    keeps_another_process_out:
        "file file; open @f file rw; flock @f write; busy flock read file; flock @f read;
         free flock read file; busy flock write file",
    waiter_gets_it_on_release,
    gone_when_the_holder_dies,
    seen_beneath [SharedLocks]:
        "file file; open @f file rw; open @b ^file rw; flock @f write; EAGAIN flock @b read;
         flock @f unlock; flock @b write; EAGAIN flock @f read",
};

const TRY_EXCLUSIVE: FlockOperation = FlockOperation::NonBlockingLockExclusive;
const TRY_SHARED: FlockOperation = FlockOperation::NonBlockingLockShared;

fn waiter_gets_it_on_release(env: &Env) {
    let (path, file) = one(env);
    flock(&file, TRY_EXCLUSIVE).unwrap();
    let waiter = waiter("flock", &path, WHOLE);
    flock(&file, FlockOperation::Unlock).unwrap();
    assert_eq!(waiter.line(), "ok");
    fails(flock(&file, TRY_SHARED), Errno::AGAIN);
    waiter.finish();
    eventually(|| flock(&file, TRY_EXCLUSIVE).is_ok());
}

fn gone_when_the_holder_dies(env: &Env) {
    let (path, file) = one(env);
    let holder = holder("flock", &path, WHOLE);
    fails(flock(&file, TRY_SHARED), Errno::AGAIN);
    holder.kill();
    flock(&file, FlockOperation::LockExclusive).unwrap();
}
