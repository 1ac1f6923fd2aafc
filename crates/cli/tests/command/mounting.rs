//! Mounts that come and go as they should.

use crate::ground::{
    self, Ground, THRUFS, is_mount, mount_line, run, stderr, stop_process, succeeded, wait_for,
};
use rustix::process::{Signal, kill_process};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn mount_serves_and_unmount_leaves_nothing() {
    let Some(ground) = Ground::new() else { return };
    let output = ground.mount(&[]);
    succeeded(&output);
    assert_eq!(stderr(&output), "", "success is silent");
    ground.assert_serves();
    fs::write(ground.mnt.join("new"), "through").unwrap();
    assert_eq!(
        fs::read_to_string(ground.src.join("new")).unwrap(),
        "through"
    );
    let line = mount_line(&ground.mnt);
    assert!(
        line.contains("fuse.thrufs") && line.contains("nosuid,nodev"),
        "{line}"
    );
    assert!(line.contains(ground.src.to_str().unwrap()), "{line}");

    ground::unmount_by_command(&ground.mnt);
    assert!(!ground.is_mounted());
    assert!(
        ground.processes("--supervisor").is_empty(),
        "unmount waits for the server"
    );
    assert!(ground.processes("--worker").is_empty());
    assert_eq!(fs::read_dir(&ground.mnt).unwrap().count(), 0);
}

#[test]
fn options_arrive_at_the_kernel() {
    let Some(ground) = Ground::new() else { return };
    let arguments = [
        "-o",
        "ro,noexec,noatime,suid,fsname=what\\,ever,subtype=sub",
        "--allow-other",
    ];
    succeeded(&ground.mount(&arguments));
    let line = mount_line(&ground.mnt);
    for part in [
        " ro,",
        "noexec",
        "noatime",
        "nodev",
        "fuse.sub what,ever",
        "allow_other",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert!(!line.contains("nosuid"), "{line}");
    let error = fs::write(ground.mnt.join("x"), "").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    succeeded(&run(Command::new(THRUFS).arg("umount").arg(&ground.mnt)));

    succeeded(&ground.mount(&["--sync", "-o", "ro"]));
    let line = mount_line(&ground.mnt);
    let of_file_system = line.rsplit(' ').next().unwrap();
    assert!(of_file_system.starts_with("ro,sync,"), "{line}");
    succeeded(&run(Command::new(THRUFS).arg("umount").arg(&ground.mnt)));
}

#[test]
fn a_source_with_a_long_path() {
    let Some(mut ground) = Ground::new() else {
        return;
    };
    // Longer than a parameter of the mount API may be (256 bytes with its NUL).
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
fn unmount_tells_what_is_in_the_way() {
    let Some(ground) = Ground::new() else { return };
    let unmount = |arguments: &[&str], path: &Path| {
        run(Command::new(THRUFS)
            .arg("unmount")
            .args(arguments)
            .arg(path))
    };
    let output = unmount(&[], &ground.mnt);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("is not mounted"),
        "{}",
        stderr(&output)
    );

    let output = unmount(&[], Path::new("/proc"));
    assert!(stderr(&output).contains("umount"), "{}", stderr(&output));
    assert!(is_mount(Path::new("/proc")), "left alone");

    succeeded(&ground.mount(&[]));
    let open = fs::File::open(ground.mnt.join("file")).unwrap();
    let output = unmount(&[], &ground.mnt);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("in use"), "{}", stderr(&output));
    assert!(stderr(&output).contains("--lazy"), "{}", stderr(&output));
    ground.assert_serves();
    succeeded(&unmount(&["--lazy"], &ground.mnt));
    assert!(!ground.is_mounted());
    assert_eq!(
        open.metadata().unwrap().len(),
        7,
        "users keep what they have"
    );
    drop(open);
    ground.wait_gone();
}

#[test]
fn unmounted_from_outside_both_processes_end() {
    let Some(ground) = Ground::new() else { return };
    succeeded(&ground.mount(&[]));
    ground::unmount(&ground.mnt);
    ground.wait_gone();

    let server = ground.mount_in_foreground(&[]);
    ground::unmount(&ground.mnt);
    let (code, said) = server.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("was unmounted"), "{said}");
}

