//! The commands of `thrufs-client` against real servers.

use crate::ground::grounds;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn program(arguments: &[&str], socket: &Path, input: &str) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_thrufs-client"));
    program.arg("--socket").arg(socket).args(arguments);
    program.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = program.stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = program.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    program.wait_with_output().unwrap()
}

#[test]
fn every_row_is_measured_and_nothing_is_left() {
    let rows = [
        "getattr",
        "lookup",
        "open-release",
        "create-unlink",
        "readdirplus",
        "small-read",
        "read random 4096 4096 1048576",
        "write sequential 131072 131072 1048576",
        "read sequential 1048576 1048576 1048576",
    ];
    let input: String = rows.iter().map(|row| format!("10 {row}\n")).collect();
    let bench = ["bench", "--file-bytes", "1048576", "--entries", "100"];
    for ground in grounds() {
        let output = program(&bench, ground.socket(), &input);
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!((text.lines().count(), errors.as_str()), (rows.len(), ""));
        for line in text.lines() {
            let (operations, nanoseconds) = line.split_once(' ').unwrap();
            assert!(operations.parse::<u64>().unwrap() > 0, "{line}");
            assert!(nanoseconds.parse::<u64>().unwrap() >= 10_000_000, "{line}");
        }
        let wrong = program(&bench, ground.socket(), "10 getattr\n10 nothing\n");
        assert_eq!(wrong.status.code(), Some(1));
        let left = std::fs::read_dir(ground.shared()).unwrap().count();
        assert_eq!(left, 0, "nothing is left in the share");
    }
}

#[test]
fn the_program_says_in_one_line_what_failed() {
    let said = |output: &Output| String::from_utf8(output.stderr.clone()).unwrap();
    let nowhere = program(&["mount", "/nowhere"], Path::new("/nowhere"), "");
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(
        said(&nowhere).starts_with("thrufs-client: /nowhere: "),
        "{}",
        said(&nowhere)
    );
    assert_eq!(said(&nowhere).lines().count(), 1, "{}", said(&nowhere));
    let wrong = program(&["cp", "a", "b"], Path::new("/nowhere"), "");
    assert_eq!(wrong.status.code(), Some(2), "{}", said(&wrong));
}
