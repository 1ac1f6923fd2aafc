//! `thrufs share` and `virtiofsd` as processes: their sockets, their workers, their ends.

use crate::ground::{
    self, Foreground, THRUFS, copied_program, processes, run, skipped, stderr, wait_for,
};
use rustix::net::RecvFlags;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A directory to share, and where to listen.
struct Place {
    place: TempDir,
    dir: PathBuf,
    socket: PathBuf,
}

impl Place {
    fn new() -> Place {
        let place = TempDir::with_prefix("thrufs-share-").unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (dir, socket) = (place.path().join("dir"), place.path().join("socket"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("file"), "content").unwrap();
        Place { place, dir, socket }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(THRUFS);
        command
            .arg("share")
            .arg("--socket")
            .arg(&self.socket)
            .args(arguments)
            .arg(&self.dir)
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    /// Back when somebody can connect.
    fn share(&self, arguments: &[&str]) -> Foreground {
        let child = Foreground::of(self.command(arguments).spawn().unwrap());
        wait_for("the socket to appear", || self.socket.exists());
        child
    }

    /// As `share`, and what it says can be read while it does.
    fn share_aloud(&self, arguments: &[&str]) -> (Foreground, Said) {
        let said = Said(self.path("said"));
        let file = fs::File::create(&said.0).unwrap();
        let mut command = self.command(arguments);
        let child = Foreground::of(command.stderr(file).spawn().unwrap());
        wait_for("the socket to appear", || self.socket.exists());
        (child, said)
    }

    fn workers(&self) -> Vec<Pid> {
        processes("--share-worker", &self.socket)
    }

    fn worker(&self) -> Pid {
        worker_at(&self.socket)
    }

    /// Connects, and says what a front end says first.
    fn connect(&self) -> UnixStream {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        let header = GET_FEATURES.map(u32::to_ne_bytes).concat();
        stream.write_all(&header).unwrap();
        stream
    }

    /// Another worker than this waits for the next.
    fn replaced(&self, worker: Pid) -> Pid {
        let mut next = None;
        wait_for("another worker", || {
            next = self.workers().into_iter().find(|found| *found != worker);
            next.is_some() && !self.workers().contains(&worker)
        });
        next.unwrap()
    }
}

fn worker_at(socket: &Path) -> Pid {
    let mut found = Vec::new();
    wait_for("one worker", || {
        found = processes("--share-worker", socket);
        found.len() == 1
    });
    found[0]
}

/// What a share says, by and by.
struct Said(PathBuf);

impl Said {
    fn says(&self, part: &str) {
        wait_for(part, || fs::read_to_string(&self.0).unwrap().contains(part));
    }
}

/// VHOST_USER_GET_FEATURES, version 1, no payload.
const GET_FEATURES: [u32; 3] = [1, 1, 0];

/// Waits for an answer, which is left to be read: whoever gives it serves this machine.
fn is_served(stream: &UnixStream) {
    stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    wait_for("an answer", || {
        let mut byte = [0; 1];
        rustix::net::recv(stream, &mut byte, RecvFlags::PEEK).is_ok_and(|(_, length)| length > 0)
    });
}

/// Takes an answer that comes.
fn is_answered(stream: &mut UnixStream) {
    is_served(stream);
    assert!(stream.read(&mut [0; 64]).unwrap() > 0);
}

/// Whether no answer comes within a moment.
fn is_silent(stream: &mut UnixStream) -> bool {
    stream
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    stream.read(&mut [0; 64]).is_err()
}

/// Whether the other end is closed; what it says before that does not matter.
fn is_closed(stream: &mut UnixStream) -> bool {
    stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let mut bytes = [0; 64];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => {
                use std::io::ErrorKind::{TimedOut, WouldBlock};
                return !matches!(error.kind(), WouldBlock | TimedOut);
            }
        }
    }
}

fn status(process: Pid, field: &str) -> String {
    let path = format!("/proc/{}/status", process.as_raw_nonzero());
    let status = fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.unwrap().trim_start_matches(':').trim().to_owned()
}

