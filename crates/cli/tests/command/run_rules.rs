//! The command line of `thrufs run`, and the policy that it composes.

use crate::ground::{THRUFS, fails, run, stdout, succeeded, thrufs};
use std::fs;
use std::process::{Command, Output};
use tempfile::TempDir;

const WORKSPACE: &str = include_str!("../../../../dist/policies/workspace.toml");

fn thrufs_run(arguments: &str) -> Output {
    let mut command = Command::new(THRUFS);
    run(command.arg("run").args(arguments.split_whitespace()))
}

fn shown(arguments: &str) -> String {
    let mut command = Command::new(THRUFS);
    // In no repository.
    command.args(["run", "--show"]).current_dir("/usr");
    let output = run(command.args(arguments.split_whitespace()));
    fails(&output, 0, "");
    stdout(&output)
}

#[test]
fn show_prints_the_profile_as_it_is_and_rules_in_their_order() {
    assert_eq!(shown(""), WORKSPACE);
    assert_eq!(shown("--profile workspace /"), WORKSPACE);
    assert_eq!(shown("--profile none"), "");
    let text = shown(
        "--profile workspace --hide d/one --deny x --hide two --read-only y --redact z --allow w \
         --audit /nowhere/log",
    );
    assert!(
        text.starts_with("audit-log = \"/nowhere/log\"\naudit-refused = true\n\n[[rule]]\n"),
        "{text}"
    );
    let (options, profile) = text.split_at(text.len() - WORKSPACE.len());
    assert_eq!(profile, WORKSPACE);
    let named = options
        .lines()
        .filter_map(|line| line.strip_prefix("name = "));
    let expected = [
        "audit",
        "allow",
        "parents",
        "read-only",
        "deny",
        "hide",
        "redact",
    ];
    assert_eq!(
        named.collect::<Vec<_>>(),
        expected.map(|name| format!("\"option-{name}\""))
    );
    let hidden = "    \"d/one\",\n    \"d/one/**\",\n    \"two\",\n    \"two/**\",\n";
    assert!(options.contains(hidden), "{options}");
}

#[test]
fn shown_policy_is_valid_and_decides_for_files() {
    let place = TempDir::new().unwrap();
    let policy = place.path().join("policy.toml");
    let tree = place.path().join("tree");
    fs::create_dir_all(tree.join(".git/hooks")).unwrap();
    for name in [".env", ".env.test", "notes", ".git/hooks/pre-push", "plain"] {
        fs::write(tree.join(name), "x").unwrap();
    }
    let mut show = Command::new(THRUFS);
    show.args([
        "run",
        "--show",
        "--profile",
        "workspace",
        "--allow",
        ".env.test",
        "--hide",
    ]);
    let output = run(show.arg(tree.join("notes")).arg(&tree));
    succeeded(&output);
    fs::write(&policy, &output.stdout).unwrap();
    let mut check = Command::new(THRUFS);
    check
        .args(["policy", "check"])
        .arg(&policy)
        .current_dir(&tree);
    let output = run(check.args([".env", ".env.test", "notes", ".git/hooks/pre-push", "plain"]));
    fails(&output, 0, "");
    let said = stdout(&output);
    let said: Vec<&str> = said.lines().collect();
    for (line, expected) in said.iter().zip([
        ".env: hidden by rule 3 `environment` ",
        ".env.test: passthrough by rule 1 `option-allow` ",
        "notes: hidden by rule 2 `option-hide` ",
        ".git/hooks/pre-push: read-only (EROFS) by rule ",
        "plain: passthrough by default",
    ]) {
        assert!(line.starts_with(expected), "{expected}: {line}");
    }
    assert_eq!(said.len(), 5);
}

#[test]
fn errors_of_run_exit_with_125() {
    // Arguments and expected messages.
    let cases = "\
--hide= --show: bad value `` for --hide: it is empty
--deny /etc/passwd --show .: bad value `/etc/passwd` for --deny: it is outside of .
--allow {a/b,c} --show: bad value `{a/b,c}` for --allow: `{…}` contains a `/`
--profile work --show: [possible values: workspace, none]
--policy /nonexistent/thrufs --show: cannot read the policy /nonexistent/thrufs
--hide a --audit ./log --show .: is in the tree
-o cache=sometimes -- true: it must be never, metadata, auto or always
-o frob -- true: unknown option `frob`
--also /a -- true: cannot show /a
--only --also-write /a -- true: cannot show /a
--show -- true: cannot be used with
true: COMMAND
a b -- true: unexpected argument 'b'
--frob -- true: --frob
";
    for case in cases.lines() {
        let (arguments, message) = case.split_once(": ").unwrap();
        let output = thrufs_run(arguments);
        fails(&output, 125, message);
        assert!(output.stdout.is_empty(), "{arguments}");
    }
    let place = TempDir::new().unwrap();
    let policy = place.path().join("policy.toml");
    let policy = policy.to_str().unwrap();
    fs::write(policy, "[[rule]]\npath = 'a'\n acton = 'hide'\n").unwrap();
    let said = fails(&thrufs_run(&format!("--policy {policy} --show")), 125, "");
    assert!(
        said.starts_with(&format!("thrufs: {policy}:3:2: unknown key")),
        "{said}"
    );
}

#[test]
fn help_completions_and_manual_have_every_option_of_run() {
    let output = thrufs_run("--help");
    fails(&output, 0, "");
    let help = stdout(&output);
    let directory = TempDir::new().unwrap();
    succeeded(&thrufs!("man", directory.path()));
    let page = fs::read_to_string(directory.path().join("thrufs-run.1")).unwrap();
    let page = page.replace("\\-", "-");
    let scripts = ["bash", "zsh", "fish"].map(|shell| stdout(&thrufs!("completions", shell)));
    let options: Vec<&str> = help
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("--"))
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert_eq!(options.len(), 15, "{options:?}");
    for option in options {
        assert!(
            page.contains(&format!("\n.B --{option}")),
            "{option}: {page}"
        );
        let shown = format!("__fish_thrufs_using_subcommand run\" -l {option} ");
        assert!(scripts[2].contains(&shown), "{option}");
        for script in &scripts[..2] {
            assert!(script.contains(&format!("--{option}")), "{option}");
        }
    }
    let (_, description) = page.split_once(".SH DESCRIPTION\n").unwrap();
    let first = description.lines().find(|line| !line.starts_with('.'));
    assert_eq!(first, Some("Not walled off:"), "{page}");
}

#[test]
fn a_profile_is_checked_instead_of_a_file() {
    let place = TempDir::new().unwrap();
    for name in [".env", "plain"] {
        fs::write(place.path().join(name), "x").unwrap();
    }
    let check = |arguments: &str| {
        let mut command = Command::new(THRUFS);
        command.args(["policy", "check"]).current_dir(place.path());
        run(command.args(arguments.split_whitespace()))
    };
    let rules = WORKSPACE.lines().filter(|line| *line == "[[rule]]").count();
    let said = stdout(&check("--profile workspace"));
    assert_eq!(said, format!("workspace: {rules} rules, no fault\n"));
    let said = stdout(&check(".env --profile workspace plain"));
    let (first, second) = said.split_once('\n').unwrap();
    assert!(
        first.starts_with(".env: hidden by rule 1 `environment` "),
        "{said}"
    );
    assert_eq!(second, "plain: passthrough by default\n");
    assert_eq!(
        stdout(&check("--profile none")),
        "none: 0 rules, no fault\n"
    );
    fails(&check(""), 2, "FILE");
    fails(&check("--profile work"), 2, "workspace, none");
}
