//! A lone caller is served on its own CPU, by a reader in the idle class; several callers and busy machines
//! are served as well as without that.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use thrufs_tests::prelude::*;

/// `SCHED_IDLE`, as field 41 of `/proc/PID/task/TID/stat` shows it.
const IDLE_CLASS: &str = "5";

const PATIENCE: Duration = Duration::from_secs(60);

/// A request may wait so long for its turn on a busy machine; one that is starved takes longer than any
/// test.
const SLOWEST: Duration = Duration::from_secs(10);

fn must_skip_pairing() -> bool {
    if must_skip() {
        return true;
    }
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let able = thrufs_sys::sched::may_leave_idle();
    if cpus < 2 || !able {
        let why = format!("{cpus} CPUs, threads can leave the idle class: {able}");
        skipped(why);
    }
    cpus < 2 || !able
}

fn stat_field(stat: &Path, number: usize) -> Option<String> {
    let stat = fs::read_to_string(stat).ok()?;
    let fields = stat.rsplit_once(')')?.1;
    fields.split_whitespace().nth(number - 3).map(str::to_owned)
}

/// The threads in the idle class, each with its CPUs.
fn paired_readers(worker: u32) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{worker}/task")).unwrap() {
        let thread = thread.unwrap().path();
        if stat_field(&thread.join("stat"), 41).as_deref() == Some(IDLE_CLASS) {
            let status = fs::read_to_string(thread.join("status")).unwrap_or_default();
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            found.push((thread, line.unwrap_or_default().trim().to_owned()));
        }
    }
    found
}

fn ask(mounted: &Mounted) {
    let start = Instant::now();
    File::open(mounted.mnt().join("file")).unwrap();
    assert!(start.elapsed() < SLOWEST, "{:?}", start.elapsed());
}

/// Asks until `done`, which is checked now and then.
fn ask_until(mounted: &Mounted, what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "never {what}");
        for _ in 0..50 {
            ask(mounted);
        }
    }
}

fn mounted(options: &str) -> (Mounted, u32) {
    let mounted = Mounted::start(options);
    fs::write(mounted.source().join("file"), "content").unwrap();
    let worker = mounted.worker_pid();
    // At the start, a thread tries whether it can leave the idle class again.
    wait_until("without a pair", || paired_readers(worker).is_empty());
    (mounted, worker)
}

#[test]
#[ignore = "soak: whether threads are paired depends on the scheduler"]
fn a_lone_caller_has_a_reader_on_its_cpu_until_it_is_done() {
    skip_if!(must_skip_pairing());
    let (mut mounted, worker) = mounted("");
    let own_stat = PathBuf::from("/proc/thread-self/stat");
    ask_until(&mounted, "a reader where the caller is", || {
        let here = stat_field(&own_stat, 39).unwrap();
        let readers = paired_readers(worker);
        assert!(readers.len() <= 1, "{readers:?}");
        readers.first().is_some_and(|(_, cpus)| *cpus == here)
    });
    wait_until("released", || paired_readers(worker).is_empty());
    ask_until(&mounted, "paired again", || {
        !paired_readers(worker).is_empty()
    });
    mounted.stop().unwrap();
}

#[test]
#[ignore = "soak: whether threads are paired depends on the scheduler"]
fn several_callers_have_several_readers() {
    skip_if!(must_skip_pairing());
    let (mut mounted, worker) = mounted("");
    ask_until(&mounted, "paired", || !paired_readers(worker).is_empty());
    while_repeating([|| ask(&mounted); 3], || {
        let start = Instant::now();
        let mut unpaired = 0;
        while unpaired < 20 && start.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(5));
            let none = paired_readers(worker).is_empty();
            unpaired = if none { unpaired + 1 } else { 0 };
        }
        assert_eq!(unpaired, 20, "still paired");
    });
    mounted.stop().unwrap();
}

#[test]
#[ignore = "soak: whether threads are paired depends on the scheduler"]
fn a_paired_reader_is_not_starved() {
    skip_if!(must_skip_pairing());
    let (mut mounted, worker) = mounted("");
    ask_until(&mounted, "paired", || !paired_readers(worker).is_empty());
    let cpus = thread::available_parallelism().unwrap().get();
    while_repeating((0..cpus).map(|_| std::hint::spin_loop), || {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(2) {
            ask(&mounted);
        }
    });
    mounted.stop().unwrap();
}

#[test]
fn it_can_be_turned_off() {
    skip_if!(must_skip_pairing());
    let (mut mounted, worker) = mounted("nopairing");
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(500) {
        // As many as would make a pair: a look takes longer than a request.
        for _ in 0..50 {
            ask(&mounted);
        }
        assert_eq!(paired_readers(worker), []);
    }
    mounted.stop().unwrap();
}
