//! The helper, called as mount(8) and systemd call it: automounts, remounts, and what options do to the mount.

use crate::ground::{
    Ground, detach, fails, mount_line, run, skipped, stderr, stdout, succeeded, thrufs,
    unmount_by_command,
};
use crate::run_ground::PYTHON;
use rustix::mount::{MountFlags, mount_bind, mount_remount};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

fn helper(ground: &Ground) -> PathBuf {
    let helper = ground.path().join("mount.fuse.thrufs");
    if !helper.exists() {
        symlink(crate::ground::THRUFS, &helper).unwrap();
    }
    helper
}

fn called(ground: &Ground, options: &str) -> Output {
    let mut command = Command::new(helper(ground));
    command.args([&ground.src, &ground.mnt]);
    run(command.args(["-o", options]))
}

/// The flags of the mount, and those of the file system.
fn flags(ground: &Ground) -> (String, String) {
    let line = mount_line(&ground.mnt);
    let flags = line.split(' ').nth(5).unwrap().to_owned();
    (flags, line.rsplit(' ').next().unwrap().to_owned())
}

#[test]
fn automount_is_answered_while_others_wait_for_it() {
    let Some(ground) = Ground::new() else { return };
    if !fs::read_to_string("/proc/filesystems")
        .unwrap()
        .contains("autofs")
    {
        return skipped("an automount: the kernel has no autofs");
    }
    if !Path::new(PYTHON).exists() {
        return skipped(&format!("an automount: no {PYTHON}"));
    }
    let script = include_str!("autofs.py");
    let mut automount = Command::new(PYTHON);
    automount.args(["-c", script]).arg(&ground.mnt);
    automount
        .arg(helper(&ground))
        .args([&ground.src, &ground.mnt]);
    // As of fstab, but for what mount(8) keeps to itself.
    let output = run(automount.args(["-o", "rw,allow_other,_netdev"]));
    assert_eq!(stdout(&output), "content", "{}", stderr(&output));
    succeeded(&output);
    unmount_by_command(&ground.mnt);
    detach(&ground.mnt);
    ground.wait_ended();
}

#[test]
fn remount_changes_what_the_kernel_can_and_refuses_the_rest() {
    let Some(ground) = Ground::new() else { return };
    succeeded(&called(
        &ground,
        "rw,noexec,allow_other,uidmap=0:0:1,uidmap=7:9:1",
    ));
    // As mount(8) passes them where fstab has no line: those that the mount table shows.
    let shown = "relatime,remount,user_id=0,group_id=0,default_permissions,allow_other";
    let remount = |options: &str| called(&ground, &format!("{options},{shown}"));
    for (options, of_mount, of_file_system) in [
        (
            "ro,nosuid,nodev,noexec",
            "ro,nosuid,nodev,noexec,relatime",
            "ro",
        ),
        (
            "rw,nosuid,nodev,nosymfollow",
            "rw,nosuid,nodev,relatime,nosymfollow",
            "rw",
        ),
        ("rw,sync", "rw,nosuid,nodev,relatime", "rw,sync"),
        ("rw,allow_suid,allow_dev", "rw,relatime", "rw"),
        // Neither mount(8)'s `suid` nor its absence is passed: it stays.
        ("rw", "rw,relatime", "rw"),
        ("rw,nosuid,nodev", "rw,nosuid,nodev,relatime", "rw"),
        (
            "rw,cache=auto,uidmap=0:0:1,uidmap=7:9:1",
            "rw,nosuid,nodev,relatime",
            "rw",
        ),
    ] {
        succeeded(&remount(options));
        let (mount, file_system) = flags(&ground);
        assert_eq!(mount, of_mount, "{options}");
        let expected = format!("{of_file_system},user_id=0,");
        assert!(
            file_system.starts_with(&expected),
            "{options}: {file_system}"
        );
    }
    let before = flags(&ground);
    for options in [
        "cache=never",
        "log=debug",
        "policy=/x",
        "uidmap=0:0:1",
        "noatime",
        "nodiratime",
    ] {
        // The last of opposites counts.
        let output = called(&ground, &format!("ro,{shown},{options}"));
        let said = fails(&output, 32, "cannot be changed by a remount");
        assert!(said.contains(&format!("`{options}`")), "{said}");
        assert_eq!(flags(&ground), before, "{options}");
    }
    fails(&remount("ro,alow_other"), 1, "did you mean");
    let mut checked = Command::new(helper(&ground));
    checked.args([&ground.src, &ground.mnt]);
    succeeded(&run(checked.args(["-f", "-o", &format!("ro,{shown}")])));
    assert_eq!(flags(&ground), before, "-f is fake");
    fs::write(ground.mnt.join("new"), "").unwrap();
    unmount_by_command(&ground.mnt);
    fails(&remount("ro"), 32, "is not a mount point");

    // A server that was started with `ro` writes nothing.
    succeeded(&called(&ground, "ro,noatime,control=none"));
    fails(&remount("ro"), 32, "no control socket");
    unmount_by_command(&ground.mnt);
    succeeded(&called(&ground, "ro,noatime"));
    fails(
        &called(&ground, "rw,noatime,remount"),
        32,
        "`rw` cannot be changed",
    );
    succeeded(&called(&ground, "ro,noatime,noexec,remount"));
    assert_eq!(flags(&ground).0, "ro,nosuid,nodev,noexec,noatime");
    unmount_by_command(&ground.mnt);
}

