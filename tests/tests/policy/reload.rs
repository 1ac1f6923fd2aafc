//! Reloads of a policy.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use thrufs_tests::guard::StopAll;
use thrufs_tests::machine::{descriptors, status};

use rustix::process::Signal;
use thrufs_test_report::is_full;
use thrufs_tests::lower::{Ground, Lower};
use thrufs_tests::mount_point::is_unmounted_within;
use thrufs_tests::mount_point::{answers_within, is_mounted};
use thrufs_tests::programs;
use thrufs_tests::server::{START_TIMEOUT, kill_process};
use thrufs_tests::transport::{over_each, worker_of};
use thrufs_tests::wait_until;

use crate::served::{NOTHING, errno, names, put, with_policy};

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
        for (policy, place, word) in [
            (
                "[[rule]]\npath = 'file'\naktion = 'deny'\n",
                ":3:1:",
                "aktion",
            ),
            (
                "[[rule]]\npath = 'fi[le'\naction = 'deny'\n",
                ":2:8:",
                "fi[le",
            ),
            ("default = ", ":1:", ""),
            (
                "[[rule]]\npath = '**'\naction = 'audit'\n",
                ":1:1:",
                "audit-log",
            ),
        ] {
            let said = served.reload_refused(policy);
            let place = format!("{}{place}", path.display());
            assert!(said.contains(&place) && said.contains(word), "{said}");
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
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for turn in 0..2 {
                let (file, other) = (served.at("file"), served.at("other"));
                let over = &over;
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        // Denied, or hidden: never open, and no other error.
                        let got = errno(File::open(&file));
                        assert!([libc::EACCES, libc::ENOENT].contains(&got), "{got}, {turn}");
                        assert_eq!(fs::read(&other).unwrap(), b"content");
                    }
                });
            }
            let _end = StopAll(&over);
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

/// A server in the background, ended on drop.
struct Background<'a>(&'a Ground);

impl Drop for Background<'_> {
    fn drop(&mut self) {
        let mnt = self.0.mnt();
        let program = programs::thrufs().unwrap();
        let _ = Command::new(program).args(["umount"]).arg(mnt).status();
        if is_mounted(mnt) {
            let flags = rustix::mount::UnmountFlags::DETACH;
            let _ = rustix::mount::unmount(mnt, flags);
        }
    }
}

/// The server in the background: the process with the mount point among its arguments whose parent is not
/// another such.
fn server_of(ground: &Ground) -> u32 {
    let mnt = ground.mnt().to_str().unwrap();
    let serves = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .any(|word| word == mnt.as_bytes())
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(serves)
        .min()
        .expect("a server in the background")
}

#[test]
fn a_server_in_the_background_reloads_as_well() {
    over_each(|transport| {
        let ground = Ground::prepare(Lower::Tmpfs).unwrap();
        fill(ground.source());
        let policy = ground.base().join("policy.toml");
        let log = ground.base().join("background.log");
        fs::write(&policy, DENY).unwrap();
        let options = format!(
            "allow_other,policy={},log_file={}",
            policy.display(),
            log.display()
        );
        let _switch = thrufs_tests::transport::hold_switch(&transport.with("")).unwrap();
        let _background = Background(&ground);
        let started = Command::new(programs::thrufs().unwrap())
            .args(["mount", "-o", &transport.with(&options)])
            .args([ground.source(), ground.mnt()])
            .status()
            .unwrap();
        assert!(started.success());
        answers_within(ground.mnt(), START_TIMEOUT).unwrap();
        let file = ground.mnt().join("file");
        assert_eq!(errno(File::open(&file)), libc::EACCES);
        fs::write(&policy, HIDE).unwrap();
        let server = server_of(&ground);
        kill_process(server, Signal::HUP);
        wait_until("the policy to hide it", || {
            errno(File::open(&file)) == libc::ENOENT
        });
        fs::write(&policy, "x = 1\n").unwrap();
        kill_process(server, Signal::HUP);
        let place = format!("{}:1:1:", policy.display());
        wait_until("a word about the bad policy", || {
            fs::read_to_string(&log).unwrap().contains(&place)
        });
        assert_eq!(errno(File::open(&file)), libc::ENOENT);
        kill_process(server, Signal::TERM);
        assert!(is_unmounted_within(ground.mnt(), START_TIMEOUT));
    });
}
