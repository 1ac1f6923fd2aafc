//! Following while notifications wait for directories that somebody holds, and after events were lost.

use crate::following::{figure, names, with_each_mark};
use rustix::fs::{chmod, flock, stat};
use thrufs_tests::prelude::*;

fn by_default(test: impl Fn(&Mounted)) {
    on_each(Lower::Tmpfs, &["follow=auto"], |mounted, _| test(mounted));
}

/// Makes a file when it is dropped.
struct Opened<'a>(&'a Path);

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        let _ = fs::write(self.0, "");
    }
}

/// Directories that are being listed into memory that does not come, which holds them, and so notifications about
/// names in them.
struct Held {
    slow: Process,
    gate: PathBuf,
    memory: PathBuf,
    names: Vec<String>,
}

impl Held {
    fn new(mounted: &Mounted) -> Held {
        const HELD: usize = 8;
        let gate = mounted.outside().join("gate");
        let memory = mounted.outside().join("memory");
        fs::create_dir(&memory).unwrap();
        let at = [&memory, &gate].map(|path| path.to_str().unwrap());
        let slow = Process::start(&programs::slow_files(), &at);
        assert_eq!(slow.line(), "ok");
        let names: Vec<_> = (0..HELD).map(|number| format!("held-{number}")).collect();
        let beneath = names.iter().map(|name| mounted.source().join(name));
        beneath.for_each(|directory| fs::create_dir(directory).unwrap());
        Held {
            slow,
            gate,
            memory,
            names,
        }
    }

    /// Lists them until what is returned is dropped, and changes them meanwhile.
    fn hold<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        mounted: &Mounted,
    ) -> Opened<'scope> {
        // Also if this fails: the threads wait for it.
        let opened = Opened(&self.gate);
        for (number, name) in self.names.iter().enumerate() {
            let page = File::open(self.memory.join(format!("page-{number}"))).unwrap();
            let directory = File::open(mounted.mnt().join(name)).unwrap();
            scope.spawn(move || {
                let mut page = Mapping::new(&page, 4096, Sharing::Private).unwrap();
                // It may have ended meanwhile.
                let _ = page.list(&directory);
            });
            assert_eq!(self.slow.line(), "slow");
        }
        for name in &self.names {
            fs::write(mounted.source().join(name).join("new"), "").unwrap();
        }
        opened
    }
}

#[test]
fn held_directories_delay_no_notifications_about_others() {
    by_default(|mounted| {
        let held = Held::new(mounted);
        let other = mounted.source().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("file"), "").unwrap();
        let above = mounted.mnt().join("other");
        assert_eq!(names(&above), ["file"]);
        assert!(fs::metadata(above.join("absent")).is_err());
        thread::scope(|scope| {
            let _opened = held.hold(scope, mounted);
            let mode = |path: &Path| stat(path).unwrap().st_mode & 0o777;
            chmod(&other, 0o711.into()).unwrap();
            wait_until("mode", || mode(&above) == 0o711);
            fs::rename(other.join("file"), other.join("absent")).unwrap();
            wait_until("name", || names(&above) == ["absent"]);
            wait_until("late", || figure(mounted, "follow_late") > 0);
            assert!(figure(mounted, "follow_lag_max_us") >= 100_000);
            // What is looked up now is not kept either.
            fs::rename(other.join("absent"), other.join("later")).unwrap();
            wait_until("later", || names(&above) == ["later"]);
        });
        mounted.settle();
        for name in &held.names {
            assert_eq!(names(&mounted.mnt().join(name)), ["new"]);
        }
        fs::remove_file(other.join("later")).unwrap();
        wait_until("empty", || names(&above).is_empty());
    });
}

#[test]
fn locks_show_what_changed_while_directories_are_held_and_cost_others_nothing() {
    const NAMES: usize = 100;
    by_default(|mounted| {
        let held = Held::new(mounted);
        let name = |number| format!("name-{number}");
        for number in 0..NAMES {
            fs::write(mounted.source().join(name(number)), "").unwrap();
        }
        let [beneath, above] = [mounted.source(), mounted.mnt()].map(|it| it.join(name(0)));
        let file = File::options().write(true).open(&above).unwrap();
        let lock = |kind| flock(&file, kind).unwrap();
        let look_all_up = || {
            let mut names = (0..NAMES).map(|number| mounted.mnt().join(name(number)));
            assert!(names.all(|name| stat(name).is_ok()));
        };
        thread::scope(|scope| {
            let _opened = held.hold(scope, mounted);
            wait_until("late", || figure(mounted, "follow_late") > 0);
            let moved = above.with_extension("moved");
            for turn in 0..20 {
                fs::rename(&beneath, beneath.with_extension("moved")).unwrap();
                lock(FlockOperation::LockExclusive);
                assert!(moved.exists() && !above.exists(), "turn {turn}");
                lock(FlockOperation::Unlock);
                fs::rename(beneath.with_extension("moved"), &beneath).unwrap();
                lock(FlockOperation::LockExclusive);
                assert!(above.exists() && !moved.exists(), "turn {turn}");
                lock(FlockOperation::Unlock);
            }
            let Ok(tracer) = Tracer::start(mounted.mnt()) else {
                return skipped("no tracefs: requests are not counted");
            };
            // What is looked up is valid for a second meanwhile.
            const TURNS: u64 = 50;
            let counted = tracer.count(|| {
                for _ in 0..TURNS {
                    lock(FlockOperation::LockExclusive);
                    look_all_up();
                    lock(FlockOperation::Unlock);
                }
            });
            let lookups = counted.get("LOOKUP").copied().unwrap_or_default();
            assert!(lookups < TURNS * NAMES as u64 / 4, "{counted:?}");
        });
    });
}

