//! Shares: guests do not notice.

use super::{hanging, program_of, script, upgrade_at};
use crate::ground::metrics::{SCRAPE, address_in, connected, exchanged, requests};
use crate::ground::prelude::*;
use crate::ground::share::{Place, connect_to, get_features, serves};
use crate::ground::{WITHOUT_OTHERS, copied_program, stop_process, without_terminal};
use crate::resume::{Machine, THREADS, kill, mount};
use std::sync::atomic::AtomicUsize;
use thrufs_testing::StopAll;

fn upgrade(program: &Path, place: &Place) -> Output {
    upgrade_at(program, &place.socket)
}

/// Whether the supervisor, and all workers, are of this program.
fn assert_served_by(place: &Place, server: Pid, program: &Path) {
    assert_eq!(program_of(server), program);
    let is_of = |worker: Pid| {
        let exe = format!("/proc/{}/exe", worker.as_raw_nonzero());
        fs::read_link(exe).is_ok_and(|exe| exe == program)
    };
    wait_for("all workers to be of the program", || {
        let workers = place.workers();
        !workers.is_empty() && workers.into_iter().all(is_of)
    });
}

/// Runs the call while two guests use the share, each with its own front end and threads; both have what they expect.
fn while_used<T>(place: &Place, call: impl FnOnce(&AtomicUsize) -> T) -> T {
    let clients = [mount(place), mount(place)];
    let mut machines: Vec<_> = (0..THREADS)
        .map(|number| Machine::new(&clients[number % 2], number))
        .collect();
    let (stop, steps) = (AtomicBool::new(false), AtomicUsize::new(0));
    let done = std::thread::scope(|scope| {
        let _all = StopAll(&stop);
        for machine in &mut machines {
            let (stop, steps) = (&stop, &steps);
            scope.spawn(move || {
                let _others = StopAll(stop);
                while !stop.load(Ordering::SeqCst) {
                    machine.step();
                    steps.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        wait_for("the guests to begin", || {
            steps.load(Ordering::SeqCst) > 2 * THREADS
        });
        call(&steps)
    });
    machines.iter().for_each(|machine| machine.compare(place));
    drop(machines);
    clients
        .into_iter()
        .for_each(|client| drop(client.unmount()));
    done
}

/// `--all`, without the mounts and shares of other tests: in a namespace where root has the sockets of these alone.
fn upgrade_all(shares: &[&Place]) -> Output {
    let here = TempDir::new().unwrap();
    let script = format!(
        "{WITHOUT_OTHERS}; shift; thrufs=$1; all=$2; shift 2; set -e; mount --bind /run/thrufs \"$all\"; \
         mount -t tmpfs tmpfs /run/thrufs; for name; do for name in $name upgrade-$name; do \
         touch /run/thrufs/$name; mount --bind \"$all/$name\" /run/thrufs/$name; done; done; \
         exec \"$thrufs\" upgrade --all"
    );
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    shell
        .arg("sh")
        .arg(&shares[0].dir)
        .arg(THRUFS)
        .arg(here.path());
    run(shell.args(shares.iter().map(|share| {
        let stat = fs::metadata(&share.socket).unwrap();
        format!("share-{:x}-{}.socket", stat.dev(), stat.ino())
    })))
}

/// Two programs, of which the first is that of the server.
fn programs(place: &Place) -> [PathBuf; 2] {
    [THRUFS.into(), copied_program(place.dir.parent().unwrap())]
}

fn upgrade_under_load(options: &str, upgrades: usize) {
    let place = Place::new();
    let server = place.share_with_log(&format!("resume=1,cache=never,{options}"));
    let programs = programs(&place);
    while_used(&place, |steps| {
        for count in 1..=upgrades {
            let program = &programs[count % 2];
            succeeded(&upgrade(program, &place));
            assert_served_by(&place, server.pid(), program);
            let before = steps.load(Ordering::SeqCst);
            wait_for("progress", || {
                steps.load(Ordering::SeqCst) > before + THREADS
            });
        }
    });
    place.wait_for_log("is served by another program");
    server.ends_by(Signal::TERM);
    assert!(place.workers().is_empty() && !place.socket.exists());
}

#[test]
fn guests_do_not_notice_upgrades() {
    upgrade_under_load("seccomp=kill", 4);
}

#[test]
#[ignore = "soak: minutes of upgrades under load"]
fn guests_do_not_notice_hundreds_of_upgrades() {
    for options in [
        "seccomp=kill",
        "sandbox=none",
        "machines=2",
        "locks=local,dax_window=16M",
    ] {
        upgrade_under_load(options, 60);
    }
}

#[test]
fn an_idle_share_is_upgraded() {
    let place = Place::new();
    let server = place.share_with_log("resume=1");
    let [first, second] = programs(&place);
    succeeded(&upgrade(&second, &place));
    assert_served_by(&place, server.pid(), &second);
    place.mount().root().getattr(NodeId::ROOT).unwrap();
    // Of the last program, whose socket it is now.
    succeeded(&thrufs!("upgrade", &place.socket));
    assert_served_by(&place, server.pid(), &first);
    server.ends_by(Signal::TERM);
    assert!(!place.socket.exists());
}

/// Connections that have not begun, and messages that have arrived in part.
#[test]
fn front_ends_that_are_silent_are_handed_over() {
    let place = Place::new();
    let server = place.share_with_log("resume=1");
    let silent = UnixStream::connect(&place.socket).unwrap();
    let mut half = connect_to(&place.socket);
    let mut answer = [0; 20];
    half.read_exact(&mut answer).unwrap();
    half.write_all(&1_u32.to_ne_bytes()).unwrap();
    let program = &programs(&place)[1];
    succeeded(&upgrade(program, &place));
    assert_served_by(&place, server.pid(), program);
    half.write_all(&[1_u32, 0].map(u32::to_ne_bytes).concat())
        .unwrap();
    let mut silent = silent;
    get_features(&mut silent);
    for mut front_end in [half, silent] {
        let mut again = [0; 20];
        front_end.read_exact(&mut again).unwrap();
        assert_eq!(again, answer);
    }
    server.ends_by(Signal::TERM);
}

/// VHOST_USER_SET_FEATURES.
fn set_features(stream: &mut UnixStream, features: u64) {
    let header = [2_u32, 1, 8].map(u32::to_ne_bytes).concat();
    let message = [&header[..], &features.to_le_bytes()].concat();
    stream.write_all(&message).unwrap();
}

#[test]
fn a_guest_that_migrates_and_one_that_reads_no_reply_are_not_disturbed() {
    let place = Place::new();
    let server = place.share_with_log("resume=1");
    let mut migrating = connect_to(&place.socket);
    let mut answer = [0; 20];
    migrating.read_exact(&mut answer).unwrap();
    let features = u64::from_le_bytes(*answer.last_chunk().unwrap());
    let log_all = 1 << 26;
    assert_ne!(features & log_all, 0);
    let refused = |why: &str| {
        let workers = place.workers();
        fails(&upgrade(&programs(&place)[1], &place), 1, why);
        assert_eq!(place.workers().len(), workers.len());
        assert!(
            place.workers().iter().all(|it| workers.contains(it)),
            "{why}"
        );
    };
    let settled = |stream: &mut UnixStream| {
        get_features(stream);
        stream.read_exact(&mut [0; 20]).unwrap();
    };
    set_features(&mut migrating, features);
    settled(&mut migrating);
    refused("a virtual machine is migrating");
    set_features(&mut migrating, features & !log_all);
    settled(&mut migrating);
    migrating.set_nonblocking(true).unwrap();
    let message = [1_u32, 1, 0].map(u32::to_ne_bytes).concat();
    let mut replies = 0;
    wait_for("the replies to fill the socket", || {
        while (&migrating).write(&message).is_ok() {
            replies += 1;
        }
        let said = stderr(&upgrade(Path::new("/bin/true"), &place));
        said.contains("does not read its replies")
    });
    migrating.set_nonblocking(false).unwrap();
    refused("does not read its replies");
    let mut read = vec![0; 20 * replies];
    migrating.read_exact(&mut read).unwrap();
    succeeded(&upgrade(&programs(&place)[1], &place));
    settled(&mut migrating);
    server.ends_by(Signal::TERM);
}

#[test]
fn programs_that_cannot_take_over_a_share_are_refused() {
    let place = Place::new();
    let server = place.share_with_log("resume=1");
    let _guest = mount(&place);
    wait_for("the next on standby", || place.workers().len() == 2);
    let workers = place.workers();
    let later = "its state has version 2, and the new program reads version 3";
    let beside = place.dir.parent().unwrap();
    for (program, why) in [
        ("/bin/true".into(), "does not say that it can take over"),
        (script(beside, &format!("printf '{later}' >&0")), later),
        (beside.into(), "not a regular file"),
    ] {
        fails(&upgrade(&program, &place), 1, why);
        assert_eq!(place.workers(), workers, "{why}");
    }
    server.ends_by(Signal::TERM);
    for options in ["resume=0", "resume=1,control=none"] {
        let server = place.share(options);
        fails(&thrufs!("upgrade", &place.socket), 1, "takes no upgrades");
        server.ends_by(Signal::TERM);
    }
}

/// The program reads the state, and its worker does not serve.
#[test]
fn the_old_program_serves_guests_if_the_new_one_does_not() {
    let place = Place::new();
    let server = place.share_with_log("resume=1,cache=never");
    let beside = place.dir.parent().unwrap();
    let take_over = format!("case $1 in --upgrade-check) exec {THRUFS} \"$@\";; esac");
    let of_old = |said: &str| {
        assert!(said.contains("the old one goes on"), "{said}");
        assert_served_by(&place, server.pid(), THRUFS.as_ref());
    };
    while_used(&place, |_| {
        for (does, why) in [
            ("exit 3".to_owned(), "ended before it served"),
            ("kill -KILL $$".to_owned(), "ended before it served"),
            (format!("exec {THRUFS} \"$@\""), "is a script"),
        ] {
            let program = script(beside, &format!("{take_over}; {does}"));
            of_old(&fails(&upgrade(&program, &place), 1, why));
        }
        // It hangs, until it is killed.
        let program = script(beside, &format!("{take_over}; exec sleep 1000"));
        let said = std::thread::scope(|scope| {
            let upgrade = scope.spawn(|| fails(&upgrade(&program, &place), 1, "before it served"));
            kill_process(hanging(server.pid()), Signal::KILL).unwrap();
            upgrade.join().unwrap()
        });
        of_old(&said);
    });
    server.ends_by(Signal::TERM);
}

/// A worker of the new program that gets ready, and then hangs.
#[test]
#[ignore = "soak: waits until a worker that hangs is given up"]
fn a_worker_that_hangs_once_it_has_a_guest_is_given_up() {
    let place = Place::new();
    let server = place.share_with_log("resume=1,cache=never");
    let program = programs(&place)[1].clone();
    while_used(&place, |_| {
        std::thread::scope(|scope| {
            let upgrade = scope.spawn(|| upgrade(&program, &place));
            wait_for("a worker of the new program", || {
                let of_new = |it: &Pid| {
                    let exe = fs::read_link(format!("/proc/{}/exe", it.as_raw_nonzero()));
                    exe.is_ok_and(|exe| exe == program)
                };
                let found = place.workers().into_iter().find(of_new);
                found.is_some_and(|it| kill_process(it, Signal::STOP).is_ok())
            });
            let said = fails(&upgrade.join().unwrap(), 1, "does not serve in time");
            assert!(said.contains("the old one goes on"), "{said}");
        });
        assert_served_by(&place, server.pid(), THRUFS.as_ref());
    });
    server.ends_by(Signal::TERM);
}

/// Some upgrades are refused, because a machine is being resumed.
#[test]
#[ignore = "soak: kills at random moments of upgrades"]
fn guests_survive_kills_while_they_are_upgraded() {
    let place = Place::new();
    let server = place.share_with_log("resume=100000,cache=never");
    let programs = programs(&place);
    let mut upgraded = 0;
    while_used(&place, |_| {
        for count in 0..150_u64 {
            std::thread::scope(|scope| {
                let program = &programs[count as usize % 2];
                let upgrade = scope.spawn(|| upgrade(program, &place));
                std::thread::sleep(Duration::from_millis(count * 37 % 400));
                if count % 2 == 0 {
                    kill(&place);
                } else if let Some(worker) = place.workers().last() {
                    let _ = kill_process(*worker, Signal::KILL);
                }
                let output = upgrade.join().unwrap();
                upgraded += u32::from(output.status.success());
            });
        }
    });
    assert!(upgraded > 20, "{upgraded} upgrades");
    eprintln!("{upgraded} of 150 upgrades");
    server.ends_by(Signal::TERM);
}

/// Front ends come and go during upgrades: all are served.
#[test]
#[ignore = "soak: connections at random moments of upgrades"]
fn guests_connect_while_the_share_is_upgraded() {
    let place = Place::new();
    let server = place.share_with_log("resume=1");
    let programs = programs(&place);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _all = StopAll(&stop);
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let client = mount(&place);
                    client.root().walk("file").unwrap();
                    drop(client.unmount());
                }
            });
        }
        for count in 1..=100 {
            let output = upgrade(&programs[count % 2], &place);
            assert!(output.status.success(), "{}", stderr(&output));
        }
    });
    server.ends_by(Signal::TERM);
}

