//! What the thread of a queue does: where it runs, what it asks of the kernel, and that it allocates
//! nothing. One test at a time, and nothing else in this process.
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
