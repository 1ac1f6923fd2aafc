//! Running a program as a step of a chore: said before, timed, and loud when it fails.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

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

    /// Runs what says itself what it does, and what has failed.
    pub(crate) fn quietly(mut self) -> Result<(), Failure> {
        let words = self.words();
        let status = self
            .0
            .status()
            .map_err(|error| Failure::new(format!("cannot run {words}: {error}")))?;
        if status.success() {
            return Ok(());
        }
        Err(Failure::new(match status.code() {
            Some(_) => "it failed".to_owned(),
            None => format!("{words}: {status}"),
        }))
    }

    /// Runs it silently, with all that it says in the order in which it says it: whether it succeeded, and
    /// that.
    pub(crate) fn record(mut self, name: &str) -> Result<(bool, String), Failure> {
        let path = std::env::temp_dir().join(format!("output-{}", name.replace('/', "-")));
        let failure = |error| Failure::new(format!("{name}: {error}"));
        let output = File::create(&path).map_err(failure)?;
        let errors = output.try_clone().map_err(failure)?;
        let status = self.0.stdout(output).stderr(errors).status();
        let status = status.map_err(failure)?;
        let output = fs::read(&path).map_err(failure)?;
        fs::remove_file(&path).map_err(failure)?;
        let output = String::from_utf8_lossy(&output).into_owned();
        Ok((status.success(), output))
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
