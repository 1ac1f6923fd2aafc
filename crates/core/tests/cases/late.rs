//! Real mounts whose requests are answered later, by threads of the test.

use crate::ground::{Mount, NAMES, VALID, can_mount, is_destroyed, one_reader, plain, set};
use rustix::mount::UnmountFlags;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thrufs::{End, Errno, InitFlags, Opcode, OpenReplyFlags, SessionConfig};
use thrufs_sys::signal::{current_thread_id, interrupt_thread};
use thrufs_testing::memory::{Asked, Files, Settings};
use thrufs_testing::{When, wait_until};

/// How many requests are out at once.
const MANY: usize = 10_000;

fn content() -> Vec<u8> {
    (0..MANY).map(|at| (at % 251) as u8).collect()
}

/// Files of [`content`] that the kernel does not cache.
fn files(when: impl Fn(&Asked<'_>) -> When + Send + Sync + 'static) -> Arc<Files> {
    let files = Files::new(Settings {
        wants: InitFlags::FLOCK_LOCKS,
        open_flags: OpenReplyFlags::DIRECT_IO | OpenReplyFlags::NOFLUSH,
        names_valid: VALID,
        when: Some(Box::new(when)),
        ..Settings::default()
    });
    NAMES.iter().for_each(|name| set(&files, name, &content()));
    files
}

/// Reads of the held file are answered then.
fn held(when: When) -> Arc<Files> {
    files(move |asked| match asked.opcode {
        Opcode::Read if asked.is_about("held") => when,
        _ => When::Now,
    })
}

/// One reader, over the transport of this program.
fn config() -> SessionConfig {
    SessionConfig {
        transport: crate::OVER,
        ..one_reader()
    }
}

fn error(result: std::io::Result<impl Sized>) -> i32 {
    result
        .err()
        .and_then(|error| error.raw_os_error())
        .unwrap_or(0)
}

fn read_at(file: &File, at: usize) -> std::io::Result<u8> {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at as u64)?;
    Ok(byte[0])
}

/// A process that reads the held file.
struct Reader(Child);

