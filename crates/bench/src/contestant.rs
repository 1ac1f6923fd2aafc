//! Who is measured: the file system beneath itself, and servers that show it at a mount point.

mod process;

use crate::Outcome;
use crate::floor;
use crate::lower::run;
use crate::peers;
use crate::row::Row;
use process::{family, has_ring, resident_kib};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The floors, by transport and flags of the ring.
pub(crate) const FLOORS: [&str; 5] = [
    "floor-dev",
    "floor-uring",
    "floor-uring-single",
    "floor-uring-coop",
    "floor-uring-plain",
];

/// One that takes part in every round.
pub(crate) struct Contestant {
    name: &'static str,
    source: PathBuf,
    /// None for native; of a floor, one for each job.
    mounts: Vec<Mount>,
    is_floor: bool,
    caches_above: bool,
}

/// A server, and where it shows the source.
struct Mount {
    point: PathBuf,
    server: Child,
}

/// How requests come to a server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Dev,
    Uring,
}

/// One of ours: its name, what `thrufs mount` is told with `-o`, and what must come of it.
struct Ours {
    name: &'static str,
    options: &'static str,
    over: Option<Transport>,
    data: Data,
}

/// By which way the data of files go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    /// Not looked at.
    Any,
    /// The kernel uses the files beneath by itself.
    Through,
    /// By the server, and kept above as long as libfuse's example keeps them.
    Served,
}

impl Contestant {
    /// No FUSE at all.
    pub(crate) fn native(beneath: &Path) -> Outcome<Self> {
        Contestant::without_server("native", beneath)
    }

    /// Ours, over the transport that it chooses itself.
    pub(crate) fn thrufs(beneath: &Path, work: &Path) -> Outcome<Self> {
        let ours = Ours {
            name: "thrufs",
            options: "cache=always",
            over: None,
            data: Data::Any,
        };
        ours.start(beneath, work)
    }

    /// Ours, over one transport, with all data going by the server.
    pub(crate) fn thrufs_over(transport: Transport, beneath: &Path, work: &Path) -> Outcome<Self> {
        let (name, options) = match transport {
            Transport::Dev => ("thrufs-dev", "cache=always,transport=dev,nopassthrough"),
            Transport::Uring => ("thrufs-uring", "cache=always,transport=uring,nopassthrough"),
        };
        let ours = Ours {
            name,
            options,
            over: Some(transport),
            data: Data::Served,
        };
        ours.start(beneath, work)
    }

    /// Ours, over one transport, with data going past the server.
    pub(crate) fn thrufs_through(
        transport: Transport,
        beneath: &Path,
        work: &Path,
    ) -> Outcome<Self> {
        let (name, options) = match transport {
            Transport::Dev => ("thrufs-dev+pt", "cache=always,transport=dev"),
            Transport::Uring => ("thrufs-uring+pt", "cache=always,transport=uring"),
        };
        let ours = Ours {
            name,
            options,
            over: Some(transport),
            data: Data::Through,
        };
        ours.start(beneath, work)
    }

    /// Ours over one transport, as it is when nothing else is said.
    pub(crate) fn thrufs_by_default(
        transport: Transport,
        beneath: &Path,
        work: &Path,
    ) -> Outcome<Self> {
        let (name, options) = match transport {
            Transport::Dev => ("thrufs-dev", "transport=dev"),
            Transport::Uring => ("thrufs-uring", "transport=uring"),
        };
        let ours = Ours {
            name,
            options,
            over: Some(transport),
            data: Data::Through,
        };
        ours.start(beneath, work)
    }

    /// Our library in a server of the benchmark's own.
    pub(crate) fn served_here(
        name: &'static str,
        data: Data,
        beneath: &Path,
        work: &Path,
    ) -> Outcome<Self> {
        let own =
            std::env::current_exe().map_err(|error| format!("cannot find myself: {error}"))?;
        let mut command = Command::new(own);
        command.args([crate::ROLE, "serve", name]);
        Contestant::start(name, command, beneath, work)?.whose_data_go(data)
    }