fn root_of(process: Pid) -> PathBuf {
    format!("/proc/{}/root", process.as_raw_nonzero()).into()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn the_socket_is_there_when_it_is_said_and_goes_with_the_share() {
    let place = Place::new();
    let notified = place.path("notified");
    let listener = UnixDatagram::bind(&notified).unwrap();
    listener.set_read_timeout(Some(ground::LIMIT)).unwrap();
    let mut command = place.command(&["-o", "control=none"]);
    let child = command.env("NOTIFY_SOCKET", &notified).spawn().unwrap();
    let child = Foreground::of(child);
    let mut bytes = [0; 64];
    let length = listener.recv(&mut bytes).unwrap();
    assert_eq!(&bytes[..length], b"READY=1\n");
    let metadata = fs::symlink_metadata(&place.socket).unwrap();
    assert_eq!(metadata.mode() & 0o7777, 0o600);
    place.worker();
    child.signal(Signal::TERM);
    let (code, said) = child.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("sharing") && said.contains("SIGTERM"),
        "{said}"
    );
    assert!(!place.socket.exists());
    assert!(place.workers().is_empty());
    let left: Vec<_> = fs::read_dir(place.place.path()).unwrap().collect();
    assert_eq!(left.len(), 2, "the directory and the test's own: {left:?}");
}

#[test]
fn machines_are_served_in_turn_each_by_a_worker_of_its_own() {
    let place = Place::new();
    let child = place.share(&["-o", "control=none,machines=1"]);
    let first = place.worker();
    let stream = place.connect();
    // Who connects meanwhile waits and is served next.
    let waiting = place.connect();
    drop(stream);
    let second = place.replaced(first);
    drop(waiting);
    place.replaced(second);
    child.signal(Signal::INT);
    let (code, said) = child.wait();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said.matches("has disconnected").count(), 2, "{said}");
}

#[test]
fn machines_are_served_at_once_and_one_s_end_is_not_the_others() {
    let place = Place::new();
    let child = place.share(&["-o", "control=none,machines=2,resume=0"]);
    let first = place.worker();
    let mut one = place.connect();
    is_served(&one);
    let mut second = None;
    wait_for("the next worker", || {
        second = place.workers().into_iter().find(|found| *found != first);
        second.is_some()
    });
    let second = second.unwrap();
    let mut two = place.connect();
    is_served(&two);
    // One more than may be served waits: it is answered by nobody.
    let mut three = place.connect();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(place.workers().len(), 2);
    is_answered(&mut one);
    is_answered(&mut two);
    assert!(is_silent(&mut three));
    // A signal to one worker, even its death, is about its machine alone.
    kill_process(first, Signal::TERM).unwrap();
    wait_for("the first connection to close", || is_closed(&mut one));
    is_answered(&mut three);
    let third = place.workers().into_iter().find(|found| *found != second);
    kill_process(third.unwrap(), Signal::KILL).unwrap();
    wait_for("the third connection to close", || is_closed(&mut three));
    two.write_all(&GET_FEATURES.map(u32::to_ne_bytes).concat())
        .unwrap();
    is_answered(&mut two);
    child.signal(Signal::TERM);
    let (code, said) = child.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(is_closed(&mut two));
    assert!(place.workers().is_empty());
    assert_eq!(said.matches("has connected").count(), 3, "{said}");
}

#[test]
fn who_only_looks_takes_up_no_worker() {
    let place = Place::new();
    let _child = place.share(&["-o", "control=none,machines=1"]);
    let worker = place.worker();
    for _ in 0..5 {
        drop(UnixStream::connect(&place.socket).unwrap());
    }
    // As does another share at the same socket.
    let output = run(&mut place.command(&[]));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("listens at"),
        "{}",
        stderr(&output)
    );
    let stream = place.connect();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(place.worker(), worker);
    drop(stream);
    place.replaced(worker);
}

