//! Mounting and unmounting.

use crate::ground::prelude::*;
use crate::ground::{is_mount, mount_line, status_set, stop_process};
use rustix::mount::MountPropagationFlags;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Instant;

#[test]
fn mount_serves_and_unmount_leaves_nothing() {
    let Some(ground) = Ground::new() else { return };
    let output = ground.mount(&[]);
    succeeded(&output);
    assert_eq!(stderr(&output), "", "success is silent");
    ground.assert_serves();
    fs::write(ground.mnt.join("new"), "through").unwrap();
    assert_eq!(fs::read(ground.src.join("new")).unwrap(), b"through");
    let line = mount_line(&ground.mnt);
    for part in ["fuse.thrufs", "nosuid,nodev", ground.src.to_str().unwrap()] {
        assert!(line.contains(part), "{line}");
    }

    ground::unmount_by_command(&ground.mnt);
    assert!(!ground.is_mounted());
    for role in ["--supervisor", "--worker"] {
        let left = ground.processes(role);
        assert!(left.is_empty(), "unmount waits for the server");
    }
    assert_eq!(fs::read_dir(&ground.mnt).unwrap().count(), 0);
}

#[test]
fn a_source_with_a_long_path() {
    let Some(mut ground) = Ground::new() else {
        return;
    };
    // Longer than a parameter of the mount API (256 bytes with its NUL), which is not used here.
    let name = "x".repeat(200);
    let deep = ground.path().join(&name).join(&name);
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("file"), "content").unwrap();
    ground.src = deep;
    succeeded(&ground.mount(&[]));
    ground.assert_serves();
    let line = mount_line(&ground.mnt);
    assert!(line.contains(ground.src.to_str().unwrap()), "{line}");
    ground::unmount_by_command(&ground.mnt);
}

#[test]
fn unmount_reports_why_it_fails() {
    let Some(ground) = Ground::new() else { return };
    let unmount = || thrufs!("unmount", &ground.mnt);
    fails(&unmount(), 1, "is not mounted");
    fails(&thrufs!("unmount", "/proc"), 1, "umount");
    assert!(is_mount(Path::new("/proc")), "left alone");

    succeeded(&ground.mount(&[]));
    let open = File::open(ground.mnt.join("file")).unwrap();
    let said = fails(&unmount(), 1, "in use");
    assert!(said.contains("--lazy"), "{said}");
    ground.assert_serves();
    succeeded(&thrufs!("unmount", "--lazy", &ground.mnt));
    assert!(!ground.is_mounted());
    let length = open.metadata().unwrap().len();
    assert_eq!(length, 7, "users keep what they have");
    drop(open);
    ground.wait_gone();
}

#[test]
fn umount_by_another_process_ends_both_processes() {
    let Some(ground) = Ground::new() else { return };
    succeeded(&ground.mount(&[]));
    ground::unmount(&ground.mnt);
    ground.wait_gone();

    let server = ground.mount_in_foreground(&[]);
    ground::unmount(&ground.mnt);
    let said = server.ends(0);
    assert!(said.contains("was unmounted"), "{said}");
}

#[test]
fn signals_unmount_an_idle_mount_at_once() {
    let Some(ground) = Ground::new() else { return };
    for (signal, name, to_worker) in [
        (Signal::TERM, "SIGTERM", false),
        (Signal::INT, "SIGINT", false),
        (Signal::TERM, "SIGTERM", true),
    ] {
        // A mount in use would be waited for far longer than an idle one takes.
        let server = ground.mount_in_foreground(&["--stop-timeout=600"]);
        match to_worker {
            true => kill_process(ground.process("--worker"), signal).unwrap(),
            false => server.signal(signal),
        }
        let said = server.ends(0);
        assert!(said.contains(&format!("{name}: unmounting")), "{said}");
        assert!(said.contains("unmounted "), "{said}");
        ground.wait_gone();
    }
}