    /// libfuse's `passthrough_hp`, which caches for a day unless told otherwise.
    pub(crate) fn libfuse(beneath: &Path, work: &Path) -> Outcome<Self> {
        let mut command = libfuse_command()?;
        command.arg("--nopassthrough");
        let libfuse = Contestant::start("libfuse", command, beneath, work)?;
        libfuse
            .which_is_over(Transport::Dev)?
            .whose_data_go(Data::Served)
    }

    /// The same over io_uring, with as many requests for each queue as it likes.
    pub(crate) fn libfuse_uring(beneath: &Path, work: &Path) -> Outcome<Self> {
        let mut command = libfuse_command()?;
        command.args(["--nopassthrough", "-o", "io_uring"]);
        let libfuse = Contestant::start("libfuse-uring", command, beneath, work)?;
        libfuse
            .which_is_over(Transport::Uring)?
            .whose_data_go(Data::Served)
    }

    /// The same without io_uring, with reads and writes handed to the kernel.
    pub(crate) fn libfuse_passthrough(beneath: &Path, work: &Path) -> Outcome<Self> {
        let libfuse = Contestant::start("libfuse+pt", libfuse_command()?, beneath, work)?;
        libfuse.whose_data_go(Data::Through)
    }

    /// The floor: for each of `jobs` clients one, on the client's processor.
    pub(crate) fn floor(
        name: &'static str,
        jobs: usize,
        beneath: &Path,
        work: &Path,
    ) -> Outcome<Self> {
        let word = name.trim_start_matches("floor-");
        let transport = match word {
            "dev" => Transport::Dev,
            _ => Transport::Uring,
        };
        let own =
            std::env::current_exe().map_err(|error| format!("cannot find myself: {error}"))?;
        let mut contestant = Contestant::without_server(name, beneath)?;
        contestant.is_floor = true;
        for job in 0..jobs {
            let mut command = Command::new(&own);
            command.args([crate::ROLE, "floor", word, &processor(job).to_string()]);
            contestant.mount(command, work)?;
        }
        contestant.which_is_over(transport)
    }

    fn without_server(name: &'static str, beneath: &Path) -> Outcome<Self> {
        Ok(Contestant {
            name,
            source: directory(beneath.join(name))?,
            mounts: Vec::new(),
            is_floor: false,
            caches_above: false,
        })
    }

    fn start(name: &'static str, command: Command, beneath: &Path, work: &Path) -> Outcome<Self> {
        let mut contestant = Contestant::without_server(name, beneath)?;
        contestant.mount(command, work)?;
        Ok(contestant)
    }

    /// Starts a server and waits until its mount is there.
    fn mount(&mut self, mut command: Command, work: &Path) -> Outcome<()> {
        let name = self.name;
        let beneath = self.source.parent().and_then(Path::file_name);
        let kind = beneath.unwrap_or_default().to_string_lossy();
        let number = self.mounts.len();
        let point = directory(work.join(format!("mount-{kind}-{name}-{number}")))?;
        let before = device(&point)?;
        let server = command
            .arg(&self.source)
            .arg(&point)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start {name}: {error}"))?;
        let mut mount = Mount { point, server };
        for _ in 0..200 {
            std::thread::sleep(Duration::from_millis(50));
            if device(&mount.point)? != before {
                self.mounts.push(mount);
                return Ok(());
            }
            if let Ok(Some(status)) = mount.server.try_wait() {
                return Err(format!("{name} ended before it mounted: {status}"));
            }
        }
        Err(format!("{name}: no mount within 10 s"))
    }

    /// Makes sure of the transport: servers fall back to `/dev/fuse` without a word.
    fn which_is_over(self, transport: Transport) -> Outcome<Self> {
        let has_ring = |mount: &Mount| family(mount.server.id()).into_iter().any(has_ring);
        let right = |mount: &Mount| has_ring(mount) == (transport == Transport::Uring);
        if self.mounts.iter().all(right) {
            return Ok(self);
        }
        Err(match transport {
            Transport::Dev => format!("{} has an io_uring and should not", self.name),
            Transport::Uring => format!(
                "{} was told to use io_uring and does not; it may have said why above",
                self.name
            ),
        })
    }

