//! Rows of builds that have nothing to do: a project is made up, built once and kept for the run, and the program
//! finds that all of it is up to date.

use super::{cargo, small};
use crate::command::done;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use thrufs_bench::clock::Clock;
use thrufs_bench::kept::Claim;
use thrufs_bench::results::Group;
use thrufs_bench::row::{Needs, Program, Ready, timed};
use thrufs_bench::task::Task;

/// A program that builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    Make,
    Ninja,
    Cargo,
}

/// Of a measurement.
const BUILDS: usize = 10;
/// Crates at the usual amount of work.
const CRATES: usize = 20;
const CRATES_MIN: usize = 2;
/// Files of a crate, besides `lib.rs`.
const MODULES: usize = 9;
/// Make reads a file for each object file, with the headers that it was made of.
const MAKEFILE: &str = "objects := main.o $(patsubst %.c,%.o,$(wildcard source/*/*.c))\n\
    program: $(objects)\n\tcc -o $@ $^\n\
    %.o: %.c\n\tcc -Iinclude -O0 -MMD -c $< -o $@\n\
    -include $(objects:.o=.d)\n";
const RULES_OF_NINJA: &str = "rule compile\n  command = cc -Iinclude -O0 -MMD -MF $out.d -c $in -o $out\n  \
    depfile = $out.d\n  deps = gcc\n\
    rule link\n  command = cc -o $out $in\n";

impl Program for Idle {
    fn title(&self) -> String {
        format!("{} with nothing to do, cached", self.shown())
    }

    fn about(&self) -> String {
        let project = match self {
            Idle::Make | Idle::Ninja => "160 C files with 80 headers",
            Idle::Cargo => "20 crates of 10 files each",
        };
        format!(
            "One operation is {} in a project of {project} that is built. It was looked at before.",
            self.shown()
        )
    }

    fn group(&self) -> Group {
        Group::Programs
    }

    fn engine(&self) -> String {
        self.program().to_owned()
    }

    fn missing(&self) -> Option<String> {
        let version = self
            .command()
            .arg("--version")
            .stdin(Stdio::null())
            .output();
        if !version.is_ok_and(|output| output.status.success()) {
            return Some(format!("there is no {}", self.program()));
        }
        // rustc links by it too.
        small::missing_compiler()
    }

    /// As measured on ext4, with half as much again.
    fn needs(&self, _percent: usize) -> Needs {
        const MIB: u64 = 1 << 20;
        match self {
            Idle::Make | Idle::Ninja => Needs {
                bytes: 8 * MIB,
                inodes: 900,
            },
            Idle::Cargo => Needs {
                bytes: 8 * MIB,
                inodes: 700,
            },
        }
    }

    fn is_alone(&self) -> bool {
        true
    }

    /// Has the project ready and built, and keeps others from it. An operation is one program.
    fn prepare(&self, task: &Task) -> io::Result<Ready> {
        let idle = *self;
        let claim = Claim::take(
            &task.kept_beneath()?,
            &format!("{}-{}", self.program(), task.percent),
            |path| idle.make(path, task.percent),
        )?;
        // The one builds, here because cargo's outcome is for this path; the other finds it built.
        let tree = task.kept_seen().join(&claim.name);
        idle.build(&tree)?;
        idle.build(&tree)?;
        Ok(Box::new(move |task| {
            let tree = task.kept_seen().join(&claim.name);
            timed(task, |clock| idle.builds(&tree, clock))
        }))
    }
}