#[test]
fn a_supervisor_that_is_killed_during_an_upgrade_leaves_nothing() {
    let place = Place::new();
    let server = place.share_with_log("resume=1");
    let client = mount(&place);
    let beside = place.dir.parent().unwrap();
    let take_over = format!("case $1 in --upgrade-check) exec {THRUFS} \"$@\";; esac");
    let program = script(beside, &format!("{take_over}; exec sleep 1000"));
    std::thread::scope(|scope| {
        let upgrade = scope.spawn(|| upgrade(&program, &place));
        let hangs = hanging(server.pid());
        stop_process(server.pid());
        server.signal(Signal::KILL);
        assert!(!upgrade.join().unwrap().status.success());
        // It is no worker of ours.
        let _ = kill_process(hangs, Signal::KILL);
    });
    wait_for("the workers to end", || place.workers().is_empty());
    wait_for("the connection to end", || {
        client.root().getattr(NodeId::ROOT).is_err()
    });
}

/// The policy in force, the deaths, the files that only descriptors have; and all shares are upgraded.
#[test]
fn what_the_supervisor_of_a_share_has_is_handed_over() {
    let place = Place::new();
    let policy = place.path("policy.toml");
    let log = place.path("audit.log");
    let hide = |name: &str| {
        let rules = format!(
            "audit-log = \"{}\"\n[[rule]]\npath = \"{name}\"\naction = \"hide\"\n\
             [[rule]]\npath = \"audited\"\naction = \"audit\"\n",
            log.display()
        );
        fs::write(&policy, rules).unwrap();
    };
    for name in ["other", "audited"] {
        fs::write(place.dir.join(name), "").unwrap();
    }
    hide("other");
    let server = place.share_with_log(&format!("resume=1,policy={}", policy.display()));
    let client = mount(&place);
    let root = client.root();
    let sees = |name: &str| root.walk(name).is_ok();
    let (entry, open) = root
        .create(NodeId::ROOT, b"removed", libc::O_RDWR, 0o600)
        .unwrap();
    root.unlink(NodeId::ROOT, b"removed").unwrap();
    let node = NodeId(entry.nodeid);
    let other = Place::new();
    let other_server = other.share_with_log("resume=1");
    // Read from the file at the next start of a worker, if that were not handed over.
    hide("file");
    for round in 1..=2_u64 {
        let output = upgrade_all(&[&place, &other]);
        succeeded(&output);
        for socket in [&place.socket, &other.socket] {
            let line = format!("upgraded {}\n", socket.display());
            assert!(stdout(&output).contains(&line), "{}", stdout(&output));
        }
        assert!(sees("file") && !sees("other"), "not reloaded");
        root.write(node, open.fh, round, b"removed", 0).unwrap();
        let audited = root.walk("audited").unwrap();
        let handle = root.open(audited, libc::O_RDONLY).unwrap().fh;
        root.release(audited, handle).unwrap();
    }
    assert_eq!(root.read(node, open.fh, 2, 99).unwrap(), b"removed");
    let records = fs::read_to_string(&log).unwrap();
    assert_eq!(records.matches("audited").count(), 2, "{records}");
    other_server.ends_by(Signal::TERM);
    server.signal(Signal::HUP);
    wait_for("the policy to be reloaded", || {
        !sees("file") && sees("other")
    });
    // One death within a minute is survived, and was before the upgrade.
    assert!(kill(&place));
    root.getattr(NodeId::ROOT).unwrap();
    // Those that an upgrade kills may have left the guest without a notification, too.
    place.wait_for_log("deaths=5");
    succeeded(&thrufs!("upgrade", &place.socket));
    root.getattr(NodeId::ROOT).unwrap();
    assert!(kill(&place));
    wait_for("the connection to end", || {
        root.getattr(NodeId::ROOT).is_err()
    });
    place.wait_for_log("died 2 times within a minute");
    server.ends_by(Signal::TERM);
}

