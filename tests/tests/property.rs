//! Random sequences of operations on a mount and on a native twin (see [`thrufs_tests::property`]),
//! with several sets of options and over each transport.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use thrufs_tests::mounted::Mounted;
use thrufs_tests::property;
use thrufs_tests::transport::over_each;

fn run_cases_over_each(options: &str) {
    over_each(|transport| run_cases(&transport.with(options)));
}

fn run_cases(options: &str) {
    let mut mounted = Mounted::start(options);
    property::run_cases(
        &mounted,
        &format!("options \"{options}\""),
        &thrufs_test_report::test(),
    );
    mounted.stop().unwrap();
}

#[test]
fn operations_are_the_same_by_default() {
    run_cases_over_each("");
}

#[test]
fn operations_are_the_same_with_cache_always() {
    let options = "cache=always,nopassthrough";
    run_cases_over_each(options);
}

#[test]
fn operations_are_the_same_with_cache_never() {
    let options = "cache=never,nopassthrough";
    run_cases_over_each(options);
}

#[test]
fn operations_are_the_same_with_opens_by_the_kernel() {
    run_cases_over_each("opens=local");
}

#[test]
fn operations_are_the_same_with_writeback() {
    run_cases_over_each("writeback");
}