#[test]
fn whatever_gets_the_number_of_a_mount_next_is_left_alone() {
    let Some(ground) = Ground::new() else { return };
    let next = ground.path().join("next");
    fs::create_dir(&next).unwrap();
    let number = |path| mount_line(path).split(' ').nth(2).map(str::to_owned);
    let mut same = 0;
    // Others that mount at the same time take numbers away.
    while same < 3 {
        succeeded(&ground.mount(&[]));
        let before = number(&ground.mnt);
        ground::unmount(&ground.mnt);
        // The kernel gives a number that is free again to the next mount.
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", &next, "tmpfs", flags, None).unwrap();
        same += usize::from(number(&next) == before);
        ground.wait_gone();
        assert!(is_mount(&next), "taken away by the server before");
        rustix::mount::unmount(&next, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn signals_unmount_an_idle_mount_at_once() {
    let Some(ground) = Ground::new() else { return };
    for (signal, name) in [(Signal::TERM, "SIGTERM"), (Signal::INT, "SIGINT")] {
        // For a mount in use it would wait far longer than it may take to end.
        let server = ground.mount_in_foreground(&["--stop-timeout=600"]);
        server.signal(signal);
        let (code, said) = server.wait();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(&format!("{name}: unmounting")), "{said}");
        assert!(said.contains("unmounted "), "{said}");
        ground.wait_gone();
    }
}

/// Whoever has had an answer from the mount may ask it to end, whether or not the supervisor has heard
/// that it serves.
#[test]
fn a_signal_right_after_the_first_answer_is_no_failure() {
    let Some(ground) = Ground::new() else { return };
    for _ in 0..20 {
        let server = ground.start_in_foreground(&[]);
        let began = Instant::now();
        // Without a pause.
        while !ground.mnt.join("file").exists() {
            assert!(began.elapsed() < Duration::from_secs(60), "no mount");
        }
        server.signal(Signal::TERM);
        let (code, said) = server.wait();
        assert_eq!(code, Some(0), "{said}");
        ground.wait_gone();
    }
}

#[test]
fn a_signal_to_the_worker_does_the_same() {
    let Some(ground) = Ground::new() else { return };
    let server = ground.mount_in_foreground(&[]);
    kill_process(ground.process("--worker"), Signal::TERM).unwrap();
    let (code, said) = server.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("SIGTERM: unmounting"), "{said}");
    ground.wait_gone();
}

#[test]
fn a_busy_mount_is_waited_for_and_then_taken_away() {
    let Some(ground) = Ground::new() else { return };
    let server = ground.mount_in_foreground(&["--stop-timeout=1", "--nopassthrough"]);
    let mut open = append_to(&ground.mnt.join("file"));
    open.write_all(b" and more").unwrap();
    let began = Instant::now();
    server.signal(Signal::TERM);
    let (code, said) = server.wait();
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(1), "{took:?}: {said}");
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("waiting up to 1 s") && said.contains("still in use"),
        "{said}"
    );
    ground.wait_gone();
    assert_eq!(
        fs::read_to_string(ground.src.join("file")).unwrap(),
        "content and more"
    );
    let error = open.write_all(b"too late").unwrap_err();
    // By either transport, one of the two.
    let over = [
        std::io::ErrorKind::NotConnected,
        std::io::ErrorKind::ConnectionAborted,
    ];
    assert!(over.contains(&error.kind()), "{error}");
}

fn append_to(path: &Path) -> fs::File {
    fs::OpenOptions::new().append(true).open(path).unwrap()
}

#[test]
fn a_file_that_goes_straight_through_outlives_its_mount() {
    let Some(ground) = Ground::new() else { return };
    let server = ground.mount_in_foreground(&["--stop-timeout=1"]);
    let mut open = append_to(&ground.mnt.join("file"));
    server.signal(Signal::TERM);
    let (code, said) = server.wait();
    assert_eq!(code, Some(0), "{said}");
    ground.wait_gone();
    open.write_all(b" and more").unwrap();
    assert_eq!(
        fs::read_to_string(ground.src.join("file")).unwrap(),
        "content and more"
    );
}

