//! Whether a target is what it claims to be: servers fall back to something else without a word.

use super::RunningTarget;
use super::process::{has_ring, have_stopped};
use crate::Outcome;
use crate::isolation::Privileges;
use crate::setup::{Data, TargetSetup, Transport};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{self, Read};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use thrufs::session::{SessionConfig, ring_availability};

/// Size of the file by which the way of data is found.
const PROBE_BYTES: usize = 1 << 20;

/// How long a server's threads may take to stop.
const STOPPING_MAX: Duration = Duration::from_secs(20);

impl RunningTarget {
    /// Makes sure of transport and data path.
    ///
    /// # Errors
    ///
    /// What it is not, and why not, as far as that is known.
    pub(super) fn check(&mut self) -> Outcome<()> {
        let TargetSetup::Server(server) = &self.setup else {
            return Ok(());
        };
        let (transport, data) = (server.transport, server.data);
        if let Some(transport) = transport {
            self.must_be_over(transport)?;
        }
        data.map_or(Ok(()), |data| self.data_must_go(data))
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
                "it was started with io_uring and does not use it{}",
                self.last_output()
            ),
        }
    }

    fn data_must_go(&mut self, wanted: Data) -> Outcome<()> {
        let patience = match wanted {
            // As soon as they come.
            Data::Through => Duration::from_secs(2),
            _ => Duration::from_millis(100),
        };
        let through = self.is_passthrough(patience);
        let through =
            through.map_err(|error| format!("cannot tell by which way its data go: {error}"))?;
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
        if self.privileges != Privileges::Root {
            return "only root of the machine can have the kernel use files by itself".to_owned();
        }
        format!(
            "the kernel does not use files by itself here; `thrufs doctor` tells why{}",
            self.last_output()
        )
    }

    /// Whether the data of a file that was not read yet come past the server: they come while it is
    /// stopped. So long is waited for them.
    fn is_passthrough(&self, patience: Duration) -> io::Result<bool> {
        let name = "which-way";
        let seen = self.seen_at(0).join(name);
        fs::write(self.source.join(name), vec![1; PROBE_BYTES])?;
        let mut file = File::open(&seen)?;
        let (send, sent) = mpsc::channel();
        let servers = self.servers();
        let stopped = Stopped::these(&servers)?;
        let reader = std::thread::spawn(move || {
            let read = file.read_exact(&mut [0; PROBE_BYTES]);
            // The receiver is gone when the time is over.
            let _ = send.send(());
            read
        });
        let through = sent.recv_timeout(patience).is_ok();
        drop(stopped);
        let read = reader.join();
        fs::remove_file(&seen)?;
        read.map_err(|_| io::Error::other("reading panicked"))??;
        Ok(through)
    }

    fn last_output(&self) -> String {
        let first = self.mounts.first();
        first.map(super::Mount::last_output).unwrap_or_default()
    }
}

/// Processes that do nothing until this goes.
struct Stopped(Vec<Pid>);

impl Stopped {
    /// Stops them. kill(2) comes back before that is so: a thread goes on until it is next on its way to or from
    /// the kernel, which it has to get a processor for, and could answer until then.
    fn these(processes: &[Pid]) -> io::Result<Stopped> {
        for &process in processes {
            let _ = kill_process(process, Signal::STOP);
        }
        let stopped = Stopped(processes.to_vec());
        let start = Instant::now();
        while !have_stopped(processes) {
            if start.elapsed() > STOPPING_MAX {
                return Err(io::Error::other("its server cannot be stopped to try it"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for &process in &self.0 {
            let _ = kill_process(process, Signal::CONT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Stopped;
    use crate::target::process::have_stopped;
    use rustix::process::Pid;
    use std::process::{Child, Command};

    /// Each wants a processor, and there are not enough.
    struct Busy(Vec<Child>);

    impl Busy {
        fn new() -> Busy {
            let count = 8 * std::thread::available_parallelism().map_or(1, usize::from);
            let one = |_| {
                let mut command = Command::new("sh");
                command.args(["-c", "while :; do :; done"]).spawn().unwrap()
            };
            Busy((0..count).map(one).collect())
        }

        fn numbers(&self) -> Vec<Pid> {
            self.0.iter().map(Pid::from_child).collect()
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            for child in &mut self.0 {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    #[test]
    #[ignore = "soak: keeps all CPUs of the machine busy"]
    fn stopped_processes_are_stopped_on_a_busy_machine() {
        let busy = Busy::new();
        let numbers = busy.numbers();
        let stopped = Stopped::these(&numbers).unwrap();
        assert!(have_stopped(&numbers));
        drop(stopped);
        assert!(!have_stopped(&numbers));
    }

    #[test]
    fn stopping_a_process_that_has_ended_does_not_wait() {
        let mut ended = Command::new("true").spawn().unwrap();
        let number = Pid::from_child(&ended);
        ended.wait().unwrap();
        assert!(Stopped::these(&[number]).is_ok());
    }
}
