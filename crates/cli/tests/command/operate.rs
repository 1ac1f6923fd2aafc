//! What `thrufs ctl` changes in a running server: log file, policy, log level, caches.

use crate::ground::prelude::*;
use crate::ground::share::Place;
use crate::ground::unmount_by_command;

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