#[test]
fn a_busy_mount_that_is_released_in_time_ends_cleanly() {
    let Some(ground) = Ground::new() else { return };
    let server = ground.mount_in_foreground(&[]);
    let open = fs::File::open(ground.mnt.join("file")).unwrap();
    server.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(500));
    assert!(ground.is_mounted());
    drop(open);
    let (code, said) = server.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("still in use"), "{said}");
}

#[test]
fn a_second_signal_does_not_wait() {
    let Some(ground) = Ground::new() else { return };
    let server = ground.mount_in_foreground(&["--stop-timeout=600"]);
    let _open = fs::File::open(ground.mnt.join("file")).unwrap();
    server.signal_and_wait(Signal::INT);
    server.signal(Signal::INT);
    let (code, said) = server.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("asked a second time"), "{said}");
}

#[test]
fn a_worker_that_hangs_is_ended_in_bounded_time() {
    let Some(ground) = Ground::new() else { return };
    let server = ground.mount_in_foreground(&["--stop-timeout=1", "-o", "cache=never"]);
    stop_process(ground.process("--worker"));
    let path = ground.mnt.join("file");
    let client = std::thread::spawn(move || fs::read(path));
    std::thread::sleep(Duration::from_millis(200));
    server.signal(Signal::TERM);
    let (code, said) = server.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("ending it"), "{said}");
    assert!(client.join().unwrap().is_err(), "its client is let go");
    ground.wait_gone();
}

#[test]
fn systemd_is_told() {
    let Some(ground) = Ground::new() else { return };
    let path = ground.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(ground::LIMIT)).unwrap();
    let mut server = Command::new(THRUFS)
        .args(["mount", "-f"])
        .args([&ground.src, &ground.mnt])
        .env("NOTIFY_SOCKET", &path)
        .spawn()
        .unwrap();
    let mut bytes = [0; 64];
    let length = socket.recv(&mut bytes);
    let mounted = ground.is_mounted();
    kill_process(rustix::process::Pid::from_child(&server), Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
    assert_eq!(&bytes[..length.unwrap()], b"READY=1\n");
    assert!(mounted);
}