#[test]
fn a_worker_that_dies_is_replaced_for_the_next_machine() {
    let place = Place::new();
    let child = place.share(&["-o", "control=none,machines=1,resume=0"]);
    let worker = place.worker();
    let mut stream = place.connect();
    is_served(&stream);
    kill_process(worker, Signal::KILL).unwrap();
    wait_for("the connection to close", || is_closed(&mut stream));
    let next = place.replaced(worker);
    let stream = place.connect();
    drop(stream);
    place.replaced(next);
    child.signal(Signal::TERM);
    let (code, said) = child.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the worker died"), "{said}");
}

#[test]
fn a_worker_does_not_outlive_its_supervisor() {
    let place = Place::new();
    let child = place.share(&["-o", "control=none,machines=1"]);
    let worker = place.worker();
    let mut stream = place.connect();
    is_served(&stream);
    child.signal(Signal::KILL);
    wait_for("the worker to end", || !place.workers().contains(&worker));
    assert!(is_closed(&mut stream));
    // What it has left is no hindrance.
    assert!(place.socket.exists());
    drop(child);
    let again = place.share(&["-o", "control=none"]);
    wait_for("a socket that listens", || {
        UnixStream::connect(&place.socket).is_ok()
    });
    drop(again);
}

#[test]
fn what_is_there_already_is_left_alone() {
    let place = Place::new();
    fs::write(&place.socket, "precious").unwrap();
    let output = run(&mut place.command(&[]));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("something else"),
        "{}",
        stderr(&output)
    );
    assert_eq!(fs::read_to_string(&place.socket).unwrap(), "precious");
}

#[test]
fn the_worker_sees_the_directory_and_nothing_else() {
    if !is_root() {
        return skipped("what root's worker gives up");
    }
    let place = Place::new();
    // Whoever starts it may be in groups.
    let share = place.command(&["-o", "control=none"]);
    let mut command = Command::new("setpriv");
    command.arg("--groups=7,8").arg(share.get_program());
    command.args(share.get_args()).stderr(Stdio::piped());
    let child = Foreground::of(command.spawn().unwrap());
    wait_for("the socket to appear", || place.socket.exists());
    let worker = place.worker();
    assert_eq!(status(child.pid(), "Groups"), "7 8");
    assert_eq!(names(&root_of(worker)), ["file"]);
    assert_eq!(status(worker, "NoNewPrivs"), "1");
    assert_eq!(status(worker, "Groups"), "");
    wait_for("the filter", || status(worker, "Seccomp") == "2");
    let effective = u64::from_str_radix(&status(worker, "CapEff"), 16).unwrap();
    let (chown, sys_admin, sys_ptrace) = (1 << 0, 1 << 21, 1 << 19);
    assert_ne!(effective & chown, 0);
    assert_eq!(effective & (sys_admin | sys_ptrace), 0);
    assert_eq!(status(worker, "CapEff"), status(worker, "CapPrm"));
    drop(child);
}

/// A mount of its own, whose mounts get around as on most machines.
struct SharedMount(PathBuf);

impl SharedMount {
    fn on(path: &Path) -> SharedMount {
        use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
        mount("tmpfs", path, "tmpfs", MountFlags::empty(), None).unwrap();
        let made = SharedMount(path.to_owned());
        mount_change(path, MountPropagationFlags::SHARED).unwrap();
        made
    }
}

