//! What outlives the command, and deaths of the processes of `thrufs run`.

use super::{Expected, Talk, assert_inside, ground, grounds, inside};
use crate::ground::command_lines;
use crate::ground::prelude::*;
use crate::run_ground::{ON_TREE_OF_USER, PYTHON, RunGround, Who};

/// Waits until it is told that a process was killed, and looks what is left of the tree.
const WAITING: &str = "
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held, inside = os.open(tree, os.O_RDONLY), os.open(tree + '/file', os.O_RDONLY)
print('ready', flush=True)
sys.stdin.readline()

@attempt
def file():
    return read(tree + '/file')

@attempt
def file_by_a_descriptor():
    os.pread(inside, 100, 0)
    return read('file', held)

@attempt
def hidden():
    return secret()

@attempt
def hidden_by_a_descriptor():
    return read('.env', held)

@as_root
def unmount():
    umount(tree, DETACH)
";

/// The second and third are of requests that the death of the worker meets.
const ENDED: &str = "ENOTCONN|ECONNABORTED|ECANCELED";

const WITHOUT_WORKER: &[Expected<'_>] = &[
    ("file", ENDED, ""),
    ("file_by_a_descriptor", ENDED, ""),
    ("hidden", ENDED, ""),
    ("hidden_by_a_descriptor", ENDED, ""),
    ("unmount", "EINVAL", ""),
];

/// The processes whose arguments contain this text, but for the runner itself.
fn with(text: &str) -> Vec<(Pid, Vec<String>)> {
    let mut all = command_lines();
    all.retain(|(_, line)| line.iter().any(|argument| argument.contains(text)));
    all
}

/// The child of the runner with this role.
fn child(runner: Pid, role: &str) -> Pid {
    let parent = runner.as_raw_nonzero().to_string();
    let mut found = command_lines();
    found.retain(|(process, line)| {
        let is_role = line.get(1).is_some_and(|it| it == role);
        is_role
            && fs::exists(format!("/proc/{}", process.as_raw_nonzero())).unwrap()
            && status(*process, "PPid") == parent
    });
    assert_eq!(found.len(), 1, "{role} of {runner:?}: {found:?}");
    found[0].0
}

/// All processes that have something of this place in their arguments have ended.
fn nothing_is_left(ground: &RunGround) {
    let place = ground.path().to_str().unwrap();
    wait_for("all processes to end", || with(place).is_empty());
}

/// Kills a process, and waits until it is at most a zombie.
fn kill(victim: Pid) {
    kill_process(victim, Signal::KILL).unwrap();
    wait_for("the victim to end", || {
        let path = format!("/proc/{}/stat", victim.as_raw_nonzero());
        let stat = fs::read_to_string(path).unwrap_or_default();
        stat.rsplit_once(')')
            .is_none_or(|(_, rest)| rest.starts_with(" Z"))
    });
}

#[test]
fn nothing_outlives_a_process_of_the_sandbox_and_without_the_worker_there_is_no_tree() {
    for role in ["--worker", "runner", "--sandbox"] {
        for ground in grounds(ON_TREE_OF_USER) {
            let mut talk = Talk::start(&mut inside(&ground, &[], WAITING, &[]));
            talk.wait_for("ready");
            match role {
                "runner" => kill(talk.pid()),
                role => kill(child(talk.pid(), role)),
            }
            // Without its worker, the command goes on until it has looked.
            if role == "--worker" {
                talk.say("go");
                let output = talk.end();
                assert_inside(ground.who, &output, WITHOUT_WORKER);
                assert_eq!(output.status.code(), Some(125), "{output:?}");
                nothing_is_left(&ground);
                continue;
            }
            nothing_is_left(&ground);
            let output = talk.end();
            let status = (role == "--sandbox").then_some(125);
            assert_eq!(output.status.code(), status, "{role}: {output:?}");
            assert_eq!(stdout(&output), "", "{role}");
        }
    }
}

/// A process in a session of its own, whose parent has ended.
#[test]
fn nothing_outlives_the_command() {
    let Some(ground) = ground(Who::User) else {
        return;
    };
    let mark = ground.path().join("outlives");
    let script = "import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(3):
            os.close(number)
        time.sleep(1000)";
    let mut command = ground.thrufs_run(&[]);
    succeeded(&run(command.args([PYTHON, "-c", script]).arg(&mark)));
    nothing_is_left(&ground);
    let mut command = ground.outside(PYTHON);
    succeeded(&run(command.args(["-c", script]).arg(&mark)));
    let mut left = Vec::new();
    wait_for("it to be alone", || {
        left = with(mark.to_str().unwrap());
        left.len() == 1
    });
    kill_process(left[0].0, Signal::KILL).unwrap();
}
