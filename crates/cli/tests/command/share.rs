//! `thrufs share` and `virtiofsd` as processes: sockets, workers, ends.

use crate::ground::prelude::*;
use crate::ground::share::{Place, get_features, mount_at, serves, worker_at};
use crate::ground::{copied_program, status_set};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::net::RecvFlags;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};

fn waits_at_most(stream: &UnixStream, milliseconds: u64) {
    let limit = Duration::from_millis(milliseconds);
    stream.set_read_timeout(Some(limit)).unwrap();
}

/// Waits for a reply, without reading it: a worker serves this connection.
fn is_served(stream: &UnixStream) {
    waits_at_most(stream, 20);
    wait_for("an answer", || {
        let mut byte = [0; 1];
        rustix::net::recv(stream, &mut byte, RecvFlags::PEEK).is_ok_and(|(_, length)| length > 0)
    });
}

/// Reads a reply.
fn is_answered(stream: &mut UnixStream) {
    is_served(stream);
    assert!(stream.read(&mut [0; 64]).unwrap() > 0);
}

fn is_silent(stream: &mut UnixStream) -> bool {
    waits_at_most(stream, 300);
    stream.read(&mut [0; 64]).is_err()
}

/// Whether the peer has closed; data before that are skipped.
fn is_closed(stream: &mut UnixStream) -> bool {
    waits_at_most(stream, 20);
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

/// Reads a small file as a guest.
fn cat(socket: &Path, path: &str) -> Result<Vec<u8>, Errno> {
    let client = mount_at(socket, &FrontEndConfig::default());
    let root = client.root();
    let node = root.walk(path)?;
    let fh = root.open(node, libc::O_RDONLY)?.fh;
    root.read(node, fh, 0, 4096)
}

fn root_of(process: Pid) -> PathBuf {
    format!("/proc/{}/root", process.as_raw_nonzero()).into()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn socket_exists_from_readiness_to_the_end_of_the_share() {
    let place = Place::new();
    let notified = place.path("notified");
    let listener = UnixDatagram::bind(&notified).unwrap();
    listener.set_read_timeout(Some(LIMIT)).unwrap();
    let mut command = place.command("control=none");
    let child = command.env("NOTIFY_SOCKET", &notified).spawn().unwrap();
    let child = Foreground::of(child);
    let mut bytes = [0; 64];
    let length = listener.recv(&mut bytes).unwrap();
    assert_eq!(&bytes[..length], b"READY=1\n");
    let metadata = fs::symlink_metadata(&place.socket).unwrap();
    assert_eq!(metadata.mode() & 0o7777, 0o600);
    place.worker();
    let said = child.ends_by(Signal::TERM);
    for word in ["sharing", "SIGTERM"] {
        assert!(said.contains(word), "{said}");
    }
    assert!(!said.contains("vhost-user"), "as only virtiofsd: {said}");
    assert!(!place.socket.exists());
    assert!(place.workers().is_empty());
    let left: Vec<_> = fs::read_dir(place.path("")).unwrap().collect();
    assert_eq!(left.len(), 2, "the directory and the test's own: {left:?}");
}

#[test]
fn machines_are_served_in_turn_each_by_its_own_worker() {
    let place = Place::new();
    let child = place.share("control=none,machines=1");
    let first = place.worker();
    let stream = place.connect();
    // A further connection waits, and is served next.
    let waiting = place.connect();
    drop(stream);
    let second = place.replaced(first);
    drop(waiting);
    place.replaced(second);
    let said = child.ends_by(Signal::INT);
    assert_eq!(said.matches("has disconnected").count(), 2, "{said}");
}

#[test]
fn end_of_one_machine_does_not_affect_others() {
    let place = Place::new();
    let child = place.share("control=none,machines=2,resume=0");
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
    // A connection beyond the limit waits.
    let mut three = place.connect();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(place.workers().len(), 2);
    is_answered(&mut one);
    is_answered(&mut two);
    assert!(is_silent(&mut three));
    // A signal to one worker, even SIGKILL, affects only its machine.
    kill_process(first, Signal::TERM).unwrap();
    wait_for("the first connection to close", || is_closed(&mut one));
    is_answered(&mut three);
    let third = place.workers().into_iter().find(|found| *found != second);
    kill_process(third.unwrap(), Signal::KILL).unwrap();
    wait_for("the third connection to close", || is_closed(&mut three));
    is_served(&place.connect());
    get_features(&mut two);
    is_answered(&mut two);
    let said = child.ends_by(Signal::TERM);
    assert!(is_closed(&mut two));
    assert!(place.workers().is_empty());
    assert_eq!(said.matches("has connected").count(), 4, "{said}");
    assert!(said.contains("the worker died"), "{said}");
}

#[test]
fn connection_without_data_takes_no_worker() {
    let place = Place::new();
    let _child = place.share("control=none,machines=1");
    let worker = place.worker();
    for _ in 0..5 {
        drop(UnixStream::connect(&place.socket).unwrap());
    }
    let stream = place.connect();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(place.worker(), worker);
    drop(stream);
    place.replaced(worker);
}

#[test]
fn worker_does_not_outlive_its_supervisor() {
    let place = Place::new();
    let child = place.share("control=none,machines=1");
    let worker = place.worker();
    let mut stream = place.connect();
    is_served(&stream);
    child.signal(Signal::KILL);
    wait_for("the worker to end", || !place.workers().contains(&worker));
    assert!(is_closed(&mut stream));
    // The stale socket is replaced.
    assert!(place.socket.exists());
    drop(child);
    let again = place.share("control=none");
    wait_for("a socket that listens", || {
        UnixStream::connect(&place.socket).is_ok()
    });
    drop(again);
}

#[test]
fn worker_sees_only_the_shared_directory() {
    if !is_root() {
        return skipped("what root's worker gives up");
    }
    let place = Place::new();
    // The starter may have supplementary groups.
    let share = place.command("control=none");
    let mut command = Command::new("setpriv");
    command.arg("--groups=7,8").arg(share.get_program());
    command.args(share.get_args()).stderr(Stdio::piped());
    let child = serves(&mut command, &place.socket);
    let worker = place.worker();
    assert_eq!(status(child.pid(), "Groups"), "7 8");
    assert_eq!(names(&root_of(worker)), ["file"]);
    assert_eq!(status(worker, "NoNewPrivs"), "1");
    assert_eq!(status(worker, "Groups"), "");
    wait_for("the filter", || status(worker, "Seccomp") == "2");
    let effective = status_set(worker, "CapEff");
    let (chown, sys_admin, sys_ptrace) = (1 << 0, 1 << 21, 1 << 19);
    assert_ne!(effective & chown, 0);
    assert_eq!(effective & (sys_admin | sys_ptrace), 0);
    assert_eq!(status(worker, "CapEff"), status(worker, "CapPrm"));
    drop(child);
}

#[test]
fn later_mounts_beneath_a_share_are_seen() {
    let Some(ground) = Ground::new() else { return };
    let ground = ground.propagating();
    let beneath = ground.src.join("beneath");
    fs::create_dir(&beneath).unwrap();
    let socket = ground.path().join("socket");
    let mut command = Command::new(THRUFS);
    command.args(["share", "-o", "control=none", "--socket"]);
    let _child = serves(command.args([&socket, &ground.src]), &socket);
    let within_it = root_of(worker_at(&socket)).join("beneath");
    mount_tmpfs(&beneath);
    fs::write(beneath.join("later"), "").unwrap();
    assert_eq!(names(&within_it), ["later"]);
    detach(&beneath);
    assert_eq!(names(&within_it), [""; 0]);
}

fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

const USER: u32 = 54_321;

/// A share of an ordinary user: command and socket. `None` unless root.
fn command_of_user(place: &Place, options: &str) -> Option<(Command, PathBuf)> {
    if !is_root() {
        skipped("becoming an ordinary user");
        return None;
    }
    let shared = place.path("shared");
    fs::create_dir(&shared).unwrap();
    for directory in [&shared, &place.dir] {
        chown(directory, Some(USER), Some(USER)).unwrap();
    }
    let socket = shared.join("socket");
    let mut command = Command::new(copied_program(&place.path("")));
    command.args(["share", "-o", "control=none", "-o", options, "--socket"]);
    command.args([&socket, &place.dir]).uid(USER).gid(USER);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    Some((command, socket))
}

#[test]
fn namespace_uidmap_makes_an_ordinary_user_root_in_its_namespace() {
    let place = Place::new();
    let options = format!("namespace_uidmap=0:{USER}:1,namespace_gidmap=0:{USER}:1");
    let Some((mut command, socket)) = command_of_user(&place, &options) else {
        return;
    };
    let mut child = Foreground::of(command.spawn().unwrap());
    if !appears(&mut child, &socket) {
        let said = child.ends(1);
        assert!(said.contains("user namespace"), "{said}");
        return skipped("the user namespace: this user may make none");
    }
    let worker = worker_at(&socket);
    let map = fs::read_to_string(format!("/proc/{}/uid_map", worker.as_raw_nonzero())).unwrap();
    let map: Vec<&str> = map.split_whitespace().collect();
    assert_eq!(map, ["0", &USER.to_string(), "1"]);
    let effective = status_set(worker, "CapEff");
    assert_ne!(effective & 1, 0, "CAP_CHOWN, over its own");
    assert_eq!(effective & 1 << 21, 0, "CAP_SYS_ADMIN");
}

#[test]
fn foreign_ids_are_not_mapped() {
    let place = Place::new();
    let options = "namespace_uidmap=0:100000:65536,namespace_gidmap=0:100000:65536";
    let Some((mut command, socket)) = command_of_user(&place, options) else {
        return;
    };
    // This user has no subordinate ids.
    let said = Foreground::of(command.spawn().unwrap()).ends(1);
    let why = ["newuidmap", "user namespace"];
    assert!(why.iter().any(|why| said.contains(why)), "{said}");
    assert!(!socket.exists());
    fails(&run(&mut place.command(options)), 1, "for ordinary users");
}

/// Whether the socket appears before the process ends.
fn appears(child: &mut Foreground, socket: &Path) -> bool {
    let mut ended = false;
    wait_for("the socket to appear, or the end", || {
        ended = child.has_ended();
        ended || socket.exists()
    });
    !ended
}

#[test]
fn ordinary_user_can_share() {
    let place = Place::new();
    let Some((mut command, socket)) = command_of_user(&place, "locks=shared") else {
        return;
    };
    let child = serves(&mut command, &socket);
    let worker = worker_at(&socket);
    assert_eq!(status(worker, "CapPrm").trim_start_matches('0'), "");
    assert_eq!(status(worker, "NoNewPrivs"), "1");
    let namespace = format!("/proc/{}/ns/user", worker.as_raw_nonzero());
    let own = fs::read_link("/proc/self/ns/user").unwrap();
    if fs::read_link(namespace).unwrap() != own {
        assert_eq!(names(&root_of(worker)), ["file"]);
        let map = fs::read_to_string(format!("/proc/{}/uid_map", worker.as_raw_nonzero())).unwrap();
        assert_eq!(map.split_whitespace().last(), Some("1"), "one user: {map}");
    } else {
        skipped("the user namespace: this user may make none");
    }
    assert_eq!(cat(&socket, "/file").unwrap(), b"content");
    let guest = mount_at(&socket, &FrontEndConfig::default());
    let flags = libc::O_WRONLY | libc::O_CREAT;
    let made = guest.root().create(NodeId::ROOT, b"new", flags, 0o644);
    made.unwrap();
    drop(guest);
    let made = fs::metadata(place.dir.join("new")).unwrap();
    assert_eq!(made.uid(), USER);
    child.ends_by(Signal::TERM);
}

#[test]
fn statistics_of_a_share_by_socket_and_signal() {
    let place = Place::new();
    let control = place.path("control");
    let option = format!("control={}", control.display());
    let child = place.share_with_log(&option);
    let worker = place.worker();
    wait_for("the control socket", || control.exists());
    let output = thrufs!("ctl", "--control", &control, &place.socket, "statistics");
    succeeded(&output);
    let printed = stdout(&output);
    assert!(printed.contains("no requests yet"), "{printed}");
    let figures = || -> Value {
        let (at, what) = (&place.socket, "statistics");
        let output = thrufs!("ctl", "--json", "--control", &control, at, what);
        succeeded(&output);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let (one, other) = (place.mount(), place.connect());
    wait_for("both to be listed", || {
        figures()["machines"].as_array().unwrap().len() == 2
    });
    one.unmount();
    wait_for("the first to have left", || figures()["left"] == 1);
    let printed = figures();
    assert_eq!(printed["machines"].as_array().unwrap().len(), 1);
    assert!(printed["last_left"]["figures"].is_object(), "{printed}");
    let output = thrufs!("ctl", "--control", &control, &place.socket, "statistics");
    let shown = stdout(&output);
    let (_, last) = shown.split_once("last disconnected:").unwrap();
    assert!(
        last.contains("not mounted now\n") && last.contains("\nINIT "),
        "{last}"
    );
    drop(other);
    wait_for("both to have left", || figures()["left"] == 2);
    assert!(!place.workers().contains(&worker));
    child.signal(Signal::USR1);
    place.wait_for_log("0 connected, 2 disconnected");
    // From the standby worker.
    place.wait_for_log("no requests yet");
    child.ends_by(Signal::TERM);
    assert!(!control.exists());
}

#[test]
fn files_of_a_share_are_explained_for_each_machine() {
    let place = Place::new();
    let control = place.path("control");
    let child = place.share(&format!("control={}", control.display()));
    wait_for("the control socket", || control.exists());
    let explain = |path: &str| {
        let control = ["--json", "--control", control.to_str().unwrap()];
        let mut command = Command::new(THRUFS);
        command.args(["explain", "--share"]).arg(&place.socket);
        run(command.args(control).arg(path))
    };
    let processes = |path: &str| -> Vec<(u64, u64)> {
        let output = explain(path);
        succeeded(&output);
        let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        let of = |one: &Value| {
            assert_eq!(
                (&one["path"], &one["kind"]),
                (&path.into(), &"regular".into())
            );
            assert_eq!(one["share"], place.socket.to_str().unwrap());
            let opens = one["opens"]["total"].as_u64().unwrap();
            (one["process"].as_u64().unwrap(), opens)
        };
        all.iter().map(of).collect()
    };
    fails(&explain("/file"), 1, "/file: no machine is connected");
    let idle = place.connect();
    wait_for("the machine to be listed", || {
        stderr(&explain("/file")).contains("no guest has mounted it")
    });
    let (one, other) = (place.mount(), place.mount());
    let root = one.root();
    let node = NodeId(root.lookup(NodeId::ROOT, b"file").unwrap().nodeid);
    root.open(node, libc::O_RDONLY).unwrap();
    let of = processes("/file");
    assert_eq!(of.iter().map(|(_, opens)| opens).sum::<u64>(), 1, "{of:?}");
    let workers = place.workers();
    let is_worker = |process| {
        workers
            .iter()
            .any(|it| it.as_raw_nonzero().get() as u64 == process)
    };
    assert!(
        of.len() == 2 && of.iter().all(|it| is_worker(it.0)),
        "{of:?}"
    );
    assert_eq!(processes("file"), of);
    fails(&explain("nothing"), 1, "nothing: No such file");
    fails(&explain("dir/../file"), 1, "`..`");
    let not_one = thrufs!("explain", "--share", &place.dir, "/file");
    fails(&not_one, 1, "name the socket of a share");
    let shown = thrufs!(
        "explain",
        "--share",
        &place.socket,
        "--control",
        &control,
        "/file"
    );
    let line = format!("  machine     process {}\n", of[0].0);
    assert!(stdout(&shown).contains(&line), "{}", stdout(&shown));
    assert!(stdout(&shown).contains("or a share)"), "{}", stdout(&shown));
    drop(idle);
    one.unmount();
    other.unmount();
    child.ends_by(Signal::TERM);
}

#[test]
fn query_of_a_share_without_control_socket_names_the_option() {
    let place = Place::new();
    let _child = place.share("control=none");
    let output = thrufs!("ctl", &place.socket, "statistics");
    fails(&output, 1, "control=none");
}

#[test]
fn locks_under_which_others_are_cached_are_said() {
    let place = Place::new();
    for (options, is_said) in [
        ("locks=shared", true),
        ("locks=shared,cache=never", false),
        ("locks=local", false),
    ] {
        let server = place.share(&format!("control=none,{options}"));
        let said = server.ends_by(Signal::TERM);
        let needs = said.contains("needs cache=never,allow_mmap");
        assert_eq!(needs, is_said, "{options}: {said}");
    }
}

#[test]
fn policy_is_reloaded_and_a_bad_one_changes_nothing() {
    let place = Place::new();
    fs::write(place.dir.join("secret"), "secret").unwrap();
    let policy = place.path("policy.toml");
    let hiding = |name: &str| format!("[[rule]]\npath = \"{name}\"\naction = \"hide\"\n");
    fs::write(&policy, hiding("secret")).unwrap();
    let option = format!("control=none,policy={}", policy.display());
    let child = place.share_with_log(&option);
    let read = |name| cat(&place.socket, name);
    assert!(read("/secret").is_err());
    assert_eq!(read("/file").unwrap(), b"content");
    fs::write(&policy, hiding("file")).unwrap();
    child.signal(Signal::HUP);
    place.wait_for_log("reloaded");
    fs::write(&policy, "nonsense").unwrap();
    child.signal(Signal::HUP);
    place.wait_for_log("the active one stays");
    // open(2) of a FIFO waits for the other end.
    fs::remove_file(&policy).unwrap();
    make_fifo(&policy);
    child.signal(Signal::HUP);
    place.wait_for_log("not a regular file");
    assert!(read("/file").is_err());
    assert_eq!(read("/secret").unwrap(), b"secret");
    child.ends_by(Signal::TERM);

    fails(&run(&mut place.command(&option)), 1, "not a regular file");
    fs::remove_file(&policy).unwrap();
    let about_callers = "[[rule]]\ncaller-exe = \"/bin/ls\"\naction = \"deny\"\n";
    fs::write(&policy, about_callers).unwrap();
    fails(&run(&mut place.command(&option)), 1, "a guest");
}

#[test]
fn fifo_in_place_of_a_pid_file_makes_no_share_wait() {
    let place = Place::new();
    let pid_file = place.path("socket.pid");
    make_fifo(&pid_file);
    place.share("control=none").ends_by(Signal::TERM);
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let _reader = rustix::fs::open(&pid_file, flags, Mode::empty()).unwrap();
    place.share("control=none").ends_by(Signal::TERM);
    let source = format!("source={}", place.dir.display());
    let at = [
        "--socket-path",
        place.socket.to_str().unwrap(),
        "-o",
        &source,
    ];
    let refused = Foreground::of(virtiofsd(&place, &at).spawn().unwrap()).ends(1);
    assert!(refused.contains("not a regular file"), "{refused}");
}

fn make_fifo(path: &Path) {
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0).unwrap();
}

/// Called by that name through a symbolic link.
fn virtiofsd(place: &Place, arguments: &[&str]) -> Command {
    let link = place.path("virtiofsd");
    if !link.exists() {
        symlink(THRUFS, &link).unwrap();
    }
    let mut command = Command::new(link);
    command.args(arguments);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    command
}

#[test]
fn virtiofsd_serves_one_machine_and_writes_a_pid_file() {
    let place = Place::new();
    let (socket, dir) = (place.socket.to_str().unwrap(), place.dir.to_str().unwrap());
    let at = ["--socket-path", socket, "--shared-dir", dir];
    let mut command = virtiofsd(&place, &at);
    command.args(["--cache=auto", "--xattr", "--log-level=off"]);
    let child = serves(&mut command, &place.socket);
    let pid = fs::read_to_string(place.path("socket.pid")).unwrap();
    assert_eq!(pid, format!("{}\n", child.pid().as_raw_nonzero()));
    let source = format!("source={dir}");
    let second = ["--socket-path", socket, "-o", &source];
    fails(&run(&mut virtiofsd(&place, &second)), 1, "listens at");
    drop(place.connect());
    let said = child.ends(0);
    // Of virtiofsd 1.14, at any log level; the runtimes of Kata Containers wait for the first.
    let lines = said
        .lines()
        .map(|line| line.split_once(" INFO  virtiofsd] "));
    let lines: Vec<_> = lines.map(|line| line.expect(&said).1).collect();
    let waiting = "Waiting for vhost-user socket connection...";
    assert_eq!(lines, [waiting, "Client connected, servicing requests"]);
    assert!(!place.socket.exists());
}

#[test]
fn virtiofsd_takes_an_inherited_socket() {
    let place = Place::new();
    let listener = UnixListener::bind(&place.socket).unwrap();
    let dir = place.dir.to_str().unwrap();
    let source = format!("source={dir},cache=none");
    let mut command = virtiofsd(&place, &["--fd=0", "-o", &source]);
    let inherited = OwnedFd::from(listener.try_clone().unwrap());
    let child = command.stdin(Stdio::from(inherited)).spawn().unwrap();
    let child = Foreground::of(child);
    drop(listener);
    drop(place.connect());
    child.ends(0);
    assert!(place.socket.exists(), "another's to remove");
}

#[test]
fn virtiofsd_prints_capabilities_and_refuses_unsupported_values() {
    let place = Place::new();
    let output = run(&mut virtiofsd(&place, &["--print-capabilities"]));
    succeeded(&output);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let described = include_str!("../../../../dist/60-thrufs.json");
    let described: Value = serde_json::from_str(described).unwrap();
    assert_eq!(printed["type"], "fs");
    assert_eq!(printed["features"], described["features"]);
    let name = Path::new(described["binary"].as_str().unwrap()).file_name();
    assert_eq!(name.unwrap(), "virtiofsd", "by which it knows what it is");
    let of_thrufs = thrufs!("virtiofsd", "--print-capabilities");
    assert_eq!(of_thrufs.stdout, output.stdout);

    for (arguments, code, part) in [
        ("--version", 0, "(thrufs)"),
        ("--help", 0, "--migration-mode"),
        ("--fd=3", 2, "--shared-dir"),
        ("--fd=99 --shared-dir=/", 1, "descriptor 99"),
    ] {
        let output = run(&mut virtiofsd(
            &place,
            &arguments.split(' ').collect::<Vec<_>>(),
        ));
        let said = stdout(&output) + &stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments}: {said}");
        assert!(said.contains(part), "{arguments}: {said}");
    }
}
