//! Messages: help, errors, manual pages and completions.

use crate::ground::{self, THRUFS, fails, run, stdout, succeeded, thrufs};
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use tempfile::TempDir;

#[test]
fn version_is_that_of_the_package() {
    let expected = format!("thrufs {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(stdout(&thrufs!("--version")), expected);
}

#[test]
fn bad_options_name_the_fix_and_exit_with_2() {
    let refused = |arguments: &str, message| {
        let mut command = Command::new(THRUFS);
        fails(&run(command.args(arguments.split_whitespace())), 2, message)
    };
    // Options and expected messages.
    let cases = "\
-o alow_other: unknown option `alow_other`: did you mean `allow_other`?
-o cache=sometimes: it must be never, metadata, auto or always
-o writeback,cache=never: `writeback` contradicts `cache=never`:
-o allow_other,no_default_permissions,cache=never: drop one of them
-o uid=0,uidmap=0:1:1: not both
--writeback --cache=never: `writeback` contradicts `cache=never`:
-o allow_root: use allow_other
-o remount,ro: unmount and mount again
--log=thrufs=loudly: option `log`";
    for case in cases.lines() {
        let (options, message) = case.split_once(": ").unwrap();
        let said = refused(&format!("mount {options} / /mnt"), message);
        assert_eq!(said.lines().count(), 1, "said once: {said}");
    }
    for arguments in [
        "mount",
        "mount /a",
        "mount /a /b /c",
        "frob",
        "client --socket /s ls",
        "",
    ] {
        refused(arguments, "");
    }
}

/// Text, JSON and errors with the name of a file.
#[test]
fn names_control_no_terminal() {
    let place = TempDir::new().unwrap();
    let hostile = place.path().join("\u{1b}]0;x\u{7}\u{9b}\u{202e}");
    fs::create_dir(&hostile).unwrap();
    let check = |path| thrufs!("policy", "check", "--profile=none", "--root=/", path);
    let absent = hostile.join("absent");
    let all = [
        (true, check(hostile.as_path())),
        (false, check(absent.as_path())),
        (true, thrufs!("doctor", "--json", hostile.as_path())),
        (true, thrufs!("doctor", hostile.as_path())),
    ];
    for (number, (is_text, output)) in all.iter().enumerate() {
        let said = if *is_text {
            stdout(output)
        } else {
            ground::stderr(output)
        };
        assert!(said.contains("\\u"), "{number}: {said:?}");
        let controls = |char: char| char.is_control() && char != '\n' || char == '\u{202e}';
        assert!(!said.contains(controls), "{number}: {said:?}");
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
        let output = thrufs!("mount", path(source), path(mountpoint));
        let said = fails(&output, 1, message);
        let culprit = if source == "dir" { mountpoint } else { source };
        assert!(said.contains(&path(culprit)), "{said}");
    }
}

#[test]
fn manual_pages_pass_lint() {
    let place = TempDir::new().unwrap();
    let directory = place.path().join("man");
    succeeded(&thrufs!("man", &directory));
    let commands = [
        "bench",
        "ctl",
        "doctor",
        "explain",
        "mount",
        "policy",
        "run",
        "share",
        "unmount",
        "virtiofsd",
    ];
    let mut expected = commands.map(|name| format!("thrufs-{name}.1")).to_vec();
    expected.extend(["mount.thrufs.8", "thrufs.1"].map(str::to_owned));
    let names = fs::read_dir(&directory).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<String> = names.collect();
    assert_eq!(names, BTreeSet::from_iter(expected));
    if !thrufs_test_report::is_full() {
        return;
    }
    if Command::new("mandoc")
        .stdin(Stdio::null())
        .output()
        .is_err()
    {
        return ground::skipped("the syntax of the manual pages: there is no mandoc");
    }
    for name in names {
        let mut lint = Command::new("mandoc");
        lint.args(["-T", "lint", "-W", "warning"]);
        let said = stdout(&run(lint.arg(directory.join(&name))));
        // The pages have no date, for reproducible builds.
        let is_known = |line: &str| line.contains("missing date");
        assert!(said.lines().all(is_known), "{said}");
    }
}

#[test]
fn completions_have_every_option() {
    let is_no_part_of_a_flag = |c: char| !c.is_ascii_lowercase() && c != '-';
    let help = stdout(&thrufs!("mount", "--help"));
    let words = help.split_whitespace();
    let flags = words.filter_map(|word| {
        let mut parts = word.strip_prefix("--")?.split(is_no_part_of_a_flag);
        parts.next().filter(|flag| !flag.is_empty())
    });
    let flags: Vec<&str> = flags.collect();
    assert!(flags.len() > 40, "{flags:?}");
    for shell in ["bash", "zsh", "fish"] {
        let output = thrufs!("completions", shell);
        succeeded(&output);
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
            ground::skipped(&format!("the syntax of the completions: no {shell}"));
            continue;
        }
        let file = TempDir::new().unwrap();
        let path = file.path().join("script");
        fs::write(&path, &script).unwrap();
        succeeded(&run(Command::new(shell).arg("-n").arg(&path)));
    }
}