/// Queries, reloads, levels of the log, and metrics: by the next program, at the same sockets.
#[test]
fn clients_of_a_share_are_answered_by_the_next_program() {
    let [place, other] = [Place::new(), Place::new()];
    let (socket, port) = (place.path("metrics"), "127.0.0.1:0".into());
    let addresses = [(&place, socket.clone()), (&other, port)];
    let [server, other_server] = addresses.map(|(place, metrics)| {
        let (log, metrics) = (place.path("log"), metrics.display());
        place.share(&format!(
            "resume=1,log_file={},metrics={metrics}",
            log.display()
        ))
    });
    let address = address_in(&other.path("log"));
    let servers = [(&place, &server), (&other, &other_server)];
    let guests = [mount(&place), mount(&other)];
    let programs = programs(&place);
    for round in 1..=2 {
        for (place, server) in servers {
            let program = &programs[round % 2];
            succeeded(&upgrade(program, place));
            assert_served_by(place, server.pid(), program);
            let ctl = |words: &[&str]| {
                let mut command = Command::new(THRUFS);
                let output = run(command.arg("ctl").arg(&place.socket).args(words));
                succeeded(&output);
                stdout(&output)
            };
            let log = place.path("log");
            fs::rename(&log, place.path("log.1")).unwrap();
            let text = ctl(&["reload"]);
            assert_eq!(text, "the log file was opened again; there is no policy\n");
            let lines = || fs::read_to_string(&log).unwrap();
            assert!(!lines().contains("DEBUG"), "as at the start: {}", lines());
            ctl(&["log-level", "debug"]);
            drop(place.connect());
            let accepted = "DEBUG a connection is accepted";
            wait_for("a line", || lines().contains(accepted));
            assert!(ctl(&["statistics"]).contains("process "));
        }
        for guest in &guests {
            guest.root().getattr(NodeId::ROOT).unwrap();
        }
        for response in [
            exchanged(UnixStream::connect(&socket).unwrap(), SCRAPE),
            exchanged(connected(&address), SCRAPE),
        ] {
            assert!(requests(&response) > 0, "{response}");
        }
    }
    guests.into_iter().for_each(|guest| drop(guest.unmount()));
    server.ends_by(Signal::TERM);
    other_server.ends_by(Signal::TERM);
    assert!(!socket.exists() && std::net::TcpStream::connect(&address).is_err());
}

