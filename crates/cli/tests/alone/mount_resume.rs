//! Mounts that outlive their servers (`resume=N`): workers are killed, and programs do not notice.

use crate::ground::{
    Foreground, Ground, THRUFS, mount_tmpfs, run, stderr, stdout, succeeded, thrufs, wait_for,
};
use rustix::fs::{FlockOperation, fcntl_lock, minor, stat, statvfs};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// For callers to be answered, beside the time that a test takes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Aborts the connection of a mount if its test takes too long: callers whose requests were read cannot be killed, and
/// the test would hang.
struct Watchdog {
    _end: Sender<()>,
}

impl Watchdog {
    fn new(mountpoint: &Path, limit: Duration) -> Watchdog {
        let connection = minor(stat(mountpoint).unwrap().st_dev);
        let abort = thrufs::mount::abort_file(connection).unwrap();
        let (end, ended) = channel();
        let shown = mountpoint.display().to_string();
        thread::spawn(move || {
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("requests to {shown} are not answered: aborting the connection");
                thrufs::mount::abort_by(abort).unwrap();
            }
        });
        Watchdog { _end: end }
    }
}

/// Mounts, with a [`Watchdog`].
fn mount(ground: &Ground, options: &str) -> (Foreground, Watchdog) {
    let mounted = ground.mount_in_foreground(&["-o", options]);
    (mounted, Watchdog::new(&ground.mnt, ANSWER_TIMEOUT))
}

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
        thread::sleep(pause * (number * 37 % 100) / 100);
        for worker in ground.processes("--worker") {
            kills += u32::from(kill_process(worker, Signal::KILL).is_ok());
        }
    });
    let log = fs::read_to_string(log).unwrap();
    assert!(
        output.status.success(),
        "after {kills} kills ({options}): {}\n{log}",
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
    let limit = ANSWER_TIMEOUT + Duration::from_secs(seconds.into());
    let _watchdog = Watchdog::new(&ground.mnt, limit);
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
    thread::scope(|scope| {
        for options in [
            "",
            "writeback",
            "cache=never,follow=no,threads=1,nopassthrough",
        ] {
            scope.spawn(|| kill_under_load(options, 5, Duration::from_millis(500)));
        }
    });
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
        "writeback",
        "writeback,nopassthrough,follow=no",
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
    mount_tmpfs(&ground.src);
    fs::write(ground.src.join("file"), "content").unwrap();
    let free = || statvfs(&ground.src).unwrap().f_bfree;
    let free_before = free();
    let (mounted, _watchdog) = mount(&ground, "resume=10");
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
    for number in 0..5 {
        fs::remove_file(ground.src.join(format!("closed{number}"))).unwrap();
    }
    wait_for("the blocks of removed files", || free() == free_before);
    drop(file);
    wait_for("the last registration", || {
        let output = thrufs!("ctl", &ground.mnt, "statistics");
        stdout(&output).contains("open_files=0 ")
    });
    assert_eq!(fs::read(&path).unwrap(), b"content");
    mounted.signal_and_wait(Signal::TERM);
}

/// Others do not get a lock that is held, and whoever waits for it does not wait for ever.
#[test]
fn locks_and_waits_for_them_outlive_servers() {
    let Some(ground) = Ground::new() else { return };
    let (mounted, _watchdog) = mount(&ground, "resume=10");
    for name in ["whole", "range"] {
        fs::write(ground.src.join(name), "").unwrap();
    }
    let open =
        |directory: &Path, name: &str| File::options().write(true).open(directory.join(name));
    let [whole, range] = ["whole", "range"].map(|name| open(&ground.mnt, name).unwrap());
    whole.lock().unwrap();
    fcntl_lock(&range, FlockOperation::LockExclusive).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| open(&ground.mnt, "whole").unwrap().lock());
        wait_for("the server to wait", || is_awaited(&whole));
        replace(&ground);
        ground.assert_serves();
        let beneath = ["whole", "range"].map(|name| open(&ground.src, name).unwrap());
        assert!(beneath[0].try_lock().is_err(), "another has it");
        let taken = fcntl_lock(&beneath[1], FlockOperation::NonBlockingLockExclusive);
        assert!(taken.is_err(), "another has it");
        whole.unlock().unwrap();
        waiting.join().unwrap().unwrap();
        fcntl_lock(&range, FlockOperation::Unlock).unwrap();
        fcntl_lock(&beneath[1], FlockOperation::NonBlockingLockExclusive).unwrap();
    });
    mounted.signal_and_wait(Signal::TERM);
}

/// Whether somebody waits for a lock of this file, or of that beneath, which has its number.
fn is_awaited(file: &File) -> bool {
    let number = format!(":{} ", file.metadata().unwrap().ino());
    let locks = fs::read_to_string("/proc/locks").unwrap();
    locks
        .lines()
        .any(|lock| lock.contains("->") && lock.contains(&number))
}

#[test]
fn too_many_deaths_end_the_mount() {
    let Some(ground) = Ground::new() else { return };
    let (mounted, _watchdog) = mount(&ground, "resume=1");
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
    let (mounted, _watchdog) = mount(&ground, "resume=10,nopassthrough");
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
    let (mounted, _watchdog) = mount(&ground, &options);
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
    let _watchdog = Watchdog::new(&inside, ANSWER_TIMEOUT);
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
    let (mounted, _watchdog) = mount(&ground, "resume=10");
    mounted.signal(Signal::STOP);
    kill_process(ground.process("--worker"), Signal::KILL).unwrap();
    crate::ground::unmount(&ground.mnt);
    mounted.signal(Signal::CONT);
    // As any unmounting that it did not ask for: nothing is left, and it says what it saw.
    let (_, said) = mounted.wait();
    assert!(!said.contains("panicked"), "{said}");
    ground.wait_gone();
}

/// It was asked to end, and did what it was asked.
#[test]
fn a_supervisor_whose_server_is_dead_ends_with_success() {
    let Some(ground) = Ground::new() else { return };
    let (mounted, _watchdog) = mount(&ground, "resume=10");
    mounted.signal(Signal::STOP);
    let worker = ground.process("--worker");
    kill_process(worker, Signal::KILL).unwrap();
    let stat = format!("/proc/{}/stat", worker.as_raw_nonzero());
    wait_for("the server to be dead", || {
        fs::read_to_string(&stat).unwrap().contains(") Z ")
    });
    mounted.signal(Signal::TERM);
    mounted.signal(Signal::CONT);
    mounted.ends(0);
    ground.wait_gone();
}

#[test]
fn resume_needs_dev_fuse() {
    let Some(ground) = Ground::new() else { return };
    let (mounted, _watchdog) = mount(&ground, "resume=10");
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
