//! A tree mounted by the `thrufs` command. Drop ends the server and detaches what is still mounted.

use std::path::Path;

use rustix::process::Signal;
use thrufs_testing::Tree;

use crate::lower::{Ground, Lower};
use crate::programs;
use crate::server::Server;
use crate::transport::over_each;

/// A running `thrufs mount -f` on a fresh directory.
pub struct Mounted {
    // First: the lower file system goes last.
    server: Server,
    stopped: bool,
    ground: Ground,
}

impl Mounted {
    /// Mounts a fresh directory with `options`, as after `-o`. Panics with the server's standard error.
    #[track_caller]
    pub fn start(options: &str) -> Self {
        Self::start_on(Lower::Default, options).unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn start_on(lower: Lower, options: &str) -> Result<Self, String> {
        let ground = Ground::prepare(lower)?;
        Ok(Self {
            server: Server::try_start(&ground, options, None)?,
            stopped: false,
            ground,
        })
    }

    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    pub fn source(&self) -> &Path {
        self.ground.source()
    }

    pub fn mnt(&self) -> &Path {
        self.ground.mnt()
    }

    /// A directory on the lower file system that the mount must never reach.
    pub fn outside(&self) -> &Path {
        self.ground.outside()
    }

    pub fn server_pid(&self) -> u32 {
        self.server.pid()
    }

    /// The process id of its worker, which answers requests.
    #[track_caller]
    pub fn worker_pid(&self) -> u32 {
        self.server.worker()
    }

    pub fn log_text(&self) -> String {
        self.server.log_text()
    }

    /// What `thrufs ctl` prints about the mount.
    #[track_caller]
    pub fn ctl(&self, command: &str) -> String {
        programs::ctl(self.mnt(), command)
    }

    /// Waits until the mount shows all changes beneath.
    #[track_caller]
    pub fn settle(&self) {
        self.ctl("settle");
    }

    /// Ends the server with SIGTERM and checks that nothing is left mounted.
    pub fn stop(&mut self) -> Result<(), String> {
        match std::mem::replace(&mut self.stopped, true) {
            true => Ok(()),
            false => self.server.end(),
        }
    }
}

/// Runs a test on a fresh mount over each transport with each of these options, which it prints.
pub fn on_each(lower: Lower, options: &[&str], test: impl Fn(&Mounted, &str)) {
    over_each(|transport| {
        for options in options {
            eprintln!("options \"{options}\"");
            let mut mounted = Mounted::start_on(lower, &transport.with(options)).unwrap();
            test(&mounted, options);
            mounted.stop().unwrap();
        }
    });
}

/// The same with passthrough and without.
pub fn on_each_path(lower: Lower, options: &str, test: impl Fn(&Mounted)) {
    let paths = ["passthrough", "nopassthrough"].map(|path| format!("{path},{options}"));
    let paths = paths
        .each_ref()
        .map(|options| options.trim_end_matches(','));
    on_each(lower, &paths, |mounted, _| test(mounted));
}

impl Tree for Mounted {
    fn root(&self) -> &Path {
        self.mnt()
    }

    fn beneath(&self) -> &Path {
        self.source()
    }

    /// Kills the server: the kernel then ends the connection and every waiting call with it.
    fn abort(&self) {
        eprintln!(
            "thrufs-tests: killing the server (pid {})",
            self.server_pid()
        );
        self.server.signal(Signal::KILL);
    }

    fn print_log(&self) {
        eprintln!("--- server log ---\n{}--- end ---", self.log_text());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("thrufs-tests: {error}");
            self.print_log();
        }
    }
}
