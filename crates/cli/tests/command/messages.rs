//! What the command says: help, errors, manual pages and completions.

use crate::ground::{self, THRUFS, run, stderr};
use std::fs;
use std::process::{Command, Output};
use tempfile::TempDir;

fn thrufs(arguments: &[&str]) -> Output {
    run(Command::new(THRUFS).args(arguments))
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_version() {
    let output = thrufs(&["--version"]);
    assert!(output.status.success());
    assert_eq!(
        stdout(&output),
        format!("thrufs {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn bad_options_name_the_fix_and_exit_with_2() {
    for (arguments, message) in [
        (
            &["-o", "alow_other"][..],
            "unknown option `alow_other`: did you mean `allow_other`?",
        ),
        (
            &["-o", "cache=sometimes"],
            "it must be never, metadata, auto or always",
        ),
        (
            &["-o", "writeback,cache=never"],
            "`writeback` contradicts `cache=never`: ",
        ),
        (
            &["-o", "allow_other,no_default_permissions,cache=never"],
            "drop one of them",
        ),
        (&["-o", "uid=0,uidmap=0:1:1"], "not both"),
        (
            &["--writeback", "--cache=never"],
            "`writeback` contradicts `cache=never`: ",
        ),
        (&["-o", "allow_root"], "say allow_other"),
        (&["-o", "remount,ro"], "unmount it and mount it anew"),
        (&["--log=thrufs=loudly"], "option `log`"),
    ] {
        let mut all = vec!["mount"];
        all.extend(arguments);
        all.extend(["/", "/mnt"]);
        let output = thrufs(&all);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(message),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert_eq!(
            stderr(&output).lines().count(),
            1,
            "said once: {}",
            stderr(&output)
        );
    }
    for arguments in [
        &["mount"][..],
        &["mount", "/a"],
        &["mount", "/a", "/b", "/c"],
        &["frob"],
        &["client", "--socket", "/s", "ls"],
        &[],
    ] {
        assert_eq!(thrufs(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn bad_paths_name_the_fix_and_exit_with_1() {
    let place = TempDir::new().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(path("dir")).unwrap();
    fs::write(path("file"), "").unwrap();
    for (source, mountpoint, message) in [
        ("nothing", "dir", "does not exist"),
        ("file", "dir", "not single files"),
        ("dir", "nothing", "mkdir"),
        ("dir", "file", "is not a directory"),
    ] {
        let output = thrufs(&["mount", &path(source), &path(mountpoint)]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
        let culprit = if source == "dir" { mountpoint } else { source };
        assert!(
            stderr(&output).contains(&path(culprit)),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn manual_pages_have_no_fault() {
    let place = TempDir::new().unwrap();
    let directory = place.path().join("man");
    assert!(
        thrufs(&["man", directory.to_str().unwrap()])
            .status
            .success()
    );
    let mut names: Vec<_> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "mount.thrufs.8",
            "thrufs-bench.1",
            "thrufs-ctl.1",
            "thrufs-doctor.1",
            "thrufs-explain.1",
            "thrufs-mount.1",
            "thrufs-policy.1",
            "thrufs-share.1",
            "thrufs-unmount.1",
            "thrufs-virtiofsd.1",
            "thrufs.1"
        ]
    );
    if !thrufs_test_report::is_full() {
        return;
    }
    if Command::new("mandoc")
        .arg("-T")
        .arg("lint")
        .output()
        .is_err()
    {
        return ground::skipped("the syntax of the manual pages: there is no mandoc");
    }
    for name in names {
        let lint = run(Command::new("mandoc")
            .args(["-T", "lint", "-W", "warning"])
            .arg(directory.join(&name)));
        let said: Vec<String> = stdout(&lint)
            .lines()
            // The pages carry no date, so that a build can be repeated.
            .filter(|line| !line.contains("missing date"))
            .map(str::to_owned)
            .collect();
        assert!(said.is_empty(), "{said:#?}");
    }
}

#[test]
fn completions_know_every_option() {
    let help = stdout(&thrufs(&["mount", "--help"]));
    let flags: Vec<&str> = help
        .split_whitespace()
        .filter_map(|word| {
            let flag = word.strip_prefix("--")?;
            Some(
                flag.split(|c: char| !c.is_ascii_lowercase() && c != '-')
                    .next()
                    .unwrap(),
            )
        })
        .filter(|flag| !flag.is_empty())
        .collect();
    assert!(flags.len() > 40, "{flags:?}");
    for shell in ["bash", "zsh", "fish"] {
        let output = thrufs(&["completions", shell]);
        assert!(output.status.success());
        let script = stdout(&output);
        for flag in &flags {
            assert!(script.contains(flag), "{shell}: --{flag}");
        }
        for word in ["allow_other", "cache=never", "attr_timeout=", "_netdev"] {
            assert!(script.contains(word), "{shell}: -o {word}");
        }
        if shell != "bash" && !thrufs_test_report::is_full() {
            continue;
        }
        if Command::new(shell).arg("-c").arg("true").output().is_err() {
            ground::skipped(&format!(
                "the syntax of the completions: there is no {shell}"
            ));
            continue;
        }
        let file = TempDir::new().unwrap();
        let path = file.path().join("script");
        fs::write(&path, &script).unwrap();
        let checked = run(Command::new(shell).arg("-n").arg(&path));
        assert!(checked.status.success(), "{shell}: {}", stderr(&checked));
    }
}

/// Its options are told to shells and in the manual by the command, which is another program.
#[test]
fn shells_and_the_manual_know_every_option_of_the_benchmark() {
    let bench = |argument| stdout(&run(Command::new(ground::benchmark()).arg(argument)));
    let help = bench("-h");
    let lines = help.lines().map(str::trim_start);
    let options: Vec<_> = lines.filter(|line| line.starts_with("--")).collect();
    assert!(options.len() > 10, "{help}");
    let directory = TempDir::new().unwrap();
    let written = thrufs(&["man", directory.path().to_str().unwrap()]);
    assert!(written.status.success());
    let page = fs::read_to_string(directory.path().join("thrufs-bench.1")).unwrap();
    let page = page.replace("\\-", "-");
    let scripts = ["bash", "zsh", "fish"].map(|shell| stdout(&thrufs(&["completions", shell])));
    for option in &options {
        let mut words = option.split_whitespace();
        let flag = words.next().unwrap();
        let value = words.next().and_then(|word| word.strip_prefix('<'));
        let heading = match value {
            Some(value) => format!("{flag} {}", value.trim_end_matches('>')),
            None => flag.to_owned(),
        };
        assert!(
            page.contains(&format!("\\fB{heading}\\fR")),
            "{heading}: {page}"
        );
        let name = flag.trim_start_matches('-');
        let shown = format!("__fish_thrufs_using_subcommand bench\" -l {name} -d '");
        assert!(scripts[2].contains(&shown), "{flag}");
    }
    let shown = scripts[2].matches("__fish_thrufs_using_subcommand bench\" -l ");
    assert_eq!(shown.count(), options.len(), "no more than there are");
    // Values, in the order of the help.
    let help: Vec<_> = help.split_whitespace().collect();
    let help = help.join(" ");
    let lists = help.split("[possible values: ").skip(1);
    let lists: Vec<_> = lists.filter_map(|text| text.split(']').next()).collect();
    assert_eq!(lists.len(), 4, "{help}");
    for list in lists {
        let list = list.replace(", ", " ");
        for script in &scripts[..2] {
            assert!(script.contains(&list), "{list}: {script}");
        }
    }
    let listed = bench("--list");
    let suites = listed.lines().skip(1).take_while(|line| !line.is_empty());
    for suite in suites {
        let (name, about) = suite.trim_start().split_once(' ').unwrap();
        let about = about.trim_start();
        let told = page.split(&format!("\\fB{name}\\fR\n")).nth(1);
        let told = told
            .and_then(|rest| rest.lines().next())
            .unwrap_or_default();
        assert!(
            told.to_lowercase() == format!("{about}.").to_lowercase(),
            "{suite}: {told}"
        );
    }
}

#[test]
fn a_benchmark_that_is_not_installed_is_named() {
    let place = TempDir::new().unwrap();
    let program = ground::copied_program(place.path());
    let output = run(Command::new(program).args(["bench", "--list"]));
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    let missing = place.path().join("thrufs-bench");
    assert!(said.contains(missing.to_str().unwrap()), "{said}");
    assert!(said.contains("cargo install --path crates/bench"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn roles_are_not_for_people() {
    for role in ["--worker", "--supervisor"] {
        let output = thrufs(&[role]);
        assert_eq!(output.status.code(), Some(1));
    }
    let help = stdout(&thrufs(&["--help"]));
    assert!(
        !help.contains("worker") && !help.contains("supervisor"),
        "{help}"
    );
}
