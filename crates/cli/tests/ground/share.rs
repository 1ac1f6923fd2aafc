//! Test directories for shares, and their processes.

use super::{Foreground, processes, wait_for, without_terminal};
use rustix::process::Pid;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use thrufs_client::{Client, FrontEnd, FrontEndConfig};

/// A directory with a file, and a socket path.
pub struct Place {
    place: TempDir,
    pub dir: PathBuf,
    pub socket: PathBuf,
}

impl Place {
    pub fn new() -> Place {
        let place = TempDir::with_prefix("thrufs-share-").unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let [dir, socket] = ["dir", "socket"].map(|name| place.path().join(name));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("file"), "content").unwrap();
        Place { place, dir, socket }
    }

    pub fn beside(&self) -> Place {
        let dir = self.dir.clone();
        Place {
            dir,
            ..Place::new()
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub fn command(&self, options: &str) -> Command {
        let mut command = without_terminal();
        command.args(["share", "-o", options, "--socket"]);
        command.args([&self.socket, &self.dir]);
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Returns when the socket exists.
    pub fn share(&self, options: &str) -> Foreground {
        serves(&mut self.command(options), &self.socket)
    }

    /// As `share`, logging to a file, which can be read meanwhile.
    pub fn share_with_log(&self, options: &str) -> Foreground {
        let said = fs::File::create(self.path("said")).unwrap();
        let child = serves(self.command(options).stderr(said), &self.socket);
        child.logging_to(self.path("said"))
    }

    /// The log of `share_with_log`.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("said")).unwrap()
    }

    /// Waits for this in the log.
    pub fn wait_for_log(&self, part: &str) {
        wait_for(part, || self.log().contains(part));
    }

    pub fn workers(&self) -> Vec<Pid> {
        processes("--share-worker", &self.socket)
    }

    /// The only worker.
    pub fn worker(&self) -> Pid {
        worker_at(&self.socket)
    }

    /// Waits until another worker has replaced this one.
    pub fn replaced(&self, worker: Pid) -> Pid {
        let mut next = None;
        wait_for("another worker", || {
            let workers = self.workers();
            next = workers.iter().copied().find(|found| *found != worker);
            next.is_some() && !workers.contains(&worker)
        });
        next.unwrap()
    }

    pub fn mount(&self) -> Client<FrontEnd> {
        mount_at(&self.socket, &FrontEndConfig::default())
    }

    pub fn connect(&self) -> UnixStream {
        connect_to(&self.socket)
    }
}

pub fn worker_at(socket: &Path) -> Pid {
    let mut found = Vec::new();
    wait_for("one worker", || {
        found = processes("--share-worker", socket);
        found.len() == 1
    });
    found[0]
}

/// Connects, and sends the first message of a front end.
pub fn connect_to(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    get_features(&mut stream);
    stream
}

/// VHOST_USER_GET_FEATURES, version 1, no payload.
pub fn get_features(stream: &mut UnixStream) {
    let message = [1_u32, 1, 0].map(u32::to_ne_bytes).concat();
    stream.write_all(&message).unwrap();
}

/// Starts a share, and waits for its socket.
pub fn serves(command: &mut Command, socket: &Path) -> Foreground {
    let child = Foreground::of(command.spawn().unwrap());
    wait_for("the socket to appear", || socket.exists());
    child
}

/// A guest that has mounted the share.
pub fn mount_at(socket: &Path, config: &FrontEndConfig) -> Client<FrontEnd> {
    Client::mount(FrontEnd::connect(socket, config).unwrap()).unwrap()
}
