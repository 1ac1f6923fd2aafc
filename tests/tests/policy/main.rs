//! Policies on real mounts: data paths, hidden names, audit records, redacted files, and reloads under load. What
//! rules refuse is asked for by requests, in `served`.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod audit;
mod beneath;
mod busy;
mod callers;
mod data_paths;
mod forged;
mod hide;
mod holds;
mod races;
mod redact;
mod reload;
#[allow(dead_code)]
mod samples;
mod served;
