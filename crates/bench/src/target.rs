//! A running target: the file system beneath itself, or a server that shows it at a mount point. Starts it,
//! checks that it is what it claims, mounts it anew, and ends it.

mod check;
mod process;

use crate::Outcome;
use crate::counting::servers::families;
use crate::isolation::{Privileges, kind, same_tree};
use crate::programs;
use crate::setup::{ServerSetup, TargetSetup};
use process::resident_kib;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Pid;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to mount.
const MOUNTING_MAX: Duration = Duration::from_secs(20);

/// Where targets have what they need.
pub(crate) struct Place {
    pub(crate) privileges: Privileges,
    /// The directory with a tree for each.
    pub(crate) beneath: PathBuf,
    /// The directory for mount points and logs.
    pub(crate) mounts: PathBuf,
    /// The scratch folder's name, on mounts of others.
    pub(crate) scratch: String,
    /// Most clients at once.
    pub(crate) jobs: usize,
}

/// One that takes part in every round.
pub(crate) struct RunningTarget {
    setup: TargetSetup,
    privileges: Privileges,
    source: PathBuf,
    /// None for native, and for mounts of others; one for each job where that was asked for.
    mounts: Vec<Mount>,
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
    ///
    /// # Errors
    ///
    /// Why it cannot take part.
    pub(crate) fn start(setup: &TargetSetup, place: &Place) -> Outcome<RunningTarget> {
        let mut target = RunningTarget {
            source: directory(place.beneath.join(setup.name()))?,
            setup: setup.clone(),
            privileges: place.privileges,
            mounts: Vec::new(),
            shown: None,
            caches_above: false,
        };
        match setup {
            TargetSetup::Native => {}
            TargetSetup::Against { point, .. } => target.find(point, place)?,
            TargetSetup::Server(server) => {
                let count = if server.each_job { place.jobs } else { 1 };
                (0..count).try_for_each(|job| target.mount(job, place))?;
            }
        }
        target.check()?;
        Ok(target)
    }

    /// A mount that is there already.
    fn find(&mut self, point: &Path, place: &Place) -> Outcome<()> {
        let probe = "probe";
        let failed = |error: std::io::Error| format!("{}: {error}", self.name());
        let content = crate::machine::random_name()?;
        std::fs::write(self.source.join(probe), content).map_err(failed)?;
        let shown = same_tree(point, &self.source, probe);
        std::fs::remove_file(self.source.join(probe)).map_err(failed)?;
        let is_fuse = kind(point).is_some_and(|kind| kind.starts_with("fuse"));
        if let Some(shown) = shown {
            self.shown = Some(shown);
            self.caches_above = true;
            return Ok(());
        }
        self.source = directory(point.join(&place.scratch).join(self.name()))?;
        self.caches_above = is_fuse;
        Ok(())
    }

    /// Starts a server and waits until its mount is there.
    fn mount(&mut self, job: usize, place: &Place) -> Outcome<()> {
        // In a list of paths, such as cargo makes of the directories with its libraries, a colon ends a path.
        let name = self.name().replace(':', "=");
        let point = directory(place.mounts.join(format!("{name}-{job}")))?;
        let log = place.mounts.join(format!("{name}-{job}.log"));
        let mount = self.serve(point, log, job)?;
        self.mounts.push(mount);
        Ok(())
    }

