//! What `thrufs ctl` changes in a running server: log file, policy, log level, caches; and metrics by HTTP.

use crate::ground::metrics::{SCRAPE, address_in, connected, exchanged, requests};
use crate::ground::prelude::*;
use crate::ground::share::Place;
use crate::ground::{terminal, unmount_by_command};
use rustix::termios::{Winsize, tcsetwinsize};
use std::net::TcpStream;

const HIDES: &str = "[[rule]]\npath = 'file'\naction = 'hide'\n";

fn ctl(place: &Path, words: &[&str]) -> Output {
    run(Command::new(THRUFS).arg("ctl").arg(place).args(words))
}

fn said(place: &Path, words: &[&str]) -> String {
    let output = ctl(place, words);
    succeeded(&output);
    stdout(&output)
}

#[test]
fn reload_opens_the_log_again_reads_the_policy_and_says_what_failed() {
    let Some(ground) = Ground::new() else { return };
    let [log, old, policy] = ["log", "log.1", "policy"].map(|name| ground.path().join(name));
    fs::write(&policy, HIDES.replace("file", "other")).unwrap();
    let options = format!("log_file={},policy={}", log.display(), policy.display());
    succeeded(&ground.mount(&["-o", &format!("auto_unmount,{options}")]));
    assert!(ground.mnt.join("file").exists());

    fs::rename(&log, &old).unwrap();
    fs::write(&policy, HIDES).unwrap();
    let text = said(&ground.mnt, &["reload"]);
    assert_eq!(
        text,
        "the log file was opened again, and the policy was read again\n"
    );
    // In force when the command returns.
    assert!(!ground.mnt.join("file").exists());
    let file = ground.process("--auto-unmount").as_raw_nonzero();
    let errors = PathBuf::from(format!("/proc/{file}/fd/2"));
    wait_for("the log of auto_unmount", || {
        fs::read_link(&errors).unwrap() == log
    });

    fs::write(&policy, "[[rule]]\npath = 3\n").unwrap();
    fails(
        &ctl(&ground.mnt, &["reload"]),
        1,
        "policy not reloaded, the active one stays",
    );
    assert!(!ground.mnt.join("file").exists());
    fails(&ctl(&ground.mnt, &["reload", "info"]), 1, "takes a level");
    unmount_by_command(&ground.mnt);
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains("the policy was read again"), "{text}");
    assert!(
        text.contains("the active one stays") && text.contains("was unmounted"),
        "{text}"
    );
}

#[test]
fn log_level_is_that_of_the_worker_until_it_ends() {
    let Some(ground) = Ground::new() else { return };
    let log = ground.path().join("log");
    succeeded(&ground.mount(&["--log-file", log.to_str().unwrap()]));
    let lines = || fs::read_to_string(&log).unwrap();
    // A signal to the worker that it does not know is logged by the supervisor; a reload without a policy by neither.
    assert!(!lines().contains("DEBUG"));
    said(&ground.mnt, &["log-level", "debug"]);
    kill_process(ground.process("--worker"), Signal::TERM).unwrap();
    ground.wait_gone();
    assert!(lines().contains("DEBUG"), "{}", lines());
}

#[test]
fn dropped_caches_are_asked_for_again_and_what_is_open_or_mounted_stays() {
    let Some(ground) = Ground::new() else { return };
    // Nobody tells of changes: the kernel keeps everything for a day.
    succeeded(&ground.mount(&["--cache=always", "--nopassthrough"]));
    let [file, missing, sub] = ["file", "missing", "sub"].map(|name| ground.mnt.join(name));
    fs::create_dir(ground.src.join("sub")).unwrap();
    for number in 0..1000 {
        fs::write(ground.src.join(format!("f{number}")), "").unwrap();
        fs::metadata(ground.mnt.join(format!("f{number}"))).unwrap();
    }
    let mut open = File::open(&file).unwrap();
    let before = fs::read_to_string(&file).unwrap();
    assert!(!missing.exists());
    fs::write(ground.src.join("file"), "changed").unwrap();
    fs::write(ground.src.join("missing"), "").unwrap();
    assert!(!missing.exists());
    assert_eq!(fs::read_to_string(&file).unwrap(), before);

    mount_tmpfs(&sub);
    fs::write(sub.join("inner"), "").unwrap();
    let text = said(&ground.mnt, &["drop-caches"]);
    assert!(text.contains("names stay until they time out"), "{text}");
    assert!(sub.join("inner").exists());
    assert_eq!(fs::read_to_string(&file).unwrap(), "changed");
    ground::unmount(&sub);

    let output = thrufs!("ctl", "--json", &ground.mnt, "drop-caches");
    succeeded(&output);
    let dropped: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(dropped["finished"], true, "{dropped}");
    assert!(dropped["nodes"].as_u64().unwrap() >= 2, "{dropped}");
    assert_eq!(dropped["names"], true, "{dropped}");
    assert!(missing.exists());
    // The file that is open, its directory, and what was just looked up.
    wait_for("the kernel to forget the others", || {
        let figures = thrufs!("ctl", "--json", &ground.mnt, "statistics");
        let figures: Value = serde_json::from_slice(&figures.stdout).unwrap();
        figures["tables"]["inodes"].as_u64().unwrap() < 10
    });
    let mut content = String::new();
    open.read_to_string(&mut content).unwrap();
    assert_eq!(content, "changed");
    drop(open);
    unmount_by_command(&ground.mnt);
}

