//! Messages: help, errors, manual pages and completions.

use crate::ground::prelude::*;
use std::collections::BTreeSet;

#[test]
fn version_is_that_of_the_package() {
    let expected = format!("thrufs {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(stdout(&thrufs!("-V")), expected);
    let long = stdout(&thrufs!("--version"));
    let rest = long.strip_prefix(&expected).unwrap();
    let names = rest.lines().map(|line| line.split_once(": ").unwrap().0);
    let names: Vec<_> = names.collect();
    assert_eq!(names, ["commit", "build", "serves", "features"]);
}

/// What an installation is good for is a script's, `tests/real/install.sh`.
#[test]
fn install_keeps_modes_and_names_what_it_cannot_write() {
    for prefix in ["local", "/usr/../etc", ""] {
        let output = thrufs!("install", "--prefix", prefix);
        fails(&output, 2, "--prefix");
    }
    let place = TempDir::new().unwrap();
    let destdir = place.path().join("system");
    let install = |verb| {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "umask 077; exec \"$@\"",
            "sh",
            THRUFS,
            verb,
            "--destdir",
        ]);
        run(command.arg(&destdir))
    };
    let output = install("install");
    succeeded(&output);
    let said = stdout(&output);
    for path in said.lines() {
        let metadata = fs::symlink_metadata(path).unwrap();
        let mode = metadata.permissions().mode() & 0o7777;
        let wanted = match path.contains("/bin/") {
            true => 0o755,
            false => 0o644,
        };
        assert!(metadata.is_symlink() || mode == wanted, "{path}: {mode:o}");
        let directory = Path::new(path).parent().unwrap();
        let mode = fs::metadata(directory).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755, "above {path}");
    }
    // What it has printed is what it removes, and another's link stays.
    let link = destdir.join("sbin/mount.thrufs");
    fs::remove_file(&link).unwrap();
    symlink("/elsewhere", &link).unwrap();
    let removed = stdout(&install("uninstall"));
    let others = said.lines().filter(|line| Path::new(line) != link);
    assert!(removed.lines().eq(others), "{removed}");
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("/elsewhere"));
    assert!(!destdir.join("usr/local/share/doc/thrufs").exists());

    let file = place.path().join("file");
    fs::write(&file, "").unwrap();
    let output = thrufs!("install", "--destdir", &file);
    fails(&output, 1, file.join("usr/local/bin").to_str().unwrap());
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
--log=thrufs=loudly: option `log`
-o log=nonsense: `nonsense` is no level; use error,";
    for case in cases.lines() {
        let (options, message) = case.split_once(": ").unwrap();
        let said = refused(&format!("mount {options} / /mnt"), message);
        assert_eq!(said.lines().count(), 1, "said once: {said}");
    }
    refused("mount -o tag=x / /mnt", "does not apply to a mount");
    refused("share --socket /s -o sync /", "does not apply to a share");
    for arguments in [
        "mount",
        "mount /a",
        "mount /a /b /c",
        "frob",
        "client ls",
        "",
    ] {
        refused(arguments, "");
    }
}