#[test]
fn system_calls_are_filtered() {
    let Some(ground) = Ground::new() else { return };
    let server = ground.mount_in_foreground(&[]);
    // Something to start further threads for.
    std::thread::scope(|scope| {
        for number in 0..8 {
            let path = ground.mnt.join(format!("file {number}"));
            scope.spawn(move || fs::File::create(path).unwrap().sync_all().unwrap());
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
        // Threads come and go.
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
    // Until those that stand by have given back their memory.
    wait_for("two filters for each thread", are_filtered);
    let names: Vec<&str> = threads.iter().map(|(name, _)| name.as_str()).collect();
    for expected in [
        "thrufs-worker",
        "thrufs-watcher",
        "thrufs-steward",
        "thrufs-0",
    ] {
        assert!(names.contains(&expected), "no {expected} in {names:?}");
    }
    server.signal(Signal::TERM);
    let (code, said) = server.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("not filtered"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn a_launcher_that_is_ended_leaves_no_mount() {
    let Some(ground) = Ground::new() else { return };
    // Too late at times, so it is tried at several moments; a mount that stands was told of.
    for delay_ms in [0, 1, 2, 4, 8, 16] {
        let mut launcher = Command::new(THRUFS)
            .arg("mount")
            .args([&ground.src, &ground.mnt])
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(delay_ms));
        launcher.kill().unwrap();
        let _ = launcher.wait();
        std::thread::sleep(Duration::from_millis(300));
        // One that has not heard yet that there is nobody to tell may still be going.
        let mut is_served = false;
        wait_for("a mount that serves, or none", || {
            let read = fs::read_to_string(ground.mnt.join("file"));
            is_served = read.is_ok_and(|content| content == "content");
            is_served || !ground.is_mounted()
        });
        if is_served {
            let _ = run(Command::new(THRUFS).arg("unmount").arg(&ground.mnt));
        }
        ground.wait_gone();
    }
}

#[test]
fn hangup_is_nothing_to_the_background() {
    let Some(ground) = Ground::new() else { return };
    succeeded(&ground.mount(&[]));
    kill_process(ground.process("--supervisor"), Signal::HUP).unwrap();
    kill_process(ground.process("--worker"), Signal::HUP).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    ground.assert_serves();
    ground::unmount_by_command(&ground.mnt);
}

#[test]
fn statistics_go_to_the_log_file() {
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
        kill_process(ground.process(role), Signal::USR1).unwrap();
        wait_for("a line of statistics", || count() == lines);
    }
    let text = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for (number, _) in lines
        .iter()
        .enumerate()
        .filter(|(_, l)| l.contains("inodes="))
    {
        let before = lines[number - 1];
        let carrier = before
            .split_once(": requests come by ")
            .map(|(_, carrier)| carrier);
        let known = |c: &str| c.starts_with("io_uring: ") || c.starts_with("/dev/fuse");
        assert!(carrier.is_some_and(known), "{before}");
    }
    assert!(
        text.contains("mounted ") && text.contains("LOOKUP"),
        "{text}"
    );
    ground::unmount_by_command(&ground.mnt);
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains("was unmounted"), "{text}");
}

#[test]
fn a_mount_over_its_own_source() {
    let Some(ground) = Ground::new() else { return };
    let output = run(Command::new(THRUFS)
        .arg("mount")
        .args([&ground.src, &ground.src]));
    succeeded(&output);
    assert!(is_mount(&ground.src));
    assert_eq!(
        fs::read_to_string(ground.src.join("file")).unwrap(),
        "content"
    );
    fs::write(ground.src.join("inner"), "x").unwrap();
    ground::unmount_by_command(&ground.src);
    assert_eq!(fs::read_to_string(ground.src.join("inner")).unwrap(), "x");
}

#[test]
fn a_source_beneath_its_mount_point() {
    let Some(ground) = Ground::new() else { return };
    let place = ground.path();
    succeeded(&run(Command::new(THRUFS)
        .arg("mount")
        .arg(&ground.src)
        .arg(place)));
    assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "content");
    ground::unmount_by_command(place);
    assert!(ground.src.join("file").exists());
}

#[test]
fn a_mount_point_within_the_source_does_not_contain_itself() {
    let Some(ground) = Ground::new() else { return };
    let inner = ground.src.join("inner");
    fs::create_dir(&inner).unwrap();
    succeeded(&run(Command::new(THRUFS)
        .arg("mount")
        .arg(&ground.src)
        .arg(&inner)));
    assert_eq!(fs::read_to_string(inner.join("file")).unwrap(), "content");
    assert_eq!(
        fs::read_dir(inner.join("inner")).unwrap().count(),
        0,
        "no mount within the mount"
    );
    fs::write(inner.join("more"), "x").unwrap();
    assert_eq!(fs::read_to_string(ground.src.join("more")).unwrap(), "x");
    ground::unmount_by_command(&inner);
}

#[test]
fn the_worker_has_no_more_privilege_than_it_needs() {
    let Some(ground) = Ground::new() else { return };
    for pairs in [true, false] {
        has_no_more_privilege_than_it_needs(&ground, pairs);
    }
}

fn has_no_more_privilege_than_it_needs(ground: &Ground, pairs: bool) {
    let options = if pairs { "pairing" } else { "nopairing" };
    succeeded(&ground.mount(&["-o", options]));
    let worker = ground.process("--worker").as_raw_nonzero();
    let field_of = |process: &str, name: &str| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    let field = |name: &str| field_of(&worker.to_string(), name);
    let set = |text: String| u64::from_str_radix(&text, 16).unwrap();
    let capabilities = |name: &str| set(field(name));
    // CHOWN .. SETUID, SETFCAP, SYS_ADMIN, LEASE, LINUX_IMMUTABLE, MKNOD by their numbers.
    let mut kept = [0, 1, 2, 3, 4, 6, 7, 9, 21, 27, 28, 31]
        .iter()
        .fold(0_u64, |set, n| set | 1 << n);
    // SYS_NICE, for threads that are paired, where the limit that makes up for it cannot be raised.
    let limits = fs::read_to_string(format!("/proc/{worker}/limits")).unwrap();
    let nice = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max nice priority"));
    if pairs && nice.unwrap().split_whitespace().next() == Some("0") {
        // By SYS_RESOURCE, it can: the worker was started with what this process may do.
        assert_eq!(set(field_of("self", "CapEff:")) & 1 << 24, 0, "{limits}");
        kept |= 1 << 23;
    }
    for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
        assert_eq!(capabilities(set) & !kept, 0, "{set} {options}");
    }
    assert_eq!(field("NoNewPrivs:"), "1");
    let expected = ["dev", "source"].map(OsString::from);
    // Of each thread: the one that waits for signals as well.
    for thread in fs::read_dir(format!("/proc/{worker}/task")).unwrap() {
        let root = fs::read_dir(thread.unwrap().path().join("root")).unwrap();
        let names: BTreeSet<OsString> = root.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(
            names,
            expected.clone().into(),
            "nothing else is in reach by name"
        );
    }
    let root = format!("/proc/{worker}/root/source/file");
    assert_eq!(fs::read_to_string(root).unwrap(), "content");
    let device = fs::metadata(format!("/proc/{worker}/root/dev/fuse")).unwrap();
    assert_eq!(device.rdev(), fs::metadata("/dev/fuse").unwrap().rdev());
    ground::unmount_by_command(&ground.mnt);
    ground.wait_gone();
}

