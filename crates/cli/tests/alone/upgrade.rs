//! `thrufs upgrade`: servers go on with another program, and programs do not notice.

mod share;

use crate::ground::metrics::{SCRAPE, exchanged, requests};
use crate::ground::{
    Ground, THRUFS, WITHOUT_OTHERS, copied_program, fails, run, stderr, succeeded, thrufs,
    users_can_mount, wait_for,
};
use crate::mount_resume::disturbed;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn program_of(process: Pid) -> PathBuf {
    fs::read_link(format!("/proc/{}/exe", process.as_raw_nonzero())).unwrap()
}

/// A program of a shell, which is given this or another role.
fn script(place: &Path, text: &str) -> PathBuf {
    let path = place.join("script");
    // By another process: see `copied_program`.
    let write = "printf '#!/bin/sh\n%s\n' \"$1\" >\"$2\"; chmod 755 \"$2\"";
    let mut shell = Command::new("sh");
    succeeded(&run(shell.args(["-c", write, "sh", text]).arg(&path)));
    path
}

fn upgrade_to(program: &Path, ground: &Ground) -> Output {
    upgrade_at(program, &ground.mnt)
}

fn upgrade_at(program: &Path, place: &Path) -> Output {
    let mut upgrade = Command::new(THRUFS);
    run(upgrade
        .args(["upgrade", "--program"])
        .args([program, place]))
}

/// `--all`, without the mounts of other tests.
fn upgrade_all(ground: &Ground) -> Output {
    let script = format!("{WITHOUT_OTHERS}; exec \"$2\" upgrade --all");
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    run(shell.arg("sh").arg(&ground.mnt).arg(THRUFS))
}

/// Whether both processes of the mount are of this program.
fn assert_served_by(ground: &Ground, supervisor: Pid, program: &Path) {
    for process in [supervisor, ground.process("--worker")] {
        assert_eq!(program_of(process), program);
    }
}

/// Runs the call while a program creates, reads and removes files, and fails with any of its calls.
fn while_used<T>(ground: &Ground, call: impl FnOnce() -> T) -> T {
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let used = scope.spawn(|| {
            let path = ground.mnt.join("used");
            while !ends.load(Ordering::SeqCst) {
                fs::write(&path, "used").unwrap();
                assert_eq!(fs::read(&path).unwrap(), b"used");
                fs::remove_file(&path).unwrap();
            }
        });
        let done = call();
        ends.store(true, Ordering::SeqCst);
        used.join().unwrap();
        done
    })
}

/// The child of a supervisor that executes sleep(1).
fn hanging(supervisor: Pid) -> Pid {
    let supervisor = supervisor.as_raw_nonzero();
    let mut found = None;
    wait_for("the new program to hang", || {
        let children = format!("/proc/{supervisor}/task/{supervisor}/children");
        let children = fs::read_to_string(children).unwrap();
        let children = children
            .split_whitespace()
            .filter_map(|it| Pid::from_raw(it.parse().unwrap()));
        let name = |child: &Pid| {
            let comm = format!("/proc/{}/comm", child.as_raw_nonzero());
            fs::read_to_string(comm).unwrap_or_default()
        };
        found = children.into_iter().find(|child| name(child) == "sleep\n");
        found.is_some()
    });
    found.unwrap()
}

fn upgrade_under_load(options: &str, seconds: u32, programs_run: &[&str], upgrades_min: u32) {
    let Some(ground) = Ground::new() else { return };
    let log = ground.path().join("log");
    let options = format!("resume=2,allow_other,log_file={},{options}", log.display());
    let mounted = ground.mount_in_foreground(&["-o", &options]);
    let other = copied_program(ground.path());
    let programs = [other.as_path(), THRUFS.as_ref()];
    let mut upgrades = 0;
    let output = disturbed(&ground, seconds, programs_run, || {
        let program = programs[upgrades as usize % 2];
        succeeded(&run(Command::new(program).arg("upgrade").arg(&ground.mnt)));
        upgrades += 1;
        assert_served_by(&ground, mounted.pid(), program);
        std::thread::sleep(Duration::from_millis(100));
    });
    let log = fs::read_to_string(log).unwrap();
    let said = stderr(&output);
    assert!(
        output.status.success(),
        "after {upgrades} upgrades: {said}\n{log}"
    );
    assert!(upgrades >= upgrades_min, "{upgrades} upgrades");
    mounted.ends_by(Signal::TERM);
    ground.wait_gone();
}

#[test]
fn programs_do_not_notice_upgrades() {
    upgrade_under_load("", 1, &["names", "appends", "data", "locks"], 3);
}

#[test]
#[ignore = "soak: minutes of upgrades under load"]
fn programs_do_not_notice_hundreds_of_upgrades() {
    for options in [
        "",
        "nopassthrough",
        "cache=never,follow=no,threads=1",
        "locks=local",
    ] {
        upgrade_under_load(options, 60, &[], 50);
    }
}

