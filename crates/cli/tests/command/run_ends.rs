//! `thrufs run`: exit statuses, signals, standard files, arguments and working directory.

use crate::ground::prelude::*;
use crate::run_ground::{RunGround, Talk, Who, of_both};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;

/// In the sandbox. Not sh: dash loses signals that arrive while it starts a program (`onsig` in its trap.c).
fn shell(ground: &RunGround, script: &str) -> Command {
    let mut command = ground.inside("bash");
    command.args(["-c", script]);
    command
}

/// On the host.
fn script(ground: &RunGround, script: &str) -> Output {
    run(ground.on_the_host("bash").args(["-c", script]))
}

/// Starts it, and waits for its first line.
fn started(command: &mut Command) -> Talk {
    let mut talk = Talk::start(command);
    talk.wait_for("up");
    talk
}

fn signal(process: impl ToString, name: &str) {
    let id = process.to_string();
    succeeded(&run(Command::new("kill").args(["-s", name, id.trim()])));
}

#[test]
fn run_ends_as_its_command() {
    for ground in of_both() {
        for status in [0, 1, 2, 125, 126, 127, 128, 255] {
            let output = run(&mut shell(&ground, &format!("exit {status}")));
            fails(&output, status, "");
        }
        for number in [1, 2, 3, 6, 9, 11, 13, 15, 24, 34] {
            // Not bash, which ignores SIGQUIT.
            let kill = format!("kill -{number} $$");
            let output = run(ground.inside("sh").args(["-c", &kill]));
            assert_eq!(output.status.signal(), Some(number), "{output:?}");
        }
        for (program, status) in [("./none", 127), ("./file", 126)] {
            let said = format!("cannot execute {program}");
            fails(&run(&mut ground.inside(program)), status, &said);
        }
        // What the command has left running ends with it.
        fails(&run(&mut shell(&ground, "sleep 300 & exit 3")), 3, "");
        let none = script(&ground, "$THRUFS run none -- true");
        fails(&none, 125, "none does not exist");
    }
}

#[test]
fn command_of_run_gets_the_signals_of_run() {
    let on = |names: &str| format!("trap 'exit 9' {names}; echo up; while :; do sleep 0.1; done");
    for ground in of_both() {
        let ended = |command: &mut Command, names: &[&str]| {
            let talk = started(command);
            let id = talk.pid().as_raw_nonzero();
            names.iter().for_each(|name| signal(id, name));
            talk.end().status
        };
        for name in ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"] {
            let status = ended(&mut shell(&ground, &on(name)), &[name]);
            assert_eq!(status.code(), Some(9), "{name}");
        }
        let status = ended(&mut shell(&ground, "echo up; exec sleep 300"), &["TERM"]);
        assert_eq!(status.signal(), Some(15));
        // With a thread that reads about callers, for the audit log.
        let mut audited = ground.on_the_host(ground.program.to_str().unwrap());
        audited
            .args(["run", "--audit"])
            .arg(ground.home.join("log"));
        audited.args(["--", "bash", "-c", &on("TERM")]);
        assert_eq!(ended(&mut audited, &["TERM"]).code(), Some(9), "--audit");
        let mut ignoring = ground.on_the_host("nohup");
        ignoring
            .arg(&ground.program)
            .args(["run", "--", "bash", "-c"]);
        let status = ended(ignoring.arg(on("TERM")), &["HUP", "TERM"]);
        assert_eq!(status.code(), Some(9), "nohup");
        // Masks and actions, which programs inherit.
        for field in ["SigBlk", "SigIgn"] {
            let set = |command: &mut Command| {
                let said = stdout(&run(command.args([field, "/proc/self/status"])));
                let (_, set) = said.trim().split_once('\t').unwrap();
                // posix_spawn(3) of glibc ignores two of its own for the program.
                u64::from_str_radix(set, 16).unwrap() & !0x1_8000_0000
            };
            let [inside, outside] = [ground.inside("grep"), ground.on_the_host("grep")];
            let [inside, outside] = [inside, outside].map(|mut command| set(&mut command));
            assert_eq!(inside, outside, "{field}");
        }
    }
}

