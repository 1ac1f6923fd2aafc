//! The confinement of workers, and the cost of finding files within it.

mod costs;
mod counter;
#[cfg(target_arch = "x86_64")]
mod injected;
#[cfg(target_arch = "x86_64")]
mod taken_over;

use crate::ground::prelude::*;
use crate::ground::share::{Place, serves};
use crate::ground::{processes, status_set, unmount};
use crate::run_ground::{RunGround, Talk, USER, Who};

/// Writes a policy in `place`, and inserts its path for POLICY.
fn with_policy(options: &str, place: &Path) -> String {
    let (policy, audit) = (place.join("policy"), place.join("audit"));
    let rule = "[[rule]]\npath = \"**\"\naction = \"audit\"\n";
    fs::write(&policy, format!("audit-log = {audit:?}\n{rule}")).unwrap();
    options.replace("POLICY", policy.to_str().unwrap())
}

/// A share, and its standby worker.
struct Share {
    place: Place,
    worker: Pid,
    _server: Foreground,
}

impl Share {
    /// POLICY in the options stands for the path of a policy.
    fn new(options: &str) -> Share {
        Share::prepared(options, |_| ())
    }

    /// With a prepared directory.
    fn prepared(options: &str, prepare: fn(&Path)) -> Share {
        let place = Place::new();
        prepare(&place.dir);
        let server = place.share_with_log(&with_policy(options, &place.path("")));
        Share {
            worker: place.workers()[0],
            place,
            _server: server,
        }
    }
}

/// The command, started by a shell that has /etc open, and a variable.
fn started_with_a_secret(arguments: &[&str], paths: [&Path; 2]) -> Command {
    let mut shell = Command::new("sh");
    let script = "exec 9</etc; exec \"$0\" \"$@\"";
    shell.args(["-c", script, THRUFS]).args(arguments);
    shell.args(paths).stdin(Stdio::null());
    shell.envs([("TOKEN", "secret"), ("THRUFS_LOG", "info")]);
    shell
}

fn has_variable(process: Pid, variable: &str) -> bool {
    let path = format!("/proc/{}/environ", process.as_raw_nonzero());
    let variables = fs::read_to_string(path).unwrap();
    variables.split('\0').any(|found| found == variable)
}

/// Whether a process has /etc open.
fn has_it_open(process: Pid) -> bool {
    let place = format!("/proc/{}/fd", process.as_raw_nonzero());
    let numbers = fs::read_dir(place)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files = numbers.filter_map(|number| fs::read_link(number).ok());
    files.any(|file| file == Path::new("/etc"))
}

/// An inherited descriptor would bypass the confinement, and variables may hold secrets.
#[test]
fn worker_inherits_nothing_of_its_starter() {
    let Some(ground) = Ground::new() else { return };
    let without_secret = |worker: Pid| {
        assert!(has_variable(worker, "THRUFS_LOG=info"));
        assert!(!has_variable(worker, "TOKEN=secret"));
    };
    let mut mount = started_with_a_secret(&["mount"], [&ground.src, &ground.mnt]);
    succeeded(&run(&mut mount));
    for role in ["--worker", "--supervisor"] {
        assert!(!has_it_open(ground.process(role)), "mount {role}");
    }
    without_secret(ground.process("--worker"));
    unmount(&ground.mnt);

    let socket = ground.path().join("socket");
    let mut share = started_with_a_secret(&["share", "--socket"], [&socket, &ground.src]);
    let _server = serves(&mut share, &socket);
    let workers = processes("--share-worker", &socket);
    assert!(!workers.is_empty());
    workers.iter().copied().for_each(without_secret);
    assert!(!workers.into_iter().any(has_it_open), "share");
}

#[cfg(not(target_arch = "x86_64"))]
#[test]
fn injected_system_calls_require_x86_64() {
    crate::ground::skipped(
        "workers that are taken over: they are made to call by registers of x86-64",
    );
}

/// The worker is alone in its PID namespace: the supervisor identifies callers.
#[test]
fn rules_and_audit_log_identify_callers_as_the_host_does() {
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
    let mut child = command.arg(&private).stderr(Stdio::null()).spawn().unwrap();
    let other = child.id();
    assert!(!child.wait().unwrap().success(), "what runs cat is refused");
    let said = fs::read_to_string(&audit).unwrap();
    let lines = said.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    assert_eq!(lines.len(), 2, "{said}");
    // Requests have the thread id.
    let me = rustix::thread::gettid().as_raw_nonzero().get();
    assert_eq!(lines[0]["pid"], me);
    let own = std::env::current_exe().unwrap();
    assert_eq!(lines[0]["executable"], own.to_str().unwrap());
    assert_eq!(lines[1]["pid"], other);
    assert_eq!(lines[1]["executable"], cat.to_str().unwrap());
    assert_eq!(lines[1]["outcome"], "refused");
    unmount(&ground.mnt);
}

/// A user may have been started with capabilities, for example as a service of systemd.
#[test]
fn worker_of_an_ordinary_user_keeps_no_capability() {
    let Some(ground) = RunGround::new(Who::User) else {
        return;
    };
    let mut command = Command::new("setpriv");
    let user = USER.to_string();
    let ids = ["--reuid", &user, "--regid", &user, "--clear-groups"];
    let capabilities = [
        "--inh-caps=+dac_read_search",
        "--ambient-caps=+dac_read_search",
    ];
    command.args(ids).args(capabilities).arg(&ground.program);
    command
        .arg("run")
        .arg(&ground.tree)
        .args(["--", "sh", "-c"]);
    command.arg("grep CapAmb /proc/self/status; echo up; exec sleep 600");
    command.current_dir("/").env("HOME", &ground.home);
    let mut run = Talk::start(&mut command);
    run.wait_for("up");
    let worker = processes("--worker", &ground.tree)[0];
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status_set(worker, set), 0, "{set}");
    }
    assert_eq!(status(worker, "NoNewPrivs"), "1");
}

#[test]
fn each_worker_has_its_own_pid_namespace() {
    let Some(ground) = Ground::new() else { return };
    let _server = ground.mount_in_foreground(&["-o", "control=none"]);
    let share = Share::new("control=none");
    for worker in [ground.process("--worker"), share.worker] {
        let ids = status(worker, "NSpid");
        let last = ids.split_whitespace().next_back();
        assert_eq!(last, Some("1"), "{ids}");
    }
    unmount(&ground.mnt);
}
