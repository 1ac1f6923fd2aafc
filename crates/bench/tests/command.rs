//! What `thrufs-bench` says without measuring anything.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thrufs-bench"));
    command.args(arguments).output().unwrap()
}

#[test]
fn help_and_lists_go_to_standard_output() {
    for (arguments, part) in [
        (&["--help"][..], "Usage: thrufs bench [OPTIONS] [DIR]"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
        (&["--list"], "* stat-cold"),
        (&["--list", "--rows", "mkdir"], "mkdir(2) of new names"),
    ] {
        let output = bench(arguments);
        assert!(output.status.success(), "{arguments:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn contradictory_options_are_refused_in_one_line() {
    for (arguments, message) in [
        (&["--list", "--rows", "none-such"][..], "no row none-such"),
        (&["--rows", "none-such"], "no row none-such"),
        (&["--compare", "/none/such"], "/none/such"),
        (&["--modes", "none"], "no target to compare with"),
        (&["--bench", "none-such"], "no part of a benchmark"),
    ] {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.starts_with("thrufs bench: ") && said.contains(message),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert_eq!(bench(&["--rounds", "0"]).status.code(), Some(2));
}