/// As of `docker stop`: the sender has no process id in the PID namespace of `thrufs run`.
#[test]
fn command_of_run_gets_signals_from_outside_of_the_pid_namespace() {
    let Some(ground) = RunGround::new(Who::RootOnTreeOfRoot) else {
        return;
    };
    let mut contained = ground.on_the_host("unshare");
    contained.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    contained
        .arg(&ground.program)
        .args(["run", "--", "bash", "-c"]);
    let script = "trap 'exit 9' TERM; echo up; while :; do sleep 0.1; done";
    let talk = started(contained.arg(script));
    let id = talk.pid().as_raw_nonzero();
    let inner = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    signal(inner.unwrap(), "TERM");
    assert_eq!(talk.end().status.code(), Some(9));
}

#[test]
fn run_with_pipes_closed_and_given() {
    // /dev/stdin and others are opened anew: they are pipes that the caller has made.
    let opened = "cat /dev/stdin; echo output >/dev/stdout; echo error >/dev/stderr";
    let opened = format!("echo input | $THRUFS run -- sh -c '{opened}' 2>&1 | cat");
    for ground in of_both() {
        for (it, expected) in [
            // Of `yes | head`, the first ends by SIGPIPE.
            (
                "$THRUFS run -- yes | head -n 1; echo ${PIPESTATUS[0]}",
                "y\n141\n",
            ),
            ("printf 'b\na\n' | $THRUFS run -- sort", "a\nb\n"),
            (opened.as_str(), "input\noutput\nerror\n"),
        ] {
            let output = script(&ground, it);
            assert_eq!(stdout(&output), expected, "{it}: {output:?}");
        }
    }
}

#[test]
fn command_of_run_has_arguments_environment_and_no_descriptors() {
    for ground in of_both() {
        let odd = OsStr::from_bytes(b"\xff a");
        let mut command = ground.inside("printf");
        let output = run(command.args(["%s|", "a b", "", "'\"$x*"]).arg(odd));
        assert_eq!(output.stdout, b"a b||'\"$x*|\xff a|", "{}", stderr(&output));
        let output = run(shell(&ground, "printf %s \"$X\"").env("X", odd));
        assert_eq!(output.stdout, b"\xff a");
        let output = script(&ground, "exec 7<file; $THRUFS run -- sh -c 'cat <&7'");
        fails(&output, 2, "7: Bad file descriptor");
    }
}

#[test]
fn command_of_run_begins_where_run_was_started() {
    // /tmp is another inside.
    let hidden = tempfile::tempdir_in("/tmp").unwrap();
    let mode = PermissionsExt::from_mode(0o755);
    fs::set_permissions(hidden.path(), mode).unwrap();
    for ground in of_both() {
        succeeded(&script(&ground, "mkdir sub; ln -s sub link"));
        let root = ground.tree.to_str().unwrap();
        for (directory, inside, expected) in [
            ("sub", "pwd", format!("{root}/sub\n")),
            ("link", "pwd; pwd -P", format!("{root}/link\n{root}/sub\n")),
            (
                "link",
                "echo $PWD; cd ..; cat file",
                format!("{root}/link\ncontent"),
            ),
            ("/usr/lib", "pwd", "/usr/lib\n".to_owned()),
            // Not visible inside: the tree instead.
            (
                hidden.path().to_str().unwrap(),
                "pwd; cat file",
                format!("{root}\ncontent"),
            ),
        ] {
            let run = format!("cd {directory}; $THRUFS run {root} -- sh -c '{inside}'");
            let output = script(&ground, &run);
            succeeded(&output);
            assert_eq!(stdout(&output), expected, "{directory}: {inside}");
        }
    }
}
