//! The commands of `thrufs-client` against real servers.

use crate::ground::{Ground, grounds};
use std::path::Path;
use std::process::{self, Output};
use std::time::Duration;
use thrufs_client::tool::{self, Bench, Command, Connection, Target};

fn run(ground: &Ground, command: Command) -> String {
    let mut out = Vec::new();
    tool::run(&Connection::to(ground.socket()), &command, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn servers_are_measured_side_by_side() {
    let local = tempfile::tempdir().unwrap();
    let json = local.path().join("raw.json");
    for (ground, other) in grounds().zip(grounds()) {
        let bench = Bench {
            against: vec![Target {
                name: "other".to_owned(),
                socket: other.socket().to_owned(),
            }],
            rounds: 2,
            sample: Duration::from_millis(10),
            file_bytes: 4 << 20,
            entries: 500,
            json: Some(json.clone()),
            ..Bench::default()
        };
        let text = run(&ground, Command::Bench(bench));
        assert!(text.contains("thrufs / other"), "{text}");
        for row in tool::row_names() {
            assert!(text.contains(&format!("| {row} ")), "{row}: {text}");
        }
        let raw = std::fs::read_to_string(&json).unwrap();
        let raw: serde_json::Value = serde_json::from_str(&raw).unwrap();
        let series = raw["series"].as_array().unwrap();
        assert_eq!(series.len(), 2 * tool::row_names().len());
        for one in series {
            let samples = one["operations_and_nanoseconds"].as_array().unwrap();
            assert_eq!(samples.len(), 2, "{one}");
            assert!(
                samples.iter().all(|sample| sample[0].as_u64() > Some(0)),
                "{one}"
            );
        }
        for ground in [&ground, &other] {
            let left = std::fs::read_dir(ground.shared()).unwrap().count();
            assert_eq!(left, 0, "nothing is left in the share");
        }
    }
}

fn program(arguments: &[&str], socket: &Path) -> Output {
    let mut program = process::Command::new(env!("CARGO_BIN_EXE_thrufs-client"));
    program.arg("--socket").arg(socket).args(arguments);
    program.output().unwrap()
}

#[test]
fn the_program_says_in_one_line_what_failed() {
    let said = |output: &Output| String::from_utf8(output.stderr.clone()).unwrap();
    let nowhere = program(&["mount", "/nowhere"], Path::new("/nowhere"));
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(
        said(&nowhere).starts_with("thrufs-client: /nowhere: "),
        "{}",
        said(&nowhere)
    );
    assert_eq!(said(&nowhere).lines().count(), 1, "{}", said(&nowhere));
    let wrong = program(&["cp", "a", "b"], Path::new("/nowhere"));
    assert_eq!(wrong.status.code(), Some(2), "{}", said(&wrong));
}
