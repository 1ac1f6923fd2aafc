//! Who is measured: the file system beneath itself, and servers that show it at a mount point.

use crate::Outcome;
use crate::lower::run;
use crate::peers;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// One that takes part in every round.
pub(crate) struct Contestant {
    name: &'static str,
    source: PathBuf,
    seen_at: PathBuf,
    server: Option<Child>,
}

impl Contestant {
    /// No FUSE at all.
    pub(crate) fn native(beneath: &Path) -> Outcome<Self> {
        let source = directory(beneath.join("native"))?;
        Ok(Contestant {
            name: "native",
            seen_at: source.clone(),
            source,
            server: None,
        })
    }

    /// Ours, caching as long as libfuse's example does.
    pub(crate) fn thrufs(beneath: &Path, work: &Path) -> Outcome<Self> {
        let program = std::env::var_os("THRUFS").ok_or("THRUFS must name the command")?;
        let mut command = Command::new(program);
        command.args(["mount", "-f", "-o", "cache=always"]);
        Contestant::start("thrufs", command, beneath, work)
    }

    /// libfuse's `passthrough_hp`, which caches for a day unless told otherwise.
    pub(crate) fn libfuse(beneath: &Path, work: &Path, passthrough: bool) -> Outcome<Self> {
        let mut command = Command::new(peers::passthrough_hp()?);
        command.args(["--foreground", "--nosplice"]);
        if passthrough {
            return Contestant::start("libfuse+pt", command, beneath, work);
        }
        command.arg("--nopassthrough");
        Contestant::start("libfuse", command, beneath, work)
    }

    fn start(
        name: &'static str,
        mut command: Command,
        beneath: &Path,
        work: &Path,
    ) -> Outcome<Self> {
        let source = directory(beneath.join(name))?;
        let kind = beneath.file_name().unwrap_or_default().to_string_lossy();
        let seen_at = directory(work.join(format!("mount-{kind}-{name}")))?;
        let before = device(&seen_at)?;
        let server = command
            .arg(&source)
            .arg(&seen_at)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start {name}: {error}"))?;
        let mut contestant = Contestant {
            name,
            source,
            seen_at,
            server: Some(server),
        };
        for _ in 0..200 {
            std::thread::sleep(Duration::from_millis(50));
            if device(&contestant.seen_at)? != before {
                return Ok(contestant);
            }
            if let Some(Ok(Some(status))) = contestant.server.as_mut().map(Child::try_wait) {
                return Err(format!("{name} ended before it mounted: {status}"));
            }
        }
        Err(format!("{name}: no mount within 10 s"))
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The tree beneath.
    pub(crate) fn source(&self) -> &Path {
        &self.source
    }

    /// The same tree, where this contestant shows it.
    pub(crate) fn seen_at(&self) -> &Path {
        &self.seen_at
    }

    /// Resident memory of the server and its children, in KiB; nothing for native.
    pub(crate) fn resident_kib(&self) -> Option<u64> {
        let top = self.server.as_ref()?.id();
        Some(family(top).into_iter().map(resident_kib).sum())
    }

    /// Takes the mount down and waits for the server.
    pub(crate) fn unmount(mut self) -> Outcome<()> {
        let Some(mut server) = self.server.take() else {
            return Ok(());
        };
        run(Command::new("umount").arg(&self.seen_at))?;
        server
            .wait()
            .map_err(|error| format!("{}: {error}", self.name))?;
        Ok(())
    }
}

impl Drop for Contestant {
    fn drop(&mut self) {
        if let Some(server) = self.server.as_mut() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn directory(path: PathBuf) -> Outcome<PathBuf> {
    std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

fn device(path: &Path) -> Outcome<u64> {
    Ok(std::fs::metadata(path)
        .map_err(|error| format!("{}: {error}", path.display()))?
        .dev())
}

/// A process and all that descend from it.
fn family(top: u32) -> Vec<u32> {
    let mut members = vec![top];
    let mut next = 0;
    while let Some(&member) = members.get(next) {
        next += 1;
        let children = format!("/proc/{member}/task/{member}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        members.extend(
            children
                .split_whitespace()
                .filter_map(|word| word.parse::<u32>().ok()),
        );
    }
    members
}

fn resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|word| word.parse().ok())
        .unwrap_or(0)
}
