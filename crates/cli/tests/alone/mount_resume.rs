//! Mounts that outlive their servers (`resume=N`): workers are killed, and programs do not notice.

use crate::ground::{Foreground, Ground, THRUFS, run, stderr, stdout, succeeded, thrufs, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Kills the worker, and waits for the next.
fn replace(ground: &Ground) -> Pid {
    let worker = ground.process("--worker");
    kill_process(worker, Signal::KILL).unwrap();
    let mut next = Vec::new();
    wait_for("the next worker", || {
        next = ground.processes("--worker");
        next.iter().any(|process| *process != worker)
    });
    next.retain(|process| *process != worker);
    next[0]
}

/// Kills workers while programs run for so long.
fn kill_under_load(options: &str, seconds: u32, pause: Duration) {
    let Some(ground) = Ground::new() else { return };
    let log = ground.path().join("log");
    let options = format!(
        "resume=1000000,allow_other,log_file={},{options}",
        log.display()
    );
    let mounted = ground.mount_in_foreground(&["-o", &options]);
    let (mut kills, mut number) = (0, 0u32);
    let output = disturbed(&ground, seconds, &[], || {
        // Some while they begin to go on.
        number += 1;
        std::thread::sleep(pause * (number * 37 % 100) / 100);
        for worker in ground.processes("--worker") {
            kills += u32::from(kill_process(worker, Signal::KILL).is_ok());
        }
    });
    let log = fs::read_to_string(log).unwrap();
    assert!(
        output.status.success(),
        "after {kills} kills: {}\n{log}",
        stderr(&output)
    );
    assert!(kills > seconds, "{kills} kills");
    mounted.signal_and_wait(Signal::TERM);
}

/// Runs programs on the mount for so long, all or those of these names, and calls `disturb` meanwhile.
pub fn disturbed(
    ground: &Ground,
    seconds: u32,
    names: &[&str],
    mut disturb: impl FnMut(),
) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/alone/mount_resume.py");
    let mut programs = Command::new("python3");
    programs
        .arg(script)
        .arg(&ground.mnt)
        .arg(seconds.to_string())
        .arg(&ground.src)
        .args(names);
    let mut programs = programs.stderr(Stdio::piped()).spawn().unwrap();
    while programs.try_wait().unwrap().is_none() {
        disturb();
    }
    programs.wait_with_output().unwrap()
}

#[test]
fn programs_do_not_notice_killed_servers() {
    for options in ["", "nopassthrough", "cache=never,follow=no,threads=1"] {
        kill_under_load(options, 4, Duration::from_millis(500));
    }
}

#[test]
#[ignore = "takes minutes"]
fn programs_do_not_notice_a_thousand_killed_servers() {
    let policy = format!(
        "policy={}",
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../dist/policies/workspace.toml"
        )
    );
    for options in [
        "",
        "nopassthrough",
        "cache=metadata,nopassthrough",
        "follow=no",
        "locks=local",
        &policy,
    ] {
        kill_under_load(options, 60, Duration::from_millis(400));
    }
}

#[test]
fn files_under_passthrough_keep_their_registration() {
    let Some(ground) = Ground::new() else { return };
    let mounted = ground.mount_in_foreground(&["-o", "resume=10"]);
    for number in 0..5 {
        fs::write(ground.mnt.join(format!("closed{number}")), "x").unwrap();
    }
    let path = ground.mnt.join("file");
    let mut file = File::options().read(true).write(true).open(&path).unwrap();
    for _ in 0..2 {
        replace(&ground);
        // Another registration for an open file would be EIO.
        assert_eq!(fs::read(&path).unwrap(), b"content");
        file.write_all_at(b"C", 0).unwrap();
        file.write_all_at(b"c", 0).unwrap();
        let mut byte = [0];
        file.read_exact(&mut byte).unwrap();
    }
    // The others are not left with the kernel: their numbers are closed, and only ours is known.
    let output = thrufs!("explain", &path);
    assert!(
        stdout(&output).contains("passthrough"),
        "{}",
        stdout(&output)
    );
    wait_for("registrations of the dead", || {
        let output = thrufs!("ctl", &ground.mnt, "statistics");
        stdout(&output).contains("backing_files=1 ")
    });
    drop(file);
    wait_for("the last registration", || {
        let output = thrufs!("ctl", &ground.mnt, "statistics");
        stdout(&output).contains("open_files=0 ")
    });
    assert_eq!(fs::read(&path).unwrap(), b"content");
    mounted.signal_and_wait(Signal::TERM);
}

#[test]
fn too_many_deaths_end_the_mount() {
    let Some(ground) = Ground::new() else { return };
    let mounted = ground.mount_in_foreground(&["-o", "resume=1"]);
    replace(&ground);
    ground.assert_serves();
    kill_process(ground.process("--worker"), Signal::KILL).unwrap();
    let said = mounted.ends(1);
    assert!(
        said.contains("its workers died 2 times within a minute"),
        "{said}"
    );
    let error = fs::read(ground.mnt.join("file")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected);
}

