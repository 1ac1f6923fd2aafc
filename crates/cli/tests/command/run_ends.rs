//! `thrufs run`: exit statuses, signals, standard files, arguments and working directory.

use crate::ground::run::Tree;
use crate::ground::{fails, run, stderr, stdout, succeeded};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

/// Not sh: dash loses signals that arrive while it starts a program (`onsig` in its trap.c).
fn shell(tree: &Tree, script: &str) -> Command {
    let mut command = tree.inside("bash");
    command.args(["-c", script]);
    command
}

/// Starts it, and waits for its first line.
fn started(command: &mut Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    child
}

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    succeeded(&run(Command::new("kill").args(["-s", name, &id])));
}

#[test]
fn run_ends_as_its_command() {
    for tree in Tree::both() {
        for status in [0, 1, 2, 125, 126, 127, 128, 255] {
            fails(
                &run(&mut shell(&tree, &format!("exit {status}"))),
                status,
                "",
            );
        }
        for number in [1, 2, 3, 6, 9, 11, 13, 15, 24, 34] {
            // Not bash, which ignores SIGQUIT.
            let output = run(tree
                .inside("sh")
                .args(["-c", &format!("kill -{number} $$")]));
            assert_eq!(output.status.signal(), Some(number), "{output:?}");
        }
        fails(
            &run(&mut tree.inside("./none")),
            127,
            "cannot execute ./none",
        );
        fails(
            &run(&mut tree.inside("./file")),
            126,
            "cannot execute ./file",
        );
        // What the command has left running ends with it.
        fails(&run(&mut shell(&tree, "sleep 300 & exit 3")), 3, "");
        let mut elsewhere = tree.on_the_host(tree.program.to_str().unwrap());
        fails(
            &run(elsewhere.args(["run", "none", "--", "true"])),
            125,
            "none does not exist",
        );
    }
}

#[test]
fn command_of_run_gets_the_signals_of_run() {
    for tree in Tree::both() {
        let wait = "echo up; while :; do sleep 0.1; done";
        for name in ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"] {
            let mut child = started(&mut shell(&tree, &format!("trap 'exit 9' {name}; {wait}")));
            signal(&child, name);
            assert_eq!(child.wait().unwrap().code(), Some(9), "{name}");
        }
        let mut child = started(&mut shell(&tree, "echo up; exec sleep 300"));
        signal(&child, "TERM");
        assert_eq!(child.wait().unwrap().signal(), Some(15));
        // With a thread that reads about callers, for the audit log.
        let log = tree.home.join("log");
        let mut audited = tree.on_the_host(tree.program.to_str().unwrap());
        audited
            .arg("run")
            .arg("--audit")
            .arg(log)
            .args(["--", "bash", "-c"]);
        let mut child = started(audited.arg(format!("trap 'exit 9' TERM; {wait}")));
        signal(&child, "TERM");
        assert_eq!(child.wait().unwrap().code(), Some(9), "with an audit log");
        let mut ignoring = tree.on_the_host("nohup");
        ignoring
            .arg(&tree.program)
            .args(["run", "--", "bash", "-c"]);
        let mut child = started(ignoring.arg(format!("trap 'exit 9' TERM; {wait}")));
        signal(&child, "HUP");
        signal(&child, "TERM");
        assert_eq!(child.wait().unwrap().code(), Some(9), "nohup");
        // Masks and actions, which programs inherit.
        for field in ["SigBlk", "SigIgn"] {
            let set = |command: &mut Command| {
                let said = stdout(&run(command.args([field, "/proc/self/status"])));
                let (_, set) = said.trim().split_once('\t').unwrap();
                // posix_spawn(3) of glibc ignores two of its own for the program.
                u64::from_str_radix(set, 16).unwrap() & !0x1_8000_0000
            };
            assert_eq!(
                set(&mut tree.inside("grep")),
                set(&mut tree.on_the_host("grep"))
            );
        }
    }
}

