//! Policies on real mounts: what each action does to each kind of access, what hidden names give
//! away, what is audited, what readers of redacted files see, and what a reload changes under load.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod actions;
mod audit;
mod beneath;
mod busy;
mod callers;
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