/// A listing that is under way installs what the server had read before, once the memory has come. Beneath a directory
/// that the kernel looks up meanwhile, it looks names up, but not in the root.
#[test]
fn names_that_change_while_their_directory_is_held_show_afterwards() {
    by_default(|mounted| {
        let mut held = Held::new(mounted);
        held.names = vec![".".to_owned()];
        let files = ["first", "second", "third"];
        for file in files {
            fs::write(mounted.source().join(file), "old").unwrap();
        }
        // The kernel knows the files, and does not keep this listing.
        assert!(names(mounted.mnt()).len() > files.len());
        fs::write(mounted.source().join("another"), "").unwrap();
        mounted.settle();
        let replace = |file| {
            let other = mounted.source().join("other");
            fs::write(&other, "replaced").unwrap();
            fs::rename(other, mounted.source().join(file)).unwrap();
        };
        thread::scope(|scope| {
            let _opened = held.hold(scope, mounted);
            // Some before names behind the late one are given up, some after.
            replace("first");
            replace("second");
            let lag = || figure(mounted, "follow_lag_max_us");
            wait_until("names are given up", || lag() >= 700_000);
            replace("third");
        });
        mounted.settle();
        for file in files {
            let length = fs::metadata(mounted.mnt().join(file)).unwrap().len();
            assert_eq!(length, 8, "{file}");
        }
    });
}

/// The notifications wait in the kernel, which no signal ends, and keep the device open.
#[test]
fn a_server_ends_while_notifications_wait_for_held_directories() {
    over_each(|transport| {
        let options = transport.with("follow=auto,stop_timeout=0");
        let mut server = Mounted::start_on(Lower::Tmpfs, &options).unwrap();
        let held = Held::new(&server);
        let file = server.source().join("file");
        fs::write(&file, "content").unwrap();
        let open = File::open(server.mnt().join("file")).unwrap();
        let worker = server.worker_pid();
        thread::scope(|scope| {
            let opened = held.hold(scope, &server);
            wait_until("late", || figure(&server, "follow_late") > 0);
            let ended = server.stop().unwrap_err();
            assert!(ended.contains("exit status: 1"), "{ended}");
            assert!(!is_mounted(server.mnt()));
            let said = server.log_text();
            let left = format!("process {worker} stays");
            assert!(said.contains(&left), "{said}");
            let error = open.metadata().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
            drop(opened);
        });
        let left = format!("/proc/{worker}/exe");
        wait_until("the worker's end", || fs::read_link(&left).is_err());
    });
}

/// Stops a worker until this is dropped.
struct Stopped(u32);

impl Stopped {
    fn new(worker: u32) -> Stopped {
        kill_process(worker, Signal::STOP);
        Stopped(worker)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        kill_process(self.0, Signal::CONT);
    }
}

/// More events than the queue has room for, while nobody reads them: the last are lost, also those of `change`.
fn lose_events(mounted: &Mounted, change: impl FnOnce()) {
    let most = fs::read_to_string("/proc/sys/fs/fanotify/max_queued_events").unwrap();
    let most: usize = most.trim().parse().unwrap();
    let before = figure(mounted, "follow_losses");
    let stopped = Stopped::new(mounted.worker_pid());
    for number in 0..most + most / 4 {
        File::create(mounted.source().join(format!("lost-{number}"))).unwrap();
    }
    change();
    drop(stopped);
    wait_until("a loss", || figure(mounted, "follow_losses") > before);
}

#[test]
fn what_changed_while_events_were_lost_shows() {
    with_each_mark(|mounted| {
        let directory = mounted.source().join("directory");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("file"), "old").unwrap();
        let above = mounted.mnt().join("directory");
        let length = || stat(above.join("file")).unwrap().st_size;
        assert_eq!(names(&above), ["file"]);
        assert!(fs::metadata(above.join("other")).is_err());
        mounted.settle();
        assert_eq!((length(), length()), (3, 3));
        lose_events(mounted, || {
            fs::write(directory.join("file"), "longer").unwrap();
            fs::write(directory.join("other"), "").unwrap();
        });
        mounted.settle();
        assert_eq!(length(), 6);
        assert!(fs::metadata(above.join("other")).is_ok());
        assert_eq!(names(&above), ["file", "other"]);
    });
}

/// The kernel above waits for it before it drops what it has of the file.
#[test]
fn a_read_that_does_not_end_holds_up_no_repair_of_losses() {
    by_default(|mounted| {
        let gate = mounted.outside().join("gate");
        let beneath = mounted.source().join("slow");
        fs::create_dir(&beneath).unwrap();
        let at = [&beneath, &gate].map(|path| path.to_str().unwrap());
        let slow = Process::start(&programs::slow_files(), &at);
        assert_eq!(slow.line(), "ok");
        let page = mounted.mnt().join("slow/page-0");
        wait_until("mounted", || page.exists());
        // Also if this fails: the reader waits for it.
        let opened = Opened(&gate);
        thread::scope(|scope| {
            let opened = opened;
            let reader = scope.spawn(|| fs::read(&page).unwrap());
            assert_eq!(slow.line(), "slow");
            lose_events(mounted, || ());
            mounted.settle();
            assert!(!reader.is_finished());
            drop(opened);
            assert_eq!(reader.join().unwrap(), [0xff; 4096]);
        });
        slow.finish();
    });
}
