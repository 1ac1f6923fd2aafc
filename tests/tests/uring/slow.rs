//! A file system beneath with slow files delays no request for others.

use rustix::mount::unmount;
use thrufs_tests::prelude::*;

/// A hundred requests without delay take a fraction of it; delayed ones wait until slow files are released.
const PROMPT_MAX: Duration = Duration::from_secs(60);

/// The slow file system, mounted on a ground's source.
struct SlowSource<'a> {
    process: Option<Process>,
    ground: &'a Ground,
}

impl<'a> SlowSource<'a> {
    fn mount(ground: &'a Ground) -> Self {
        let source = ground.source().to_str().unwrap();
        let gate = ground.base().join("gate");
        let _ = fs::remove_file(&gate);
        let args = [source, gate.to_str().unwrap()];
        let process = Process::start(&programs::slow_files(), &args);
        let slow = Self {
            process: Some(process),
            ground,
        };
        assert_eq!(slow.line(), "ok");
        slow
    }

    fn line(&self) -> String {
        self.process.as_ref().unwrap().line()
    }

    /// Whether one more request waits.
    fn is_slow(&self) -> bool {
        let line = self.process.as_ref().unwrap().line_within(PROMPT_MAX);
        line.is_some_and(|line| line == "slow")
    }

    /// Releases slow files.
    fn open(&self) {
        fs::write(self.ground.base().join("gate"), "").unwrap();
    }

    fn unmount(mut self) {
        if let Some(process) = self.process.take() {
            process.finish();
        }
    }
}

impl Drop for SlowSource<'_> {
    fn drop(&mut self) {
        self.open();
        drop(self.process.take());
        if is_mounted(self.ground.source()) {
            let _ = unmount(self.ground.source(), UnmountFlags::DETACH);
        }
    }
}

fn look_a_hundred_times(mnt: &Path) {
    for turn in 0..100 {
        fs::symlink_metadata(mnt.join(format!("file-{}", turn % 10))).unwrap();
    }
}

/// By each thread of the server, more than it may have under way at once: those that have ended must not count.
fn read_at_once(mnt: &Path, cpu: usize) {
    thread::scope(|scope| {
        for number in 0..8 {
            let path = mnt.join(format!("file-{number}"));
            scope.spawn(move || {
                on_cpu(cpu, || {
                    (0..200).for_each(|_| drop(fs::read(&path).unwrap()));
                });
            });
        }
    });
}

/// While processes run the helper with `slow` on one CPU, another there asks for other files.
fn delays_no_other(options: &str, slow: &[[&str; 2]]) {
    let ground = Ground::prepare(Lower::Default).unwrap();
    let source = SlowSource::mount(&ground);
    let server = Server::start(&ground, &format!("transport=uring,{options}"), None);
    let cpu = cpus()[0];
    // A blocking request, as this one, must not leave a thread with room for two, one of which would wait
    // for the other.
    on_cpu(cpu, || rustix::fs::statvfs(ground.mnt()).unwrap());
    look_a_hundred_times(ground.mnt());
    read_at_once(ground.mnt(), cpu);
    let asking: Vec<Process> = slow
        .iter()
        .map(|[command, name]| {
            let path = ground.mnt().join(name);
            on_cpu(cpu, || {
                programs::start_helper(&[command, path.to_str().unwrap()])
            })
        })
        .collect();
    let are_under_way = slow.iter().all(|_| source.is_slow());
    let (mnt, deadline) = (ground.mnt(), Instant::now() + PROMPT_MAX);
    thread::scope(|scope| {
        let looking = scope.spawn(|| on_cpu(cpu, || look_a_hundred_times(mnt)));
        while !looking.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let is_held_up = !looking.is_finished();
        let early: Vec<_> = asking.iter().flat_map(Process::lines).collect();
        source.open();
        assert!(early.is_empty(), "nothing was slow: {early:?}");
        assert!(are_under_way, "what is slow holds up what is slow as well");
        assert!(!is_held_up, "what is slow holds up others");
    });
    for process in asking {
        assert_eq!(process.line(), "ok");
        process.finish();
    }
    server.stop();
    source.unmount();
}

/// The helper's command, and the kind and number of the files for which it waits.
#[test]
fn slow_files_delay_no_other_request() {
    skip_if!(must_skip_ring());
    for (command, kind, count) in [
        ("stat", "slow", 3),
        // More than the threads for requests that are not expected to block.
        ("sync", "sync", 8),
        // More than there are slots from earlier reads.
        ("read", "page", 8),
    ] {
        let names: Vec<String> = (0..count)
            .map(|number| format!("{kind}-{number}"))
            .collect();
        let slow: Vec<[&str; 2]> = names.iter().map(|name| [command, name.as_str()]).collect();
        // A thread that serves several queues never sleeps for a read: the kernel reads for it.
        let one_thread = "cache=never,ring_depth=1,queues_per_thread=64";
        let one_thread = (command == "read").then_some(one_thread);
        for options in ["cache=never", "cache=never,ring_depth=1"]
            .into_iter()
            .chain(one_thread)
        {
            eprintln!("{command} with {options}");
            delays_no_other(options, &slow);
        }
    }
}
