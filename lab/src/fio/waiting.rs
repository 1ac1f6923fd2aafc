//! A fio that has laid out its job and waits at the first block.
//!
//! It is made to run a command before that, which says that it is there and then waits for a line on its standard
//! input: a pipe whose other end is here. fio takes the time after the command has ended, and does nothing where that
//! has failed, as it does when the holder of the other end has died.

use super::job::{FioJob, LATENCIES, job_file};
use super::said::{Done, latencies, read_output};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::thread::JoinHandle;
use thrufs_bench::task::Task;

/// The job file, beneath.
const JOB_FILE: &str = "row.fio";
/// What the command says.
const READY: &str = "waiting at the first block";

/// See the module.
pub(super) struct Waiting {
    process: Child,
    gate: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    complaint: Option<JoinHandle<Vec<u8>>>,
    /// What it has said.
    said: Vec<u8>,
}

impl Waiting {
    /// Starts it for a job on the file where it is seen, and waits until it has come to the first block.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] for what the kernel or the file system does not have; any other is a failure,
    /// with what fio has said.
    pub(super) fn start(job: &FioJob, task: &Task) -> io::Result<Waiting> {
        let bytes = job.job.file_bytes(task.percent);
        let limit_ms = task.limit.as_millis().max(1);
        let mut text = job_file(job, bytes, task.once, limit_ms, task.each);
        // fio adds that what is said goes to a file: what the last command says, which is for failures alone.
        text.push_str(&format!("exec_prerun=echo {READY} && read go || false\n"));
        let path = task.beneath.join(JOB_FILE);
        std::fs::write(&path, text)?;
        let mut process = Command::new("fio")
            .args(["--output-format=json", "--eta=never"])
            .arg(&path)
            // The job names the file without a directory: names have no meaning for fio then.
            .current_dir(&task.seen)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| io::Error::other(format!("fio: {error}")))?;
        let gate = process.stdin.take();
        let output = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let errors = process.stderr.take();
        let complaint = errors.map(|mut errors| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                // What cannot be read is left out.
                let _ = errors.read_to_end(&mut text);
                text
            })
        });
        let mut waiting = Waiting {
            process,
            gate,
            output: BufReader::new(output),
            complaint,
            said: Vec::new(),
        };
        if waiting.is_ready()? {
            return Ok(waiting);
        }
        let output = waiting.end()?;
        read_output(job, &output)?;
        Err(io::Error::other("fio: it did not wait for its start"))
    }

    /// Whether it has come so far; or else it has ended.
    fn is_ready(&mut self) -> io::Result<bool> {
        loop {
            let mut line = Vec::new();
            if self.output.read_until(b'\n', &mut line)? == 0 {
                return Ok(false);
            }
            if line.trim_ascii_end() == READY.as_bytes() {
                return Ok(true);
            }
            self.said.extend(line);
        }
    }

    /// Has it do the job.
    ///
    /// # Errors
    ///
    /// As of [`start`](Self::start).
    pub(super) fn run(mut self, job: &FioJob, task: &Task) -> io::Result<Done> {
        if let Some(gate) = &mut self.gate {
            // What it says tells why, should it have ended.
            let _ = gate.write_all(b"go\n");
        }
        let output = self.end()?;
        let mut done = read_output(job, &output)?;
        if task.each {
            let log = task.seen.join(format!("{LATENCIES}_lat.1.log"));
            done.each = latencies(&std::fs::read_to_string(&log)?);
            // The floor of what is measured next has no place for it.
            std::fs::remove_file(log)?;
        }
        Ok(done)
    }

    /// Waits for its end.
    fn end(&mut self) -> io::Result<Output> {
        drop(self.gate.take());
        let mut stdout = std::mem::take(&mut self.said);
        self.output.read_to_end(&mut stdout)?;
        let status = self.process.wait()?;
        let stderr = self.complaint.take().and_then(|reader| reader.join().ok());
        Ok(Output {
            status,
            stdout,
            stderr: stderr.unwrap_or_default(),
        })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::Waiting;
    use crate::fio::said::read_output;
    use crate::fio::{FioJob, version};
    use crate::mounted::skipped;
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::thread::sleep;
    use std::time::Duration;
    use thrufs_bench::job::data;
    use thrufs_bench::task::Task;

    fn task(directory: &Path) -> Task {
        fs::create_dir(directory).unwrap();
        Task {
            seen: directory.to_owned(),
            beneath: directory.to_owned(),
            percent: 1,
            limit: Duration::from_secs(600),
            once: false,
            each: false,
        }
    }

    #[test]
    fn several_write_nothing_until_all_are_there() {
        if version().is_none() {
            return skipped("there is no fio");
        }
        let directory = tempfile::tempdir().unwrap();
        let job = FioJob::named("write-4k");
        let bytes = |path: &PathBuf| fs::read(path).unwrap();
        let mut all = Vec::new();
        for name in ["one", "two"] {
            let task = task(&directory.path().join(name));
            let path = task.seen.join(data::NAME);
            fs::write(&path, vec![1; 2 << 20]).unwrap();
            let waiting = Waiting::start(&job, &task).unwrap();
            all.push((waiting, task, path));
        }
        // Nothing comes that could be waited for.
        sleep(Duration::from_millis(300));
        for (_, task, path) in &all {
            assert!(bytes(path).iter().all(|&byte| byte == 1));
            // The job and the file, and nothing that fio has left.
            assert_eq!(fs::read_dir(&task.beneath).unwrap().count(), 2);
        }
        for (waiting, task, path) in all {
            let done = waiting.run(&job, &task).unwrap();
            assert_eq!(done.operations, 2 * (2 << 20) / 4096);
            assert!(bytes(&path).iter().any(|&byte| byte != 1));
        }
    }

    #[test]
    fn fio_does_nothing_when_its_parent_has_died() {
        if version().is_none() {
            return skipped("there is no fio");
        }
        let directory = tempfile::tempdir().unwrap();
        let job = FioJob::named("write-4k");
        let task = task(&directory.path().join("one"));
        let path = task.seen.join(data::NAME);
        fs::write(&path, vec![1; 2 << 20]).unwrap();
        let mut waiting = Waiting::start(&job, &task).unwrap();
        // As the kernel does for it.
        let output = waiting.end().unwrap();
        assert!(read_output(&job, &output).is_err(), "{output:?}");
        assert!(fs::read(&path).unwrap().iter().all(|&byte| byte == 1));
    }

    #[test]
    fn fio_that_cannot_start_says_why() {
        if version().is_none() {
            return skipped("there is no fio");
        }
        let directory = tempfile::tempdir().unwrap();
        let task = task(&directory.path().join("one"));
        // There is no file.
        let job = FioJob::named("read-4k");
        let refused = Waiting::start(&job, &task).and_then(|waiting| waiting.run(&job, &task));
        assert!(refused.unwrap_err().to_string().contains("fio"));
    }
}