/// After a reply of the mount, a signal must unmount it, even before the supervisor has the event.
#[test]
fn signal_right_after_the_first_reply_is_no_failure() {
    let Some(ground) = Ground::new() else { return };
    for _ in 0..20 {
        let server = ground.start_in_foreground(&[]);
        let began = Instant::now();
        while !ground.mnt.join("file").exists() {
            assert!(began.elapsed() < Duration::from_secs(60), "no mount");
        }
        server.ends_by(Signal::TERM);
        ground.wait_gone();
    }
}

#[test]
fn busy_mount_is_detached_after_the_timeout() {
    let Some(ground) = Ground::new() else { return };
    let server = ground.mount_in_foreground(&["--stop-timeout=1", "--nopassthrough"]);
    let mut open = append_to(&ground.mnt.join("file"));
    open.write_all(b" and more").unwrap();
    let began = Instant::now();
    server.signal(Signal::TERM);
    let said = server.ends(0);
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(1), "{took:?}: {said}");
    for part in ["waiting up to 1 s", "still in use"] {
        assert!(said.contains(part), "{said}");
    }
    ground.wait_gone();
    let written = fs::read(ground.src.join("file")).unwrap();
    assert_eq!(written, b"content and more");
    let error = open.write_all(b"too late").unwrap_err();
    // Over io_uring, a request that comes while the connection ends gets one of the others.
    let over = [libc::ENOTCONN, libc::ECONNABORTED, libc::ECANCELED];
    assert!(over.contains(&error.raw_os_error().unwrap()), "{error}");
}

#[test]
fn busy_mount_is_detached_with_what_the_kernel_has_not_yet_written() {
    let Some(ground) = Ground::new() else { return };
    let server = ground.mount_in_foreground(&["--stop-timeout=1", "--writeback"]);
    // It closes no copy of the file, as a process that starts others does: that would write the data back.
    let script = "exec >>\"$1\" && printf ' and more' && read end";
    let mut writer = Command::new("sh");
    writer
        .args(["-c", script, "sh"])
        .arg(ground.mnt.join("file"));
    let mut writer = writer.stdin(Stdio::piped()).spawn().unwrap();
    wait_for("it to write", || {
        fs::metadata(ground.mnt.join("file")).unwrap().len() == 16
    });
    let said = server.ends_by(Signal::TERM);
    assert!(said.contains("still in use"), "{said}");
    ground.wait_gone();
    let written = fs::read(ground.src.join("file")).unwrap();
    assert_eq!(written, b"content and more");
    drop(writer.stdin.take());
    writer.wait().unwrap();
}

fn append_to(path: &Path) -> File {
    fs::OpenOptions::new().append(true).open(path).unwrap()
}

#[test]
fn passthrough_file_outlives_its_mount() {
    let Some(ground) = Ground::new() else { return };
    let server = ground.mount_in_foreground(&["--stop-timeout=1"]);
    let mut open = append_to(&ground.mnt.join("file"));
    server.ends_by(Signal::TERM);
    ground.wait_gone();
    open.write_all(b" and more").unwrap();
    let written = fs::read(ground.src.join("file")).unwrap();
    assert_eq!(written, b"content and more");
}

#[test]
fn busy_mount_released_in_time_ends_cleanly() {
    let Some(ground) = Ground::new() else { return };
    let server = ground.mount_in_foreground(&[]);
    let open = File::open(ground.mnt.join("file")).unwrap();
    server.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(500));
    assert!(ground.is_mounted());
    drop(open);
    let said = server.ends(0);
    assert!(!said.contains("still in use"), "{said}");
}

#[test]
fn a_second_signal_does_not_wait() {
    let Some(ground) = Ground::new() else { return };
    let server = ground.mount_in_foreground(&["--stop-timeout=600"]);
    let _open = File::open(ground.mnt.join("file")).unwrap();
    server.signal_and_wait(Signal::INT);
    let said = server.ends_by(Signal::INT);
    assert!(said.contains("second signal"), "{said}");
}

