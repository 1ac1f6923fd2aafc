//! The commands of `thrufs-client` against real servers.

use crate::ground::{Ground, grounds};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{self, Output};
use std::time::Duration;
use thrufs_client::tool::{
    self, Bench, Cat, Command, Conform, Connection, Ls, Outcome, Target, ToolError,
};

fn try_run(ground: &Ground, command: Command) -> Result<(Outcome, String), ToolError> {
    let mut out = Vec::new();
    let outcome = tool::run(&Connection::to(ground.socket()), &command, &mut out)?;
    Ok((outcome, String::from_utf8(out).unwrap()))
}

fn run(ground: &Ground, command: Command) -> String {
    let (outcome, text) = try_run(ground, command).unwrap();
    assert!(outcome.is_success(), "{text}");
    text
}

#[test]
fn a_directory_is_listed() {
    for ground in grounds() {
        std::fs::write(ground.shared().join("b"), b"12345").unwrap();
        std::fs::create_dir(ground.shared().join("a")).unwrap();
        std::fs::write(ground.shared().join(".hidden"), b"").unwrap();
        symlink("b", ground.shared().join("link")).unwrap();
        let mode = std::fs::Permissions::from_mode(0o640);
        std::fs::set_permissions(ground.shared().join("b"), mode).unwrap();
        let text = run(
            &ground,
            Command::Ls(Ls {
                long: true,
                ..Ls::default()
            }),
        );
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("drwx") && lines[0].ends_with(" a"));
        assert!(lines[1].starts_with("-rw-r-----") && lines[1].contains(" 5 "));
        assert!(lines[2].ends_with(" link -> b"), "{text}");
    }
    for ground in grounds() {
        std::fs::write(ground.shared().join(".hidden"), b"").unwrap();
        std::fs::write(ground.shared().join("shown"), b"").unwrap();
        let all = Ls {
            all: true,
            ..Ls::default()
        };
        assert_eq!(run(&ground, Command::Ls(all)), ".\n..\n.hidden\nshown\n");
    }
}

#[test]
fn files_are_shown() {
    for ground in grounds() {
        std::fs::write(ground.shared().join("a"), b"one ").unwrap();
        std::fs::write(ground.shared().join("b"), b"two").unwrap();
        let paths = vec!["a".to_owned(), "/b".to_owned()];
        assert_eq!(run(&ground, Command::Cat(Cat { paths })), "one two");
    }
    // Longer than a request's data.
    let long: String = (0..500_000).map(|number| format!("{number} ")).collect();
    for ground in grounds() {
        std::fs::write(ground.shared().join("long"), &long).unwrap();
        let paths = vec!["long".to_owned()];
        assert!(run(&ground, Command::Cat(Cat { paths })) == long);
    }
    for ground in grounds() {
        let paths = vec!["missing/file".to_owned()];
        let error = try_run(&ground, Command::Cat(Cat { paths })).unwrap_err();
        assert!(
            error.to_string().starts_with(":missing/file: No such file"),
            "{error}"
        );
    }
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

/// Violations of virtiofsd 1.14.0: it does not answer DESTROY, and exits on a malformed request.
const FAILED_BY_VIRTIOFSD: &[&str] = &[
    "session-end-reply",
    "forget-nonsense",
    "reply-room-too-small",
    "reply-malformed-request",
];

fn failures(ground: &Ground, only: Vec<String>) -> Vec<String> {
    let conform = Command::Conform(Conform { only, list: false });
    let (outcome, text) = try_run(ground, conform).unwrap();
    println!("{text}");
    let failed: Vec<_> = text
        .lines()
        .filter_map(|line| Some(line.strip_prefix("FAIL  ")?.split(':').next()?.to_owned()))
        .collect();
    assert_eq!(outcome.is_success(), failed.is_empty());
    let skipped = text.contains("skip  chain-loop:");
    assert_eq!(skipped, !ground.server.serves_again, "{text}");
    let left = std::fs::read_dir(ground.shared()).unwrap().count();
    assert_eq!(left, 0, "nothing is left in the share");
    failed
}

#[test]
fn a_good_server_conforms() {
    for ground in grounds() {
        let mut checks = tool::check_names();
        if ground.server.name == "virtiofsd" {
            checks.retain(|name| !FAILED_BY_VIRTIOFSD.contains(&name.as_str()));
        }
        assert_eq!(failures(&ground, checks), [""; 0]);
    }
}

#[test]
fn what_a_server_does_wrong_is_found() {
    for &name in FAILED_BY_VIRTIOFSD {
        for ground in grounds().filter(|ground| ground.server.name == "virtiofsd") {
            let only = vec![name.to_owned(), "chain-loop".to_owned()];
            assert_eq!(failures(&ground, only), [name]);
        }
    }
}

#[test]
fn checks_are_chosen_by_name() {
    let mut out = Vec::new();
    let list = Command::Conform(Conform {
        list: true,
        only: vec![],
    });
    tool::run(&Connection::to("/nowhere"), &list, &mut out).unwrap();
    let names = String::from_utf8(out).unwrap();
    assert_eq!(names.lines().count(), tool::check_names().len());
    assert!(names.lines().any(|name| name == "chain-loop"));
    for ground in grounds() {
        let only = vec!["init-".to_owned()];
        let text = run(&ground, Command::Conform(Conform { only, list: false }));
        assert!(text.lines().count() < 8, "{text}");
    }
    let unknown = Command::Conform(Conform {
        only: vec!["nothing".to_owned()],
        list: false,
    });
    let error = tool::run(&Connection::to("/nowhere"), &unknown, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, ToolError::Usage(_)));
}

fn program(arguments: &[&str], socket: &Path) -> Output {
    let mut program = process::Command::new(env!("CARGO_BIN_EXE_thrufs-client"));
    program.arg("--socket").arg(socket).args(arguments);
    program.output().unwrap()
}

#[test]
fn the_program_says_in_one_line_what_failed() {
    let said = |output: &Output| String::from_utf8(output.stderr.clone()).unwrap();
    for ground in grounds() {
        std::fs::write(ground.shared().join("file"), b"content").unwrap();
        let printed = program(&["cat", "file"], ground.socket());
        assert!(printed.status.success(), "{}", said(&printed));
        assert_eq!(printed.stdout, b"content");
    }
    let nowhere = program(&["ls"], Path::new("/nowhere"));
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