    /// Makes sure by which way data go: servers fall back to their own without a word. A file is
    /// changed beneath while it is open and cached above, and read again.
    fn whose_data_go(mut self, data: Data) -> Outcome<Self> {
        let before = b"before";
        let after = b"behind";
        let mut through = false;
        let mut look = || -> io::Result<()> {
            let beneath = self.source.join("which-way");
            let seen = self.seen_at(0).join("which-way");
            std::fs::write(&beneath, before)?;
            let file = File::open(&seen)?;
            let mut read = [0; 6];
            file.read_exact_at(&mut read, 0)?;
            File::options()
                .write(true)
                .open(&beneath)?
                .write_all_at(after, 0)?;
            file.read_exact_at(&mut read, 0)?;
            through = read == *after;
            std::fs::remove_file(&seen)
        };
        look().map_err(|error| format!("{}: {error}", self.name))?;
        match data {
            Data::Through if !through => Err(format!(
                "{} does not have the kernel use files by itself and should; it may have said why \
                 above",
                self.name
            )),
            Data::Served if through => Err(format!(
                "{} has the kernel use files by itself and should not",
                self.name
            )),
            _ => {
                self.caches_above = !through;
                Ok(self)
            }
        }
    }

    /// Whether data that were read once are cheaper the second time, because they lie above.
    pub(crate) fn caches_above(&self) -> bool {
        self.caches_above
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Why a row is not for this contestant, if it is not.
    pub(crate) fn cannot_run(&self, row: &Row) -> Option<&'static str> {
        if self.is_floor {
            floor::cannot_run(row)
        } else {
            None
        }
    }

    /// The tree beneath.
    pub(crate) fn source(&self) -> &Path {
        &self.source
    }

    /// The same tree, where this contestant shows it to a job.
    pub(crate) fn seen_at(&self, job: usize) -> &Path {
        let mount = self.mounts.get(job).or(self.mounts.first());
        mount.map_or(&self.source, |mount| &mount.point)
    }

    /// The processor that a job has to stay on, if it matters.
    pub(crate) fn processor(&self, job: usize) -> Option<usize> {
        self.is_floor.then(|| processor(job))
    }

    /// Resident memory of the servers and their children, in KiB; nothing for native.
    pub(crate) fn resident_kib(&self) -> Option<u64> {
        let servers = self.mounts.iter().map(|mount| mount.server.id());
        let sum = servers.flat_map(family).map(resident_kib).sum();
        (!self.mounts.is_empty()).then_some(sum)
    }

    /// Takes the mounts down and waits for the servers.
    pub(crate) fn unmount(self) -> Outcome<()> {
        for mut mount in self.mounts {
            run(Command::new("umount").arg(&mount.point))?;
            let ended = mount.server.wait();
            ended.map_err(|error| format!("{}: {error}", self.name))?;
        }
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Ours {
    fn start(&self, beneath: &Path, work: &Path) -> Outcome<Contestant> {
        let program = std::env::var_os("THRUFS").ok_or("THRUFS must name the command")?;
        let mut command = Command::new(program);
        command.args(["mount", "-f", "-o", self.options]);
        let mut contestant = Contestant::start(self.name, command, beneath, work)?;
        if let Some(transport) = self.over {
            contestant = contestant.which_is_over(transport)?;
        }
        contestant.whose_data_go(self.data)
    }
}

fn libfuse_command() -> Outcome<Command> {
    let mut command = Command::new(peers::passthrough_hp()?);
    command.args(["--foreground", "--nosplice"]);
    Ok(command)
}

/// The first for the first job, and so on; where there are fewer, they are shared.
fn processor(job: usize) -> usize {
    job % std::thread::available_parallelism().map_or(1, usize::from)
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
