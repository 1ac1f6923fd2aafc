//! `thrufs run --report`, `--json` and `--audit`.

use crate::ground::{self, Ground, fails, run, skipped, stderr, succeeded};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const USER: u32 = 65_534;

/// A tree of an ordinary user, and a copy of the command beside it.
struct Tree {
    ground: Ground,
    program: PathBuf,
}

impl Tree {
    /// `None`, and a report, where a run is not possible.
    fn new(test: &str) -> Option<Tree> {
        let ground = Ground::new()?;
        if !ground::users_can_mount(ground.path(), test) {
            return None;
        }
        let mut unshare = Command::new("unshare");
        let output = run(unshare.args(["--user", "true"]).uid(USER).gid(USER));
        if !output.status.success() {
            skipped(&format!("user namespaces: {}", stderr(&output)));
            return None;
        }
        for name in [".git", "kept"] {
            fs::create_dir(ground.src.join(name)).unwrap();
        }
        for name in ["a", ".env", ".git/config", "deploy.key", "a\u{1b}[31m.key"] {
            fs::write(ground.src.join(name), "x\n").unwrap();
        }
        let mut owner = Command::new("chown");
        succeeded(&run(owner.args(["-R", "65534:65534"]).arg(&ground.src)));
        let program = ground::copied_program(ground.path());
        Some(Tree { ground, program })
    }

    fn run(&self, options: &[&str], script: &str) -> Output {
        let mut command = Command::new(&self.program);
        command.uid(USER).gid(USER).env("HOME", "/");
        command.current_dir(&self.ground.src);
        command.arg("run").args(options);
        run(command.args([".", "--", "sh", "-c", script]))
    }

    /// A directory of the user.
    fn directory(&self, within: &Path) -> TempDir {
        let directory = TempDir::with_prefix_in("thrufs-cli-", within).unwrap();
        chown(directory.path(), Some(USER), Some(USER)).unwrap();
        directory
    }
}

/// The report, which is the last that is written.
fn report(output: &Output) -> String {
    let said = stderr(output);
    let at = said.rfind("thrufs: ").unwrap_or_else(|| panic!("{said}"));
    said[at..].to_owned()
}