    fn serve(&self, point: PathBuf, log: PathBuf, job: usize) -> Outcome<Mount> {
        let name = self.name();
        let failed = |error: std::io::Error| format!("cannot start {name}: {error}");
        let before = device(&point)?;
        let said = File::create(&log).map_err(failed)?;
        let server = self
            .command(&point, job)?
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
                return Err(format!("it ended before it mounted ({status}){said}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let seconds = MOUNTING_MAX.as_secs();
        Err(format!(
            "no mount within {seconds} s{}",
            mount.last_output()
        ))
    }

    /// What starts its server.
    fn command(&self, point: &Path, job: usize) -> Outcome<Command> {
        let TargetSetup::Server(ServerSetup { command, .. }) = &self.setup else {
            return Err(format!("{} has no server", self.name()));
        };
        let (program, words) = command.split_first().ok_or("a server without a command")?;
        let mut command = match program.as_str() {
            "thrufs" => Command::new(programs::thrufs()?),
            other => Command::new(other),
        };
        for word in words {
            match word.as_str() {
                ServerSetup::SOURCE => command.arg(&self.source),
                ServerSetup::POINT => command.arg(point),
                ServerSetup::PROCESSOR => command.arg(processor(job).to_string()),
                word => command.arg(word),
            };
        }
        Ok(command)
    }

    /// Mounts anew, so that nothing is cached above: what an ordinary user can do for a cold start.
    pub(crate) fn mount_anew(&mut self) -> Outcome<()> {
        for (job, mount) in std::mem::take(&mut self.mounts).into_iter().enumerate() {
            let (point, log) = (mount.point.clone(), mount.log.clone());
            mount.end(self.privileges, UnmountFlags::DETACH)?;
            let mount = self.serve(point, log, job)?;
            self.mounts.push(mount);
        }
        Ok(())
    }

    /// Whether it has a server that can be started anew.
    pub(crate) fn can_mount_anew(&self) -> bool {
        !self.mounts.is_empty()
    }

    /// What it was started for.
    pub(crate) fn setup(&self) -> &TargetSetup {
        &self.setup
    }

    /// Whether it is the file system beneath.
    pub(crate) fn is_native(&self) -> bool {
        self.setup == TargetSetup::Native
    }

    /// Whether data that were read once are cheaper the second time, because they lie above.
    pub(crate) fn caches_above(&self) -> bool {
        self.caches_above
    }

    /// The word by which it is known.
    pub(crate) fn name(&self) -> &str {
        self.setup.name()
    }

    /// The tree beneath.
    pub(crate) fn source(&self) -> &Path {
        &self.source
    }

    /// The same tree, where this target shows it to a job.
    pub(crate) fn seen_at(&self, job: usize) -> &Path {
        let mount = self.mounts.get(job).or(self.mounts.first());
        let point = mount.map(|mount| mount.point.as_path());
        point.or(self.shown.as_deref()).unwrap_or(&self.source)
    }

    /// The processor that a job has to stay on, if it matters.
    pub(crate) fn processor(&self, job: usize) -> Option<usize> {
        let has_its_own = matches!(&self.setup, TargetSetup::Server(server) if server.each_job);
        has_its_own.then(|| processor(job))
    }

    /// The processes that serve it, as far as they are known.
    pub(crate) fn servers(&self) -> Vec<Pid> {
        let servers = self.mounts.iter();
        let servers = servers.map(|mount| Pid::from_child(&mount.server));
        families(&servers.collect::<Vec<_>>())
    }

    /// Resident memory of the servers and their children, in KiB; nothing where there are none.
    pub(crate) fn resident_kib(&self) -> Option<u64> {
        let sum = self.servers().into_iter().map(resident_kib).sum();
        (!self.mounts.is_empty()).then_some(sum)
    }

    /// Takes the mounts down and waits for the servers.
    pub(crate) fn unmount(self) -> Outcome<()> {
        for mount in self.mounts {
            mount.end(self.privileges, UnmountFlags::empty())?;
        }
        Ok(())
    }
}

impl Mount {
    /// Takes it down and waits for the server.
    fn end(mut self, privileges: Privileges, flags: UnmountFlags) -> Outcome<()> {
        let shown = self.point.display();
        if privileges == Privileges::Plain {
            let mut command = Command::new("fusermount3");
            command.arg("-u");
            if flags.contains(UnmountFlags::DETACH) {
                command.arg("-z");
            }
            crate::lower::run(command.arg(&self.point))?;
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
        if flags.contains(UnmountFlags::DETACH) {
            // Its users may keep it; it is not to live for them.
            let _ = self.server.kill();
        }
        let ended = self.server.wait();
        ended.map(drop).map_err(|error| format!("{shown}: {error}"))
    }

    /// What the server has said last, to be put behind an error.
    fn last_output(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        let lines: Vec<&str> = lines.into_iter().rev().collect();
        if lines.is_empty() {
            return String::new();
        }
        format!("; it said: {}", lines.join("; "))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The first for the first job, and so on; where there are fewer, they are shared.
fn processor(job: usize) -> usize {
    job % std::thread::available_parallelism().map_or(1, usize::from)
}

/// Makes a directory.
pub(crate) fn directory(path: PathBuf) -> Outcome<PathBuf> {
    std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

fn device(path: &Path) -> Outcome<u64> {
    Ok(std::fs::metadata(path)
        .map_err(|error| format!("{}: {error}", path.display()))?
        .dev())
}