#[test]
fn hung_worker_is_killed_in_bounded_time() {
    let Some(ground) = Ground::new() else { return };
    let server = ground.mount_in_foreground(&["--stop-timeout=1", "-o", "cache=never"]);
    stop_process(ground.process("--worker"));
    let path = ground.mnt.join("file");
    let client = std::thread::spawn(move || fs::read(path));
    std::thread::sleep(Duration::from_millis(200));
    let said = server.ends_by(Signal::TERM);
    assert!(said.contains("killing it"), "{said}");
    assert!(client.join().unwrap().is_err(), "its client gets an error");
    ground.wait_gone();
}

#[test]
fn system_calls_are_filtered() {
    let Some(ground) = Ground::new() else { return };
    let server = ground.mount_in_foreground(&[]);
    // Load that starts further threads.
    std::thread::scope(|scope| {
        for number in 0..8 {
            let path = ground.mnt.join(format!("file {number}"));
            scope.spawn(move || File::create(path).unwrap().sync_all().unwrap());
        }
    });
    ground.assert_serves();
    let field = |status: &str, name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    };
    let own = fs::read_to_string("/proc/thread-self/status").unwrap();
    let inherited: u32 = field(&own, "Seccomp_filters:").parse().unwrap();
    let worker = ground.process("--worker").as_raw_nonzero();
    let mut threads: Vec<(String, String)> = Vec::new();
    let are_filtered = || {
        threads = fs::read_dir(format!("/proc/{worker}/task"))
            .unwrap()
            .filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok())
            .inspect(|status| assert_eq!(field(status, "Seccomp:"), "2", "{status}"))
            .map(|status| (field(&status, "Name:"), field(&status, "Seccomp_filters:")))
            .collect();
        threads
            .iter()
            .all(|(_, filters)| filters.parse() == Ok(inherited + 2))
    };
    // Standby threads need time to release their memory.
    wait_for("two filters for each thread", are_filtered);
    let names: Vec<&str> = threads.iter().map(|(name, _)| name.as_str()).collect();
    for expected in ["worker", "watcher", "monitor", "0"] {
        let expected = format!("thrufs-{expected}");
        assert!(names.contains(&&*expected), "no {expected} in {names:?}");
    }
    let said = server.ends_by(Signal::TERM);
    for part in ["not filtered", "panicked"] {
        assert!(!said.contains(part), "{said}");
    }
}

#[test]
fn killed_launcher_leaves_no_mount() {
    let Some(ground) = Ground::new() else { return };
    // At several moments, as it may be too late.
    for delay_ms in [0, 1, 2, 4, 8, 16] {
        let mut launcher = Command::new(THRUFS);
        launcher.arg("mount").args([&ground.src, &ground.mnt]);
        let mut launcher = launcher.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay_ms));
        launcher.kill().unwrap();
        let _ = launcher.wait();
        std::thread::sleep(Duration::from_millis(300));
        // A supervisor that has not noticed the end of the launcher may still be mounting.
        let mut is_served = false;
        wait_for("a mount that serves, or none", || {
            let read = fs::read_to_string(ground.mnt.join("file"));
            is_served = read.is_ok_and(|content| content == "content");
            is_served || !ground.is_mounted()
        });
        if is_served {
            let _ = thrufs!("unmount", &ground.mnt);
        }
        ground.wait_gone();
    }
}