impl Idle {
    fn program(self) -> &'static str {
        match self {
            Idle::Make => "make",
            Idle::Ninja => "ninja",
            Idle::Cargo => "cargo",
        }
    }

    /// For people.
    fn shown(self) -> &'static str {
        match self {
            Idle::Make | Idle::Ninja => self.program(),
            Idle::Cargo => "cargo build",
        }
    }

    fn command(self) -> Command {
        match self {
            Idle::Make | Idle::Ninja => Command::new(self.program()),
            Idle::Cargo => cargo(),
        }
    }

    /// Writes the project into a new directory.
    fn make(self, tree: &Path, percent: usize) -> io::Result<()> {
        fs::create_dir(tree)?;
        match self {
            Idle::Make => {
                small::write(tree, percent)?;
                fs::write(tree.join("Makefile"), MAKEFILE)
            }
            Idle::Ninja => {
                small::write(tree, percent)?;
                fs::write(tree.join("build.ninja"), statements_of_ninja(percent))
            }
            Idle::Cargo => write_crates(tree, (CRATES * percent / 100).max(CRATES_MIN)),
        }
    }

    fn build(self, tree: &Path) -> io::Result<()> {
        let mut command = self.command();
        match self {
            Idle::Make => {
                let jobs = std::thread::available_parallelism()?;
                command.arg(format!("--jobs={jobs}"));
                for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL"] {
                    command.env_remove(name);
                }
            }
            Idle::Ninja => {}
            Idle::Cargo => {
                command.args(["build", "--offline", "--quiet"]);
            }
        }
        done(command.current_dir(tree)).map(drop)
    }

    fn builds(self, tree: &Path, clock: &mut Clock) -> io::Result<()> {
        let outcome = tree.join(match self {
            Idle::Make | Idle::Ninja => small::PROGRAM,
            Idle::Cargo => "target/debug/program",
        });
        let identity = || fs::metadata(&outcome).map(|it| (it.ino(), it.mtime(), it.mtime_nsec()));
        let before = identity()?;
        for _ in 0..BUILDS {
            if !clock.more() {
                break;
            }
            self.build(tree)?;
        }
        clock.stop();
        if identity()? != before {
            let program = self.program();
            return Err(io::Error::other(format!("{program} had something to do")));
        }
        Ok(())
    }
}

fn statements_of_ninja(percent: usize) -> String {
    let mut text = RULES_OF_NINJA.to_owned();
    let mut objects = String::new();
    for source in small::sources(percent) {
        let object = source.with_extension("o");
        let (source, object) = (source.display(), object.display());
        // A String takes whatever is written to it.
        let _ = writeln!(text, "build {object}: compile {source}");
        let _ = write!(objects, " {object}");
    }
    let _ = writeln!(text, "build {}: link{objects}", small::PROGRAM);
    text
}

/// A program and the crates that it uses.
fn write_crates(tree: &Path, crates: usize) -> io::Result<()> {
    let package = |name: &str| format!("[package]\nname = \"{name}\"\nedition = \"2021\"\n");
    let mut manifest = package("program");
    manifest.push_str(
        "[profile.dev]\ndebug = false\nincremental = false\n[workspace]\n[dependencies]\n",
    );
    let mut main = String::from("fn main() {\n");
    for number in 0..crates {
        let name = format!("part-{number}");
        let sources = tree.join(&name).join("src");
        fs::create_dir_all(&sources)?;
        fs::write(tree.join(&name).join("Cargo.toml"), package(&name))?;
        let mut lib = String::new();
        for module in 0..MODULES {
            let text = format!("pub fn value() -> usize {{ {} }}\n", number + module);
            fs::write(sources.join(format!("module_{module}.rs")), text)?;
            let _ = writeln!(lib, "pub mod module_{module};");
        }
        fs::write(sources.join("lib.rs"), lib)?;
        let _ = writeln!(manifest, "{name} = {{ path = \"{name}\" }}");
        let _ = writeln!(
            main,
            "    println!(\"{{}}\", part_{number}::module_0::value());"
        );
    }
    main.push_str("}\n");
    fs::create_dir(tree.join("src"))?;
    fs::write(tree.join("src/main.rs"), main)?;
    fs::write(tree.join("Cargo.toml"), manifest)
}

#[cfg(test)]
mod tests {
    use super::Idle;
    use std::time::Duration;
    use thrufs_bench::clock::Clock;
    use thrufs_bench::row::Program;

    #[test]
    fn a_build_that_has_something_to_do_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        for (idle, source) in [
            (Idle::Make, "include/part-0.h"),
            (Idle::Ninja, "include/part-0.h"),
            (Idle::Cargo, "part-1/src/module_3.rs"),
        ] {
            if let Some(why) = idle.missing() {
                thrufs_test_report::skipped(&why);
                continue;
            }
            let tree = directory.path().join(idle.program());
            idle.make(&tree, 1).unwrap();
            idle.build(&tree).unwrap();
            let builds = || idle.builds(&tree, &mut Clock::start(Duration::from_secs(600)));
            builds().unwrap();
            // Later by more than a file system's clock ticks.
            let later = std::time::SystemTime::now() + Duration::from_millis(20);
            let source = std::fs::File::options().write(true).open(tree.join(source));
            source.unwrap().set_modified(later).unwrap();
            assert!(builds().is_err(), "{idle:?}");
        }
    }
}
