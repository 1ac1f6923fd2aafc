//! `thrufs-bench`, which `thrufs bench` starts. Everything is the library's (`thrufs_bench`).
#![forbid(unsafe_code)]

use std::process::ExitCode;
use thrufs_bench::BenchExtension;

fn main() -> ExitCode {
    thrufs_bench::main(&BenchExtension::NONE)
}
