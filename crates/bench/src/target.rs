//! A target: the file system beneath itself, or a mount that shows it. Starts our servers, checks that they are
//! what they claim, mounts them anew, and ends them.

mod setup;

use crate::isolation::{is_root, kind, same_tree};
use crate::outcome::Outcome;
use crate::plan::Plan;
use rustix::mount::{UnmountFlags, unmount};
pub(crate) use setup::{Setup, thrufs};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Of the scratch folder: a tree for each target; mount points and logs.
pub(crate) const TREES: &str = "trees";
pub(crate) const MOUNTS: &str = "mounts";
/// How long a server may take to mount.
const MOUNTING_MAX: Duration = Duration::from_secs(20);
/// What a server says that goes on without what its mode is called after.
const REFUSALS: [(&str, &str); 2] = [("ring", "no io_uring"), ("+pt", "passthrough is off")];

/// One that takes part in every round.
pub(crate) struct RunningTarget {
    setup: Setup,
    source: PathBuf,
    /// None for native, and for mounts of others.
    mount: Option<Mount>,
    /// Where a mount of others shows the source.
    shown: Option<PathBuf>,
    caches_above: bool,
}

/// A server, and where it shows the source.
struct Mount {
    point: PathBuf,
    log: PathBuf,
    server: Child,
}

impl RunningTarget {
    /// Starts what there is to start, and makes sure that it is what it claims to be.
    pub(crate) fn start(setup: &Setup, plan: &Plan) -> Outcome<RunningTarget> {
        let mut target = RunningTarget {
            source: directory(plan.place().join(TREES).join(setup.name()))?,
            setup: setup.clone(),
            mount: None,
            shown: None,
            caches_above: false,
        };
        match setup {
            Setup::Native => {}
            Setup::Against { point, .. } => target.find(point, &plan.scratch)?,
            Setup::Thrufs { .. } => {
                let name = setup.name();
                let mounts = plan.place().join(MOUNTS);
                let point = directory(mounts.join(&name))?;
                let log = mounts.join(format!("{name}.log"));
                target.mount = Some(target.serve(point, log)?);
                target.caches_above = !setup.mode().ends_with("+pt");
                target.open_a_file()?;
                // The supervisor relays what the worker says.
                std::thread::sleep(Duration::from_millis(50));
                for (part, refusal) in REFUSALS {
                    if setup.mode().contains(part) {
                        target.must_not_say(refusal)?;
                    }
                }
            }
        }
        Ok(target)
    }

    /// A mount that is there already.
    fn find(&mut self, point: &Path, scratch: &str) -> Outcome<()> {
        let probe = "probe";
        let failed = |error: std::io::Error| error.to_string();
        std::fs::write(self.source.join(probe), crate::machine::random_name()?).map_err(failed)?;
        self.shown = same_tree(point, &self.source, probe);
        std::fs::remove_file(self.source.join(probe)).map_err(failed)?;
        self.caches_above = self.shown.is_some();
        if self.shown.is_none() {
            self.source = directory(point.join(scratch).join(self.name()))?;
            self.caches_above = kind(point).is_some_and(|kind| kind.starts_with("fuse"));
        }
        Ok(())
    }