#[test]
fn statistics_go_to_the_log_file_and_sighup_is_ignored_in_the_background() {
    let Some(ground) = Ground::new() else { return };
    let log = ground.path().join("log");
    succeeded(&ground.mount(&["--log-file", log.to_str().unwrap()]));
    ground.assert_serves();
    let count = || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.lines()
            .filter(|l| l.contains("inodes=") && l.contains("descriptors="))
            .count()
    };
    for (role, lines) in [("--supervisor", 1), ("--worker", 2)] {
        // Of pending signals, the lowest number is delivered first.
        for signal in [Signal::HUP, Signal::USR1] {
            kill_process(ground.process(role), signal).unwrap();
        }
        wait_for("a line of statistics", || count() == lines);
    }
    let text = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.windows(2).filter(|pair| pair[1].contains("inodes=")) {
        let carrier = pair[0].split_once(": transport: ");
        let known = |c: &str| c.starts_with("io_uring: ") || c.starts_with("/dev/fuse");
        assert!(carrier.is_some_and(|(_, it)| known(it)), "{}", pair[0]);
    }
    for part in ["mounted ", "LOOKUP"] {
        assert!(text.contains(part), "{text}");
    }
    ground::unmount_by_command(&ground.mnt);
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains("was unmounted"), "{text}");
}

#[test]
fn a_mount_over_around_and_within_its_own_source() {
    let Some(ground) = Ground::new() else { return };
    let inner = ground.src.join("inner");
    fs::create_dir(&inner).unwrap();
    for place in [ground.src.as_path(), ground.path(), &inner] {
        succeeded(&thrufs!("mount", &ground.src, place));
        assert!(is_mount(place));
        assert_eq!(fs::read(place.join("file")).unwrap(), b"content");
        let within = fs::read_dir(place.join("inner")).unwrap();
        assert_eq!(within.count(), 0, "no mount within the mount");
        fs::write(place.join("new"), "x").unwrap();
        ground::unmount_by_command(place);
        assert_eq!(fs::read(ground.src.join("new")).unwrap(), b"x");
        fs::remove_file(ground.src.join("new")).unwrap();
    }
}

#[test]
fn worker_has_no_more_privilege_than_it_needs() {
    let Some(ground) = Ground::new() else { return };
    succeeded(&ground.mount(&["-o", "pairing"]));
    let process = ground.process("--worker");
    let worker = process.as_raw_nonzero();
    // CHOWN .. SETUID, SETFCAP, SYS_ADMIN, LEASE, LINUX_IMMUTABLE, MKNOD.
    let kept = [0, 1, 2, 3, 4, 6, 7, 9, 21, 27, 28, 31];
    let mut kept = kept.iter().fold(0_u64, |set, n| set | 1 << n);
    // SYS_NICE, for pairing, where RLIMIT_NICE cannot be raised.
    let limits = fs::read_to_string(format!("/proc/{worker}/limits")).unwrap();
    let mut lines = limits.lines();
    let nice = lines.find_map(|line| line.strip_prefix("Max nice priority"));
    if nice.unwrap().split_whitespace().next() == Some("0") {
        // SYS_RESOURCE could raise it: the worker starts with the capabilities of this process.
        let own = status_set(rustix::process::getpid(), "CapEff");
        assert_eq!(own & 1 << 24, 0, "{limits}");
        kept |= 1 << 23;
    }
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        let more = status_set(process, set) & !kept;
        assert_eq!(more, 0, "{set}");
    }
    assert_eq!(status(process, "NoNewPrivs"), "1");
    let expected = ["dev", "source"].map(OsString::from);
    // Of every thread, the watcher too.
    for thread in fs::read_dir(format!("/proc/{worker}/task")).unwrap() {
        let root = fs::read_dir(thread.unwrap().path().join("root")).unwrap();
        let names: BTreeSet<OsString> = root.map(|entry| entry.unwrap().file_name()).collect();
        let within_reach = expected.clone().into();
        assert_eq!(names, within_reach, "nothing else is in reach by name");
    }
    let root = format!("/proc/{worker}/root/source/file");
    assert_eq!(fs::read_to_string(root).unwrap(), "content");
    let device = fs::metadata(format!("/proc/{worker}/root/dev/fuse")).unwrap();
    assert_eq!(device.rdev(), fs::metadata("/dev/fuse").unwrap().rdev());
    ground::unmount_by_command(&ground.mnt);
    ground.wait_gone();
}

