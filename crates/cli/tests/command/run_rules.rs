//! The command line of `thrufs run`, and the policy that it composes.

use crate::ground::prelude::*;

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
    assert!(!shown("--profile none --hide a").contains("environment"));
    let text = shown(
        "--hide d/one --deny x --hide two --read-only y --redact z --allow w --audit /nowhere/log",
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
    let names = "audit allow parents read-only deny hide redact".split(' ');
    let expected = names.map(|name| format!("\"option-{name}\""));
    assert!(named.eq(expected), "{options}");
    let hidden = "    \"d/one\",\n    \"d/one/**\",\n    \"two\",\n    \"two/**\",\n";
    assert!(options.contains(hidden), "{options}");
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
    assert!(
        said.starts_with(".env: hidden by rule 1 `environment` "),
        "{said}"
    );
    assert!(
        said.ends_with("\nplain: passthrough by default\n"),
        "{said}"
    );
    let said = stdout(&check("--profile none"));
    assert_eq!(said, "none: 0 rules, no fault\n");
    fails(&check(""), 2, "FILE");
    fails(&check("--profile work"), 2, "workspace, none");
}
