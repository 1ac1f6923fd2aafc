//! Floors, mounted for a test: each is a process, which is the test program again.

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, geteuid};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Tells the child of a test which floor it is: the words after `--bench floor`.
const SERVER: &str = "THRUFS_BENCH_TEST_SERVER";

/// Says loudly that something was not tested.
pub(crate) fn skipped(why: &str) {
    thrufs_test_report::skipped(why);
}

/// A server in a process of its own, which is this program again.
pub(crate) struct Mounted {
    directory: tempfile::TempDir,
    server: Child,
}

impl Mounted {
    /// None where mounting is not for us.
    pub(crate) fn start(transport: &str) -> Option<Mounted> {
        if !geteuid().is_root() || File::open("/dev/fuse").is_err() {
            skipped("needs root and /dev/fuse");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let point = directory.path().join("point");
        fs::create_dir(&point).unwrap();
        let before = fs::metadata(&point).unwrap().dev();
        let server = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "mounted::serve", "--ignored", "--nocapture"])
            .env(SERVER, format!("{transport} 0 {}", point.display()))
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

    pub(crate) fn server(&self) -> Pid {
        Pid::from_child(&self.server)
    }

    pub(crate) fn point(&self) -> PathBuf {
        self.directory.path().join("point")
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
    crate::floor::serve_here(&words).unwrap();
}

/// Files that are there before the mount knows of them, and a way to do something to each.
pub(crate) fn each(mounted: &Mounted, count: u32, work: impl Fn(&Path)) -> impl FnOnce() {
    let point = mounted.point();
    move || (0..count).for_each(|number| work(&point.join(format!("file-{number}"))))
}

pub(crate) fn lstat(path: &Path) {
    rustix::fs::lstat(path).unwrap();
}
