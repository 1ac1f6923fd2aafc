//! Locks of flock.

use rustix::fs::{FlockOperation, flock};

use super::lock::{eventually, free, holder, one, two, waiter};
use super::prelude::*;
use crate::fence::record_lock::WHOLE;

pub(super) const CASES: &[Case] = cases! {
    exclusive_keeps_all_out,
    shared_lets_shared_in,
    belongs_to_the_open_file,
    conversion,
    gone_with_the_last_descriptor,
    keeps_another_process_out,
    waiter_gets_it_on_release,
    gone_when_the_holder_dies,
    seen_beneath [SharedLocks],
};

const TRY_EXCLUSIVE: FlockOperation = FlockOperation::NonBlockingLockExclusive;
const TRY_SHARED: FlockOperation = FlockOperation::NonBlockingLockShared;

fn exclusive_keeps_all_out(env: &Env) {
    let (one, two) = two(env);
    flock(&one, TRY_EXCLUSIVE).unwrap();
    fails(flock(&two, TRY_EXCLUSIVE), Errno::AGAIN);
    fails(flock(&two, TRY_SHARED), Errno::AGAIN);
    flock(&one, FlockOperation::Unlock).unwrap();
    flock(&two, TRY_EXCLUSIVE).unwrap();
}

fn shared_lets_shared_in(env: &Env) {
    let (one, two) = two(env);
    flock(&one, TRY_SHARED).unwrap();
    flock(&two, TRY_SHARED).unwrap();
    let third = env.open("file", OFlags::RDONLY);
    fails(flock(&third, TRY_EXCLUSIVE), Errno::AGAIN);
    flock(&one, FlockOperation::Unlock).unwrap();
    fails(flock(&third, TRY_EXCLUSIVE), Errno::AGAIN);
    flock(&two, FlockOperation::Unlock).unwrap();
    flock(&third, TRY_EXCLUSIVE).unwrap();
}

fn belongs_to_the_open_file(env: &Env) {
    let (one, two) = two(env);
    let copy = one.try_clone().unwrap();
    flock(&one, TRY_EXCLUSIVE).unwrap();
    flock(&copy, TRY_EXCLUSIVE).unwrap();
    drop(one);
    fails(flock(&two, TRY_EXCLUSIVE), Errno::AGAIN);
    flock(&copy, FlockOperation::Unlock).unwrap();
    flock(&two, TRY_EXCLUSIVE).unwrap();
}

fn conversion(env: &Env) {
    let (one, two) = two(env);
    flock(&one, TRY_EXCLUSIVE).unwrap();
    flock(&one, TRY_SHARED).unwrap();
    flock(&two, TRY_SHARED).unwrap();
    drop(two);
    eventually(|| flock(&one, TRY_EXCLUSIVE).is_ok());
}

fn gone_with_the_last_descriptor(env: &Env) {
    let (one, two) = two(env);
    flock(&one, TRY_EXCLUSIVE).unwrap();
    drop(one);
    eventually(|| flock(&two, TRY_EXCLUSIVE).is_ok());
}

fn keeps_another_process_out(env: &Env) {
    let (path, file) = one(env);
    flock(&file, TRY_EXCLUSIVE).unwrap();
    assert!(!free("flock", "read", &path, WHOLE));
    flock(&file, TRY_SHARED).unwrap();
    assert!(free("flock", "read", &path, WHOLE));
    assert!(!free("flock", "write", &path, WHOLE));
}

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

fn seen_beneath(env: &Env) {
    let (above, _) = two(env);
    let below = open(&env.beneath("file"), OFlags::RDWR).unwrap();
    flock(&above, TRY_EXCLUSIVE).unwrap();
    fails(flock(&below, TRY_SHARED), Errno::AGAIN);
    flock(&above, FlockOperation::Unlock).unwrap();
    flock(&below, TRY_EXCLUSIVE).unwrap();
    fails(flock(&above, TRY_SHARED), Errno::AGAIN);
}