/// The command describes the options of the benchmark, another program.
#[test]
fn completions_and_manual_have_every_option_of_the_benchmark() {
    let bench = |argument| stdout(&run(Command::new(ground::benchmark()).arg(argument)));
    let help = bench("-h");
    let lines = help.lines().map(str::trim_start);
    let options: Vec<_> = lines.filter(|line| line.starts_with("--")).collect();
    assert!(options.len() > 10, "{help}");
    let directory = TempDir::new().unwrap();
    succeeded(&thrufs!("man", directory.path()));
    let page = fs::read_to_string(directory.path().join("thrufs-bench.1")).unwrap();
    let page = page.replace("\\-", "-");
    let scripts = ["bash", "zsh", "fish"].map(|shell| stdout(&thrufs!("completions", shell)));
    for option in &options {
        let mut words = option.split_whitespace();
        let flag = words.next().unwrap();
        let value = words.next().and_then(|word| word.strip_prefix('<'));
        let heading = match value {
            Some(value) => format!("{flag} {}", value.trim_end_matches('>')),
            None => flag.to_owned(),
        };
        let heading = format!("\n.B {heading}\n");
        assert!(page.contains(&heading), "{heading}: {page}");
        let name = flag.trim_start_matches('-');
        let shown = format!("__fish_thrufs_using_subcommand bench\" -l {name} -d '");
        assert!(scripts[2].contains(&shown), "{flag}");
    }
    let shown = scripts[2].matches("__fish_thrufs_using_subcommand bench\" -l ");
    assert_eq!(shown.count(), options.len(), "no more than there are");
    let help: Vec<_> = help.split_whitespace().collect();
    let help = help.join(" ");
    let lists = help.split("[possible values: ").skip(1);
    let lists: Vec<_> = lists.filter_map(|text| text.split(']').next()).collect();
    assert_eq!(lists.len(), 2, "{help}");
    for list in lists {
        let list = list.replace(", ", " ");
        for script in &scripts[..2] {
            assert!(script.contains(&list), "{list}: {script}");
        }
    }
}

#[test]
fn missing_benchmark_is_named() {
    let place = TempDir::new().unwrap();
    let program = ground::copied_program(place.path());
    let output = run(Command::new(program).args(["bench", "--list"]));
    let missing = place.path().join("thrufs-bench");
    let said = fails(&output, 1, missing.to_str().unwrap());
    assert!(said.contains("cargo install --path crates/bench"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn internal_roles_are_not_in_the_help() {
    for role in ["--worker", "--supervisor"] {
        fails(&thrufs!(role), 1, "");
    }
    let help = stdout(&thrufs!("--help"));
    for role in ["worker", "supervisor"] {
        assert!(!help.contains(role), "{help}");
    }
}
