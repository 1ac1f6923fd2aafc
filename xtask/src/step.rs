//! Running a program as a step of a chore.

use crate::failure::Failure;
use crate::project;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// A program to run at the top of the repository, with our output and no input.
pub(crate) struct Step(Command);

impl Step {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).current_dir(project::root());
        Step(command)
    }

    /// The cargo that runs us, so that a `+toolchain` holds for the whole chore.
    pub(crate) fn cargo() -> Self {
        Step::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
    }

    /// Bash with mounts and processes of its own, which end with it. It ends with us.
    pub(crate) fn confined() -> Self {
        Step::new("setpriv").args(["--pdeathsig", "KILL"]).unshare()
    }

    /// The same with a time limit.
    pub(crate) fn confined_for(seconds: u32) -> Self {
        Step::limited(seconds).unshare()
    }

    /// The command in the arguments, ended with its children after so many seconds.
    pub(crate) fn limited(seconds: u32) -> Self {
        Step::new("setpriv")
            .args(["--pdeathsig", "TERM", "timeout", "--kill-after=10"])
            .args([seconds.to_string()])
    }

    fn unshare(self) -> Self {
        self.args(["unshare", "--mount", "--propagation", "private"])
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", "bash"])
    }

    pub(crate) fn args(mut self, arguments: impl IntoIterator<Item: AsRef<OsStr>>) -> Self {
        self.0.args(arguments);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    pub(crate) fn envs<N, V>(mut self, variables: impl IntoIterator<Item = (N, V)>) -> Self
    where
        N: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.0.envs(variables);
        self
    }

    pub(crate) fn without_env(mut self, name: &str) -> Self {
        self.0.env_remove(name);
        self
    }

    /// Where it runs instead of the top of the repository.
    pub(crate) fn directory(mut self, path: &Path) -> Self {
        self.0.current_dir(path);
        self
    }

    /// Runs it, prints its name and duration, and fails unless it succeeds.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let words = self.words();
        println!("\n$ {words}");
        let start = Instant::now();
        let outcome = self.quietly();
        println!("[{:.1} s] {words}", start.elapsed().as_secs_f64());
        outcome
    }

    /// Runs it, and fails unless it succeeds.
    pub(crate) fn quietly(mut self) -> Result<(), Failure> {
        let status = self.0.status().map_err(|error| self.cannot(&error))?;
        match status.success() {
            true => Ok(()),
            false => Err(Failure::new(format!("{}: {status}", self.words()))),
        }
    }

    /// Runs it silently: its exit status, and its outputs in order.
    pub(crate) fn record(mut self) -> Result<(ExitStatus, String), Failure> {
        // A pipe would stay open as long as a process that the program has left behind.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("output-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path);
        let mut file = file.map_err(Failure::of(&path))?;
        let ended = fs::remove_file(&path).and_then(|()| {
            let (out, errors) = (file.try_clone()?, file.try_clone()?);
            self.0.stdout(out).stderr(errors).status()
        });
        let ended = ended.map_err(|error| self.cannot(&error))?;
        let mut said = Vec::new();
        let read = file.rewind().and_then(|()| file.read_to_end(&mut said));
        read.map_err(Failure::of(&path))?;
        Ok((ended, String::from_utf8_lossy(&said).into_owned()))
    }

    /// Runs it silently and fails unless it succeeds: its standard output without the last newline.
    pub(crate) fn text(mut self) -> Result<String, Failure> {
        let output = self.0.output().map_err(|error| self.cannot(&error))?;
        if output.status.success() {
            let text = String::from_utf8_lossy(&output.stdout);
            return Ok(text.trim_end().to_owned());
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(Failure::new(format!("{}: {errors}", self.words())))
    }

    fn words(&self) -> String {
        let program = Path::new(self.0.get_program());
        let program = program.file_name().unwrap_or_default();
        let words = [program].into_iter().chain(self.0.get_args());
        let words: Vec<_> = words.map(OsStr::to_string_lossy).collect();
        words.join(" ")
    }

    fn cannot(&self, error: &io::Error) -> Failure {
        Failure::new(format!("cannot run {}: {error}", self.words()))
    }
}