/// Of another user, who can have such sockets: root's command goes on with the others.
#[test]
#[ignore = "soak: waits for a server that does not reply"]
fn a_server_that_does_not_reply_delays_root_for_a_limited_time() {
    if !rustix::process::geteuid().is_root() {
        return skipped("servers of other users are root's");
    }
    let place = Place::new();
    let _server = place.share_with_log("resume=1");
    let directory = Path::new("/tmp/thrufs-65533");
    // Of a test that was killed.
    let _ = fs::remove_dir_all(directory);
    fs::create_dir(directory).unwrap();
    chown(directory, Some(65_533), Some(65_533)).unwrap();
    let listens = "import socket, sys, time\nall = []\nfor name in ('', 'upgrade-'):\n    \
                   one = socket.socket(socket.AF_UNIX)\n    \
                   one.bind(sys.argv[1] + '/' + name + 'share-1-1.socket')\n    \
                   one.listen(9)\n    all.append(one)\ntime.sleep(1000)";
    let mut hostile = Command::new("setpriv");
    hostile.args(["--reuid=65533", "--regid=65533", "--clear-groups"]);
    hostile.args(["python3", "-c", listens]).arg(directory);
    // Root's may lead to what is root's alone.
    hostile.env("PATH", "/usr/bin:/bin");
    let hostile = Foreground::of(hostile.spawn().unwrap());
    let socket = directory.join("upgrade-share-1-1.socket");
    wait_for("the hostile server", || {
        UnixStream::connect(&socket).is_ok()
    });
    let output = upgrade_all(&[&place]);
    drop(hostile);
    fs::remove_dir_all(directory).unwrap();
    fails(&output, 1, "of user 65533, has not replied within 10 s");
    let line = format!("upgraded {}\n", place.socket.display());
    assert!(stdout(&output).contains(&line), "{}", stdout(&output));
}

