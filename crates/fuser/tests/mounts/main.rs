//! A file system that was written for fuser, mounted.
#![allow(clippy::unwrap_used)]

extern crate thrufs_fuser as fuser;

#[path = "../../../core/tests/ground/mod.rs"]
mod ground;
#[rustfmt::skip]
mod files;

use files::{COUNTED, DROPPED, Files, LATE, PANICS, State, threads};
use fuser::{BackgroundSession, Config, INodeNo, MountOption, Session, SessionACL, spawn_mount2};
use ground::{can_mount, has_ring, is_mounted};
use rustix::event::{PollFd, PollFlags};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::{Duration, UNIX_EPOCH};
use thrufs_testing::wait_until;

/// What `ground` mounts by default.
const OVER: thrufs::Transport = thrufs::Transport::Dev;

struct Mounted {
    session: Option<BackgroundSession>,
    directory: tempfile::TempDir,
}

impl Mounted {
    fn new(files: &Files, config: &Config) -> Option<Mounted> {
        if !can_mount() {
            return None;
        }
        let directory = tempfile::Builder::new()
            .prefix("thrufs-fuser-")
            .tempdir()
            .unwrap();
        let session = Some(spawn_mount2(files.clone(), directory.path(), config).unwrap());
        Some(Mounted { session, directory })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.session.take());
        unmount(self.directory.path());
    }
}

fn unmount(path: &Path) {
    while is_mounted(path) {
        rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

/// One thread, as by default, and several.
fn each(names: &[&str], test: impl Fn(&Files, &Mounted)) {
    for config in [Config::default(), threads(4)] {
        let files = Files::with(names);
        if let Some(mounted) = Mounted::new(&files, &config) {
            test(&files, &mounted);
        }
    }
}

#[test]
fn files_are_listed_read_and_written() {
    each(&["plain"], |files, mounted| {
        assert_eq!(fs::read(mounted.path("plain")).unwrap(), b"content");
        let attributes = fs::metadata(mounted.path("plain")).unwrap();
        assert_eq!((attributes.mode(), attributes.mtime_nsec()), (0o100_644, 5));
        fs::write(mounted.path("new"), vec![7; 300_000]).unwrap();
        File::options()
            .append(true)
            .open(mounted.path("new"))
            .unwrap()
            .write_all(b"end")
            .unwrap();
        assert_eq!(files.0.files.lock().unwrap()[1].1.len(), 300_003);
        File::options()
            .write(true)
            .open(mounted.path("new"))
            .unwrap()
            .set_len(3)
            .unwrap();
        assert_eq!(fs::read(mounted.path("new")).unwrap(), [7; 3]);
        let missing = fs::read(mounted.path("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let denied = fs::create_dir(mounted.path("directory")).unwrap_err();
        assert_eq!(denied.raw_os_error(), Some(libc::ENOSYS), "the default");
    });
}

/// More entries than a buffer holds.
#[test]
fn a_long_directory_is_listed_once() {
    let names: Vec<String> = (0..2000)
        .map(|number| format!("a name of a file, {number}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    each(&names, |files, mounted| {
        let listed = fs::read_dir(mounted.directory.path()).unwrap();
        let listed: Vec<String> = listed
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(listed, names);
        let listings = *files.0.listings.lock().unwrap();
        assert!((3..200).contains(&listings), "{listings}");
    });
}

#[test]
fn times_before_the_epoch_and_extended_attributes_arrive() {
    each(&["plain"], |_, mounted| {
        let file = File::open(mounted.path("plain")).unwrap();
        let times = fs::FileTimes::new().set_accessed(UNIX_EPOCH - Duration::from_millis(1));
        let refused = file.set_times(times).unwrap_err();
        assert_eq!(
            refused.raw_os_error(),
            Some(libc::EROFS),
            "the file system has seen that time"
        );
        let mut value = [0; 10];
        let ask = |name: &str, value: &mut [u8]| rustix::fs::fgetxattr(&file, name, value);
        assert_eq!(rustix::fs::fgetxattr_query(&file, "user.kind"), Ok(6));
        assert_eq!(ask("user.kind", &mut value), Ok(6));
        assert_eq!(&value[..6], b"a file");
        assert_eq!(
            ask("user.kind", &mut value[..3]),
            Err(rustix::io::Errno::RANGE)
        );
        assert_eq!(
            ask("user.other", &mut value),
            Err(rustix::io::Errno::NODATA)
        );
    });
}

/// Of one thread, too: no thread waits for a late answer.
#[test]
fn another_thread_answers_later() {
    each(&[LATE, "plain"], |files, mounted| {
        let (sender, requests) = channel();
        *files.0.late.lock().unwrap() = Some(sender);
        std::thread::scope(|scope| {
            let late = File::open(mounted.path(LATE)).unwrap();
            let read = move |at| {
                let mut bytes = [0; 7];
                late.read_at(&mut bytes, at).map(|count| (count, bytes))
            };
            let reading = scope.spawn(move || read(0));
            let reply = requests.recv().unwrap();
            assert_eq!(
                fs::read(mounted.path("plain")).unwrap(),
                b"content",
                "meanwhile"
            );
            reply.data(b"delayed");
            assert_eq!(reading.join().unwrap().unwrap(), (7, *b"delayed"));
        });
    });
}

/// Reads the counted file by two threads, past the page cache; returns how many methods ran at once.
fn read_by_two(config: &Config, meet: Option<Barrier>) -> Option<usize> {
    let files = Files::with(&[COUNTED]);
    *files.0.meet.lock().unwrap() = meet.map(Arc::new);
    let mounted = Mounted::new(&files, config)?;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut open = File::options();
                let file = open
                    .read(true)
                    .custom_flags(libc::O_DIRECT)
                    .open(mounted.path(COUNTED))
                    .unwrap();
                for _ in 0..50 {
                    assert_eq!(file.read_at(&mut [0; 4096], 0).unwrap(), 7);
                }
            });
        }
    });
    Some(files.0.running.lock().unwrap().1)
}