impl Reader {
    fn start(mount: &Mount) -> Reader {
        let mut command = Command::new("cat");
        command.arg(mount.path("held")).stdout(Stdio::null());
        Reader(command.spawn().unwrap())
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_request_that_is_answered_later_holds_no_thread() {
    let files = held(When::Later);
    let Some(mount) = Mount::new(&files, config()) else {
        return;
    };
    let file = File::open(mount.path("held")).unwrap();
    std::thread::scope(|scope| {
        let late = scope.spawn(|| read_at(&file, 300));
        let calls = files.late.take(1);
        for _ in 0..20 {
            assert_eq!(std::fs::read(mount.path("plain")).unwrap(), content());
        }
        let snapshot = mount.metrics();
        assert_eq!((snapshot.late, snapshot.blocked), (1, 0), "{snapshot}");
        assert!(!late.is_finished());
        calls.into_iter().for_each(|call| call.give(Ok(())));
        assert_eq!(late.join().unwrap().unwrap(), 49);
    });
    wait_until("none is out", || mount.metrics().late == 0);
}

#[test]
fn ten_thousand_reads_are_out_at_once() {
    let files = held(When::Later);
    let Some(mount) = Mount::new(&files, plain()) else {
        return;
    };
    let file = Arc::new(File::open(mount.path("held")).unwrap());
    let readers: Vec<_> = (0..MANY)
        .map(|at| {
            let file = Arc::clone(&file);
            std::thread::Builder::new()
                .stack_size(32 << 10)
                .spawn(move || read_at(&file, at).is_ok_and(|byte| byte == (at % 251) as u8))
                .unwrap()
        })
        .collect();
    let calls = files.late.take(MANY);
    let snapshot = mount.metrics();
    assert_eq!(
        (snapshot.late, snapshot.blocked),
        (MANY as u64, 0),
        "{snapshot}"
    );
    let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
    assert!(
        threads < MANY + 100,
        "{threads} threads, most of them readers"
    );
    // In another order than they came, half of them by another thread, the others not at all.
    let (given, dropped): (Vec<_>, Vec<_>) = calls
        .into_iter()
        .enumerate()
        .rev()
        .partition(|(number, _)| number % 2 == 0);
    let giver = std::thread::spawn(|| given.into_iter().for_each(|(_, call)| call.give(Ok(()))));
    drop(dropped);
    giver.join().unwrap();
    let is_right = |reader: std::thread::JoinHandle<bool>| reader.join().unwrap();
    let right = readers
        .into_iter()
        .map(is_right)
        .filter(|right| *right)
        .count();
    assert_eq!(right, MANY / 2);
    wait_until("none is out", || mount.metrics().late == 0);
    assert_eq!(mount.metrics().late_dropped, MANY as u64 / 2);
    assert_eq!(std::fs::read(mount.path("plain")).unwrap(), content());
}

#[test]
fn all_kinds_of_answers_come_later() {
    let files = files(|_| When::Before);
    let Some(mount) = Mount::new(&files, config()) else {
        return;
    };
    let mut names: Vec<_> = std::fs::read_dir(mount.root())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let mut expected = NAMES;
    expected.sort_unstable();
    assert_eq!(names, expected);
    assert_eq!(std::fs::read(mount.path("plain")).unwrap(), content());
    let file = File::options()
        .write(true)
        .open(mount.path("other"))
        .unwrap();
    file.write_all_at(b"written", 3).unwrap();
    let read = std::fs::read(mount.path("other")).unwrap();
    assert_eq!(read[..11], *b"\0\x01\x02written\x0a");
    let missing = std::fs::metadata(mount.path("missing"));
    assert_eq!(error(missing), libc::ENOENT);
    wait_until("none is out", || mount.metrics().late == 0);
}

#[test]
fn a_request_that_the_file_system_drops_fails() {
    let files = held(When::Dropped);
    let Some(mount) = Mount::new(&files, plain()) else {
        return;
    };
    assert_eq!(error(std::fs::read(mount.path("held"))), libc::EIO);
    assert_eq!(std::fs::read(mount.path("plain")).unwrap(), content());
    assert_eq!(mount.metrics().late_dropped, 1);
}

#[test]
fn a_client_that_is_signalled_or_killed_is_told_to_the_file_system() {
    let files = held(When::Interrupted);
    let Some(mount) = Mount::new(&files, config()) else {
        return;
    };
    let mut reader = Reader::start(&mount);
    files.late.take(1);
    reader.0.kill().unwrap();
    wait_until("the killed client ends", || reader.has_ended());
    let file = File::open(mount.path("held")).unwrap();
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let signalled = scope.spawn(|| {
            send.send(current_thread_id()).unwrap();
            rustix::io::pread(&file, &mut [0], 0)
        });
        let thread = receive.recv().unwrap();
        files.late.take(1);
        wait_until("it is interrupted", || {
            let _ = interrupt_thread(thread);
            signalled.is_finished()
        });
        assert_eq!(signalled.join().unwrap(), Err(rustix::io::Errno::INTR));
    });
    wait_until("none is out", || mount.metrics().late == 0);
}

#[test]
fn a_client_that_was_killed_ends_with_the_answer() {
    let files = held(When::Later);
    let Some(mount) = Mount::new(&files, plain()) else {
        return;
    };
    let mut reader = Reader::start(&mount);
    let mut calls = files.late.take(1);
    reader.0.kill().unwrap();
    wait_until("it is interrupted", || calls[0].is_interrupted());
    assert!(!reader.has_ended(), "the kernel waits for the answer");
    calls.remove(0).give(Ok(()));
    wait_until("it ends", || reader.has_ended());
    assert_eq!(std::fs::read(mount.path("plain")).unwrap(), content());
}

#[test]
fn an_abort_ends_the_session_while_requests_are_out() {
    let files = held(When::Later);
    let Some(mut mount) = Mount::new(&files, plain()) else {
        return;
    };
    let connection = rustix::fs::minor(rustix::fs::stat(mount.root()).unwrap().st_dev);
    let path = mount.path("held");
    let reading = std::thread::spawn(move || std::fs::read(path));
    let calls = files.late.take(1);
    rustix::mount::unmount(mount.root(), UnmountFlags::DETACH).unwrap();
    thrufs::mount::abort_connection(connection).unwrap();
    assert!(reading.join().unwrap().is_err());
    let ended = mount.session.take().unwrap().join();
    assert_eq!(ended.unwrap(), End::Aborted);
    check_over(&files);
    assert!(calls[0].is_interrupted());
    // Harmless.
    calls.into_iter().for_each(|call| call.give(Ok(())));
}