#[test]
fn shares_reload_and_log_more_and_refuse_to_drop_caches_of_guests() {
    let place = Place::new();
    let [log, old] = ["log", "log.1"].map(|name| place.path(name));
    let share = place.share(&format!("log_file={}", log.display()));
    let guest = place.mount();
    fs::rename(&log, &old).unwrap();
    let text = said(&place.socket, &["reload"]);
    assert_eq!(text, "the log file was opened again; there is no policy\n");
    said(&place.socket, &["log-level", "debug"]);
    fails(
        &ctl(&place.socket, &["drop-caches"]),
        1,
        "a guest cannot be told to drop its caches",
    );
    guest.unmount();
    share.ends_by(Signal::TERM);
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains("DEBUG"), "{text}");
    assert!(!fs::read_to_string(&old).unwrap().contains("DEBUG"));
}

#[test]
fn metrics_are_served_whoever_is_silent_and_by_the_next_worker() {
    let Some(ground) = Ground::new() else { return };
    let log = ground.path().join("log");
    let options = format!("metrics=127.0.0.1:0,resume=5,log_file={}", log.display());
    succeeded(&ground.mount(&["-o", &options]));
    let address = address_in(&log);
    let response = exchanged(connected(&address), SCRAPE);
    assert!(requests(&response) > 0);
    let named = format!("mount=\"{}\"", ground.mnt.display());
    assert!(response.contains(&named), "{response}");
    let elsewhere = exchanged(connected(&address), "GET / HTTP/1.1\r\n\r\n");
    assert!(elsewhere.starts_with("HTTP/1.1 404"), "{elsewhere}");

    // More than are served at once say nothing, a part, too much, or do not read.
    let silent: Vec<TcpStream> = (0..12).map(|_| connected(&address)).collect();
    let mut slow = connected(&address);
    slow.write_all(b"GET /met").unwrap();
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(8192));
    let refused = exchanged(connected(&address), &long[..8192]);
    assert!(refused.starts_with("HTTP/1.1 431"), "{refused}");
    let mut deaf = connected(&address);
    deaf.write_all(SCRAPE.as_bytes()).unwrap();
    assert!(requests(&exchanged(connected(&address), SCRAPE)) > 0);
    ground.assert_serves();

    let worker = ground.process("--worker");
    kill_process(worker, Signal::KILL).unwrap();
    // Who connects meanwhile waits for the next worker, which may have had no request yet.
    requests(&exchanged(connected(&address), SCRAPE));
    assert_ne!(ground.process("--worker"), worker);
    drop((silent, slow, deaf));
    unmount_by_command(&ground.mnt);
    assert!(TcpStream::connect(&address).is_err());
}

#[test]
fn metrics_of_shares_are_at_a_socket_and_other_addresses_are_refused() {
    let place = Place::new();
    let metrics = place.path("metrics");
    let share = place.share(&format!("metrics={}", metrics.display()));
    let guest = place.mount();
    assert_eq!(fs::metadata(&metrics).unwrap().mode() & 0o777, 0o600);
    let response = exchanged(UnixStream::connect(&metrics).unwrap(), SCRAPE);
    assert!(requests(&response) > 0);
    assert!(response.contains("thrufs_machines{share="), "{response}");
    let second = place.beside();
    let mut command = second.command(&format!("metrics={}", metrics.display()));
    let said = fails(&run(command.stderr(Stdio::piped())), 1, "listens at");
    assert!(said.contains("cannot serve metrics"), "{said}");
    guest.unmount();
    share.ends_by(Signal::TERM);
    assert!(!metrics.exists());
    for (address, why) in [("0.0.0.0:9420", "loopback"), ("9420", "neither")] {
        let mut command = place.command(&format!("metrics={address}"));
        fails(&run(command.stderr(Stdio::piped())), 2, why);
    }
}

