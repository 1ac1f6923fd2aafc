//! A mount or a share with a policy.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use thrufs_tests::skip_if;

use rustix::fs::{CWD, RenameFlags};
use rustix::process::Signal;
use serde_json::Value;
use thrufs_tests::lower::{Ground, Lower};
use thrufs_tests::mount_point::{must_skip, shrink_dcache};
use thrufs_tests::programs;
use thrufs_tests::relayed::{Queues, Relay, Share};
use thrufs_tests::server::{Server, kill_process};
use thrufs_tests::transport::{Transport, over_each};
use thrufs_tests::wait_until;

/// What the server logs of a reload.
const RELOADED: &str = " reloaded";
const REFUSED: &str = "the active one stays";

const RELOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// A ground, served under a policy.
pub struct Served {
    // First: it stops before the ground goes.
    serving: Option<Serving>,
    ground: Ground,
}

enum Serving {
    Mount(Server),
    // In the order of dropping.
    Share(Relay, Share),
}

/// `text`, with the path of the audit log in place of `LOG`.
fn write_policy(ground: &Ground, text: &str) {
    let log = ground.base().join("audit.log");
    let text = text.replace("LOG", log.to_str().unwrap());
    let path = ground.base().join("policy.toml");
    // Atomically, for concurrent readers.
    let new = ground.base().join("policy.new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// A file system with files and a policy; returns the options with the policy's.
fn prepare(lower: Lower, options: &str, policy: &str, fill: impl Fn(&Path)) -> (Ground, String) {
    let ground = Ground::prepare(lower).unwrap();
    fill(ground.source());
    write_policy(&ground, policy);
    let path = ground.base().join("policy.toml");
    let options = format!("policy={},{options}", path.display());
    (ground, options.trim_end_matches(',').to_owned())
}

impl Served {
    /// Serves a tmpfs in which `fill` made files.
    #[track_caller]
    pub fn start(transport: Transport, options: &str, policy: &str, fill: impl Fn(&Path)) -> Self {
        Self::start_on(Lower::Tmpfs, transport, options, policy, fill)
    }

    #[track_caller]
    pub fn start_on(
        lower: Lower,
        transport: Transport,
        options: &str,
        policy: &str,
        fill: impl Fn(&Path),
    ) -> Self {
        let (ground, options) = prepare(lower, options, policy, fill);
        let server = Server::start(&ground, &transport.with(&options), None);
        Self {
            serving: Some(Serving::Mount(server)),
            ground,
        }
    }

    /// Shares a tmpfs in which `fill` made files, and mounts it through the queues of a virtio-fs device.
    #[track_caller]
    pub fn share(options: &str, policy: &str, fill: impl Fn(&Path)) -> Self {
        let (ground, options) = prepare(Lower::Tmpfs, options, policy, fill);
        let share = Share::start(ground.source(), ground.base(), &options).unwrap();
        let relay = Relay::start(share.socket(), ground.mnt(), Queues::USUAL).unwrap();
        Self {
            serving: Some(Serving::Share(relay, share)),
            ground,
        }
    }

    pub fn pid(&self) -> u32 {
        match self.serving.as_ref().unwrap() {
            Serving::Mount(server) => server.pid(),
            Serving::Share(_, share) => share.pid(),
        }
    }

    pub fn log_text(&self) -> String {
        match self.serving.as_ref().unwrap() {
            Serving::Mount(server) => server.log_text(),
            Serving::Share(_, share) => share.log_text(),
        }
    }

    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.ground.mnt().join(path)
    }

    pub fn beneath(&self, path: impl AsRef<Path>) -> PathBuf {
        self.ground.source().join(path)
    }

    fn log_count(&self, what: &str) -> usize {
        self.log_text().matches(what).count()
    }

    fn hang_up(&self, policy: &str, expected: &str) {
        let before = self.log_count(expected);
        write_policy(&self.ground, policy);
        kill_process(self.pid(), Signal::HUP);
        wait_until(expected, || self.log_count(expected) > before);
    }

    #[track_caller]
    pub fn reload(&self, policy: &str) {
        self.hang_up(policy, RELOADED);
    }

    /// The same with a policy that is refused; returns the server's message.
    #[track_caller]
    pub fn reload_refused(&self, policy: &str) -> String {
        self.hang_up(policy, REFUSED);
        let log = self.log_text();
        let line = log.lines().rfind(|line| line.contains(REFUSED));
        line.unwrap().to_owned()
    }

    pub fn audited(&self) -> Vec<Value> {
        audited_in(&self.ground.base().join("audit.log"))
    }

    #[track_caller]
    pub fn explain(&self, path: &str) -> Value {
        let output = Command::new(programs::thrufs().unwrap())
            .args(["explain", "--json"])
            .arg(self.at(path))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        all[0].clone()
    }

    /// The data path of a file.
    #[track_caller]
    pub fn way(&self, path: &str) -> String {
        self.explain(path)["data_path"].as_str().unwrap().to_owned()
    }

    /// Checks that all tables of a mount are empty once the kernel has dropped its caches, and stops.
    #[track_caller]
    pub fn stop(mut self) {
        match self.serving.take().unwrap() {
            Serving::Mount(server) => {
                self.forgets_all();
                server.stop();
            }
            Serving::Share(relay, _share) => relay.stop().unwrap(),
        }
    }

    #[track_caller]
    fn forgets_all(&self) {
        let deadline = Instant::now() + RELOAD_TIMEOUT;
        loop {
            shrink_dcache(self.ground.mnt()).unwrap();
            let left = self.left();
            if left.is_empty() {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "left: {left:?}, {}",
                self.known()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The server's nodes of all files beneath, for the report of a failed test.
    fn known(&self) -> String {
        let listed = Command::new("find")
            .args([
                self.ground.source().as_os_str(),
                "-mindepth".as_ref(),
                "1".as_ref(),
            ])
            .args(["-printf", "%P\n"])
            .output()
            .unwrap();
        let paths = String::from_utf8_lossy(&listed.stdout).into_owned();
        let node = |path: &str| format!("{path}: {}; ", self.explain(path)["node"]);
        paths.lines().map(node).collect()
    }

    /// Entries in the tables beside the root's.
    fn left(&self) -> Vec<(&'static str, u64)> {
        let output = Command::new(programs::thrufs().unwrap())
            .args(["ctl", "--json"])
            .arg(self.ground.mnt())
            .arg("statistics")
            .output()
            .unwrap();
        let Ok(answer) = serde_json::from_slice::<Value>(&output.stdout) else {
            // A busy machine may answer late.
            return vec![("answers missing", 1)];
        };
        let tables = &answer["tables"];
        [
            ("inodes", 1),
            ("open_files", 0),
            ("open_directories", 0),
            ("backing_files", 0),
        ]
        .into_iter()
        .map(|(name, expected)| (name, expected, tables[name].as_u64().unwrap()))
        .filter(|(_, expected, count)| count > expected)
        .map(|(name, _, count)| (name, count))
        .collect()
    }
}

#[track_caller]
pub fn audited_in(log: &Path) -> Vec<Value> {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8(bytes).expect("UTF-8");
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?}"));
    text.lines().map(parse).collect()
}

/// Runs on a mount over each transport, and checks that nothing is left.
pub fn with_policy(options: &str, policy: &str, fill: impl Fn(&Path), run: impl Fn(&Served)) {
    over_each(|transport| {
        let served = Served::start(transport, options, policy, &fill);
        run(&served);
        served.stop();
    });
}

/// The same, and on a share.
pub fn with_policy_and_shared(
    options: &str,
    policy: &str,
    fill: impl Fn(&Path),
    run: impl Fn(&Served),
) {
    with_policy(options, policy, &fill, &run);
    skip_if!(must_skip());
    eprintln!("virtqueues");
    let served = Served::share(options, policy, &fill);
    run(&served);
    served.stop();
}

/// The error number, 0 for success.
pub fn errno<T>(result: io::Result<T>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(error) => error.raw_os_error().unwrap_or_else(|| panic!("{error}")),
    }
}

/// The same for `rustix`.
pub fn raw<T>(result: rustix::io::Result<T>) -> i32 {
    result.map_or_else(rustix::io::Errno::raw_os_error, |_| 0)
}

pub fn rename(old: &Path, new: &Path, flags: RenameFlags) -> i32 {
    raw(rustix::fs::renameat_with(CWD, old, CWD, new, flags))
}

/// Opens for reading, with these flags of open(2) as well.
pub fn open(path: &Path, flags: i32) -> io::Result<File> {
    let access = flags & libc::O_ACCMODE;
    OpenOptions::new()
        .read(access != libc::O_WRONLY)
        .write(access != libc::O_RDONLY)
        .custom_flags(flags & !libc::O_ACCMODE & !libc::O_CREAT & !libc::O_EXCL & !libc::O_TRUNC)
        .create(flags & libc::O_CREAT != 0 && flags & libc::O_EXCL == 0)
        .create_new(flags & libc::O_EXCL != 0)
        .truncate(flags & libc::O_TRUNC != 0)
        .open(path)
}

pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

pub fn put(source: &Path, path: impl AsRef<OsStr>, content: &[u8]) {
    let path = source.join(Path::new(path.as_ref()));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

pub const REDACT: &str = "[[rule]]\npath = 'photos/**'\naction = 'redact'\nredact = 'gps'\n";

/// For photographs alone.
pub const REDACT_IMAGES: &str = "[[rule]]\npath = 'photos/**'\n\
     content = ['image/*', 'video/*']\naction = 'redact'\nredact = 'gps'\n";

pub const NOTHING: &str = "";
