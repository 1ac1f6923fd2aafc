//! Projects that are built where a target shows them: sources and everything made lie there,
//! compilers and what cargo has fetched do not. Every build is one of a new copy, with as many jobs
//! as there are processors.

mod idle;
mod small;

pub(crate) use idle::Idle;

use crate::command::done;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use thrufs_bench::Outcome;
use thrufs_bench::clock::now;
use thrufs_bench::lower::run;
use thrufs_bench::results::Group;
use thrufs_bench::row::{Needs, Program, Ready};
use thrufs_bench::task::{Done, Task};

/// A project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Project {
    /// This one, by `cargo build`, with what it depends on.
    Cargo,
    /// One that is made up on the spot: no network is needed, only a C compiler.
    Small,
}

impl Program for Project {
    fn title(&self) -> String {
        let title = match self {
            Project::Cargo => "build Thrufs",
            Project::Small => "build a small C project",
        };
        title.to_owned()
    }

    fn about(&self) -> String {
        let what = match self {
            Project::Cargo => "cargo build of Thrufs and what it depends on, without the network",
            Project::Small => {
                "compiling and linking 160 short C files with 80 headers, by as many compilers at once as there are \
                 processors"
            }
        };
        format!(
            "One operation is {what}. Sources and everything made lie in the directory that is measured."
        )
    }

    fn group(&self) -> Group {
        Group::Programs
    }

    fn engine(&self) -> String {
        let engine = match self {
            Project::Cargo => "cargo",
            Project::Small => "cc",
        };
        engine.to_owned()
    }

    fn fetch(&self) -> Outcome<()> {
        match self {
            Project::Cargo => run(cargo()
                .args(["fetch", "--locked", "--quiet"])
                .current_dir(this_project())),
            Project::Small => Ok(()),
        }
    }

    fn missing(&self) -> Option<String> {
        match self {
            Project::Cargo if this_project().join("crates/bench").is_dir() => None,
            Project::Cargo => Some("PROJECT does not name the sources of Thrufs".to_owned()),
            Project::Small => small::missing_compiler(),
        }
    }

    /// As measured on ext4, with half as much again.
    fn needs(&self, _percent: usize) -> Needs {
        const MIB: u64 = 1 << 20;
        match self {
            Project::Cargo => Needs {
                bytes: 1536 * MIB,
                inodes: 15_000,
            },
            Project::Small => Needs {
                bytes: 8 * MIB,
                inodes: 600,
            },
        }
    }

    /// It is all of its row, and takes long.
    fn times_each(&self) -> bool {
        false
    }

    fn is_alone(&self) -> bool {
        true
    }

    /// Copies the sources into a new directory beneath, and has the compilers in memory.
    fn prepare(&self, task: &Task) -> io::Result<Ready> {
        let project = task.beneath.join("project");
        let warm_up = task.beneath.join("warm-up");
        fs::create_dir(&project)?;
        fs::create_dir(&warm_up)?;
        match self {
            Project::Cargo => {
                copy_this_project(&project)?;
                fs::write(warm_up.join("main.rs"), "fn main() {}\n")?;
                done(Command::new("rustc").arg("main.rs").current_dir(&warm_up))?;
            }
            Project::Small => {
                small::write(&project, task.percent)?;
                fs::write(warm_up.join("main.c"), "int main(void) { return 0; }\n")?;
                done(Command::new("cc").arg("main.c").current_dir(&warm_up))?;
            }
        }
        let project = *self;
        Ok(Box::new(move |task| {
            project.build(&task.seen.join("project"), task.percent)
        }))
    }
}

impl Project {
    /// Builds what lies there, or a part of it when there is less work than usual.
    fn build(self, project: &Path, percent: usize) -> io::Result<Done> {
        let start = now();
        let made = match self {
            Project::Small => {
                let jobs = std::thread::available_parallelism()?;
                small::build(project, jobs.get(), percent)?;
                small::PROGRAM
            }
            Project::Cargo => {
                let mut command = cargo();
                command.args(["build", "--offline", "--locked", "--quiet"]);
                command.args((percent < 100).then_some("--package=thrufs-abi"));
                command.env("CARGO_TARGET_DIR", project.join("target"));
                done(command.current_dir(project))?;
                "target/debug"
            }
        };
        let end = now();
        fs::metadata(project.join(made))?;
        Ok(Done {
            operations: 1,
            start,
            end,
            each: Vec::new(),
        })
    }
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
        // Deleted, but still in the index.
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