#[test]
fn programs_that_cannot_take_over_are_refused() {
    let Some(ground) = Ground::new() else { return };
    let mounted = ground.mount_in_foreground(&["-o", "resume=1"]);
    let worker = ground.process("--worker");
    let later = "its state has version 2, and the new program reads version 3";
    let on_mount = ground.mnt.join("thrufs");
    fs::copy(THRUFS, &on_mount).unwrap();
    for (program, why) in [
        ("/bin/true".into(), "does not say that it can take over"),
        (
            script(ground.path(), &format!("printf '{later}' >&0")),
            later,
        ),
        (ground.mnt.join("file"), "is a file of this mount"),
        (on_mount, "is a file of this mount"),
        (ground.path().into(), "not a regular file"),
        (ground.path().join("nothing"), "cannot open the program"),
    ] {
        fails(&upgrade_to(&program, &ground), 1, why);
        assert_eq!(ground.process("--worker"), worker, "{why}");
        assert_served_by(&ground, mounted.pid(), THRUFS.as_ref());
        ground.assert_serves();
    }
    mounted.ends_by(Signal::TERM);
}

#[test]
fn what_cannot_resume_is_not_upgraded() {
    let Some(ground) = Ground::new() else { return };
    let mounted = ground.mount_in_foreground(&[]);
    for output in [thrufs!("upgrade", &ground.mnt), upgrade_all(&ground)] {
        fails(&output, 1, "was mounted without resume=N");
    }
    ground.assert_serves();
    mounted.ends_by(Signal::TERM);
    fails(&thrufs!("upgrade", &ground.src), 1, "is not a mount point");
    let socket = ground.path().join("socket");
    let _share = UnixListener::bind(&socket).unwrap();
    fails(&thrufs!("upgrade", socket), 1, "it is none of thrufs");
    let mounted = ground.mount_in_foreground(&["-o", "resume=1,control=none"]);
    fails(&thrufs!("upgrade", &ground.mnt), 1, "control=none");
    mounted.ends_by(Signal::TERM);
    let control = format!(
        "resume=1,control={}",
        ground.path().join("control").display()
    );
    let mounted = ground.mount_in_foreground(&["-o", &control]);
    let at = ground.path().join("control");
    succeeded(&thrufs!("upgrade", "--control", at, &ground.mnt));
    mounted.ends_by(Signal::TERM);
    assert!(!ground.path().join("upgrade-control").exists());
}

/// The program reads the state, and its worker does not serve.
#[test]
fn the_old_program_goes_on_if_the_new_one_does_not_serve() {
    let Some(ground) = Ground::new() else { return };
    let mounted = ground.mount_in_foreground(&["-o", "resume=1"]);
    let take_over = format!("case $1 in --upgrade-check) exec {THRUFS} \"$@\";; esac");
    for (does, why) in [
        ("exit 3".to_owned(), "ended before it served"),
        ("kill -KILL $$".to_owned(), "ended before it served"),
        (format!("exec {THRUFS} \"$@\""), "is a script"),
    ] {
        let program = script(ground.path(), &format!("{take_over}; {does}"));
        let said = while_used(&ground, || fails(&upgrade_to(&program, &ground), 1, why));
        assert!(said.contains("the old one goes on"), "{said}");
        assert_served_by(&ground, mounted.pid(), THRUFS.as_ref());
    }
    // It hangs, until it is killed.
    let program = script(ground.path(), &format!("{take_over}; exec sleep 1000"));
    let said = while_used(&ground, || {
        std::thread::scope(|scope| {
            let upgrade =
                scope.spawn(|| fails(&upgrade_to(&program, &ground), 1, "before it served"));
            kill_process(hanging(mounted.pid()), Signal::KILL).unwrap();
            upgrade.join().unwrap()
        })
    });
    assert!(said.contains("the old one goes on"), "{said}");
    assert_served_by(&ground, mounted.pid(), THRUFS.as_ref());
    // None of them counts as a death.
    kill_process(ground.process("--worker"), Signal::KILL).unwrap();
    ground.assert_serves();
    mounted.ends_by(Signal::TERM);
}

#[test]
#[ignore = "soak: waits until a new program that hangs is given up"]
fn a_program_that_hangs_is_given_up() {
    let Some(ground) = Ground::new() else { return };
    let mounted = ground.mount_in_foreground(&["-o", "resume=1"]);
    let hangs = "case $1 in --upgrade-check) exec {THRUFS} \"$@\";; esac; exec sleep 1000";
    let program = script(ground.path(), &hangs.replace("{THRUFS}", THRUFS));
    while_used(&ground, || {
        fails(&upgrade_to(&program, &ground), 1, "does not serve in time")
    });
    assert_served_by(&ground, mounted.pid(), THRUFS.as_ref());
    let silent = script(ground.path(), "exec sleep 1000");
    while_used(&ground, || {
        fails(&upgrade_to(&silent, &ground), 1, "does not say that it can")
    });
    mounted.ends_by(Signal::TERM);
}

