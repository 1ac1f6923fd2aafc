//! Running a program as a step of a chore: said before, timed, and loud when it fails.

use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// For how long a step that has ended may have more to say.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why a chore stopped.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Failure(why.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A program to run, with its output going where ours goes and nothing to read from.
pub(crate) struct Step(Command);

impl Step {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command
            .stdin(Stdio::null())
            .current_dir(crate::project::root());
        Step(command)
    }

    /// The cargo that runs us, so that a `+toolchain` holds for the whole chore.
    pub(crate) fn cargo() -> Self {
        Step::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
    }

    pub(crate) fn args<I, S>(mut self, arguments: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.0.args(arguments);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    pub(crate) fn without_env(mut self, name: &str) -> Self {
        self.0.env_remove(name);
        self
    }

    /// Where it runs, when that is not the top of the repository.
    pub(crate) fn directory(mut self, path: &Path) -> Self {
        self.0.current_dir(path);
        self
    }

    fn words(&self) -> String {
        let program = Path::new(self.0.get_program());
        let mut words = program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        for argument in self.0.get_args() {
            words.push(' ');
            words.push_str(&argument.to_string_lossy());
        }
        words
    }

    /// Runs it and fails unless it succeeds.
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        let words = self.words();
        println!("\n$ {words}");
        let start = Instant::now();
        let status = self
            .0
            .status()
            .map_err(|error| Failure::new(format!("cannot run {words}: {error}")))?;
        ended(&words, start, status)
    }

    /// Runs it and gives its exit code; a failure only if it could not be run to its end.
    pub(crate) fn run_to_code(mut self) -> Result<i32, Failure> {
        let words = self.words();
        println!("\n$ {words}");
        let status = self
            .0
            .status()
            .map_err(|error| Failure::new(format!("cannot run {words}: {error}")))?;
        status
            .code()
            .ok_or_else(|| Failure::new(format!("{words}: {status}")))
    }

    /// As `run`; each line that it prints is also given to `heard`.
    pub(crate) fn run_heard(mut self, mut heard: impl FnMut(&str)) -> Result<(), Failure> {
        let words = self.words();
        println!("\n$ {words}");
        let start = Instant::now();
        let cannot = |error| Failure::new(format!("cannot run {words}: {error}"));
        let mut child = self.0.stdout(Stdio::piped()).spawn().map_err(cannot)?;
        let output = child.stdout.take();
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output.expect("it is piped"));
            let mut line = Vec::new();
            while matches!(output.read_until(b'\n', &mut line), Ok(1..)) {
                let text = String::from_utf8_lossy(&line).into_owned();
                line.clear();
                if sender.send(text).is_err() {
                    break;
                }
            }
        });
        let mut said = |line: String| {
            print!("{line}");
            heard(line.trim_end_matches('\n'));
        };
        let status = loop {
            match lines.recv_timeout(PATIENCE) {
                Ok(line) => said(line),
                Err(RecvTimeoutError::Disconnected) => break child.wait().map_err(cannot)?,
                // It may have left something behind that holds its output.
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(status) = child.try_wait().map_err(cannot)? {
                        break status;
                    }
                }
            }
        };
        ended(&words, start, status)
    }

    /// Runs it silently: whether it succeeded, its standard output, its standard error.
    pub(crate) fn capture(mut self) -> Result<(bool, String, String), Failure> {
        let words = self.words();
        let output = self
            .0
            .output()
            .map_err(|error| Failure::new(format!("cannot run {words}: {error}")))?;
        Ok((
            output.status.success(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ))
    }

    /// Runs it silently and fails unless it succeeds: its standard output as it is.
    pub(crate) fn capture_bytes(mut self) -> Result<Vec<u8>, Failure> {
        let words = self.words();
        let output = self
            .0
            .output()
            .map_err(|error| Failure::new(format!("cannot run {words}: {error}")))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(Failure::new(format!(
            "{words}: {}\n{errors}",
            output.status
        )))
    }
}

/// Says how long it took; what did not succeed is a failure.
fn ended(words: &str, start: Instant, status: ExitStatus) -> Result<(), Failure> {
    println!("[{:.1} s] {words}", start.elapsed().as_secs_f64());
    if status.success() {
        Ok(())
    } else {
        Err(Failure::new(format!("{words}: {status}")))
    }
}
