use super::{Counting, numbers, servers_of};
use crate::results::Counts;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, geteuid};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Tells the child of a test which server it is: the words after `--bench`.
const SERVER: &str = "THRUFS_BENCH_TEST_SERVER";
const RING: &str = "/sys/module/fuse/parameters/enable_uring";

fn skipped(why: &str) {
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}

/// A server in a process of its own, which is this program again.
struct Mounted {
    directory: tempfile::TempDir,
    server: Child,
}

impl Mounted {
    /// None where mounting is not for us.
    fn start(words: &[&str]) -> Option<Mounted> {
        if !geteuid().is_root() || File::open("/dev/fuse").is_err() {
            skipped("needs root and /dev/fuse");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let (source, point) = (
            directory.path().join("source"),
            directory.path().join("point"),
        );
        fs::create_dir(&source).unwrap();
        fs::create_dir(&point).unwrap();
        let before = fs::metadata(&point).unwrap().dev();
        let words = words.join(" ");
        let server = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "counting::tests::serve",
                "--ignored",
                "--nocapture",
            ])
            .env(
                SERVER,
                format!("{words} {} {}", source.display(), point.display()),
            )
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut mounted = Mounted { directory, server };
        for _ in 0..1200 {
            std::thread::sleep(Duration::from_millis(50));
            if fs::metadata(mounted.point()).unwrap().dev() != before {
                return Some(mounted);
            }
            assert_eq!(mounted.server.try_wait().unwrap(), None, "it ended");
        }
        panic!("no mount within a minute");
    }

    fn point(&self) -> PathBuf {
        self.directory.path().join("point")
    }

    fn count(&self, operations: u64, work: impl FnOnce()) -> Option<Counts> {
        let servers = [Pid::from_child(&self.server)];
        let counting = match Counting::start(&self.point(), &servers) {
            Ok(counting) => counting,
            Err(why) => {
                skipped(&why);
                return None;
            }
        };
        work();
        Some(counting.stop(operations).unwrap())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(self.point(), UnmountFlags::DETACH);
        for _ in 0..100 {
            if matches!(self.server.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Not a test: what the others start.
#[test]
#[ignore = "a server that other tests start"]
fn serve() {
    let Ok(words) = std::env::var(SERVER) else {
        return;
    };
    let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    match words[0].as_str() {
        "floor" => crate::floor::serve_here(&words[1..]).unwrap(),
        _ => crate::server::serve_here(&words[1..]).unwrap(),
    }
}

fn requests(counts: &Counts) -> Vec<(&str, u64)> {
    let requests = counts.requests.as_ref().unwrap();
    requests
        .iter()
        .map(|(name, count)| (name.as_str(), *count))
        .collect()
}

/// Files that are there before the mount knows of them, and a way to do something to each.
fn each(mounted: &Mounted, count: u32, work: impl Fn(&Path)) -> impl FnOnce() {
    let point = mounted.point();
    move || (0..count).for_each(|number| work(&point.join(format!("file-{number}"))))
}

fn lstat(path: &Path) {
    rustix::fs::lstat(path).unwrap();
}

/// Asks the server, whatever is remembered.
fn ask(path: &Path) {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    statx(CWD, path, flags, StatxFlags::BASIC_STATS).unwrap();
}

fn open_and_close(path: &Path) {
    drop(File::open(path).unwrap());
}

#[test]
fn a_warm_stat_costs_nothing_and_a_cold_one_a_lookup() {
    let Some(mounted) = Mounted::start(&["serve", "v2"]) else {
        return;
    };
    for number in 0..64 {
        let name = format!("source/file-{number}");
        fs::write(mounted.directory.path().join(name), "").unwrap();
    }
    let Some(cold) = mounted.count(64, each(&mounted, 64, lstat)) else {
        return;
    };
    assert_eq!(requests(&cold), [("LOOKUP", 64)]);
    assert_eq!(cold.operations, 64);
    let warm = mounted.count(64, each(&mounted, 64, lstat)).unwrap();
    assert_eq!((requests(&warm), warm.system_calls), (vec![], Some(0)));
    let asked = mounted.count(64, each(&mounted, 64, ask)).unwrap();
    assert_eq!(requests(&asked), [("GETATTR", 64)]);
    println!("{cold:?} {asked:?}");
}

#[test]
fn the_floor_makes_two_system_calls_for_a_request() {
    let Some(mounted) = Mounted::start(&["floor", "dev", "0"]) else {
        return;
    };
    let Some(cold) = mounted.count(100, each(&mounted, 100, lstat)) else {
        return;
    };
    assert_eq!(requests(&cold), [("LOOKUP", 100)]);
    assert_eq!(cold.system_calls, Some(200));
    // RELEASE, which nobody waits for, is waited for here.
    let opened = mounted
        .count(100, each(&mounted, 100, open_and_close))
        .unwrap();
    assert_eq!(requests(&opened), [("OPEN", 100), ("RELEASE", 100)]);
    assert_eq!(opened.system_calls, Some(400));
}

#[test]
fn requests_are_counted_over_the_ring() {
    if fs::read_to_string(RING).is_ok_and(|value| value.trim() != "Y") {
        return skipped("FUSE over io_uring is switched off");
    }
    let Some(mounted) = Mounted::start(&["floor", "uring", "0"]) else {
        return;
    };
    let Some(cold) = mounted.count(100, each(&mounted, 100, lstat)) else {
        return;
    };
    assert_eq!(requests(&cold), [("LOOKUP", 100)]);
    let opened = mounted
        .count(100, each(&mounted, 100, open_and_close))
        .unwrap();
    println!("{cold:?} {opened:?}");
    assert_eq!(requests(&opened), [("OPEN", 100), ("RELEASE", 100)]);
    assert!(opened.system_calls.unwrap() <= 400, "{opened:?}");
}

#[test]
fn others_requests_are_not_counted_and_their_servers_are_found() {
    let (Some(mine), Some(other)) = (
        Mounted::start(&["floor", "dev", "0"]),
        Mounted::start(&["floor", "dev", "0"]),
    ) else {
        return;
    };
    let servers = servers_of(&mine.point()).unwrap();
    // The test program has not opened it.
    assert_eq!(servers, [Pid::from_child(&mine.server)]);
    let Some(counts) = mine.count(1, each(&other, 10, lstat)) else {
        return;
    };
    assert_eq!((requests(&counts), counts.system_calls), (vec![], Some(0)));
    let Ok(counting) = Counting::start(&mine.point(), &[]) else {
        return;
    };
    each(&mine, 10, lstat)();
    let counts = counting.stop(10).unwrap();
    assert_eq!(
        (requests(&counts), counts.system_calls),
        (vec![("LOOKUP", 10)], None)
    );
}

#[test]
fn what_is_not_served_here_has_no_servers() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(servers_of(directory.path()), Ok(Vec::new()));
    assert!(servers_of(&directory.path().join("none")).is_err());
}

#[test]
fn lists_of_processors_are_understood() {
    assert_eq!(numbers("0-3,6,8-9"), Some(vec![0, 1, 2, 3, 6, 8, 9]));
    assert_eq!(numbers("0"), Some(vec![0]));
    assert_eq!(numbers("all"), None);
}