#[test]
fn run_without_separator_names_the_fix() {
    for (arguments, meant) in [
        ("run npm install -g x", "thrufs run -- npm install -g x"),
        ("run npm", "thrufs run -- npm"),
        ("run / npm install", "thrufs run / -- npm install"),
    ] {
        let output = run(Command::new(THRUFS).args(arguments.split(' ')));
        fails(&output, 125, &format!("after `--`: {meant}\n"));
    }
    for arguments in [&["run", "--only"][..], &["run", "a", "b", "--", "c"]] {
        let said = fails(&run(Command::new(THRUFS).args(arguments)), 125, "Usage");
        assert!(!said.contains("after `--`"), "{said}");
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
            stderr(output)
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
    let pattern = "dax_window=4M,dax=[";
    let share = thrufs!("share", "--socket", path("s"), "-o", pattern, path("dir"));
    fails(&share, 1, "dax:");
}

#[test]
fn manual_pages_pass_lint() {
    let place = TempDir::new().unwrap();
    let mut nowhere = Command::new(THRUFS);
    let output = run(nowhere.arg("man").current_dir(place.path()));
    fails(&output, 2, "<DIR>");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    let directory = place.path().join("man");
    succeeded(&thrufs!("man", &directory));
    let commands = "bench ctl doctor draft explain install list mount policy run share unmount upgrade virtiofsd";
    let pages = commands.split(' ').map(|name| format!("thrufs-{name}.1"));
    let others = ["mount.thrufs.8", "thrufs.1"].map(str::to_owned);
    let expected: BTreeSet<String> = pages.chain(others).collect();
    let names = fs::read_dir(&directory).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<String> = names.collect();
    assert_eq!(names, expected);
    if !thrufs_test_report::is_full() {
        return;
    }
    let mut mandoc = Command::new("mandoc");
    if mandoc.stdin(Stdio::null()).output().is_err() {
        return skipped("the syntax of the manual pages: there is no mandoc");
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

/// The script that completes the command in a shell, whose syntax is checked.
fn completions(shell: &str) -> String {
    let output = thrufs!("completions", shell);
    succeeded(&output);
    if shell != "bash" && !thrufs_test_report::is_full() {
        return stdout(&output);
    }
    if Command::new(shell).arg("-c").arg("true").output().is_err() {
        skipped(&format!("the syntax of the completions: no {shell}"));
        return stdout(&output);
    }
    let place = TempDir::new().unwrap();
    let file = place.path().join("script");
    fs::write(&file, &output.stdout).unwrap();
    succeeded(&run(Command::new(shell).arg("-n").arg(&file)));
    stdout(&output)
}

/// Those of mounts are compared with the manual in `manual`. The command describes the options of the benchmark,
/// another program.
#[test]
fn completions_and_manual_have_every_option() {
    let directory = TempDir::new().unwrap();
    succeeded(&thrufs!("man", directory.path()));
    let scripts = ["bash", "zsh", "fish"].map(completions);
    for word in ["allow_other", "cache=never", "attr_timeout=", "_netdev"] {
        let is_in = |script: &String| script.contains(word);
        assert!(scripts.iter().all(is_in), "-o {word}");
    }
    let bench = stdout(&run(Command::new(ground::benchmark()).arg("-h")));
    let help = |name| stdout(&thrufs!(name, "--help"));
    let all = [
        ("mount", help("mount"), 40),
        ("run", help("run"), 15),
        ("bench", bench, 10),
    ];
    for (name, help, least) in &all {
        let page = directory.path().join(format!("thrufs-{name}.1"));
        let page = fs::read_to_string(page).unwrap().replace("\\-", "-");
        let lines = help.lines().map(str::trim_start);
        let options: Vec<_> = lines.filter(|line| line.starts_with("--")).collect();
        assert!(options.len() >= *least, "{help}");
        let completed = format!("__fish_thrufs_using_subcommand {name}\" -l ");
        for option in &options {
            let mut words = option.split([' ', '=', '[']);
            let flag = words.next().unwrap();
            let value = words.next().and_then(|word| word.strip_prefix('<'));
            let value = value.map(|value| format!(" {}", value.trim_end_matches('>')));
            let heading = format!("\n.B {flag}{}", value.unwrap_or_default());
            assert!(
                page.contains(&heading) || *name == "mount",
                "{heading}: {page}"
            );
            let shown = format!("{completed}{} ", flag.trim_start_matches('-'));
            assert!(scripts[2].contains(&shown), "{name} {flag}");
            for script in &scripts[..2] {
                assert!(script.contains(flag), "{name} {flag}");
            }
        }
        let shown = scripts[2].matches(&completed).count();
        assert!(
            shown == options.len() || *name != "bench",
            "no more than there are"
        );
        if *name == "run" {
            let (_, description) = page.split_once(".SH DESCRIPTION\n").unwrap();
            let first = description.lines().find(|line| !line.starts_with('.'));
            assert_eq!(first, Some("Not walled off:"), "{page}");
        }
    }
    let [_, _, (_, bench, _)] = all;
    let bench: Vec<_> = bench.split_whitespace().collect();
    let bench = bench.join(" ");
    let lists = bench.split("[possible values: ").skip(1);
    let lists: Vec<_> = lists.filter_map(|text| text.split(']').next()).collect();
    assert_eq!(lists.len(), 2, "{bench}");
    for list in lists {
        let list = list.replace(", ", " ");
        let is_in = |script: &String| script.contains(&list);
        assert!(scripts[..2].iter().all(is_in), "{list}");
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