fn json_report(output: &Output) -> Value {
    let said = stderr(output);
    serde_json::from_str(said.lines().last().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn report_counts_files_and_names_program_path_and_rule_of_refusals() {
    let Some(tree) =
        Tree::new("run_report::report_counts_files_and_names_program_path_and_rule_of_refusals")
    else {
        return;
    };
    let options = ["--report", "--profile", "workspace", "--read-only", "kept"];
    let script = "cat a a; echo x >new; echo y >>a; head .env; dd of=.git/config; mv kept other; \
                  exit 7";
    let output = tree.run(&options, script);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(
        report(&output),
        "thrufs: 1 file read, 2 written, 1 created; 3 accesses refused:\n  \
         .env         hidden by environment     head  1 lookup\n  \
         .git/config  read-only by git          dd    1 open\n  \
         kept         read-only by --read-only  mv    1 rename\n"
    );
    let quiet = tree.run(&["--report", "--hide", "secret"], "true");
    fails(&quiet, 0, "");
    assert_eq!(
        stderr(&quiet),
        "thrufs: 0 files read, 0 written, 0 created; no access refused\n"
    );
}

#[test]
fn report_follows_a_killed_command_and_escapes_names() {
    let Some(tree) = Tree::new("run_report::report_follows_a_killed_command_and_escapes_names")
    else {
        return;
    };
    let script = "cat deploy.key \"$(printf 'a\\033[31m.key')\" 2>/dev/null; kill -TERM $$";
    let options = ["--report", "--hide", "**/*.key"];
    let output = tree.run(&options, script);
    assert_eq!(output.status.signal(), Some(15), "{output:?}");
    let said = stderr(&output);
    assert!(!said.contains('\u{1b}'), "{said:?}");
    assert!(
        said.contains("  a\\u{1b}[31m.key  hidden by --hide  cat  1 lookup\n"),
        "{said}"
    );
    let json = json_report(&tree.run(&[&options[..], &["--json"]].concat(), script));
    assert_eq!(json["files"]["read"], 0, "{json}");
    assert_eq!(json["refused"], 2, "{json}");
    let first = &json["refusals"][0];
    for (field, expected) in [
        ("path", "a\u{1b}[31m.key"),
        ("event", "lookup"),
        ("rule_name", "option-hide"),
        ("action", "hide"),
    ] {
        assert_eq!(first[field], expected, "{json}");
    }
    assert_eq!((&first["errno"], &first["count"]), (&2.into(), &1.into()));
    let program = first["executable"].as_str().unwrap();
    assert!(
        program.starts_with('/') && program.ends_with("/cat"),
        "{json}"
    );
}

#[test]
fn audit_log_has_opens_and_refusals_and_is_absent_or_empty_for_the_command() {
    let Some(tree) = Tree::new(
        "run_report::audit_log_has_opens_and_refusals_and_is_absent_or_empty_for_the_command",
    ) else {
        return;
    };
    // The command's /tmp is another; what it sees of /var is the host's.
    for place in ["/tmp", "/var"] {
        let place = tree.directory(Path::new(place));
        let log = place.path().join("log");
        let audit = log.to_str().unwrap();
        let script = format!(
            "mv a b; mv b a; cat a; cat .env 2>/dev/null; cat {audit}; (echo x >>{audit}; mv {audit} {audit}2; \
             rm -f {audit}) 2>/dev/null; true"
        );
        for run in 1..=2 {
            let output = tree.run(&["--audit", audit], &script);
            fails(&output, 0, "");
            assert_eq!(String::from_utf8_lossy(&output.stdout), "x\n", "{output:?}");
            let text = fs::read_to_string(&log).unwrap();
            let of = |outcome: &str, path: &str| {
                let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
                let matches = |it: &Value| it["outcome"] == outcome && it["path"] == path;
                lines.filter(matches).collect::<Vec<Value>>()
            };
            assert_eq!(of("opened", "a").len(), run, "{text}");
            assert_eq!(of("renamed", "a")[run - 1]["new_path"], "b", "{text}");
            let refused = of("refused", ".env");
            assert_eq!(refused.len(), run, "{text}");
            assert_eq!(
                (&refused[0]["event"], &refused[0]["rule_name"]),
                (&"lookup".into(), &"environment".into())
            );
        }
        let mode = fs::metadata(&log).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn audit_log_in_the_tree_is_refused_and_a_full_one_is_reported() {
    let Some(tree) =
        Tree::new("run_report::audit_log_in_the_tree_is_refused_and_a_full_one_is_reported")
    else {
        return;
    };
    let place = tree.directory(Path::new("/tmp"));
    let link = |name: &str, to: &Path| {
        let link = place.path().join(name);
        symlink(to, &link).unwrap();
        link.to_str().unwrap().to_owned()
    };
    let existing = link("existing", &tree.ground.src.join("a"));
    let absent = link("absent", &tree.ground.src.join("log"));
    for log in ["log", &existing, &absent] {
        let output = tree.run(&["--audit", log], "echo ran");
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{output:?}"
        );
        let said = stderr(&output);
        assert!(
            said.contains("is in the tree, where the command could change it"),
            "{said}"
        );
    }
    assert_eq!(fs::read(tree.ground.src.join("a")).unwrap(), b"x\n");
    let output = tree.run(&["--report", "--audit", "/dev/full"], "cat a .env; true");
    assert!(output.stdout.is_empty(), "{output:?}");
    let said = report(&output);
    assert!(
        said.contains(": 0 files read, 0 written, 0 created; 1 access refused:\n"),
        "{said}"
    );
    assert!(
        said.ends_with("  2 records could not be written to the audit log\n"),
        "{said}"
    );
}
