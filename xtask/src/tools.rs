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

/// All tools: a line `TIER NAME # PURPOSE` for each package of Debian, `crate NAME VERSION ARGUMENT... # PURPOSE` for
/// each program of crates.io.
const TOOLS: &str = include_str!("../tools");

/// A pinned program from crates.io, installed by the chore that uses it.
struct Program {
    name: &'static str,
    version: &'static str,
    /// What shortens its build.
    arguments: Vec<&'static str>,
}

pub(crate) fn list() {
    print!("{TOOLS}");
}

/// The words of each line that begins with `kind`, without it.
fn lines(kind: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let words = |line: &'static str| {
        line.split('#')
            .next()
            .unwrap_or_default()
            .split_whitespace()
    };
    let lines = TOOLS
        .lines()
        .map(move |line| words(line).collect::<Vec<_>>());
    let lines = lines.filter(move |words| words.first() == Some(&kind));
    lines.map(|words| words[1..].to_vec())
}

fn programs() -> impl Iterator<Item = Program> {
    lines("crate").map(|words| Program {
        name: words[0],
        version: words[1],
        arguments: words[2..].to_vec(),
    })
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
    programs().try_for_each(|program| program.install().map(drop))
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
    let mut missing: Vec<&str> = lines(tier).flatten().collect();
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

/// The path of a program from crates.io, installed; nothing where it is not one of these.
pub(crate) fn installed(name: &str) -> Result<Option<PathBuf>, Failure> {
    let known = programs().find(|program| program.name == name);
    known.map(|program| program.install()).transpose()
}

/// The same for one that is one of these.
pub(crate) fn program(name: &str) -> Result<PathBuf, Failure> {
    let path = installed(name)?;
    path.ok_or_else(|| Failure::new(format!("xtask/tools has no {name}")))
}

pub(crate) fn has(name: &str) -> bool {
    programs().any(|program| program.name == name && program.path().is_file())
}

/// The directories of all of them, as in `PATH`.
pub(crate) fn search_path() -> OsString {
    let directories = programs().map(|program| program.root().join("bin"));
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

    fn install(&self) -> Result<PathBuf, Failure> {
        let path = self.path();
        if path.is_file() {
            return Ok(path);
        }
        Step::cargo()
            .args(["install", "--quiet", "--locked", self.name])
            .args(["--version", self.version])
            .args(["--root".as_ref(), self.root().as_path()])
            .args(&self.arguments)
            // Not in our build directory, nor with the flags of a fuzz build.
            .without_env("CARGO_TARGET_DIR")
            .without_env("RUSTFLAGS")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .run()?;
        Ok(path)
    }
}
