//! Projects that are built where a contestant shows them: sources and everything made lie there,
//! compilers and what cargo has fetched do not. Every build is one of a new copy, with as many jobs
//! as there are processors.

use crate::Outcome;
use crate::archive::{self, Source};
use crate::lower::run;
use crate::peers;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// A project.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Project {
    /// The C library musl, configured and made: small files, so that opening them is much of it.
    C,
    /// This one, by `cargo build`, with what it depends on.
    Cargo,
}

const MUSL: Source = Source {
    package: "musl",
    version: "1.2",
    release: "bookworm",
};
/// Fewer objects made from C than that are no build of the project.
const OBJECTS_MIN: usize = 500;
/// The same when only a part is built.
const OBJECTS_MIN_QUICK: usize = 50;

impl Project {
    /// Fetches what it needs, once.
    pub(crate) fn fetch(self) -> Outcome<()> {
        match self {
            Project::C => {
                archive::install(&["gcc", "libc6-dev", "make"])?;
                MUSL.unpacked(&peers::directory()?).map(drop)
            }
            Project::Cargo => run(cargo()
                .args(["fetch", "--locked", "--quiet"])
                .current_dir(this_project())),
        }
    }

    /// Copies the sources into the new directory `place`, and has the compilers in memory.
    pub(crate) fn prepare(self, place: &Path) -> io::Result<()> {
        let project = place.join("project");
        let warm_up = place.join("warm-up");
        fs::create_dir(&project)?;
        fs::create_dir(&warm_up)?;
        match self {
            Project::C => {
                let source = peers::directory().and_then(|peers| MUSL.unpacked(&peers));
                let source = source.map_err(io::Error::other)?.join(".");
                done(Command::new("cp").arg("-a").arg(source).arg(&project))?;
                fs::write(warm_up.join("main.c"), "int main(void) { return 0; }\n")?;
                done(Command::new("cc").arg("main.c").current_dir(&warm_up)).map(drop)
            }
            Project::Cargo => {
                copy_this_project(&project)?;
                fs::write(warm_up.join("main.rs"), "fn main() {}\n")?;
                done(Command::new("rustc").arg("main.rs").current_dir(&warm_up)).map(drop)
            }
        }
    }

    /// Builds what lies in `seen`, or a part of it when it has to be quick, and tells how long that
    /// took, in nanoseconds.
    pub(crate) fn run(self, seen: &Path, quick: bool) -> io::Result<u64> {
        let project = seen.join("project");
        let jobs = std::thread::available_parallelism()?;
        let mut command = match self {
            Project::C => {
                let part = if quick {
                    "$(ls src/string/*.c | sed 's/.*/obj\\/&/; s/c$/o/')"
                } else {
                    ""
                };
                let mut command = Command::new("sh");
                command.arg("-c");
                command.arg(format!("./configure && make -j{jobs} {part}"));
                command
            }
            Project::Cargo => {
                let mut command = cargo();
                command.args(["build", "--offline", "--locked", "--quiet"]);
                command.args(quick.then_some("--package=thrufs-abi"));
                command.env("CARGO_TARGET_DIR", project.join("target"));
                command
            }
        };
        let start = Instant::now();
        done(command.current_dir(&project))?;
        let time = start.elapsed();
        self.must_be_built(&project, quick)?;
        Ok(time.as_nanos() as u64)
    }

    fn must_be_built(self, project: &Path, quick: bool) -> io::Result<()> {
        let (made, least) = match self {
            Project::C if quick => (objects(&project.join("obj"))?, OBJECTS_MIN_QUICK),
            Project::C => (objects(&project.join("obj"))?, OBJECTS_MIN),
            Project::Cargo => (fs::read_dir(project.join("target/debug"))?.count(), 1),
        };
        if made >= least {
            Ok(())
        } else {
            Err(io::Error::other(format!(
                "only {made} of at least {least} files were made"
            )))
        }
    }
}

/// How many object files lie beneath: for static libraries (`.o`) and for shared ones (`.lo`).
fn objects(directory: &Path) -> io::Result<usize> {
    let mut found = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found += objects(&entry.path())?;
        } else if entry
            .path()
            .extension()
            .is_some_and(|end| end == "o" || end == "lo")
        {
            found += 1;
        }
    }
    Ok(found)
}

/// All files that git knows or would add.
fn copy_this_project(to: &Path) -> io::Result<()> {
    let from = this_project();
    let list = done(
        Command::new("git")
            .args(["-c", "safe.directory=*", "ls-files", "-z"])
            .args(["--cached", "--others", "--exclude-standard"])
            .current_dir(&from),
    )?;
    for name in list
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
    {
        let name = Path::new(OsStr::from_bytes(name));
        let source = from.join(name);
        // Deleted, and git has not been told.
        if !source.exists() {
            continue;
        }
        if let Some(parent) = name.parent() {
            fs::create_dir_all(to.join(parent))?;
        }
        fs::copy(source, to.join(name))?;
    }
    Ok(())
}

fn this_project() -> PathBuf {
    PathBuf::from(std::env::var_os("PROJECT").unwrap_or_else(|| ".".into()))
}

/// As an ordinary user has it, whatever cargo has started us.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for name in ["CARGO_TARGET_DIR", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
        command.env_remove(name);
    }
    command
}

/// What it says, when it succeeds; what it has said last is part of the error.
fn done(command: &mut Command) -> io::Result<Vec<u8>> {
    let output = command.stdin(Stdio::null()).output();
    let program = command.get_program().to_string_lossy();
    let output = output.map_err(|error| io::Error::other(format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().rev().take(5).collect();
    let last: Vec<&str> = lines.into_iter().rev().collect();
    let status = output.status;
    Err(io::Error::other(format!(
        "{program}: {status}: {}",
        last.join("; ")
    )))
}