/// Calls this while a program asks a mount again and again.
fn while_asked(ground: &Ground, call: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = thrufs_testing::StopAll(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                let _ = fs::read(ground.mnt.join("file"));
                let _ = fs::metadata(ground.mnt.join("missing"));
            }
        });
        call();
    });
}

#[test]
fn top_shows_rates_latencies_and_levels_of_each_operation_once() {
    let Some(ground) = Ground::new() else { return };
    succeeded(&ground.mount(&["--cache=never", "--nopassthrough"]));
    // The path is shortened.
    let place = ground.mnt.to_str().unwrap();
    let end = &place[place.len() - 4..];
    let open = File::open(ground.mnt.join("file")).unwrap();
    while_asked(&ground, || {
        let text = stdout(&thrufs!("top", &ground.mnt));
        let (targets, operations) = text.split_once("\n\n").unwrap();
        let cells = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let targets: Vec<_> = targets.lines().map(cells).collect();
        assert_eq!(targets.len(), 2, "{text}");
        assert!(
            targets[1][0].ends_with(end) && targets[1][1] == "serving",
            "{text}"
        );
        let number = |cell: &str| cell.parse::<u64>().expect(&text);
        assert!(number(&targets[1][2]) > 10, "{text}");
        assert!(
            targets[1][4].ends_with('s') && targets[1][5].ends_with('s'),
            "{text}"
        );
        assert!(
            number(&targets[1][7]) >= 2 && number(&targets[1][8]) >= 1,
            "{text}"
        );
        let operations: Vec<_> = operations.lines().map(cells).collect();
        let of = |name: &str| operations.iter().find(|it| it[1] == name).expect(&text);
        assert!(number(&of("READ")[2]) > 0 && of("READ")[3] != "0", "{text}");
        let lookups = of("LOOKUP");
        assert!(number(&lookups[6]) > 0 && lookups[3] == "0", "{text}");
    });
    drop(open);
    fails(&thrufs!("top", ground.path().join("missing")), 1, "missing");
    fails(&thrufs!("top", "--interval=0"), 2, "from 0.1 on");
    unmount_by_command(&ground.mnt);
}

#[test]
fn tables_are_drawn_in_place_again_within_the_terminal() {
    let Some(ground) = Ground::new() else { return };
    succeeded(&ground.mount(&["--cache=never", "--nopassthrough"]));
    let end = ground.path().to_str().unwrap();
    let end = format!("{}/mnt", &end[end.len() - 4..]);
    for arguments in [&["top", "--interval=0.1"][..], &["list", "--watch=0.1"]] {
        let (mut controller, end_of_program) = terminal();
        let size = Winsize {
            ws_row: 12,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&controller, size).unwrap();
        let mut command = Command::new(THRUFS);
        command.args(arguments).env("TERM", "vt100");
        let mut program = command.stdout(end_of_program).spawn().unwrap();
        drop(command);
        let mut said = String::new();
        wait_for("two screens", || {
            let mut bytes = [0; 4096];
            let length = controller.read(&mut bytes).unwrap();
            said += &String::from_utf8_lossy(&bytes[..length]);
            said.matches("\x1b[J").count() >= 2
        });
        program.kill().unwrap();
        program.wait().unwrap();
        assert!(said.starts_with("\x1b[2J\x1b[H"), "{said:?}");
        let screens = said.split("\x1b[J").take(2);
        for screen in screens {
            let lines: Vec<&str> = screen.split("\x1b[K\r\n").collect();
            assert!(lines.len() <= 12, "{said:?}");
            let plain = |line: &&str| line.rsplit("\x1b[H").next().unwrap().chars().count();
            assert!(lines.iter().all(|line| plain(line) <= 80), "{said:?}");
        }
        // Unless there are more than fit.
        assert!(
            said.contains(&end) || said.matches("K\r\n").count() > 20,
            "{said:?}"
        );
    }
    unmount_by_command(&ground.mnt);
}
