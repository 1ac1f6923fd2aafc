//! Who is measured: the file system itself, ours, and what people use today.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server of a tree, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contestant {
    /// No FUSE at all.
    Native,
    /// `thrufs mount`, with everything cached as the peer caches it.
    Thrufs,
    /// libfuse's example `passthrough_hp`, with its default caches (a day), without splice, and
    /// without the kernel's passthrough.
    Libfuse,
    /// The same with the kernel's passthrough of reads and writes.
    LibfusePassthrough,
}

pub(crate) const ALL: [Contestant; 4] = [
    Contestant::Native,
    Contestant::Thrufs,
    Contestant::Libfuse,
    Contestant::LibfusePassthrough,
];

/// The programs of the servers.
pub(crate) struct Programs {
    pub(crate) thrufs: PathBuf,
    pub(crate) libfuse: Option<PathBuf>,
}

/// A mounted tree, taken away when dropped.
pub(crate) struct Ground {
    root: PathBuf,
    server: Option<(Child, PathBuf)>,
}

impl Contestant {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Contestant::Native => "native",
            Contestant::Thrufs => "thrufs",
            Contestant::Libfuse => "libfuse",
            Contestant::LibfusePassthrough => "libfuse passthrough",
        }
    }

    /// Whether it needs the peer's program.
    pub(crate) fn is_libfuse(self) -> bool {
        matches!(self, Contestant::Libfuse | Contestant::LibfusePassthrough)
    }

    /// Serves `source` on `mountpoint`, or takes `source` as it is.
    pub(crate) fn serve(
        self,
        programs: &Programs,
        source: &Path,
        mountpoint: &Path,
    ) -> Result<Ground, Box<dyn Error>> {
        let mut command = match self {
            Contestant::Native => {
                return Ok(Ground {
                    root: source.into(),
                    server: None,
                });
            }
            Contestant::Thrufs => {
                let mut command = Command::new(&programs.thrufs);
                command
                    .args(["mount", "-f", "-o", "cache=always"])
                    .args([source, mountpoint]);
                command
            }
            Contestant::Libfuse | Contestant::LibfusePassthrough => {
                let program = programs.libfuse.as_ref().ok_or("libfuse was not built")?;
                let mut command = Command::new(program);
                command.args(["--nosplice", "--foreground"]);
                if self == Contestant::Libfuse {
                    command.arg("--nopassthrough");
                }
                command.args([source, mountpoint]);
                command
            }
        };
        let server = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let ground = Ground {
            root: mountpoint.into(),
            server: Some((server.spawn()?, mountpoint.into())),
        };
        ground.wait_until_it_answers()?;
        Ok(ground)
    }
}

impl Ground {
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    fn wait_until_it_answers(&self) -> Result<(), Box<dyn Error>> {
        const FUSE_MAGIC: i64 = 0x6573_5546;
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            if rustix::fs::statfs(&self.root).is_ok_and(|stat| stat.f_type == FUSE_MAGIC) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err("the server did not mount within 10 s".into())
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let Some((server, mountpoint)) = &mut self.server else {
            return;
        };
        let _ = rustix::mount::unmount(&*mountpoint, rustix::mount::UnmountFlags::DETACH);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(5) {
            if matches!(server.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = server.kill();
        let _ = server.wait();
    }
}
