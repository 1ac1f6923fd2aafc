//! `thrufs run --report`, `--json` and `--audit`.

use crate::ground::prelude::*;
use crate::run_ground::{RunGround, USER, Who};
use std::os::unix::process::ExitStatusExt;

/// Runs a script in the sandbox that goes on after a failure.
fn shell(ground: &RunGround, options: &[&str], script: &str) -> Output {
    let mut command = ground.thrufs_run(options);
    run(command.args(["sh", "-c", script]).current_dir(&ground.tree))
}

/// The report, which is the last that is written.
fn report(output: &Output) -> String {
    let said = stderr(output);
    let at = said.rfind("thrufs: ").unwrap_or_else(|| panic!("{said}"));
    said[at..].to_owned()
}

#[test]
fn report_counts_files_and_names_program_path_and_rule_of_refusals() {
    let Some(ground) = RunGround::new(Who::User) else {
        return;
    };
    ground.write(&ground.tree.join("a"), "x\n");
    ground.make_directory(&ground.tree.join("kept"));
    let options = ["--report", "--profile", "workspace", "--read-only", "kept"];
    let script = "cat a a; echo x >new; echo y >>a; head .env; dd of=.git/config; mv kept other; \
                  exit 7";
    let output = shell(&ground, &options, script);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(
        report(&output),
        "thrufs: 1 file read, 2 written, 1 created; 3 accesses refused:\n  \
         .env         hidden by environment     head  1 lookup\n  \
         .git/config  read-only by git          dd    1 open\n  \
         kept         read-only by --read-only  mv    1 rename\n"
    );
    let quiet = shell(&ground, &["--report", "--hide", "secret"], "true");
    fails(&quiet, 0, "");
    let none = "thrufs: 0 files read, 0 written, 0 created; no access refused\n";
    assert_eq!(stderr(&quiet), none);
    // Of a command that was killed.
    let killed = shell(&ground, &["--report", "--json"], "cat .env; kill -TERM $$");
    assert_eq!(killed.status.signal(), Some(15), "{killed:?}");
    let said = stderr(&killed);
    let json: Value = serde_json::from_str(said.lines().last().unwrap()).expect(&said);
    assert_eq!(
        (&json["files"]["read"], &json["refused"]),
        (&0.into(), &1.into())
    );
    let program = json["refusals"][0]["executable"].as_str().unwrap();
    assert!(
        program.starts_with('/') && program.ends_with("/cat"),
        "{json}"
    );
}

#[test]
fn audit_log_has_opens_and_refusals_and_is_absent_or_empty_for_the_command() {
    let Some(ground) = RunGround::new(Who::User) else {
        return;
    };
    // The command's /tmp is another; what it sees of /var is the host's.
    for place in ["/tmp", "/var"] {
        let place = TempDir::with_prefix_in("thrufs-cli-", place).unwrap();
        chown(place.path(), Some(USER), Some(USER)).unwrap();
        let log = place.path().join("log");
        let audit = log.to_str().unwrap();
        let script = format!(
            "mv file b; mv b file; cat file; cat .env 2>/dev/null; cat {audit}; \
             (echo x >>{audit}; mv {audit} {audit}2; rm -f {audit}) 2>/dev/null; true"
        );
        for run in 1..=2 {
            let output = shell(&ground, &["--audit", audit], &script);
            fails(&output, 0, "");
            assert_eq!(stdout(&output), "content", "{output:?}");
            let text = fs::read_to_string(&log).unwrap();
            let of = |outcome: &str, path: &str| {
                let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
                let matches = |it: &Value| it["outcome"] == outcome && it["path"] == path;
                lines.filter(matches).collect::<Vec<Value>>()
            };
            assert_eq!(of("opened", "file").len(), run, "{text}");
            assert_eq!(of("renamed", "file")[run - 1]["new_path"], "b", "{text}");
            let refused = of("refused", ".env");
            assert_eq!(refused.len(), run, "{text}");
            assert_eq!(refused[0]["event"], "lookup");
            assert_eq!(refused[0]["rule_name"], "environment");
        }
        let mode = fs::metadata(&log).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn nothing_is_opened_without_a_record_and_the_loss_is_reported() {
    let Some(ground) = RunGround::new(Who::User) else {
        return;
    };
    let options = ["--report", "--audit", "/dev/full"];
    let output = shell(&ground, &options, "cat file .env; true");
    assert!(output.stdout.is_empty(), "{output:?}");
    let said = report(&output);
    let counts = ": 0 files read, 0 written, 0 created; 1 access refused:\n";
    assert!(said.contains(counts), "{said}");
    let lost = "  2 records could not be written to the audit log\n";
    assert!(said.ends_with(lost), "{said}");
}
