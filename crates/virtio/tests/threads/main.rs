//! The CPU, the system calls and the allocations of a queue's thread. The tests run one at a time: they
//! observe the whole process.
#![allow(clippy::unwrap_used)]

mod allocations;
#[path = "../ground/mod.rs"]
mod ground;
mod pairing;
mod still;
mod system_calls;

static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    let lock = ONE_AT_A_TIME.lock();
    lock.unwrap_or_else(std::sync::PoisonError::into_inner)
}
