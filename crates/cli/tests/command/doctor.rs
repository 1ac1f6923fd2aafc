//! `thrufs doctor`: its findings, in text and JSON, and that a mount agrees.

use crate::ground::prelude::*;
use rustix::mount::MountPropagationFlags;
use std::sync::{Mutex, MutexGuard, PoisonError};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// One test changes what all others read.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn doctor(arguments: &[&str]) -> Output {
    run(Command::new(THRUFS).arg("doctor").args(arguments))
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Finding {
    name: String,
    state: String,
    detail: String,
    remedy: Option<String>,
}

fn from_json(output: &Output) -> Vec<Finding> {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// State, detail and remedy of one.
fn finding(findings: &[Finding], name: &str) -> (String, String, String) {
    let found = findings.iter().find(|it| it.name == name);
    let found = found.unwrap_or_else(|| panic!("{name} in {findings:#?}"));
    let remedy = found.remedy.clone().unwrap_or_default();
    (found.state.clone(), found.detail.clone(), remedy)
}

/// Restores the parameter on drop.
struct Parameter(String);

impl Parameter {
    fn set(value: &str) -> std::io::Result<Parameter> {
        let before = Parameter(fs::read_to_string(PARAMETER)?.trim().to_owned());
        fs::write(PARAMETER, value)?;
        Ok(before)
    }
}

impl Drop for Parameter {
    fn drop(&mut self) {
        if let Err(error) = fs::write(PARAMETER, &self.0) {
            eprintln!("{PARAMETER} is no longer {}: {error}", self.0);
        }
    }
}

/// The findings, after checking that text and JSON agree.
fn agreed(place: &str) -> Vec<Finding> {
    let (shown, json) = (doctor(&[place]), doctor(&["--json", place]));
    assert_eq!(shown.status.code(), json.status.code());
    let shown = stdout(&shown);
    let mut lines = shown.lines();
    let findings = from_json(&json);
    for it in &findings {
        let line = lines.next().unwrap();
        let is_it = line.starts_with(&format!("{}  {} ", it.state, it.name));
        assert!(is_it && line.ends_with(&it.detail), "{it:?}: {line}");
        assert_eq!(it.remedy.is_some(), it.state == "no", "{it:?}");
        if let Some(remedy) = &it.remedy {
            assert_eq!(lines.next().unwrap().trim(), format!("do: {remedy}"));
        }
    }
    assert_eq!(lines.next(), None);
    findings
}

#[test]
fn every_finding_is_reported() {
    let _alone = alone();
    // What is elsewhere changes meanwhile.
    let place = tempfile::tempdir().unwrap();
    let findings = agreed(place.path().to_str().unwrap());
    let expected = "kernel, /dev/fuse, mounting, enable_uring, io_uring, processors, transport, \
                    passthrough, pairing, descriptors, request size, seccomp, DAX window, file system, \
                    file handles, RWF_NOWAIT, opens, mounts beneath, confinement";
    for name in expected.split(", ") {
        finding(&findings, name);
    }
    let opens = || finding(&agreed(place.path().to_str().unwrap()), "opens").1;
    assert!(!opens().contains("opens=local"));
    fs::create_dir(place.path().join("dir")).unwrap();
    let files = (0..100).map(|it| place.path().join(format!("dir/{it}")));
    files.for_each(|it| fs::write(it, "small").unwrap());
    assert!(opens().contains("100 of 100") && opens().contains("opens=local"));
}

#[test]
fn doctor_and_mount_agree_with_io_uring_enabled() {
    with_parameter("Y", |findings| {
        let (offer, ..) = finding(findings, "enable_uring");
        let (state, verdict, _) = finding(findings, "transport");
        assert_eq!((offer.as_str(), state.as_str()), ("ok", "ok"));
        assert!(verdict.contains("selects io_uring: "), "{verdict}");
    });
}

#[test]
#[ignore = "soak: turns io_uring off for the whole machine"]
fn doctor_and_mount_agree_with_io_uring_disabled() {
    with_parameter("N", |findings| {
        let (offer, _, how) = finding(findings, "enable_uring");
        let (state, verdict, _) = finding(findings, "transport");
        assert_eq!((offer.as_str(), state.as_str()), ("no", "no"));
        assert!(verdict.contains(PARAMETER), "{verdict}");
        assert!(how.contains(&format!("echo Y > {PARAMETER}")), "{how}");
        assert!(how.contains("enable_uring=Y"), "{how}");
    });
}

/// Checks the findings with this parameter, and that a mount agrees.
fn with_parameter(value: &str, check: impl FnOnce(&[Finding])) {
    let _alone = alone();
    let Some(ground) = Ground::new() else { return };
    let findings = from_json(&doctor(&["--json"]));
    if finding(&findings, "io_uring").0 != "ok" {
        return skipped("the verdict: this process may make no rings");
    }
    if std::thread::available_parallelism().unwrap().get() == 1 {
        return skipped("the verdict: there is one CPU");
    }
    let _before = match Parameter::set(value) {
        Ok(before) => before,
        Err(error) => return skipped(&format!("the verdict: {PARAMETER}: {error}")),
    };
    assert!(doctor(&[]).status.success(), "a mount works either way");
    // With N there is a remedy on a separate line.
    let findings = agreed(ground.src.to_str().unwrap());
    check(&findings);
    let (_, verdict, _) = finding(&findings, "transport");
    let carrier = verdict.strip_prefix("transport=auto selects ").unwrap();
    succeeded(&ground.mount(&[]));
    let said = stdout(&thrufs!("ctl", &ground.mnt, "statistics"));
    let expected = format!("transport: {carrier}");
    assert!(said.contains(&expected), "{expected} in {said}");
    ground::unmount_by_command(&ground.mnt);
}

#[test]
fn doctor_fails_without_dev_fuse() {
    let _alone = alone();
    if !rustix::process::geteuid().is_root() {
        return skipped("a machine without /dev/fuse: only root can hide it");
    }
    for (hide, remedy) in [
        ("mount -t tmpfs none /dev", "--device /dev/fuse"),
        ("mount --bind /dev/null /dev/fuse", "mknod"),
    ] {
        let script = format!("{hide} && exec {THRUFS} doctor --json");
        let output = run(Command::new("unshare").args(["--mount", "sh", "-c", &script]));
        if output.stdout.is_empty() {
            skipped(&format!("a machine without /dev/fuse: {}", stderr(&output)));
            continue;
        }
        assert_eq!(output.status.code(), Some(1));
        let findings = from_json(&output);
        let (state, _, how) = finding(&findings, "/dev/fuse");
        assert_eq!(state, "no");
        assert!(how.contains(remedy), "{how}");
        let (state, _, how) = finding(&findings, "transport");
        assert_eq!((state.as_str(), how.as_str()), ("no", "see /dev/fuse"));
    }
}

#[test]
fn doctor_shows_an_ordinary_user_how_to_mount() {
    let _alone = alone();
    if !rustix::process::geteuid().is_root() {
        return skipped("another user: only root can become one");
    }
    let place = TempDir::with_prefix("thrufs-doctor-").unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let thrufs = ground::copied_program(place.path());
    let mut command = Command::new(&thrufs);
    command.args(["doctor", "--json", "/"]).current_dir("/");
    let output = run(command.uid(65_534).gid(65_534));
    let findings = from_json(&output);
    let has_device = finding(&findings, "/dev/fuse").0 == "ok";
    let (state, detail, remedy) = finding(&findings, "mounting");
    if Path::new("/usr/bin/fusermount3").exists() {
        assert_eq!(state, "ok", "{detail}");
        assert!(detail.contains("fusermount3"), "{detail}");
        assert_eq!(output.status.code(), Some(i32::from(!has_device)));
        let without_account = run(command.uid(4_000_001));
        let (state, detail, remedy) = finding(&from_json(&without_account), "mounting");
        assert!(state == "no" && detail.contains("no account"), "{detail}");
        assert!(remedy.contains("useradd --uid 4000001 "), "{remedy}");
    } else {
        assert_eq!(state, "no");
        assert!(remedy.contains("fuse3"), "{remedy}");
        assert_eq!(output.status.code(), Some(1));
    }
    let conf = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    let shared = conf.lines().any(|line| line == "user_allow_other");
    let state = if shared { "ok" } else { "no" };
    assert_eq!(finding(&findings, "allow_other").0, state);

    let output = run(Command::new("setpriv")
        .args(["--no-new-privs", "--reuid=65534", "--clear-groups"])
        .arg(&thrufs)
        .args(["doctor", "--json"]));
    if output.stdout.is_empty() {
        return skipped(&format!("no_new_privs: {}", stderr(&output)));
    }
    let (state, detail, _) = finding(&from_json(&output), "mounting");
    assert_eq!(state, "no");
    let whys = ["no_new_privs", "not found"];
    assert!(whys.iter().any(|why| detail.contains(why)), "{detail}");
}

#[test]
fn doctor_and_mount_agree_on_confinement() {
    let _alone = alone();
    let Some(ground) = Ground::new() else { return };
    let ground = ground.propagating();
    for (how, mounts, walls) in [
        (MountPropagationFlags::SHARED, "ok", "ok"),
        (MountPropagationFlags::PRIVATE, "no", "ok"),
        (MountPropagationFlags::UNBINDABLE, "no", "no"),
    ] {
        ground.propagates(how);
        let findings = agreed(ground.src.to_str().unwrap());
        assert_eq!(finding(&findings, "mounts beneath").0, mounts, "{how:?}");
        let (state, detail, _) = finding(&findings, "confinement");
        assert_eq!(state, walls, "{how:?}: {detail}");
        let output = ground.mount(&[]);
        succeeded(&output);
        let said = stderr(&output);
        let is_warned = said.contains("WARN the worker can leave the source");
        assert_eq!(is_warned, walls == "no", "{how:?}: {said}");
        ground::unmount_by_command(&ground.mnt);
    }
}

#[test]
fn directory_findings() {
    let _alone = alone();
    let findings = |path: &str| from_json(&doctor(&["--json", path]));
    let proc = findings("/proc/sys/kernel");
    assert!(finding(&proc, "file system").1.contains("is proc"));
    assert_ne!(finding(&proc, "file handles").0, "ok");
    let (state, detail, _) = finding(&proc, "RWF_NOWAIT");
    assert_eq!(state, "no", "{detail}");

    let memory = findings("/dev/shm");
    let kind = finding(&memory, "file system").1;
    if !kind.contains("is tmpfs") {
        return skipped(&format!("a directory in memory: {kind}"));
    }
    assert!(kind.contains("in memory"), "{kind}");
    assert_eq!(finding(&memory, "RWF_NOWAIT").0, "ok");
    if rustix::process::geteuid().is_root() {
        assert_eq!(finding(&memory, "file handles").0, "ok");
    }
    let output = doctor(&["/nonexistent/thrufs"]);
    fails(&output, 1, "does not exist");
}

/// Anybody may make names in /tmp, and process ids are known.
#[test]
fn doctor_tries_the_sandbox_in_a_directory_that_nobody_has_made_before() {
    let place = TempDir::new().unwrap();
    let script = "mkdir \"$TMPDIR/thrufs-doctor-$$\" && exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", THRUFS, "doctor"]);
    let said = stdout(&run(command.env("TMPDIR", place.path())));
    assert!(!said.contains("cannot create"), "{said}");
    let left = fs::read_dir(place.path()).unwrap().count();
    assert_eq!(left, 1, "its own is removed");
}