    /// Starts the server and waits until its mount is there.
    fn serve(&self, point: PathBuf, log: PathBuf) -> Outcome<Mount> {
        let failed = |error: std::io::Error| format!("cannot start it: {error}");
        let before = device(&point)?;
        let said = File::create(&log).map_err(failed)?;
        let server = Command::new(thrufs()?)
            .args(["mount", "-f", "-o", &self.setup.options()])
            .args([&self.source, &point])
            .stdin(Stdio::null())
            .stdout(said.try_clone().map_err(failed)?)
            .stderr(said)
            .spawn()
            .map_err(failed)?;
        let mut mount = Mount { point, log, server };
        let start = Instant::now();
        while start.elapsed() < MOUNTING_MAX {
            if device(&mount.point)? != before {
                return Ok(mount);
            }
            if let Ok(Some(status)) = mount.server.try_wait() {
                let said = mount.last_output();
                return Err(format!("it ended before it mounted ({status}): {said}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let (seconds, said) = (MOUNTING_MAX.as_secs(), mount.last_output());
        Err(format!("no mount within {seconds} s: {said}"))
    }

    /// A server says why it has no passthrough, at the first file that is opened at the latest.
    fn open_a_file(&self) -> Outcome<()> {
        let name = "which-way";
        let failed = |error: std::io::Error| error.to_string();
        std::fs::write(self.source.join(name), [1; 4096]).map_err(failed)?;
        std::fs::read(self.seen().join(name)).map_err(failed)?;
        std::fs::remove_file(self.seen().join(name)).map_err(failed)
    }

    fn must_not_say(&self, refusal: &str) -> Outcome<()> {
        let log = self.mount.as_ref().map(|mount| &mount.log);
        let said = log.and_then(|log| std::fs::read_to_string(log).ok());
        let Some((_, why)) = said.as_deref().and_then(|said| said.split_once(refusal)) else {
            return Ok(());
        };
        // Without the fields of a log line.
        let why = why.lines().next().unwrap_or_default();
        let why = why.trim_end_matches(')').split(" mount=").next();
        Err(format!("{refusal}{}", why.unwrap_or_default()))
    }

    /// Mounts anew, so that nothing is cached above: what an ordinary user can do for a cold start.
    pub(crate) fn mount_anew(&mut self) -> Outcome<()> {
        if let Some(mount) = self.mount.take() {
            let (point, log) = (mount.point.clone(), mount.log.clone());
            mount.end(UnmountFlags::DETACH)?;
            self.mount = Some(self.serve(point, log)?);
        }
        Ok(())
    }

    /// Whether a cold row can be cold at it: root drops caches, native is cold above without, and our servers
    /// can be started anew.
    pub(crate) fn can_be_cold(&self) -> bool {
        is_root() || self.setup == Setup::Native || self.mount.is_some()
    }

    /// Whether data that were read once are cheaper the second time, because they lie above.
    pub(crate) fn caches_above(&self) -> bool {
        self.caches_above
    }

    /// The word by which it is known.
    pub(crate) fn name(&self) -> String {
        self.setup.name()
    }

    /// The tree beneath.
    pub(crate) fn source(&self) -> &Path {
        &self.source
    }

    /// The same tree, where this target shows it.
    pub(crate) fn seen(&self) -> &Path {
        let point = self.mount.as_ref().map(|mount| mount.point.as_path());
        point.or(self.shown.as_deref()).unwrap_or(&self.source)
    }

    /// Takes the mount down and waits for the server.
    pub(crate) fn unmount(self) -> Outcome<()> {
        self.mount
            .map_or(Ok(()), |mount| mount.end(UnmountFlags::empty()))
    }
}

impl Mount {
    /// Takes it down and waits for the server.
    fn end(mut self, flags: UnmountFlags) -> Outcome<()> {
        let shown = self.point.display();
        let is_detached = flags.contains(UnmountFlags::DETACH);
        if !is_root() {
            let mut command = Command::new("fusermount3");
            command.arg(if is_detached { "-uz" } else { "-u" });
            let status = command.arg(&self.point).status();
            let status = status.map_err(|error| format!("fusermount3: {error}"))?;
            if !status.success() {
                return Err(format!("cannot unmount {shown}: {status}"));
            }
        } else {
            let start = Instant::now();
            while let Err(error) = unmount(&self.point, flags) {
                // A process that was killed may not have closed its files yet.
                if error != rustix::io::Errno::BUSY || start.elapsed() > Duration::from_secs(5) {
                    return Err(format!("cannot unmount {shown}: {error}"));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        if is_detached {
            // Its users may keep it; it is not to live for them.
            let _ = self.server.kill();
        }
        let ended = self.server.wait();
        ended.map(drop).map_err(|error| format!("{shown}: {error}"))
    }

    /// What the server has said last.
    fn last_output(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(3)..].join("; ")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Makes a directory.
pub(crate) fn directory(path: PathBuf) -> Outcome<PathBuf> {
    std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

fn device(path: &Path) -> Outcome<u64> {
    let data = std::fs::metadata(path);
    let data = data.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(data.dev())
}
