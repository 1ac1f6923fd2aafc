//! A share mounted on this machine through the queues of a virtio-fs device: `thrufs share` in a process of
//! its own, and a relay, `thrufs-client mount`. Drop ends both and detaches what is still mounted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use rustix::process::Signal;
use thrufs_testing::Tree;

use crate::lower::{Ground, Lower};
use crate::mount_point::{answers_within, is_mounted};
use crate::programs;
use crate::running::{PATIENCE, Running};
use crate::server::Mount;

/// Logged by a relay once its mount answers.
const MOUNTED: &str = "mounted ";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    pub count: u16,
    /// Descriptors of each.
    pub size: u16,
    /// Whether requests may have tables of descriptors.
    pub indirect: bool,
}

impl Queues {
    /// As a guest with one CPU has them.
    pub const USUAL: Self = Self {
        count: 1,
        size: 1024,
        indirect: true,
    };

    pub const TWO: Self = Self {
        count: 2,
        ..Self::USUAL
    };

    pub const SHORT: Self = Self {
        size: 8,
        indirect: false,
        ..Self::USUAL
    };

    /// A short name for reports: only what is unusual.
    pub fn name(self) -> String {
        let mut name = String::new();
        if self.count != Self::USUAL.count {
            name += &format!(" {} queues", self.count);
        }
        if self.size != Self::USUAL.size {
            name += &format!(" of {}", self.size);
        }
        if !self.indirect {
            name += " without tables";
        }
        name
    }
}

/// A running `thrufs share`, for any number of relays.
pub struct Share {
    server: Running,
    socket: PathBuf,
}

impl Share {
    /// Shares `source`, with its socket and its log in `place`.
    pub fn start(source: &Path, place: &Path, options: &str) -> Result<Self, String> {
        Self::start_limited(source, place, options, None)
    }

    /// The same, with a limit of open files, soft and hard.
    pub fn start_limited(
        source: &Path,
        place: &Path,
        options: &str,
        files_max: Option<u32>,
    ) -> Result<Self, String> {
        let (socket, log) = (place.join("share.socket"), place.join("share.log"));
        let mut list = "control=none".to_owned();
        if !options.is_empty() {
            list = format!("{list},{options}");
        }
        let arguments = |command: &mut Command| {
            command
                .args(["share", "-o", &list, "--socket"])
                .args([&socket, source]);
        };
        let server = Running::start(&programs::thrufs()?, arguments, files_max, log)?;
        server
            .wait_until("the socket", || socket.exists())
            .map_err(|error| format!("`thrufs share`: {error}\n{}", server.log_text()))?;
        Ok(Self { server, socket })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Its workers: one for each front end, and perhaps a spare one.
    pub fn workers(&self) -> Vec<u32> {
        let pid = self.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        let numbers = children.split_whitespace();
        numbers.filter_map(|number| number.parse().ok()).collect()
    }

    pub fn log_text(&self) -> String {
        self.server.log_text()
    }
}

/// A running `thrufs-client mount`.
pub struct Relay {
    // First: it has to end before its mount is taken away.
    relay: Running,
    mount: Mount,
}

impl Relay {
    /// Mounts the share at `socket` on `mnt`. Its log is beside the mount point.
    pub fn start(socket: &Path, mnt: &Path, queues: Queues) -> Result<Self, String> {
        let arguments = |command: &mut Command| {
            command
                .args(["--queues", &queues.count.to_string()])
                .args(["--queue-size", &queues.size.to_string()]);
            if !queues.indirect {
                command.arg("--no-indirect");
            }
            command.arg("--socket").arg(socket).arg("mount").arg(mnt);
        };
        let log = mnt.with_extension("log");
        let relay = Self {
            relay: Running::start(&programs::thrufs_client()?, arguments, None, log)?,
            mount: Mount(mnt.to_owned()),
        };
        let stands = || is_mounted(mnt) && relay.log_text().contains(MOUNTED);
        let answers = relay.relay.wait_until("the mount", stands);
        answers
            .and_then(|()| answers_within(mnt, PATIENCE))
            .map_err(|error| format!("`thrufs-client mount`: {error}\n{}", relay.log_text()))?;
        Ok(relay)
    }

    pub fn mnt(&self) -> &Path {
        &self.mount.0
    }

    pub fn pid(&self) -> u32 {
        self.relay.pid()
    }

    pub fn log_text(&self) -> String {
        self.relay.log_text()
    }

    pub fn ended(&self) -> Option<ExitStatus> {
        self.relay.ended_within(PATIENCE)
    }

    /// Ends it with SIGTERM and checks that nothing is left mounted.
    pub fn stop(&self) -> Result<(), String> {
        let stopped = self.relay.stop();
        stopped.map_err(|error| format!("the relay {error}"))?;
        match is_mounted(&self.mount.0) {
            true => Err("the relay left its mount behind".to_owned()),
            false => Ok(()),
        }
    }
}

/// A share of a fresh directory with one relay: a tree under test.
pub struct Relayed {
    // In the order of dropping.
    relay: Relay,
    share: Share,
    ground: Ground,
}

impl Relayed {
    /// Shares a fresh directory on `lower` with `options`, and mounts it through `queues`.
    pub fn start_on(lower: Lower, options: &str, queues: Queues) -> Result<Self, String> {
        let ground = Ground::prepare(lower)?;
        let options = if queues.count > 1 {
            format!("queues={},{options}", queues.count)
        } else {
            options.to_owned()
        };
        let options = options.trim_end_matches(',');
        let share = Share::start(ground.source(), ground.base(), options)?;
        let relay = Relay::start(share.socket(), ground.mnt(), queues)
            .map_err(|error| format!("{error}\n{}", share.log_text()))?;
        Ok(Self {
            relay,
            share,
            ground,
        })
    }

    pub fn share(&self) -> &Share {
        &self.share
    }

    pub fn relay(&self) -> &Relay {
        &self.relay
    }

    pub fn ground(&self) -> &Ground {
        &self.ground
    }
}

impl Tree for Relayed {
    fn root(&self) -> &Path {
        self.ground.mnt()
    }

    fn beneath(&self) -> &Path {
        self.ground.source()
    }

    /// Kills the relay: the kernel then ends the connection and every waiting call with it.
    fn abort(&self) {
        eprintln!("thrufs-tests: killing the relay");
        self.relay.relay.signal(Signal::KILL);
    }

    fn print_log(&self) {
        let (share, relay) = (self.share.log_text(), self.relay.log_text());
        eprintln!("--- share log ---\n{share}--- relay log ---\n{relay}--- end ---");
    }
}