/// The worker has its own mounts, to which a private mount does not propagate (README, limits).
#[test]
fn later_mounts_beneath_the_source_are_seen_unless_it_is_private() {
    let Some(ground) = Ground::new() else { return };
    let ground = ground.propagating();
    let [before, later] = ["before", "later"].map(|name| ground.src.join(name));
    let mounted = |path: &Path| {
        mount_tmpfs(path);
        fs::write(path.join("below"), "").unwrap();
    };
    for path in [&before, &later] {
        fs::create_dir(path).unwrap();
    }
    mounted(&before);
    for (how, is_seen) in [
        (MountPropagationFlags::SHARED, true),
        (MountPropagationFlags::PRIVATE, false),
    ] {
        ground.propagates(how);
        succeeded(&ground.mount(&["-o", "cache=never"]));
        mounted(&later);
        assert!(ground.mnt.join("before/below").exists());
        let shown = ground.mnt.join("later/below");
        assert_eq!(shown.exists(), is_seen, "{how:?}");
        detach(&later);
        assert!(!shown.exists());
        ground::unmount_by_command(&ground.mnt);
    }
}

#[test]
fn fstab_lines_work_through_the_helper() {
    let Some(ground) = Ground::new() else { return };
    let helper = ground.path().join("mount.thrufs");
    symlink(THRUFS, &helper).unwrap();
    let call = |arguments: &[&str]| {
        let mut command = Command::new(&helper);
        run(command.args([&ground.src, &ground.mnt]).args(arguments))
    };
    let list = "rw,allow_other,_netdev,x-systemd.automount";
    let output = call(&["-o", list, "-n", "-f", "-v"]);
    fails(&output, 0, "allow_other");
    assert!(!ground.is_mounted(), "-f is fake");

    let list = "rw,defaults,allow_other,nofail";
    succeeded(&call(&["-o", list, "-t", "thrufs"]));
    ground.assert_serves();
    assert!(mount_line(&ground.mnt).contains("allow_other"));
    ground::unmount_by_command(&ground.mnt);

    let said = fails(&call(&["-o", "alow_other"]), 1, "did you mean");
    assert!(said.starts_with("mount.thrufs: "), "{said}");
    let mut elsewhere = Command::new(&helper);
    elsewhere.args([Path::new("/no/such/source"), &ground.mnt]);
    fails(&run(&mut elsewhere), 32, "");
    succeeded(&call(&["-s", "-o", "alow_other"]));
    ground::unmount_by_command(&ground.mnt);
}