#[test]
fn mounts_beneath_the_source_come_into_view() {
    let Some(ground) = Ground::new() else { return };
    let ground = ground.propagating();
    fs::create_dir(ground.src.join("sub")).unwrap();
    succeeded(&ground.mount(&["-o", "cache=never"]));
    let sub = ground.src.join("sub");
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("none", &sub, "tmpfs", flags, c"size=64k").unwrap();
    fs::write(sub.join("below"), "seen").unwrap();
    assert_eq!(
        fs::read_to_string(ground.mnt.join("sub/below")).unwrap(),
        "seen"
    );
    rustix::mount::unmount(&sub, rustix::mount::UnmountFlags::DETACH).unwrap();
    assert!(!ground.mnt.join("sub/below").exists());
    ground::unmount_by_command(&ground.mnt);
}

/// The worker has mounts of its own, and those of a private one do not follow it (README, limits).
#[test]
fn mounts_beneath_a_private_mount_are_those_of_the_beginning() {
    let Some(ground) = Ground::new() else { return };
    let flags = rustix::mount::MountFlags::empty();
    let mounted = |name: &str| {
        let path = ground.src.join(name);
        rustix::mount::mount("none", &path, "tmpfs", flags, c"size=64k").unwrap();
        fs::write(path.join("below"), "").unwrap();
    };
    rustix::mount::mount_bind(&ground.src, &ground.src).unwrap();
    let private = rustix::mount::MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change(&ground.src, private).unwrap();
    let _ = ["before", "later"].map(|name| fs::create_dir(ground.src.join(name)).unwrap());
    mounted("before");
    succeeded(&ground.mount(&["-o", "cache=never"]));
    mounted("later");
    assert!(ground.mnt.join("before/below").exists());
    assert!(!ground.mnt.join("later/below").exists());
    ground::unmount_by_command(&ground.mnt);
}