#[test]
fn one_thread_calls_one_method_at_a_time_and_several_do_not() {
    if let Some(most) = read_by_two(&Config::default(), None) {
        assert_eq!(most, 1);
        // Each read waits for the other.
        assert_eq!(read_by_two(&threads(4), Some(Barrier::new(2))), Some(2));
    }
}

#[test]
fn a_dropped_request_and_a_panic_cost_one_eio() {
    each(&[DROPPED, PANICS, "plain"], |_, mounted| {
        for name in [DROPPED, PANICS, DROPPED] {
            let failed = fs::read(mounted.path(name)).unwrap_err();
            assert_eq!(failed.raw_os_error(), Some(libc::EIO), "{name}");
            assert_eq!(
                fs::read(mounted.path("plain")).unwrap(),
                b"content",
                "after {name}"
            );
        }
    });
}

#[test]
fn the_kernel_is_notified() {
    each(&["plain"], |files, mounted| {
        assert_eq!(fs::read(mounted.path("plain")).unwrap(), b"content");
        files.0.files.lock().unwrap()[0].1 = b"changed".to_vec();
        assert_eq!(
            fs::read(mounted.path("plain")).unwrap(),
            b"content",
            "as cached"
        );
        let notifier = mounted.session.as_ref().unwrap().notifier();
        notifier.inval_inode(INodeNo(2), 0, 0).unwrap();
        wait_until("it is read again", || {
            fs::read(mounted.path("plain")).unwrap() == b"changed"
        });
        notifier.store(INodeNo(2), 0, b"STORED!").unwrap();
        wait_until("it is stored", || {
            fs::read(mounted.path("plain")).unwrap() == b"STORED!"
        });
        files.0.files.lock().unwrap()[0].0 = "renamed".to_owned();
        notifier
            .inval_entry(INodeNo::ROOT, "plain".as_ref())
            .unwrap();
        wait_until("the name is gone", || {
            fs::metadata(mounted.path("plain")).is_err()
        });
    });
}

#[test]
fn a_poll_is_woken() {
    each(&["plain"], |files, mounted| {
        let file = File::open(mounted.path("plain")).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let mut polled = [PollFd::new(&file, PollFlags::IN)];
                rustix::event::poll(&mut polled, None).unwrap();
                polled[0].revents()
            });
            let wakes = || files.0.polled.lock().unwrap().clone();
            wait_until("it polls", || wakes().is_some());
            wakes().unwrap().notify().unwrap();
            assert_eq!(waiting.join().unwrap(), PollFlags::IN);
        });
    });
}

