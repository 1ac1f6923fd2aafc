//! What lies beyond the walls of a worker stays beyond them, and what it costs to live within.

mod costs;
#[cfg(target_arch = "x86_64")]
mod injected;
#[cfg(target_arch = "x86_64")]
mod taken_over;

use crate::ground::{Foreground, Ground, THRUFS, processes, unmount, wait_for};
use rustix::process::Pid;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use thrufs_client::{Client, FrontEnd, FrontEndConfig};

/// Writes a policy in `place`, and names it in the options.
fn with_policy(options: &str, place: &Path) -> String {
    let (policy, audit) = (place.join("policy"), place.join("audit"));
    let rule = "[[rule]]\npath = \"**\"\naction = \"audit\"\n";
    fs::write(&policy, format!("audit-log = {audit:?}\n{rule}")).unwrap();
    options.replace("POLICY", policy.to_str().unwrap())
}

/// A share, and who serves it next.
struct Share {
    place: TempDir,
    dir: PathBuf,
    socket: PathBuf,
    worker: Pid,
    _server: Foreground,
}

impl Share {
    /// With these options, in which POLICY stands for a policy.
    fn new(options: &str) -> Share {
        let place = TempDir::with_prefix("thrufs-walls-").unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (dir, socket) = (place.path().join("dir"), place.path().join("socket"));
        fs::create_dir(&dir).unwrap();
        let options = with_policy(options, place.path());
        let mut command = Command::new(THRUFS);
        command.args(["share", "-o", &options, "--socket"]);
        let child = command.arg(&socket).arg(&dir).stdin(Stdio::null()).spawn();
        let server = Foreground::of(child.unwrap());
        wait_for("the socket to appear", || socket.exists());
        Share {
            worker: processes("--share-worker", &socket)[0],
            place,
            dir,
            socket,
            _server: server,
        }
    }

    fn connect(&self) -> Client<FrontEnd> {
        let front_end = FrontEnd::connect(&self.socket, &FrontEndConfig::default()).unwrap();
        Client::mount(front_end).unwrap()
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[test]
fn workers_that_are_taken_over() {
    crate::ground::skipped(
        "workers that are taken over: they are made to call by registers of x86-64",
    );
}

/// The worker sees no process but itself: the supervisor tells it whom a request comes from.
#[test]
fn rules_on_programs_and_the_audit_know_callers_as_the_host_does() {
    let Some(ground) = Ground::new() else { return };
    fs::write(ground.src.join("private"), "private").unwrap();
    let cat = fs::canonicalize("/bin/cat").unwrap();
    let audit = ground.path().join("audit");
    let policy = ground.path().join("policy");
    let rules = format!(
        "audit-log = {audit:?}\n\
         [[rule]]\npath = \"private\"\naction = \"audit\"\n\
         [[rule]]\npath = \"private\"\ncaller-exe = {cat:?}\naction = \"deny\"\n"
    );
    fs::write(&policy, rules).unwrap();
    let options = format!("policy={}", policy.display());
    let _server = ground.mount_in_foreground(&["-o", &options]);
    let private = ground.mnt.join("private");
    assert_eq!(fs::read(&private).unwrap(), b"private");
    let mut command = Command::new(&cat);
    let child = command.arg(&private).stderr(Stdio::null()).spawn();
    let mut child = child.unwrap();
    let other = child.id();
    assert!(!child.wait().unwrap().success(), "what runs cat is refused");
    let said = fs::read_to_string(&audit).unwrap();
    let lines: Vec<serde_json::Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2, "{said}");
    // Requests name the thread.
    let me = rustix::thread::gettid().as_raw_nonzero().get();
    assert_eq!(lines[0]["pid"], me);
    let own = std::env::current_exe().unwrap();
    assert_eq!(lines[0]["executable"], own.to_str().unwrap());
    assert_eq!(lines[1]["pid"], other);
    assert_eq!(lines[1]["executable"], cat.to_str().unwrap());
    assert_eq!(lines[1]["outcome"], "refused");
    unmount(&ground.mnt);
}

/// Nobody else is in the process namespace of a worker.
#[test]
fn workers_are_alone() {
    let Some(ground) = Ground::new() else { return };
    let _server = ground.mount_in_foreground(&["-o", "control=none"]);
    let share = Share::new("control=none");
    for worker in [ground.process("--worker"), share.worker] {
        let status = fs::read_to_string(format!("/proc/{}/status", worker.as_raw_nonzero()));
        let status = status.unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let last = line.unwrap().split_whitespace().next_back();
        assert_eq!(last, Some("1"), "{line:?}");
    }
    unmount(&ground.mnt);
}
