//! Files that go straight through: that they do, that nobody can tell but by the time it takes, and
//! that nothing which the kernel no longer sees to is lost. And the same where they cannot.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod budget;
mod fallback;
mod ground;
mod kinds;
mod limits;
mod names;
mod races;
mod sizes;
mod straight;
