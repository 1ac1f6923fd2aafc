//! `thrufs-lab`, which `cargo xtask bench` starts: `thrufs-bench` with the suites by which this project compares
//! itself with others, and what they need. It comes with the sources only.
//!
//! | room | what it does |
//! |---|---|
//! | `suites`, `targets`, `peers` | which comparisons there are, and of which targets |
//! | `floor` | a server that answers from constants |
//! | `rows`, `fio`, `build`, `git` | what is measured, and by which programs |
//! | `document` | the tables of docs/performance.md and bench/results/TABLES.md |
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod build;
mod command;
mod document;
mod fio;
mod floor;
mod git;
#[cfg(test)]
mod mounted;
mod peers;
mod rows;
#[cfg(test)]
#[path = "../../crates/bench/src/report/sample.rs"]
mod sample;
mod suites;
mod targets;

use std::process::ExitCode;
use thrufs_bench::{BenchExtension, Outcome};

// The sample's name for them.
#[cfg(test)]
use thrufs_bench::results;

static LAB: BenchExtension = BenchExtension {
    suites: suites::ALL,
    rows: rows::all,
    sets: rows::sets,
    fetch: peers::fetch,
    role,
};

fn main() -> ExitCode {
    thrufs_bench::main(&LAB)
}

/// Roles that processes of a run have besides those of `thrufs-bench`, and what `cargo xtask bench` asks for.
fn role(role: &str, arguments: &[String]) -> Option<Outcome<()>> {
    match role {
        "floor" => Some(floor::serve_here(arguments)),
        "document" => Some(document::document(arguments)),
        _ => None,
    }
}