#[test]
fn fstab_lines_work_through_the_helper() {
    let Some(ground) = Ground::new() else { return };
    let helper = ground.path().join("mount.thrufs");
    symlink(THRUFS, &helper).unwrap();
    let call = |arguments: &[&str]| {
        run(Command::new(&helper)
            .arg(&ground.src)
            .arg(&ground.mnt)
            .args(arguments))
    };
    let output = call(&[
        "-o",
        "rw,allow_other,_netdev,x-systemd.automount",
        "-n",
        "-f",
        "-v",
    ]);
    succeeded(&output);
    assert!(!ground.is_mounted(), "-f is fake");
    assert!(stderr(&output).contains("allow_other"), "-v tells");

    succeeded(&call(&[
        "-o",
        "rw,defaults,allow_other,nofail",
        "-t",
        "thrufs",
    ]));
    ground.assert_serves();
    assert!(mount_line(&ground.mnt).contains("allow_other"));
    ground::unmount_by_command(&ground.mnt);

    let output = call(&["-o", "alow_other"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).starts_with("mount.thrufs: ") && stderr(&output).contains("did you mean")
    );
    let output = run(Command::new(&helper)
        .arg("/no/such/source")
        .arg(&ground.mnt));
    assert_eq!(output.status.code(), Some(32));
    succeeded(&call(&["-s", "-o", "alow_other"]));
    ground::unmount_by_command(&ground.mnt);
}

#[test]
fn an_ordinary_user_mounts_through_fusermount3() {
    let Some(ground) = Ground::new() else { return };
    let Ok(fusermount) = fs::metadata("/usr/bin/fusermount3") else {
        return ground::skipped("mounting as a user: there is no fusermount3 (package fuse3)");
    };
    if fusermount.mode() & 0o4000 == 0 {
        return ground::skipped("mounting as a user: fusermount3 is not set-user-id");
    }
    if fs::metadata("/dev/fuse").unwrap().mode() & 0o006 != 0o006 {
        return ground::once_more_with_a_device_for_everybody(
            ground.path(),
            "mounting::an_ordinary_user_mounts_through_fusermount3",
        );
    }
    let thrufs = ground::copied_program(ground.path());
    for directory in [&ground.src, &ground.mnt] {
        std::os::unix::fs::chown(directory, Some(65_534), Some(65_534)).unwrap();
    }
    let user = |arguments: &[&str]| {
        let mut command = Command::new(&thrufs);
        run(command
            .args(arguments)
            .uid(65_534)
            .gid(65_534)
            .current_dir("/"))
    };
    let (src, mnt) = (ground.src.to_str().unwrap(), ground.mnt.to_str().unwrap());
    let read = || {
        let path = ground.mnt.join("file");
        run(Command::new("cat").arg(path).uid(65_534).gid(65_534)).stdout
    };

    let output = user(&["mount", "-o", "suid", src, mnt]);
    assert!(
        stderr(&output).contains("only root may use the option `suid`"),
        "{}",
        stderr(&output)
    );
    let output = user(&["mount", "-o", "allow_other", src, mnt]);
    if !fs::read_to_string("/etc/fuse.conf")
        .is_ok_and(|t| t.lines().any(|l| l == "user_allow_other"))
    {
        assert_eq!(output.status.code(), Some(1));
        assert!(
            stderr(&output).contains("/etc/fuse.conf"),
            "{}",
            stderr(&output)
        );
    }

    succeeded(&user(&["mount", src, mnt]));
    assert_eq!(read(), b"content");
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

#[test]
fn reads_ahead_as_far_as_told() {
    let Some(ground) = Ground::new() else { return };
    let readahead = |options: &[&str]| {
        succeeded(&ground.mount(options));
        let device = rustix::fs::stat(&ground.mnt).unwrap().st_dev;
        let minor = rustix::fs::minor(device);
        let path = format!("/sys/class/bdi/0:{minor}/read_ahead_kb");
        let kib = fs::read_to_string(path).unwrap().trim().to_owned();
        ground::unmount_by_command(&ground.mnt);
        kib
    };
    assert_eq!(readahead(&[]), "128");
    assert_eq!(readahead(&["-o", "max_readahead=64K"]), "64");
    assert_eq!(readahead(&["-o", "max_readahead=1M"]), "1024");
}