#[test]
fn the_file_system_is_destroyed_at_the_end() {
    each(&["plain"], |files, mounted| {
        fs::metadata(mounted.path("plain")).unwrap();
        let root = mounted.directory.path();
        rustix::mount::unmount(root, rustix::mount::UnmountFlags::empty()).unwrap();
        wait_until("it has ended", || *files.0.destroyed.lock().unwrap());
    });
    let files = Files::with(&["plain"]);
    let Some(mut mounted) = Mounted::new(&files, &Config::default()) else {
        return;
    };
    mounted.session.take().unwrap().umount_and_join().unwrap();
    assert!(!is_mounted(mounted.directory.path()));
    assert!(*files.0.destroyed.lock().unwrap(), "before it returns");
}

#[test]
fn a_lookup_is_taken_back() {
    each(&["plain"], |files, mounted| {
        fs::metadata(mounted.path("plain")).unwrap();
        let notifier = mounted.session.as_ref().unwrap().notifier();
        notifier
            .inval_entry(INodeNo::ROOT, "plain".as_ref())
            .unwrap();
        wait_until("it is forgotten", || {
            *files.0.forgotten.lock().unwrap() == 1
        });
    });
}

#[test]
fn requests_come_by_io_uring() {
    if !has_ring() {
        return;
    }
    let rings = || {
        let descriptors = fs::read_dir("/proc/self/fd").unwrap();
        let targets = descriptors.filter_map(|it| fs::read_link(it.unwrap().path()).ok());
        targets
            .filter(|it| it == Path::new("anon_inode:[io_uring]"))
            .count()
    };
    each(&["plain"], |_, mounted| {
        assert_eq!(fs::read(mounted.path("plain")).unwrap(), b"content");
        assert!(rings() > 0, "of this test or of one beside it");
    });
}

#[test]
fn a_session_runs_until_another_thread_unmounts_it() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let files = Files::with(&["plain"]);
    let mut session = Session::new(files, directory.path(), &Config::default()).unwrap();
    let mut unmounter = session.unmount_callable();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| session.run());
        assert_eq!(
            fs::read(directory.path().join("plain")).unwrap(),
            b"content"
        );
        unmounter.unmount().unwrap();
        serving.join().unwrap().unwrap();
    });
    assert!(!is_mounted(directory.path()));
    unmounter.unmount().unwrap();
}

#[test]
fn a_device_that_another_mounted_is_served() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (device, _) = thrufs::mount::open_device().unwrap();
    let mounts = device.try_clone().unwrap();
    let options = thrufs::MountOptions::new("given");
    std::thread::scope(|scope| {
        let mounting = scope.spawn(|| thrufs::mount::mount(mounts, directory.path(), &options));
        let files = Files::with(&["plain"]);
        let session =
            Session::from_fd(files, device, SessionACL::Owner, Config::default()).unwrap();
        let background = session.spawn().unwrap();
        mounting.join().unwrap().unwrap();
        assert_eq!(
            fs::read(directory.path().join("plain")).unwrap(),
            b"content"
        );
        unmount(directory.path());
        background.join().unwrap();
    });
}

#[test]
fn what_init_fails_with_is_the_error_of_the_mount() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let refuses = Files(Arc::new(State {
        refuses: true,
        ..State::default()
    }));
    let failed = Session::new(refuses, directory.path(), &Config::default())
        .err()
        .unwrap();
    assert_eq!(failed.raw_os_error(), Some(libc::EDQUOT));
    assert!(!is_mounted(directory.path()));
    let nowhere = Session::new(
        Files::default(),
        directory.path().join("missing"),
        &Config::default(),
    );
    assert_eq!(nowhere.err().unwrap().kind(), io::ErrorKind::NotFound);
}

#[test]
fn an_option_and_who_may_use_the_mount_are_kept() {
    let mut config = threads(2);
    config.mount_options = vec![MountOption::RO, MountOption::FSName("a name".to_owned())];
    config.acl = SessionACL::RootAndOwner;
    let files = Files::with(&["plain"]);
    let Some(mounted) = Mounted::new(&files, &config) else {
        return;
    };
    let refused = fs::write(mounted.path("new"), b"").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(
        mounts.lines().any(|line| line.starts_with("a\\040name ")),
        "{mounts}"
    );
    // What is cached, the kernel answers by itself.
    let stat = |user: u32| {
        let mut command = std::process::Command::new("setpriv");
        command.args([
            format!("--reuid={user}"),
            "--clear-groups".to_owned(),
            "stat".to_owned(),
        ]);
        let output = command
            .arg(mounted.path("missing"))
            .env("LC_ALL", "C")
            .output()
            .unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let (root, other) = (stat(0), stat(65_534));
    assert!(root.contains("No such file"), "{root}");
    assert!(other.contains("Permission denied"), "{other}");
}
