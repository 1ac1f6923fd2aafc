//! Reloads of a policy.

use crate::served::{NOTHING, errno, names, put, with_policy};
use std::os::unix::ffi::OsStrExt;
use thrufs_tests::machine::{descriptors, status};
use thrufs_tests::mount_point::is_unmounted_within;
use thrufs_tests::prelude::*;
use thrufs_tests::server::START_TIMEOUT;
use thrufs_tests::transport::{self, worker_of};

const DENY: &str = "[[rule]]\npath = 'file'\naction = 'deny'\n";
const HIDE: &str = "[[rule]]\npath = 'file'\naction = 'hide'\n";

fn fill(source: &Path) {
    put(source, "file", b"content");
    put(source, "other", b"content");
}

#[test]
fn a_bad_policy_leaves_the_old_one_in_force() {
    with_policy("", DENY, fill, |served| {
        let path = served.ground().base().join("policy.toml");
        let bad = "[[rule]]\npath = '**'\naction = 'audit'\n";
        for (policy, fault) in [("[[rule]]\naktion = ''\n", ":2:1: "), (bad, ":1:1: ")] {
            let said = served.reload_refused(policy);
            assert!(
                said.contains(&format!("{}{fault}", path.display())),
                "{said}"
            );
            assert_eq!(errno(File::open(served.at("file"))), libc::EACCES);
        }
        // One that cannot be read is no better.
        fs::remove_file(&path).unwrap();
        kill_process(served.pid(), Signal::HUP);
        thread::sleep(Duration::from_millis(200));
        assert_eq!(errno(File::open(served.at("file"))), libc::EACCES);
        served.reload(NOTHING);
        assert_eq!(errno(File::open(served.at("file"))), 0);
    });
}

/// Allowed growth, after many reloads.
const GROWTH_KIB_MAX: u64 = 16 * 1024;

#[test]
fn many_reloads_under_load() {
    let reloads = if is_full() { 1000 } else { 50 };
    let audit = "audit-log = 'LOG'\n";
    with_policy("cache=always", &format!("{audit}{DENY}"), fill, |served| {
        let (file, other) = (served.at("file"), served.at("other"));
        let look = || {
            // Denied, or hidden: never open, and no other error.
            let got = errno(File::open(&file));
            assert!([libc::EACCES, libc::ENOENT].contains(&got), "{got}");
            assert_eq!(fs::read(&other).unwrap(), b"content");
        };
        while_repeating([look; 2], || {
            let worker = worker_of(served.pid()).unwrap();
            let mut before = (0, 0);
            for turn in 0..reloads {
                if turn == reloads / 10 {
                    before = (status(worker, "VmHWM"), descriptors(worker));
                    assert!(before.0 > 0 && before.1 > 0);
                }
                served.reload(&format!("{audit}{}", [HIDE, DENY][turn % 2]));
            }
            let grown = status(worker, "VmHWM") - before.0;
            assert!(grown < GROWTH_KIB_MAX, "{grown} KiB more");
            // Opens come and go meanwhile.
            assert!(descriptors(worker) <= before.1 + 16);
        });
        // The last one counts.
        assert_eq!(errno(File::open(served.at("file"))), libc::EACCES);
        served.reload(HIDE);
        assert_eq!(names(served.ground().mnt()), ["other"]);
    });
}

/// The server in the background: the first process with the mount point among its arguments.
fn server_of(mnt: &Path) -> u32 {
    let serves = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        words.any(|word| word == mnt.as_os_str().as_bytes())
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(serves).min().unwrap()
}

#[test]
fn a_server_in_the_background_reloads_as_well() {
    skip_if!(must_skip());
    let ground = Ground::prepare(Lower::Tmpfs).unwrap();
    fill(ground.source());
    let [policy, log] = ["policy.toml", "background.log"].map(|name| ground.base().join(name));
    fs::write(&policy, DENY).unwrap();
    let options = format!("policy={},log_file={}", policy.display(), log.display());
    let mut mount = Command::new(programs::thrufs().unwrap());
    mount.args(["mount", "-o", &transport::named(&options)]);
    mount.args([ground.source(), ground.mnt()]);
    let _mounted = Detach(ground.mnt());
    assert!(mount.status().unwrap().success());
    let server = server_of(ground.mnt());
    let opened = || errno(File::open(ground.mnt().join("file")));
    assert_eq!(opened(), libc::EACCES);
    fs::write(&policy, HIDE).unwrap();
    kill_process(server, Signal::HUP);
    wait_until("the policy to hide it", || opened() == libc::ENOENT);
    fs::write(&policy, "x = 1\n").unwrap();
    kill_process(server, Signal::HUP);
    let place = format!("{}:1:1:", policy.display());
    wait_until("a word about the bad policy", || {
        fs::read_to_string(&log).unwrap().contains(&place)
    });
    assert_eq!(opened(), libc::ENOENT);
    kill_process(server, Signal::TERM);
    assert!(is_unmounted_within(ground.mnt(), START_TIMEOUT));
}
