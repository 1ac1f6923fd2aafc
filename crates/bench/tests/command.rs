//! What `thrufs-bench` says without measuring anything.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thrufs-bench"));
    command.args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn help_calls_it_what_people_type_and_has_every_suite() {
    let output = bench(&["--help"]);
    assert!(output.status.success());
    let help = text(&output.stdout);
    assert!(
        help.contains("Usage: thrufs bench [OPTIONS] [DIR]"),
        "{help}"
    );
    for (suite, _) in thrufs_bench::suites() {
        assert!(help.contains(&format!("\n  {suite} ")), "{suite}: {help}");
    }
    let output = bench(&["--version"]);
    let version = concat!("thrufs-bench ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(text(&output.stdout), version);
}

#[test]
fn a_row_is_listed_with_all_there_is_to_say_of_it() {
    let output = bench(&["--list", "--rows", "mkdir"]);
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("mkdir"));
    assert!(!text(&output.stdout).contains("Suites:"));
}

#[test]
fn contradictory_options_are_refused_in_one_line() {
    for (arguments, message) in [
        (&["--list", "--rows", "none-such"][..], "no row none-such"),
        (&["--rows", "none-such"], "no row none-such"),
        (&["--repeat", "/none/such"], "/none/such"),
        (&["--bench", "none-such"], "no part of a benchmark"),
    ] {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.starts_with("thrufs bench: "), "{said}");
        assert!(said.contains(message), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let output = bench(&["--rounds", "0"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}
