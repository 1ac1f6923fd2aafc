//! Everything that the tests use and cargo does not build: packages of Debian, and programs of crates.io.

use crate::failure::Failure;
use crate::project;
use crate::ring;
use crate::step::Step;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// When a tool is installed: `Full` for every chore that is not the gate's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    Gate,
    Full,
}

/// Packages of Debian: a line `TIER NAME PURPOSE` for each.
const PACKAGES: &str = include_str!("../packages");

/// A pinned program from crates.io, installed by the chore that uses it.
struct Program {
    name: &'static str,
    version: &'static str,
    /// What shortens its build.
    arguments: &'static [&'static str],
    purpose: &'static str,
}

const PROGRAMS: &[Program] = &[
    Program {
        name: "cargo-deny",
        version: "0.20.2",
        // Without its own TLS and git stacks it builds in a fraction of the time; the advisory
        // database is then fetched with the git program.
        arguments: &["--debug", "--no-default-features"],
        purpose: "licences, sources, bans, advisories",
    },
    Program {
        name: "fsx",
        version: "0.3.2",
        arguments: &["--debug", "--config", "profile.dev.opt-level=2"],
        purpose: "random file operations, every read verified",
    },
    Program {
        name: "pjdfstest",
        version: "0.2.2",
        arguments: &["--debug"],
        purpose: "POSIX, call by call",
    },
    Program {
        name: "virtiofsd",
        version: "1.14.0",
        // It is measured, so it is built as its users have it.
        arguments: &[],
        purpose: "the peer: another server of virtio-fs",
    },
    Program {
        name: "cargo-mutants",
        version: "27.1.0",
        arguments: &["--debug"],
        purpose: "changes of the code that some test has to see",
    },
];

pub(crate) fn list() {
    print!("{PACKAGES}");
    println!("# Programs of crates.io, for the chores that use them.");
    for program in PROGRAMS {
        println!("{:<24} {}", program.key(), program.purpose);
    }
}

/// Installs a tier's missing tools, and turns FUSE over io_uring on. Well under a second when nothing is to
/// be done.
pub(crate) fn set_up(tier: Tier) -> Result<(), Failure> {
    need_root()?;
    install_packages("gate")?;
    if tier == Tier::Full {
        install_packages("full")?;
    }
    ring::turn_on()
}

pub(crate) fn set_up_all() -> Result<(), Failure> {
    set_up(Tier::Full)?;
    install_packages("guests")?;
    let mut installed = PROGRAMS.iter().map(Program::install);
    installed.try_for_each(|path| path.map(drop))
}

/// Fails unless we are root: the owner of our entry in /proc.
pub(crate) fn need_root() -> Result<(), Failure> {
    let own = Path::new("/proc/self");
    if fs::metadata(own).map_err(Failure::of(own))?.uid() == 0 {
        return Ok(());
    }
    let why = "it mounts, and installs what tests use";
    Err(Failure::new(format!("this needs root: {why}")))
}

/// Installs those packages of a tier that are missing.
pub(crate) fn install_packages(tier: &str) -> Result<(), Failure> {
    let mut missing = packages(tier);
    // Another package may provide one: nodejs of its makers has npm, and conflicts with Debian's.
    let query = ["-W", "-f", "${db:Status-Status} ${Package}, ${Provides}\n"];
    let queried = Step::new("dpkg-query").args(query).record();
    let (_, known) = queried.map_err(|failure| {
        let names = missing.join(" ");
        Failure::new(format!(
            "{failure}\nThis is not Debian: install by hand what these packages hold: {names}"
        ))
    })?;
    let installed = known
        .lines()
        .filter_map(|line| line.strip_prefix("installed "));
    // A provided one may have a version behind.
    let installed: HashSet<&str> = installed
        .flat_map(|line| line.split(", "))
        .filter_map(|name| name.split(' ').next())
        .collect();
    missing.retain(|name| !installed.contains(name));
    if missing.is_empty() {
        return Ok(());
    }
    let apt_get = |words: &[&str]| {
        let step = Step::new("apt-get").args(["-qq"]).args(words);
        step.env("DEBIAN_FRONTEND", "noninteractive")
    };
    apt_get(&["update"]).run()?;
    let install = apt_get(&["-y", "--no-install-recommends", "install"]);
    install.args(missing).run()
}

fn packages(tier: &str) -> Vec<&'static str> {
    let lines = PACKAGES.lines().filter_map(|line| line.strip_prefix(tier));
    lines
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

/// The path of a program from crates.io, installed; nothing where it is not one of these.
pub(crate) fn installed(name: &str) -> Result<Option<PathBuf>, Failure> {
    let known = PROGRAMS.iter().find(|program| program.name == name);
    known.map(Program::install).transpose()
}

/// The same for one that is one of these.
pub(crate) fn program(name: &str) -> Result<PathBuf, Failure> {
    let path = installed(name)?;
    path.ok_or_else(|| Failure::new(format!("tools.rs has no {name}")))
}

pub(crate) fn has(name: &str) -> bool {
    let known = PROGRAMS.iter().find(|program| program.name == name);
    known.is_some_and(|program| program.path().is_file())
}

/// The directories of all of them, as in `PATH`.
pub(crate) fn search_path() -> OsString {
    let directories = PROGRAMS.iter().map(|program| program.root().join("bin"));
    std::env::join_paths(directories).expect("cache directories have no colon")
}

impl Program {
    fn key(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }

    /// A directory of its own, so that clones with other versions do not interfere.
    fn root(&self) -> PathBuf {
        project::tools().join(self.key())
    }

    fn path(&self) -> PathBuf {
        self.root().join("bin").join(self.name)
    }

    /// Optimising costs minutes and saves seconds, so most are built without.
    fn install(&self) -> Result<PathBuf, Failure> {
        let path = self.path();
        if path.is_file() {
            return Ok(path);
        }
        Step::cargo()
            .args(["install", "--quiet", "--locked", self.name])
            .args(["--version", self.version])
            .args(["--root".as_ref(), self.root().as_path()])
            .args(self.arguments)
            // Not in our build directory, nor with the flags of a fuzz build.
            .without_env("CARGO_TARGET_DIR")
            .without_env("RUSTFLAGS")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .run()?;
        Ok(path)
    }
}
