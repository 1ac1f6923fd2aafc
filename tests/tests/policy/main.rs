//! Policies on real mounts: each action against each kind of access, hidden names, audit records, redacted
//! files, and reloads under load.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod actions;
mod audit;
mod beneath;
mod busy;
mod callers;
#[allow(dead_code)]
mod cases;
mod cost;
mod forged;
mod hide;
mod holds;
mod moved;
mod moves;
mod races;
mod redact;
mod reload;
mod samples;
mod served;