/// Root may, and the user who mounted, but not from a sandbox.
#[test]
fn a_mount_of_an_ordinary_user_is_upgraded_by_its_user() {
    let Some(ground) = Ground::new() else { return };
    let test = "upgrade::a_mount_of_an_ordinary_user_is_upgraded_by_its_user";
    if !users_can_mount(ground.path(), test) {
        return;
    }
    let program = copied_program(ground.path());
    for directory in [&ground.src, &ground.mnt] {
        chown(directory, Some(65_534), Some(65_534)).unwrap();
    }
    let by = |user: u32, before: &[&str], arguments: &[&str]| {
        let ids = [format!("--reuid={user}"), format!("--regid={user}")];
        let mut command = Command::new("env");
        command
            .current_dir("/")
            .args(before)
            .arg("setpriv")
            .args(ids);
        run(command.arg("--clear-groups").arg(&program).args(arguments))
    };
    let (src, mnt) = (ground.src.to_str().unwrap(), ground.mnt.to_str().unwrap());
    succeeded(&by(65_534, &[], &["mount", "-o", "resume=1", src, mnt]));
    let upgrade = ["upgrade", mnt];
    let worker = ground.process("--worker");
    let sandbox = ["unshare", "--mount", "--propagation", "private"];
    fails(
        &by(65_534, &sandbox, &upgrade),
        1,
        "only root may, and its user",
    );
    fails(&by(65_533, &[], &upgrade), 1, "only user 65534, the owner");
    assert_eq!(ground.process("--worker"), worker);
    succeeded(&by(65_534, &[], &upgrade));
    let supervisor = ground.process("--supervisor");
    assert_served_by(&ground, supervisor, &program);
    // The command's own program, as root.
    succeeded(&thrufs!("upgrade", &ground.mnt));
    assert_served_by(&ground, supervisor, THRUFS.as_ref());
    succeeded(&by(65_534, &[], &["unmount", mnt]));
    ground.wait_gone();
}

/// What the supervisor has beside the session: the policy in force, the deaths, the process that unmounts.
#[test]
fn what_a_supervisor_has_is_handed_over() {
    let Some(ground) = Ground::new() else { return };
    let policy = ground.path().join("policy.toml");
    let hide = |name: &str| {
        let rule = format!("[[rule]]\npath = \"{name}\"\naction = \"hide\"\n");
        fs::write(&policy, rule).unwrap();
    };
    for name in ["other", "locked"] {
        fs::write(ground.src.join(name), "").unwrap();
    }
    hide("other");
    let metrics = ground.path().join("metrics");
    let options = format!(
        "resume=1,auto_unmount,nopassthrough,policy={},metrics={}",
        policy.display(),
        metrics.display()
    );
    let scraped = || exchanged(UnixStream::connect(&metrics).unwrap(), SCRAPE);
    // In the background.
    succeeded(&ground.mount(&["-o", &options]));
    let supervisor = ground.process("--supervisor");
    let sees = |name: &str| ground.mnt.join(name).exists();
    // Files that only descriptors of the dead workers have: removed, and locked.
    let mut options = File::options();
    let options = options.create_new(true).read(true).write(true);
    let removed = options.open(ground.mnt.join("removed")).unwrap();
    removed.write_all_at(b"removed", 0).unwrap();
    fs::remove_file(ground.mnt.join("removed")).unwrap();
    let locked = File::open(ground.mnt.join("locked")).unwrap();
    let beneath = File::open(ground.src.join("locked")).unwrap();
    locked.try_lock().unwrap();
    let kill_worker = || kill_process(ground.process("--worker"), Signal::KILL).unwrap();
    hide("file");
    for _ in 0..2 {
        succeeded(&upgrade_all(&ground));
        assert_eq!(ground.process("--supervisor"), supervisor);
        ground.process("--auto-unmount");
        requests(&scraped());
        assert!(sees("file") && !sees("other"), "not reloaded");
        // Reading could be of what the kernel has cached.
        removed.write_all_at(b"removed", 0).unwrap();
        assert!(beneath.try_lock().is_err(), "the lock is held");
    }
    kill_worker();
    ground.assert_serves();
    succeeded(&thrufs!("upgrade", &ground.mnt));
    kill_process(supervisor, Signal::HUP).unwrap();
    wait_for("the policy to be reloaded", || {
        !sees("file") && sees("other")
    });
    drop((removed, locked));
    // One death within the minute is survived, and was before the upgrade.
    kill_worker();
    ground.wait_gone();
    wait_for("its file to be removed", || !metrics.exists());
    // And when the supervisor is killed.
    let mounted = ground.mount_in_foreground(&["-o", "resume=1,auto_unmount"]);
    succeeded(&thrufs!("upgrade", &ground.mnt));
    mounted.signal(Signal::KILL);
    ground.wait_gone();
    let error = fs::read(ground.mnt.join("file")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}