/// As of `docker stop`: the sender has no process id in the PID namespace of `thrufs run`.
#[test]
fn command_of_run_gets_signals_from_outside_of_the_pid_namespace() {
    let Some(tree) = Tree::of(0) else { return };
    let mut contained = tree.on_the_host("unshare");
    contained.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    contained
        .arg(&tree.program)
        .args(["run", "--", "bash", "-c"]);
    let script = "trap 'exit 9' TERM; echo up; while :; do sleep 0.1; done";
    let mut child = started(contained.arg(script));
    let id = child.id();
    let inner = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    succeeded(&run(Command::new("kill").args([
        "-s",
        "TERM",
        inner.trim(),
    ])));
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn run_with_pipes_closed_and_given() {
    for tree in Tree::both() {
        // Of `yes | head`, the first ends by SIGPIPE.
        let mut pipe = tree.on_the_host("bash");
        let output = run(pipe.args([
            "-c",
            "$THRUFS run -- yes | head -n 1; echo ${PIPESTATUS[0]}",
        ]));
        assert_eq!(stdout(&output), "y\n141\n");
        let mut pipe = tree.on_the_host("sh");
        let output = run(pipe.args(["-c", "printf 'b\\na\\n' | $THRUFS run -- sort"]));
        assert_eq!(stdout(&output), "a\nb\n");
    }
}

/// Opening them is opening pipes that the caller has made.
#[test]
fn command_of_run_opens_its_standard_files() {
    for tree in Tree::both() {
        let mut pipe = tree.on_the_host("sh");
        let inside = "cat /dev/stdin; echo output >/dev/stdout; echo error >/dev/stderr";
        let script = format!("echo input | $THRUFS run -- sh -c '{inside}' 2>&1 | cat");
        let output = run(pipe.args(["-c", &script]));
        assert_eq!(
            stdout(&output),
            "input\noutput\nerror\n",
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn command_of_run_has_arguments_environment_and_no_descriptors() {
    for tree in Tree::both() {
        let odd = OsStr::from_bytes(b"\xff a");
        let mut command = tree.inside("printf");
        let output = run(command.args(["%s|", "a b", "", "'\"$x*"]).arg(odd));
        assert_eq!(output.stdout, b"a b||'\"$x*|\xff a|", "{}", stderr(&output));
        let output = run(shell(&tree, "printf %s \"$X\"").env("X", odd));
        assert_eq!(output.stdout, b"\xff a");
        let mut opened = tree.on_the_host("sh");
        let script = "exec 7<file; $THRUFS run -- sh -c 'cat <&7'";
        fails(
            &run(opened.args(["-c", script])),
            2,
            "7: Bad file descriptor",
        );
    }
}

#[test]
fn command_of_run_begins_where_run_was_started() {
    for tree in Tree::both() {
        let mut prepared = tree.on_the_host("sh");
        succeeded(&run(prepared.args(["-c", "mkdir sub; ln -s sub link"])));
        let root = tree.root.to_str().unwrap();
        let place = |directory: &str, script: &str| {
            let mut command = tree.on_the_host("sh");
            let script = format!("cd {directory}; $THRUFS run {root} -- sh -c '{script}'");
            let output = run(command.args(["-c", &script]));
            succeeded(&output);
            stdout(&output)
        };
        assert_eq!(place("sub", "pwd"), format!("{root}/sub\n"));
        assert_eq!(
            place("link", "pwd; pwd -P"),
            format!("{root}/link\n{root}/sub\n")
        );
        assert_eq!(
            place("link", "echo $PWD; cd ..; cat file"),
            format!("{root}/link\ncontent")
        );
        assert_eq!(place("/usr/lib", "pwd"), "/usr/lib\n");
        // Not visible inside: the tree instead.
        let outside = tree.outside().join("other");
        std::fs::create_dir(&outside).unwrap();
        assert_eq!(
            place(outside.to_str().unwrap(), "pwd; cat file"),
            format!("{root}\ncontent")
        );
    }
}

#[test]
fn directory_as_a_standard_file_is_refused() {
    for tree in Tree::both() {
        let mut command = tree.inside("true");
        command
            .stdin(File::open("/usr").unwrap())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(125), "{said}");
        assert!(said.contains("directory"), "{said}");
    }
}