/// Times of access of a file and a directory after reading both through a mount.
fn read_through(ground: &Ground, options: &str) -> [bool; 2] {
    let [file, directory] = ["file", "directory"].map(|name| ground.src.join(name));
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let times = fs::FileTimes::new()
        .set_accessed(long_ago)
        .set_modified(long_ago);
    for path in [&file, &directory] {
        fs::File::open(path).unwrap().set_times(times).unwrap();
    }
    succeeded(&called(ground, options));
    ground.assert_serves();
    assert_eq!(
        fs::read_dir(ground.mnt.join("directory")).unwrap().count(),
        0
    );
    unmount_by_command(&ground.mnt);
    [&file, &directory].map(|path| fs::metadata(path).unwrap().atime() != 1_000_000_000)
}

#[test]
fn times_of_access_are_kept_as_the_options_say() {
    let Some(ground) = Ground::new() else { return };
    fs::create_dir(ground.src.join("directory")).unwrap();
    mount_bind(&ground.src, &ground.src).unwrap();
    for (source, flag) in [
        ("relatime", MountFlags::RELATIME),
        ("noatime", MountFlags::NOATIME),
    ] {
        mount_remount(&ground.src, MountFlags::BIND | flag, "").unwrap();
        let by_source = flag != MountFlags::NOATIME;
        for (option, expected) in [
            ("rw", [by_source; 2]),
            ("atime", [by_source; 2]),
            ("noatime", [false; 2]),
            ("relatime", [true; 2]),
            ("strictatime", [true; 2]),
            ("nodiratime", [by_source, false]),
            ("strictatime,nodiratime", [true, false]),
        ] {
            for path in ["passthrough", "nopassthrough"] {
                let options = format!("{option},{path}");
                let read = read_through(&ground, &options);
                assert_eq!(read, expected, "{options} of a source with {source}");
            }
        }
    }
    detach(&ground.src);
}

#[test]
fn a_mount_on_a_mount_is_made_with_a_warning() {
    let Some(ground) = Ground::new() else { return };
    succeeded(&ground.mount(&[]));
    fails(&ground.mount(&[]), 0, "the new mount covers it");
    unmount_by_command(&ground.mnt);
    ground.assert_serves();
    unmount_by_command(&ground.mnt);
    // What is mounted on the source itself is to cover it.
    for _ in 0..2 {
        let output = thrufs!("mount", &ground.src, &ground.src);
        succeeded(&output);
        assert!(!stderr(&output).contains("covers"), "{output:?}");
    }
    for _ in 0..2 {
        unmount_by_command(&ground.src);
    }
}

#[test]
fn sighup_without_a_terminal_asks_for_a_reload() {
    let Some(ground) = Ground::new() else { return };
    let server = ground.mount_in_foreground(&[]);
    server.signal_and_wait(Signal::HUP);
    ground.assert_serves();
    let said = server.ends_by(Signal::TERM);
    assert!(said.contains("SIGTERM: unmounting"), "{said}");
}

/// Closing the terminal takes a mount in the foreground away, unless nohup(1) started it.
#[test]
fn mount_in_the_foreground_ends_with_its_terminal() {
    let Some(ground) = Ground::new() else { return };
    if !Path::new(PYTHON).exists() {
        return skipped(&format!("a terminal that closes: no {PYTHON}"));
    }
    let script = "import os, pty, signal, sys
signal.alarm(100)
pid, terminal = pty.fork()
if pid == 0:
    if sys.argv[1] == 'nohup':
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.execv(sys.argv[2], sys.argv[2:])
said = b''
while b'mounted ' not in said:
    said += os.read(terminal, 4096)
if sys.argv[1] == 'nohup':
    os.kill(pid, signal.SIGHUP)
    while b'nothing to reload' not in said:
        said += os.read(terminal, 4096)
    os.kill(pid, signal.SIGTERM)
else:
    os.close(terminal)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";
    for how in ["closed", "nohup"] {
        let mut command = Command::new(PYTHON);
        command.args(["-c", script, how, crate::ground::THRUFS, "mount", "-f"]);
        succeeded(&run(command.args([&ground.src, &ground.mnt])));
        ground.wait_gone();
    }
}