/// Nothing holds the session, though the test still has its requests.
fn check_over(files: &Files) {
    assert!(is_destroyed(files));
    assert_eq!(files.dropped.load(Ordering::SeqCst), 1);
}

#[test]
fn shutting_down_gives_requests_that_are_out_their_time() {
    let files = held(When::Later);
    let Some(mut mount) = Mount::new(&files, plain()) else {
        return;
    };
    let path = mount.path("held");
    let reading = std::thread::spawn(move || std::fs::read(path));
    let mut calls = files.late.take(1);
    mount.session().handle().shutdown();
    wait_until("it is interrupted", || calls[0].is_interrupted());
    assert!(!reading.is_finished());
    calls.remove(0).give(Ok(()));
    let ended = mount.session.take().unwrap().join();
    assert_eq!(ended.unwrap(), End::ShutDown);
    // The answer was delivered. (More reads follow it, which fail.)
    let read = reading.join().unwrap();
    assert!(read.is_err() || read.unwrap() == content());
    check_over(&files);
}

#[test]
fn the_end_does_not_wait_for_answers_that_never_come() {
    let files = held(When::Later);
    let config = SessionConfig {
        drain_timeout: Duration::from_millis(200),
        ..plain()
    };
    let Some(mut mount) = Mount::new(&files, config) else {
        return;
    };
    let path = mount.path("held");
    let reading = std::thread::spawn(move || std::fs::read(path));
    let calls = files.late.take(1);
    mount.session().handle().shutdown();
    let ended = mount.session.take().unwrap().join();
    assert_eq!(ended.unwrap(), End::ShutDown);
    assert_eq!(error(reading.join().unwrap()), libc::ENOTCONN);
    check_over(&files);
    calls.into_iter().for_each(|call| call.give(Ok(())));
}

#[test]
fn beyond_late_max_requests_wait_and_beyond_blocked_max_they_fail() {
    let files = held(When::Later);
    let config = SessionConfig {
        late_max: 2,
        blocked_max: 1,
        ..config()
    };
    let Some(mount) = Mount::new(&files, config) else {
        return;
    };
    let file = File::open(mount.path("held")).unwrap();
    let (file, mount) = (&file, &mount);
    std::thread::scope(|scope| {
        let out = [0, 1].map(|at| scope.spawn(move || read_at(file, at)));
        let calls = files.late.take(2);
        let third = scope.spawn(move || read_at(file, 2));
        wait_until("the third waits", || mount.metrics().blocked == 1);
        assert_eq!(error(read_at(file, 3)), Errno::EAGAIN.raw());
        assert_eq!(std::fs::read(mount.path("plain")).unwrap(), content());
        let snapshot = mount.metrics();
        assert_eq!((snapshot.late, snapshot.late_refused), (2, 1), "{snapshot}");
        calls.into_iter().for_each(|call| call.give(Ok(())));
        files.late.take(1).remove(0).give(Err(Errno::EDQUOT));
        assert!(out.into_iter().all(|out| out.join().unwrap().is_ok()));
        assert_eq!(error(third.join().unwrap()), libc::EDQUOT);
    });
    wait_until("none waits", || mount.metrics().blocked == 0);
}

#[path = "../../examples/objects.rs"]
#[allow(dead_code, reason = "an example has a `main`")]
mod objects;

#[test]
fn the_example_serves_its_objects() {
    if !can_mount() {
        return;
    }
    let object = |number: u32| (format!("object-{number:02}"), vec![number as u8; 300_000]);
    let fs = objects::ObjectFs::new((0..20).map(object).collect());
    let directory = tempfile::tempdir().unwrap();
    let options = thrufs::MountOptions::new("objects");
    let session = thrufs::mount(fs, directory.path(), &options, plain()).unwrap();
    let names: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(names.len(), 20);
    std::thread::scope(|scope| {
        let reads = names
            .iter()
            .map(|name| scope.spawn(move || std::fs::read(name).unwrap()));
        let reads: Vec<_> = reads.collect();
        for (number, read) in (0..).zip(reads) {
            assert!(read.join().unwrap() == object(number).1, "{number}");
        }
    });
    assert_eq!(
        error(std::fs::metadata(directory.path().join("none"))),
        libc::ENOENT
    );
    let snapshot = session.handle().metrics();
    assert_eq!(
        (snapshot.late_dropped, snapshot.blocked),
        (0, 0),
        "{snapshot}"
    );
    session.unmount().unwrap();
}