/// What happened beneath while nobody served is not hidden by what the kernel has kept.
#[test]
fn changes_beneath_while_nobody_serves_are_seen() {
    let Some(ground) = Ground::new() else { return };
    let mounted = ground.mount_in_foreground(&["-o", "resume=10,nopassthrough"]);
    for name in ["gone", "grown", "replaced"] {
        fs::write(ground.src.join(name), "1").unwrap();
        assert_eq!(fs::read(ground.mnt.join(name)).unwrap(), b"1");
    }
    assert_eq!(fs::read_dir(&ground.mnt).unwrap().count(), 4);
    let grown = File::open(ground.mnt.join("grown")).unwrap();
    mounted.signal(Signal::STOP);
    kill_process(ground.process("--worker"), Signal::KILL).unwrap();
    fs::remove_file(ground.src.join("gone")).unwrap();
    fs::write(ground.src.join("grown"), "more").unwrap();
    fs::write(ground.src.join("other"), "2").unwrap();
    fs::rename(ground.src.join("other"), ground.src.join("replaced")).unwrap();
    fs::write(ground.src.join("new"), "3").unwrap();
    mounted.signal(Signal::CONT);
    // The kernel has the names until the next one begins.
    wait_for("the next to begin", || !ground.mnt.join("gone").exists());
    assert_eq!(fs::read(ground.mnt.join("replaced")).unwrap(), b"2");
    assert_eq!(fs::read(ground.mnt.join("new")).unwrap(), b"3");
    // The kernel is told at once, and not asked.
    wait_for("what is open to be known anew", || {
        let mut bytes = [0; 4];
        grown.metadata().unwrap().size() == 4
            && grown.read_at(&mut bytes, 0).unwrap() == 4
            && &bytes == b"more"
            && fs::read_dir(&ground.mnt).unwrap().count() == 4
    });
}

/// The next server has the policy that was in force, not the file.
#[test]
fn the_policy_in_force_stays() {
    let Some(ground) = Ground::new() else { return };
    let (policy, mnt) = (ground.path().join("policy.toml"), &ground.mnt);
    let hide = |name: &str| {
        fs::write(
            &policy,
            format!("[[rule]]\npath = \"{name}\"\naction = \"hide\"\n"),
        )
    };
    for name in ["one", "two"] {
        fs::write(ground.src.join(name), name).unwrap();
    }
    hide("one").unwrap();
    let options = format!("resume=10,policy={}", policy.display());
    let mounted = ground.mount_in_foreground(&["-o", &options]);
    let sees = |name: &str| mnt.join(name).exists();
    hide("two").unwrap();
    replace(&ground);
    assert!(!sees("one") && sees("two"), "not reloaded");
    mounted.signal(Signal::HUP);
    wait_for("the other policy", || sees("one") && !sees("two"));
    fs::remove_file(&policy).unwrap();
    replace(&ground);
    assert!(sees("one") && !sees("two"), "reloaded");
}

/// The mount point is in the source: the next worker gets the mounts as they were before.
#[test]
fn a_mount_within_its_source_goes_on() {
    let Some(ground) = Ground::new() else { return };
    let inside = ground.src.join("inside");
    fs::create_dir(&inside).unwrap();
    let mut command = Command::new(THRUFS);
    command
        .args(["mount", "-o", "resume=10"])
        .args([&ground.src, &inside]);
    succeeded(&run(&mut command));
    for _ in 0..2 {
        let worker = crate::ground::processes("--worker", &inside)[0];
        kill_process(worker, Signal::KILL).unwrap();
        assert_eq!(fs::read(inside.join("file")).unwrap(), b"content");
    }
    crate::ground::unmount_by_command(&inside);
}

/// Unmounting does not wait for a server that is dead.
#[test]
fn a_mount_is_unmounted_while_nobody_serves() {
    let Some(ground) = Ground::new() else { return };
    let mounted = ground.mount_in_foreground(&["-o", "resume=10"]);
    mounted.signal(Signal::STOP);
    kill_process(ground.process("--worker"), Signal::KILL).unwrap();
    crate::ground::unmount(&ground.mnt);
    mounted.signal(Signal::CONT);
    // As any unmounting that it did not ask for: nothing is left, and it says what it saw.
    let (_, said) = mounted.wait();
    assert!(!said.contains("panicked"), "{said}");
    ground.wait_gone();
}

#[test]
fn resume_needs_dev_fuse() {
    let Some(ground) = Ground::new() else { return };
    let mounted: Foreground = ground.mount_in_foreground(&["-o", "resume=10"]);
    let output = thrufs!("ctl", &ground.mnt, "statistics");
    assert!(
        stdout(&output).contains("transport: /dev/fuse"),
        "{}",
        stdout(&output)
    );
    let mut file = File::create(ground.mnt.join("new")).unwrap();
    file.write_all(b"1").unwrap();
    replace(&ground);
    let output = thrufs!("ctl", &ground.mnt, "statistics");
    assert!(
        stdout(&output).contains("1 resumptions"),
        "{}",
        stdout(&output)
    );
    mounted.signal_and_wait(Signal::TERM);
}