#[test]
fn mount_knows_the_type_directly_and_through_mount_fuse() {
    let Some(ground) = Ground::new() else { return };
    if !Path::new("/usr/sbin/mount.fuse").exists() {
        return skipped("mount.fuse: there is no package fuse3");
    }
    // In a mount namespace, whose /usr/sbin has these names of the program and what mount(8) needs.
    let script = "set -e; sbin=$1 src=$2 mnt=$3; mkdir $sbin; cp -P /usr/sbin/mount.fuse* $sbin
        ln -s $4 $sbin/thrufs; mount --bind $sbin /usr/sbin
        try() { mount \"$@\" $mnt; cat $mnt/file; grep $mnt /proc/self/mountinfo >&2; umount $mnt; }
        try -t fuse.thrufs -o allow_other,nosuid,nodev $src
        try -t fuse -o ro thrufs#$src
        ! mount -t fuse.thrufs -o alow_other $src $mnt
        for name in thrufs fuse.thrufs; do
            ln -s $4 $sbin/mount.$name; try -t $name $src
        done";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]);
    command.args([&ground.path().join("sbin"), &ground.src, &ground.mnt]);
    let output = run(command.arg(THRUFS));
    let said = fails(&output, 0, "did you mean `allow_other`");
    assert_eq!(stdout(&output), "content".repeat(4), "{said}");
    let mounts: Vec<_> = said.lines().filter(|l| l.contains(" - ")).collect();
    assert_eq!(mounts.len(), 4, "{said}");
    for (mount, part) in mounts
        .iter()
        .zip(["allow_other", " ro,", "nosuid", "nosuid"])
    {
        assert!(
            mount.contains("fuse.thrufs") && mount.contains(part),
            "{mount}"
        );
    }
    ground.wait_ended();
}

#[test]
fn ordinary_user_mounts_through_fusermount3() {
    let Some(ground) = Ground::new() else { return };
    let test = "mounting::ordinary_user_mounts_through_fusermount3";
    if !ground::users_can_mount(ground.path(), test) {
        return;
    }
    let thrufs = ground::copied_program(ground.path());
    for directory in [&ground.src, &ground.mnt] {
        chown(directory, Some(65_534), Some(65_534)).unwrap();
    }
    let user = |arguments: &[&str]| {
        let mut command = Command::new(&thrufs);
        command.args(arguments).current_dir("/");
        run(command.uid(65_534).gid(65_534))
    };
    let (src, mnt) = (ground.src.to_str().unwrap(), ground.mnt.to_str().unwrap());
    let read = || {
        let path = ground.mnt.join("file");
        run(Command::new("cat").arg(path).uid(65_534).gid(65_534)).stdout
    };

    let output = user(&["mount", "-o", "suid", src, mnt]);
    fails(&output, 1, "only root may use the option `suid`");
    let output = user(&["mount", "-o", "allow_other", src, mnt]);
    let conf = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    if !conf.lines().any(|line| line == "user_allow_other") {
        fails(&output, 1, "/etc/fuse.conf");
    }

    succeeded(&user(&["mount", src, mnt]));
    assert_eq!(read(), b"content");
    fails(&user(&["mount", src, mnt]), 1, "unmount it first");
    fails(
        &thrufs!("mount", &ground.src, &ground.mnt),
        1,
        "`thrufs unmount",
    );
    ground::unmounts(|| user(&["unmount", mnt]));
    assert!(!ground.is_mounted());
    ground.wait_gone();

    for victims in ground::VICTIMS {
        succeeded(&user(&["mount", src, mnt]));
        assert_eq!(read(), b"content");
        ground::kill_all(&ground, victims);
        ground.wait_ended();
        let again = user(&["mount", src, mnt]);
        assert!(stderr(&again).contains("dead FUSE mount"), "{again:?}");
        succeeded(&user(&["unmount", mnt]));
        assert!(!ground.is_mounted());

        succeeded(&user(&["mount", "-o", "auto_unmount", src, mnt]));
        assert_eq!(read(), b"content");
        ground::kill_all(&ground, victims);
        ground.wait_gone();
    }
    succeeded(&user(&["mount", src, mnt]));
    kill_process(ground.process("--supervisor"), Signal::TERM).unwrap();
    ground.wait_gone();
}

/// Another mount namespace keeps all mounts that exist at its creation.
#[test]
fn unmount_reports_mounts_in_other_namespaces() {
    let Some(ground) = Ground::new() else { return };
    succeeded(&ground.mount(&[]));
    // A private namespace, to which unmounts do not propagate.
    let script = format!("{}; exec sleep 600", ground::WITHOUT_OTHERS);
    let mut other = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .arg("sh")
        .arg(&ground.mnt)
        .spawn()
        .unwrap();
    let name = format!("/proc/{}/comm", other.id());
    wait_for("a namespace", || {
        fs::read_to_string(&name).unwrap() == "sleep\n"
    });
    let output = thrufs!("unmount", &ground.mnt);
    other.kill().unwrap();
    other.wait().unwrap();
    let said = fails(&output, 1, "another mount namespace");
    // Another process on this machine may have created one too.
    assert!(said.contains("runs until process"), "{said}");
    assert!(!ground.is_mounted());
    ground.wait_gone();
}