impl Drop for SharedMount {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn mounts_that_come_and_go_beneath_are_seen() {
    if !is_root() {
        return skipped("mounting needs root");
    }
    let place = Place::new();
    let shared = SharedMount::on(&place.dir);
    let beneath = place.dir.join("beneath");
    fs::create_dir(&beneath).unwrap();
    let _child = place.share(&["-o", "control=none"]);
    let within_it = root_of(place.worker()).join("beneath");
    let mounted = SharedMount::on(&beneath);
    fs::write(beneath.join("later"), "").unwrap();
    assert_eq!(names(&within_it), ["later"]);
    drop(mounted);
    assert_eq!(names(&within_it), [""; 0]);
    drop(shared);
}

fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn other_sandboxes_and_filters() {
    if !is_root() {
        return skipped("what root's worker gives up");
    }
    let place = Place::new();
    let own = fs::read_link("/proc/self/ns/mnt").unwrap();
    for (sandbox, is_apart, is_root_dir, seccomp) in [
        ("sandbox=chroot,seccomp=kill", false, true, "2"),
        ("sandbox=none,seccomp=none", false, false, "0"),
        ("sandbox=namespace,seccomp=log", true, true, "2"),
    ] {
        let options = format!("control=none,{sandbox}");
        let child = place.share(&["-o", &options]);
        let worker = place.worker();
        let namespace = format!("/proc/{}/ns/mnt", worker.as_raw_nonzero());
        assert_eq!(
            fs::read_link(namespace).unwrap() != own,
            is_apart,
            "{sandbox}"
        );
        assert_eq!(
            root_of(worker).join("file").exists(),
            is_root_dir,
            "{sandbox}"
        );
        wait_for("the filter", || status(worker, "Seccomp") == seccomp);
        child.signal(Signal::TERM);
        assert_eq!(child.wait().0, Some(0), "{sandbox}");
    }
}

const USER: u32 = 54_321;

/// What an ordinary user shares: the command, and the socket that it makes. None where nobody can become
/// that user.
fn command_of_user(place: &Place, options: &str) -> Option<(Command, PathBuf)> {
    if !is_root() {
        skipped("becoming an ordinary user");
        return None;
    }
    let shared = place.path("shared");
    fs::create_dir(&shared).unwrap();
    std::os::unix::fs::chown(&shared, Some(USER), Some(USER)).unwrap();
    let socket = shared.join("socket");
    let mut command = Command::new(copied_program(place.place.path()));
    command
        .uid(USER)
        .gid(USER)
        .args(["share", "-o", "control=none", "-o", options, "--socket"])
        .arg(&socket)
        .arg(&place.dir)
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    Some((command, socket))
}

#[test]
fn an_ordinary_user_is_root_in_its_namespace_if_that_is_asked_for() {
    let place = Place::new();
    let options = format!("namespace_uidmap=0:{USER}:1,namespace_gidmap=0:{USER}:1");
    let Some((mut command, socket)) = command_of_user(&place, &options) else {
        return;
    };
    let mut child = Foreground::of(command.spawn().unwrap());
    if !appears(&mut child, &socket) {
        let (_, said) = child.wait();
        assert!(said.contains("user namespace"), "{said}");
        return skipped("the user namespace: this user may make none");
    }
    let worker = worker_at(&socket);
    let map = fs::read_to_string(format!("/proc/{}/uid_map", worker.as_raw_nonzero())).unwrap();
    let map: Vec<&str> = map.split_whitespace().collect();
    assert_eq!(map, ["0", &USER.to_string(), "1"]);
    let effective = u64::from_str_radix(&status(worker, "CapEff"), 16).unwrap();
    assert_ne!(effective & 1, 0, "CAP_CHOWN, over its own");
    assert_eq!(effective & 1 << 21, 0, "CAP_SYS_ADMIN");
}

#[test]
fn ids_that_are_not_the_user_s_are_not_given() {
    let place = Place::new();
    let options = "namespace_uidmap=0:100000:65536,namespace_gidmap=0:100000:65536";
    let Some((mut command, socket)) = command_of_user(&place, options) else {
        return;
    };
    // Whatever is installed, this user has no subordinate ids.
    let (code, said) = Foreground::of(command.spawn().unwrap()).wait();
    assert_eq!(code, Some(1), "{said}");
    let why = ["newuidmap", "user namespace"];
    assert!(why.iter().any(|why| said.contains(why)), "{said}");
    assert!(!socket.exists());
    let output = run(&mut place.command(&["-o", options]));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("not root"), "{}", stderr(&output));
}

/// Whether it comes to serve.
fn appears(child: &mut Foreground, socket: &Path) -> bool {
    let mut ended = false;
    wait_for("the socket to appear, or the end", || {
        ended = child.has_ended();
        ended || socket.exists()
    });
    !ended
}

