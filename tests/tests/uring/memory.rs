//! Large requests: their memory is given back, and who may copy them.

use crate::load::serve;
use rustix::process::Pid;
use rustix::thread::sched_getaffinity;
use std::os::unix::fs::OpenOptionsExt;
use thrufs_tests::machine::status;
use thrufs_tests::prelude::*;

const LARGE: usize = 1 << 20;

/// Allowed for each processor: stacks of replacement threads.
const LEFT_KIB_MAX: u64 = 1024;

/// Resident memory without pages of files, in KiB.
fn resident_kib(process: u32) -> u64 {
    let resident = status(process, "RssAnon") + status(process, "RssShmem");
    assert!(resident > 0, "the worker is gone");
    resident
}

/// Past the page cache: with an aligned buffer, one call is one request.
fn move_much_data(path: &Path) -> File {
    let file: File = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .unwrap();
    let mut memory = vec![7; LARGE + 4096];
    let start = memory.as_ptr().align_offset(4096);
    let buffer = &mut memory[start..start + LARGE];
    for turn in 0..16 {
        let at = turn % 4 * LARGE as u64;
        file.write_all_at(buffer, at).unwrap();
        file.read_exact_at(buffer, at).unwrap();
    }
    file
}

/// The threads of a process that may run on one CPU alone.
fn bound_threads(process: u32) -> usize {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let is_bound = |thread: &fs::DirEntry| {
        let thread = thread.file_name().to_str().unwrap().parse().ok();
        sched_getaffinity(thread.and_then(Pid::from_raw)).is_ok_and(|cpus| cpus.count() == 1)
    };
    threads.filter(|it| is_bound(it.as_ref().unwrap())).count()
}

#[test]
fn large_requests_of_one_cpu_are_copied_on_all() {
    skip_if!(must_skip_ring());
    let (ground, server) = serve(Lower::Tmpfs, "cache=never");
    let (worker, path) = (server.worker(), ground.mnt().join("file"));
    let at_first = bound_threads(worker);
    assert!(at_first >= cpus().len(), "each queue has threads");
    let copies = |cpu| on_cpu(cpu, || move_much_data(&path));
    // A close is a small request, after which they are back.
    let mut open = Vec::new();
    wait_until("threads to be free", || {
        open.push(copies(cpus()[0]));
        bound_threads(worker) < at_first
    });
    wait_until("threads to be back", || bound_threads(worker) == at_first);
    drop(open);
    server.stop();
}

fn gives_memory_back(lower: Lower, options: &str) {
    let (ground, server) = serve(lower, options);
    let worker = server.worker();
    for cpu in cpus() {
        on_cpu(cpu, || fs::metadata(ground.mnt()).unwrap());
    }
    let idle = resident_kib(worker);
    let most = thread::scope(|scope| {
        let asking: Vec<_> = cpus()
            .into_iter()
            .flat_map(|cpu| [(cpu, 0), (cpu, 1)])
            .map(|(cpu, number)| {
                let path = ground.mnt().join(format!("file-{cpu}-{number}"));
                scope.spawn(move || on_cpu(cpu, || move_much_data(&path)))
            })
            .collect();
        asking
            .into_iter()
            .for_each(|asks| drop(asks.join().unwrap()));
        resident_kib(worker)
    });
    let most_left = idle + LEFT_KIB_MAX * cpus().len() as u64;
    eprintln!("{options}: {idle} KiB idle, {most} KiB after large requests");
    assert!(most >= idle + 1024, "nothing to give back");
    // A few seconds after the last large request, or later on a busy machine.
    wait_until("memory to be back", || resident_kib(worker) <= most_left);
    server.stop();
}

#[test]
#[ignore = "soak: resident memory is a matter of the allocator and of the machine"]
fn memory_of_large_requests_is_given_back() {
    skip_if!(must_skip_ring());
    gives_memory_back(Lower::Tmpfs, "");
    gives_memory_back(Lower::Tmpfs, "ring_depth=1");
    gives_memory_back(Lower::Ext4, "");
}

/// While requests keep coming, memory of an earlier large one is given back between them, and never with a
/// request or a reply in it.
#[test]
fn memory_that_is_given_back_holds_nothing() {
    const PIECE: usize = 24 << 10;
    skip_if!(must_skip_ring());
    let (ground, _server) = serve(Lower::Tmpfs, "cache=never");
    let path = ground.mnt().join("file");
    on_cpu(cpus()[0], || {
        for turn in 0..3_u8 {
            move_much_data(&path);
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(&path)
                .unwrap();
            let start = Instant::now();
            let (mut number, mut back) = (turn, vec![0; PIECE]);
            while start.elapsed() < Duration::from_millis(1300) {
                number = number.wrapping_add(1);
                let piece = vec![number; PIECE];
                file.write_all_at(&piece, 0).unwrap();
                file.read_exact_at(&mut back, 0).unwrap();
                assert!(back == piece, "after {:?}", start.elapsed());
            }
        }
    });
}
