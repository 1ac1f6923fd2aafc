//! Process 1 of the sandbox, processes outside, and signals to them.

use super::{Expected, assert_inside, assert_outside, ground, grounds, inside, outside, words};
use crate::ground::prelude::*;
use crate::run_ground::{EVERYONE, PYTHON, RunGround, USER, Who};
use serde_json::json;
use std::process::Child;

const ATTEMPTS: &str = include_str!("processes.py");

const EXPECTED: &[Expected<'_>] = &[
    ("root_of_the_target", "EACCES", "SECRET"),
    ("working_directory_of_the_target", "EACCES", "SECRET"),
    ("descriptors_of_the_target", "EACCES", "done"),
    ("mapped_files_of_the_target", "EACCES", "done"),
    ("program_of_the_target", "EACCES", "done"),
    ("environment_of_the_target", "EACCES", "done"),
    ("memory_of_the_target", "EACCES", "done"),
    ("own_memory", "done", "done"),
    ("processes", "exe python3", "*"),
    ("trace", "EPERM", "done"),
    ("read_memory", "EPERM", "EFAULT"),
    ("take_a_descriptor", "EPERM", "done"),
    ("enter_namespaces", "EPERM", "*"),
    ("enter_namespaces_as_root", "EPERM", "*"),
    ("signal_by_number_outside", "ESRCH", "done"),
    ("signal_all", "done", "*"),
    ("signal_the_process_group", "done", "done"),
    ("kill_a_cgroup", "EROFS|EACCES", "*"),
    ("start_in_another_cgroup", "ENOSYS", "EINVAL"),
    ("mount_the_own_cgroup", "ENOSPC|EINVAL", "*"),
    ("write_to_sys", "none", "*"),
    ("kill_the_target", "S|R", "Z"),
];

/// A process that is killed on drop.
struct Sleeper(Child);

impl Sleeper {
    fn new(ground: &RunGround) -> Sleeper {
        let mut sleep = Command::new("sleep");
        sleep.arg("1000").uid(USER).gid(USER);
        Sleeper(sleep.current_dir(&ground.tree).spawn().unwrap())
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A cgroup that is delegated to the user.
struct Cgroup(PathBuf);

impl Cgroup {
    /// `None` without cgroups of the second version.
    fn new() -> Option<Cgroup> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let found = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let path = fields.next()?;
            (fields.next()? == "cgroup2").then(|| PathBuf::from(path))
        })?;
        let path = found.join(format!("thrufs-run-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let cgroup = Cgroup(path);
        for path in [cgroup.0.clone(), cgroup.0.join("cgroup.kill")] {
            chown(path, Some(USER), Some(USER)).ok()?;
        }
        Some(cgroup)
    }

    fn add(&self, process: &Sleeper) {
        fs::write(self.0.join("cgroup.procs"), process.0.id().to_string()).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Runs its arguments as a script does, and says what signals reach it.
const STARTER: &str = "trap 'echo leaked: USR1' USR1; \"$@\"; echo starter: $?";

/// The same command as the user, or as root, started by [`STARTER`] in a process group of its own.
fn started(ground: &RunGround, command: &Command) -> Output {
    let mut shell = ground.starter("sh".as_ref());
    shell.args(["-c", STARTER, "sh"]).args(words(command));
    run(shell.process_group(0))
}

#[test]
fn processes_outside_and_process_1_are_not_reached() {
    for ground in grounds(EVERYONE) {
        let cgroup = Cgroup::new();
        let mut member = Sleeper::new(&ground);
        if let Some(cgroup) = &cgroup {
            cgroup.add(&member);
        }
        let path = cgroup.as_ref().map(|cgroup| cgroup.0.clone());
        let mut more = [
            ("target", json!(1)),
            ("outside", json!(member.0.id())),
            ("address", json!(4096)),
            ("cgroup", json!(path.unwrap_or("/sys".into()))),
        ];
        let output = started(&ground, &inside(&ground, &[], ATTEMPTS, &more));
        let starter = [("starter", "0", "")];
        assert_inside(ground.who, &output, &[EXPECTED, &starter].concat());
        assert!(member.is_alive());
        if ground.who == Who::User {
            let mut target = Sleeper::new(&ground);
            more[0].1 = json!(target.0.id());
            let output = started(&ground, &outside(&ground, ATTEMPTS, &more));
            let starter = [("starter", "", "0"), ("leaked", "", "USR1")];
            assert_outside(&output, &[EXPECTED, &starter].concat());
            assert!(!target.is_alive());
            assert!(cgroup.is_none() || !member.is_alive(), "cgroup.kill");
        }
    }
}

#[test]
fn sigkill_to_the_process_group_ends_neither_runner_nor_script() {
    let Some(ground) = ground(Who::User) else {
        return;
    };
    let kill = "import os; os.kill(0, 9)";
    let mut command = ground.thrufs_run(&[]);
    let output = started(&ground, command.args([PYTHON, "-c", kill]));
    assert_eq!(stdout(&output), "starter: 137\n", "{output:?}");
    let output = started(&ground, ground.outside(PYTHON).args(["-c", kill]));
    assert_eq!(stdout(&output), "");
}