#[test]
fn an_ordinary_user_shares_too() {
    let place = Place::new();
    let Some((mut command, socket)) = command_of_user(&place, "ro") else {
        return;
    };
    let child = Foreground::of(command.spawn().unwrap());
    wait_for("the socket to appear", || socket.exists());
    let worker = worker_at(&socket);
    assert_eq!(status(worker, "CapPrm").trim_start_matches('0'), "");
    assert_eq!(status(worker, "NoNewPrivs"), "1");
    let namespace = format!("/proc/{}/ns/user", worker.as_raw_nonzero());
    let is_apart =
        fs::read_link(namespace).unwrap() != fs::read_link("/proc/self/ns/user").unwrap();
    if is_apart {
        assert_eq!(names(&root_of(worker)), ["file"]);
        let map = fs::read_to_string(format!("/proc/{}/uid_map", worker.as_raw_nonzero())).unwrap();
        assert_eq!(map.split_whitespace().last(), Some("1"), "one user: {map}");
    } else {
        skipped("the user namespace: this user may make none");
    }
    child.signal(Signal::TERM);
    let (code, said) = child.wait();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn figures_are_told_at_the_socket_and_on_a_signal() {
    let place = Place::new();
    let control = place.path("control");
    let option = format!("control={}", control.display());
    let (child, said) = place.share_aloud(&["-o", &option]);
    let worker = place.worker();
    wait_for("the control socket", || control.exists());
    let output = run(Command::new(THRUFS)
        .args(["ctl", "--control"])
        .arg(&control)
        .arg(&place.socket)
        .arg("statistics"));
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(told.contains("no requests yet"), "{told}");
    let figures = || {
        let output = run(Command::new(THRUFS)
            .args(["ctl", "--json", "--control"])
            .arg(&control)
            .arg(&place.socket)
            .arg("statistics"));
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let (one, other) = (place.connect(), place.connect());
    wait_for("both to be told of", || {
        figures()["machines"].as_array().unwrap().len() == 2
    });
    drop(one);
    wait_for("the first to have left", || figures()["left"] == 1);
    let told = figures();
    assert_eq!(told["machines"].as_array().unwrap().len(), 1);
    assert!(told["last_left"]["figures"].is_object(), "{told}");
    drop(other);
    wait_for("both to have left", || figures()["left"] == 2);
    assert!(!place.workers().contains(&worker));
    child.signal(Signal::USR1);
    said.says("0 connected, 2 have left");
    // Of the worker that waits.
    said.says("no requests yet");
    child.signal(Signal::TERM);
    assert_eq!(child.wait().0, Some(0));
    assert!(!control.exists());
}

#[test]
fn a_share_without_a_control_socket_says_so() {
    let place = Place::new();
    let _child = place.share(&["-o", "control=none"]);
    let output = run(Command::new(THRUFS)
        .arg("ctl")
        .arg(&place.socket)
        .arg("statistics"));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("control=none"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_policy_is_read_again_and_a_bad_one_changes_nothing() {
    let place = Place::new();
    let policy = place.path("policy.toml");
    fs::write(&policy, "[[rule]]\npath = \"secret\"\naction = \"hide\"\n").unwrap();
    let option = format!("control=none,policy={}", policy.display());
    let (child, said) = place.share_aloud(&["-o", &option]);
    place.worker();
    child.signal(Signal::HUP);
    said.says("as it is now");
    fs::write(&policy, "nonsense").unwrap();
    child.signal(Signal::HUP);
    said.says("the policy in force stays");
    child.signal(Signal::TERM);
    assert_eq!(child.wait().0, Some(0));

    fs::write(
        &policy,
        "[[rule]]\ncaller-exe = \"/bin/ls\"\naction = \"deny\"\n",
    )
    .unwrap();
    let output = run(&mut place.command(&["-o", &option]));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("a guest"), "{}", stderr(&output));
}

#[test]
fn what_means_nothing_for_a_share_is_told() {
    let place = Place::new();
    for (list, part) in [
        ("allow_other", "means nothing for a share: in a guest"),
        ("transport=uring", "say queues="),
        ("queue_size=100", "power of two"),
        ("xattrmap=x", "rule 1"),
        ("cach=never", "did you mean `cache`?"),
    ] {
        let output = run(&mut place.command(&["-o", list]));
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
        assert!(!place.socket.exists());
    }
    let mount = run(Command::new(THRUFS).args(["mount", "-o", "tag=x", "/", "/mnt"]));
    assert_eq!(mount.status.code(), Some(2));
    assert!(stderr(&mount).contains("means nothing for a mount"));
}

/// By that name, with a link.
fn virtiofsd(place: &Place, arguments: &[&str]) -> Command {
    let link = place.path("virtiofsd");
    if !link.exists() {
        symlink(THRUFS, &link).unwrap();
    }
    let mut command = Command::new(link);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    command
}

#[test]
fn as_virtiofsd_it_serves_one_machine_and_says_which_process_it_is() {
    let place = Place::new();
    let (socket, dir) = (place.socket.to_str().unwrap(), place.dir.to_str().unwrap());
    let mut command = virtiofsd(
        &place,
        &[
            "--socket-path",
            socket,
            "--shared-dir",
            dir,
            "--cache=auto",
            "--xattr",
        ],
    );
    let child = Foreground::of(command.spawn().unwrap());
    wait_for("the socket to appear", || place.socket.exists());
    let pid = fs::read_to_string(place.path("socket.pid")).unwrap();
    assert_eq!(pid, format!("{}\n", child.pid().as_raw_nonzero()));
    let second = virtiofsd(
        &place,
        &["--socket-path", socket, "-o", &format!("source={dir}")],
    )
    .output()
    .unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(
        stderr(&second).contains("listens at"),
        "{}",
        stderr(&second)
    );
    drop(place.connect());
    let (code, said) = child.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(!place.socket.exists());
}

#[test]
fn as_virtiofsd_it_takes_a_socket_that_listens() {
    let place = Place::new();
    let listener = UnixListener::bind(&place.socket).unwrap();
    let dir = place.dir.to_str().unwrap();
    let mut command = virtiofsd(
        &place,
        &["--fd=0", "-o", &format!("source={dir},cache=none")],
    );
    let inherited = OwnedFd::from(listener.try_clone().unwrap());
    let child = command.stdin(Stdio::from(inherited)).spawn().unwrap();
    let child = Foreground::of(child);
    drop(listener);
    drop(place.connect());
    let (code, said) = child.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(place.socket.exists(), "another's to remove");
}

#[test]
fn as_virtiofsd_it_tells_what_it_can_and_cannot() {
    let place = Place::new();
    let output = virtiofsd(&place, &["--print-capabilities"])
        .output()
        .unwrap();
    assert!(output.status.success());
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let described: serde_json::Value =
        serde_json::from_str(include_str!("../../../../dist/50-thrufs.json")).unwrap();
    assert_eq!(told["type"], "fs");
    assert_eq!(told["features"], described["features"]);
    let name = Path::new(described["binary"].as_str().unwrap()).file_name();
    assert_eq!(name.unwrap(), "virtiofsd", "by which it knows what it is");
    let of_thrufs = run(Command::new(THRUFS).args(["virtiofsd", "--print-capabilities"]));
    assert_eq!(of_thrufs.stdout, output.stdout);

    for (arguments, code, part) in [
        (&["--version"][..], 0, "(thrufs)"),
        (&["--help"], 0, "--migration-mode"),
        (
            &["--fd=3", "--shared-dir=/", "--migration-mode=by-name"],
            2,
            "find-paths",
        ),
        (&["--fd=3", "--shared-dir=/", "--frob"], 2, "--frob"),
        (&["--fd=3"], 2, "--shared-dir"),
        (&["--shared-dir=/"], 2, "--socket-path"),
        (&["--fd=99", "--shared-dir=/"], 1, "descriptor 99"),
        (
            &["--fd=3", "--shared-dir=/no-such-directory"],
            1,
            "does not exist",
        ),
    ] {
        let output = virtiofsd(&place, arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(part), "{arguments:?}: {said}");
    }
}
