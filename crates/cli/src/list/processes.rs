//! What `/proc` says: processes, their mount namespaces, and which of them serve.
//!
//! One walk, which waits for no process: nothing is read of one's memory, but of this user's own.

use crate::mount_table::{self, Mount};
use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of the process that serves.
const WORKER: &str = "thrufs-worker";

/// One of ours: a supervisor, a worker, or what else this program runs as.
pub(super) struct ServerProcess {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) is_worker: bool,
    /// Since boot.
    started: Duration,
    /// FUSE connections that it has the device of.
    connections: Vec<u32>,
    /// Source and socket of a worker of a share; of this user's own processes.
    shared: Option<[PathBuf; 2]>,
}

/// A mount namespace, and who is in it.
pub(super) struct Namespace {
    /// `mnt:[4026531841]`
    id: PathBuf,
    pub(super) is_own: bool,
    pub(super) processes: usize,
    /// One of them, and its name.
    pub(super) process: i32,
    pub(super) name: String,
    /// The FUSE mounts.
    pub(super) mounts: Vec<Mount>,
}

#[derive(Default)]
pub(super) struct Processes {
    servers: Vec<ServerProcess>,
    /// The calling process's first.
    pub(super) namespaces: Vec<Namespace>,
}

impl Processes {
    pub(super) fn read() -> Processes {
        let mut found = Processes::default();
        let own = std::process::id().cast_signed();
        let others = mount_table::processes().filter(|(pid, _)| *pid != own);
        let first = [(own, PathBuf::from("/proc/self"))];
        for (pid, path) in first.into_iter().chain(others) {
            // It may end meanwhile.
            let Some((name, parent, started)) = stat(&path) else {
                continue;
            };
            found.enter_namespace(pid, &path, &name, pid == own);
            if name.starts_with("thrufs") && pid != own {
                let is_worker = name == WORKER;
                found.servers.push(ServerProcess {
                    pid,
                    parent,
                    is_worker,
                    started,
                    connections: mount_table::connections_of(&path).collect(),
                    shared: is_worker.then(|| shared(&path)).flatten(),
                });
            }
        }
        found
    }

    /// Counts a process in its mount namespace, whose table is read once. Skips those that this user may not look at.
    fn enter_namespace(&mut self, pid: i32, path: &Path, name: &str, is_own: bool) {
        let Ok(id) = fs::read_link(path.join("ns/mnt")) else {
            return;
        };
        if let Some(known) = self.namespaces.iter_mut().find(|it| it.id == id) {
            known.processes += 1;
            return;
        }
        let mounts = File::open(path.join("mountinfo")).and_then(|table| mount_table::read(&table));
        let mut mounts = mounts.unwrap_or_default();
        mounts.retain(|mount| mount.fuse().is_some());
        self.namespaces.push(Namespace {
            id,
            is_own,
            processes: 1,
            process: pid,
            name: name.to_owned(),
            mounts,
        });
    }

    /// Those that hold the device of a FUSE connection.
    pub(super) fn holding(&self, connection: u32) -> impl Iterator<Item = &ServerProcess> {
        let servers = self.servers.iter();
        servers.filter(move |it| it.connections.contains(&connection))
    }

    /// The workers that a process has started.
    pub(super) fn workers_of(&self, server: i32) -> impl Iterator<Item = &ServerProcess> {
        let servers = self.servers.iter();
        servers.filter(move |it| it.is_worker && it.parent == server)
    }

    /// The processes that have started workers of shares, with source and socket.
    pub(super) fn sharing(&self) -> Vec<(i32, &[PathBuf; 2])> {
        let workers = self.servers.iter();
        let mut all: Vec<_> = workers
            .filter_map(|it| Some((it.parent, it.shared.as_ref()?)))
            .collect();
        all.dedup_by_key(|(server, _)| *server);
        all
    }

    /// How long a server has been running.
    pub(super) fn age(&self, server: i32) -> Option<Duration> {
        let server = self.servers.iter().find(|it| it.pid == server)?;
        let now = clock_gettime(ClockId::Boottime);
        let now = Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32);
        Some(now.saturating_sub(server.started))
    }
}

/// Name, parent and start of a process (proc_pid_stat(5)).
fn stat(process: &Path) -> Option<(String, i32, Duration)> {
    let text = fs::read(process.join("stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The name can contain anything.
    let (before, after) = text.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let parent = fields.get(1)?.parse().ok()?;
    let ticks: u64 = fields.get(19)?.parse().ok()?;
    let seconds = ticks as f64 / clock_ticks_per_second() as f64;
    Some((name.to_owned(), parent, Duration::from_secs_f64(seconds)))
}

/// The arguments of a worker of a share. Another user's process could let the reader wait.
fn shared(process: &Path) -> Option<[PathBuf; 2]> {
    let owner = fs::metadata(process).ok()?.uid();
    if owner != rustix::process::geteuid().as_raw() {
        return None;
    }
    let text = fs::read_to_string(process.join("cmdline")).ok()?;
    let arguments: Vec<&str> = text.split('\0').collect();
    match arguments[..] {
        [_, "--share-worker", source, socket, ..] => Some([source.into(), socket.into()]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_namespace_is_first_and_has_this_process() {
        let processes = Processes::read();
        let own = &processes.namespaces[0];
        assert!(own.is_own && own.process == std::process::id().cast_signed());
        let others = &processes.namespaces[1..];
        assert!(others.iter().all(|it| !it.is_own && it.id != own.id));
    }

    #[test]
    fn this_process_has_a_parent_and_has_started_since_boot() {
        let (name, parent, started) = stat(Path::new("/proc/self")).unwrap();
        assert!(!name.is_empty() && parent > 0);
        let now = clock_gettime(ClockId::Boottime).tv_sec.cast_unsigned();
        assert!(started.as_secs() <= now);
    }
}