/// A server for one machine ends with it, also after an upgrade, and its pid file stays locked.
#[test]
fn a_server_in_place_of_virtiofsd_is_upgraded() {
    let place = Place::new();
    let mut command = without_terminal();
    command.arg("virtiofsd").arg("--socket-path");
    command
        .arg(&place.socket)
        .arg("--shared-dir")
        .arg(&place.dir);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let server = serves(&mut command, &place.socket);
    let client = mount(&place);
    let [_, program] = programs(&place);
    succeeded(&upgrade(&program, &place));
    assert_served_by(&place, server.pid(), &program);
    assert_eq!(place.workers().len(), 1);
    client.root().getattr(NodeId::ROOT).unwrap();
    fails(&run(&mut place.command("")), 1, "a server listens at");
    drop(client.unmount());
    server.ends(0);
    assert!(!place.socket.exists());
}

/// Root may, and the user of the share, but not from a sandbox.
#[test]
fn a_share_of_an_ordinary_user_is_upgraded_by_its_user() {
    if !rustix::process::geteuid().is_root() {
        return skipped("starting servers of users needs root");
    }
    let place = Place::new();
    let beside = place.dir.parent().unwrap().to_owned();
    let program = copied_program(&beside);
    for directory in [&place.dir, &beside] {
        chown(directory, Some(65_534), Some(65_534)).unwrap();
    }
    let by = |user: u32, before: &[&str], arguments: &[&str]| {
        let mut command = Command::new("env");
        command.current_dir("/").args(before).arg("setpriv");
        command.args([format!("--reuid={user}"), format!("--regid={user}")]);
        command.arg("--clear-groups").arg(&program).args(arguments);
        command
    };
    let (dir, socket) = (place.dir.to_str().unwrap(), place.socket.to_str().unwrap());
    let mut share = by(65_534, &["setsid"], &["share", "--socket", socket, dir]);
    share.stdin(Stdio::null()).stderr(Stdio::piped());
    let server = serves(&mut share, &place.socket);
    let client = mount(&place);
    let upgrade = ["upgrade", socket];
    let sandbox = ["unshare", "--mount", "--propagation", "private"];
    for (before, user, why) in [
        (&sandbox[..], 65_534, "only root may, and its user"),
        (&[], 65_533, "only user 65534, the owner"),
    ] {
        fails(&run(&mut by(user, before, &upgrade)), 1, why);
    }
    succeeded(&run(&mut by(65_534, &[], &upgrade)));
    client.root().getattr(NodeId::ROOT).unwrap();
    succeeded(&thrufs!("upgrade", socket));
    assert_served_by(&place, server.pid(), THRUFS.as_ref());
    client.root().getattr(NodeId::ROOT).unwrap();
    drop(client);
    server.ends_by(Signal::TERM);
}
