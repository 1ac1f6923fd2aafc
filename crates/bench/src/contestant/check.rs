//! Whether a contestant is what it claims to be: servers fall back to something else without a word.

use super::process::has_ring;
use super::{Contestant, wanted_data};
use crate::Outcome;
use crate::entrant::{Data, Entrant, Transport};
use crate::ground::Ground;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{self, Read};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use thrufs::session::{SessionConfig, ring_availability};

/// How long processes may take to stop when they are told to.
const STOPPING_MAX: Duration = Duration::from_secs(10);

/// Size of the file by which the way of data is found.
const PROBE_BYTES: usize = 1 << 20;

impl Contestant {
    /// Makes sure of transport and data path.
    ///
    /// # Errors
    ///
    /// What it is not, and why not, as far as that can be told.
    pub(super) fn check(&mut self) -> Outcome<()> {
        let transport = match &self.entrant {
            Entrant::Ours { transport, .. } => *transport,
            Entrant::Libfuse => Some(Transport::Dev),
            Entrant::LibfuseRing => Some(Transport::Ring),
            Entrant::Floor(name) if name == "floor-dev" => Some(Transport::Dev),
            Entrant::Floor(_) => Some(Transport::Ring),
            _ => None,
        };
        if let Some(transport) = transport {
            self.must_be_over(transport)?;
        }
        match &self.entrant {
            Entrant::Native | Entrant::Floor(_) | Entrant::Against { .. } => Ok(()),
            entrant => self.data_must_go(wanted_data(entrant)),
        }
    }

    fn must_be_over(&self, transport: Transport) -> Outcome<()> {
        // Servers that have given up privileges may not be looked into by an ordinary user.
        let rings: Option<Vec<bool>> = self.servers().into_iter().map(has_ring).collect();
        let Some(rings) = rings else {
            return Ok(());
        };
        let is_ring = rings.contains(&true);
        match transport {
            Transport::Dev if is_ring => Err("it has an io_uring and should not".to_owned()),
            Transport::Ring if !is_ring => Err(self.without_ring()),
            _ => Ok(()),
        }
    }

    fn without_ring(&self) -> String {
        match ring_availability(&SessionConfig::default()) {
            Err(refusal) => format!(
                "FUSE over io_uring is not to be had here: {refusal}; `thrufs doctor` tells what can be \
                 done"
            ),
            Ok(_) => format!(
                "it was told to use io_uring and does not{}",
                self.last_words()
            ),
        }
    }

    fn data_must_go(&mut self, wanted: Data) -> Outcome<()> {
        let patience = match wanted {
            // As soon as they come.
            Data::Through => Duration::from_secs(2),
            _ => Duration::from_millis(100),
        };
        let through = self.goes_through(patience);
        let through = through.map_err(|error| format!("cannot read a file: {error}"))?;
        self.caches_above = !through;
        match wanted {
            Data::Through if !through => Err(self.without_passthrough()),
            Data::Served if through => {
                Err("it has the kernel use files by itself and should not".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn without_passthrough(&self) -> String {
        if self.ground != Ground::Root {
            return "only root of the machine can have the kernel use files by itself".to_owned();
        }
        format!(
            "the kernel does not use files by itself here; `thrufs doctor` tells why{}",
            self.last_words()
        )
    }

    /// Whether the data of a file that was not read yet come past the server: they come while it is
    /// stopped. So long is waited for them.
    fn goes_through(&self, patience: Duration) -> io::Result<bool> {
        let name = "which-way";
        let seen = self.seen_at(0).join(name);
        fs::write(self.source.join(name), vec![1; PROBE_BYTES])?;
        let mut file = File::open(&seen)?;
        let (tell, told) = mpsc::channel();
        let servers = self.servers();
        let stopped = Stopped::these(&servers);
        let reader = std::thread::spawn(move || {
            let read = file.read_exact(&mut [0; PROBE_BYTES]);
            // Nobody listens any more, when the time is over.
            let _ = tell.send(());
            read
        });
        let through = told.recv_timeout(patience).is_ok();
        drop(stopped);
        let read = reader.join();
        fs::remove_file(&seen)?;
        read.map_err(|_| io::Error::other("reading panicked"))??;
        Ok(through)
    }

    fn last_words(&self) -> String {
        let first = self.mounts.first();
        first.map(super::Mount::last_words).unwrap_or_default()
    }
}

/// Processes that do nothing until this goes.
struct Stopped(Vec<Pid>);

impl Stopped {
    fn these(processes: &[u32]) -> Stopped {
        let numbers = processes
            .iter()
            .filter_map(|&number| i32::try_from(number).ok());
        let all: Vec<Pid> = numbers.filter_map(Pid::from_raw).collect();
        for &process in &all {
            let _ = kill_process(process, Signal::STOP);
        }
        // A thread that has not had its turn yet goes on until it has.
        let start = Instant::now();
        while !all.iter().all(|process| have_stopped(*process)) && start.elapsed() < STOPPING_MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
        Stopped(all)
    }
}

/// Whether no thread of a process goes on: each has stopped, or the process has ended.
fn have_stopped(process: Pid) -> bool {
    let path = format!("/proc/{}/task", process.as_raw_nonzero());
    let Ok(threads) = fs::read_dir(path) else {
        return true;
    };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        state.is_none_or(|state| "TtZX".contains(state))
    })
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for &process in &self.0 {
            let _ = kill_process(process, Signal::CONT);
        }
    }
}
