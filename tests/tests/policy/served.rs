//! A mount with a policy.

use crate::samples;
use serde_json::Value;
use std::ffi::OsStr;
use std::io::Seek;
use std::os::fd::{AsRawFd, OwnedFd};
use thrufs_tests::prelude::*;
use thrufs_tests::transport::Transport;

/// What the server logs of a reload.
const RELOADED: &str = " reloaded";
const REFUSED: &str = "the active one stays";

/// A ground, mounted under a policy.
pub struct Served {
    // First: it stops before the ground goes.
    server: Option<Server>,
    ground: Ground,
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

impl Served {
    /// Serves a file system in which `fill` made files.
    #[track_caller]
    pub fn start(
        lower: Lower,
        transport: Transport,
        options: &str,
        policy: &str,
        fill: impl Fn(&Path),
    ) -> Self {
        let ground = Ground::prepare(lower).unwrap();
        fill(ground.source());
        write_policy(&ground, policy);
        let path = ground.base().join("policy.toml");
        let options = format!("policy={},{options}", path.display());
        let options = transport.with(options.trim_end_matches(','));
        let server = Some(Server::start(&ground, &options, None));
        Self { server, ground }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.server().pid()
    }

    pub fn log_text(&self) -> String {
        self.server().log_text()
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

    /// Checks that all tables are empty once the kernel has dropped its caches, and stops.
    #[track_caller]
    pub fn stop(mut self) {
        wait_until("empty tables", || {
            shrink_dcache(self.ground.mnt()).unwrap();
            let left = self.left();
            left.iter().for_each(|left| eprintln!("left: {left:?}"));
            left.is_empty()
        });
        self.server.take().unwrap().stop();
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
        let at_rest = [
            ("inodes", 1),
            ("open_files", 0),
            ("open_directories", 0),
            ("backing_files", 0),
        ];
        let counts = at_rest.map(|(name, most)| (name, most, tables[name].as_u64().unwrap()));
        let left = counts.iter().filter(|(_, most, count)| count > most);
        left.map(|(name, _, count)| (*name, *count)).collect()
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
        let served = Served::start(Lower::Tmpfs, transport, options, policy, &fill);
        run(&served);
        served.stop();
    });
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

/// A descriptor (`O_PATH`) by which the file is used without a lookup of its name, and the path of that.
pub fn held(path: &Path) -> (OwnedFd, PathBuf) {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = rustix::fs::open(path, flags, Mode::empty()).unwrap();
    let path = format!("/proc/self/fd/{}", held.as_raw_fd());
    (held, path.into())
}

/// The content of an open file.
pub fn whole(mut file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether a file can be read, and shows no place.
#[track_caller]
pub fn is_redacted(path: &Path) -> bool {
    samples::is_clean(&fs::read(path).unwrap())
}

pub fn open(path: &Path, flags: i32) -> io::Result<File> {
    let flags = OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::from_raw_mode(0o666))?;
    Ok(opened.into())
}

pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
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
