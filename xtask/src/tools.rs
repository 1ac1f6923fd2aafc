//! Everything that the tests use and cargo does not build: one table for Debian, one for crates.io.

use crate::project;
use crate::ring;
use crate::step::{Failure, Step};
use crate::vm_test;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// For which tests something is installed: `Full` for every chore that is not the gate's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    Gate,
    Full,
}

/// A Debian package, and what is done with it.
pub(crate) struct Package {
    name: &'static str,
    purpose: &'static str,
}

pub(crate) const fn package(name: &'static str, purpose: &'static str) -> Package {
    Package { name, purpose }
}

const GATE: &[Package] = &[
    package("btrfs-progs", "mkfs.btrfs: a lower file system"),
    package(
        "e2fsprogs",
        "mkfs.ext4, chattr: lower file systems on loop images",
    ),
    package("fio", "reads and writes with verification"),
    package("fuse3", "fusermount3: mounting without root"),
    package(
        "gcc",
        "a C project built on the mount; struct sizes of the kernel's header",
    ),
    package("git", "clone, checkout, gc, fsck on the mount"),
    package("libc6-dev", "the same C project"),
    package("linux-libc-dev", "the kernel's header of the wire format"),
    package("make", "the C project again"),
    package("mount", "mount, umount, losetup"),
    package("procps", "counting processes and memory"),
    package("sqlite3", "two writers in WAL mode"),
    package("util-linux", "unshare, prlimit, flock, taskset"),
    package("xfsprogs", "mkfs.xfs: a lower file system"),
];

const FULL: &[Package] = &[
    package("acl", "setfacl, getfacl: the tar and rsync round trips"),
    package("attr", "setfattr, getfattr: the same"),
    package("dbench", "a file server's load"),
    package("fish", "the syntax of its completions"),
    package("fsmark", "fs_mark: many small files, synced"),
    package("g++", "libFuzzer, built by the fuzz targets"),
    package("libacl1-dev", "pjdfstest links with it"),
    package("libcap-ng-dev", "virtiofsd links with it"),
    package("libcap2-bin", "setcap: clearing security.capability"),
    package("libseccomp-dev", "virtiofsd links with it"),
    package("mandoc", "the syntax of the manual pages"),
    package("postmark", "a mail server's load"),
    package("rsync", "both ways across the mount"),
    package("strace", "system calls per request"),
    package("stress-ng", "its file system class"),
    package("tar", "round trips with everything a file can have"),
    package("zsh", "the syntax of its completions"),
];

/// A program from crates.io, pinned.
struct Program {
    krate: &'static str,
    version: &'static str,
    arguments: &'static [&'static str],
    /// Whether it is measured: then it is built as its users have it.
    released: bool,
    purpose: &'static str,
}

const PROGRAMS: &[Program] = &[
    Program {
        krate: "cargo-deny",
        version: "0.20.2",
        // Without its own TLS and git stacks it builds in a fraction of the time; the advisory
        // database is then fetched with the git program.
        arguments: &["--no-default-features"],
        released: false,
        purpose: "licences, sources, bans, advisories",
    },
    Program {
        krate: "fsx",
        version: "0.3.2",
        arguments: &["--config", "profile.dev.opt-level=2"],
        released: false,
        purpose: "random file operations, every read verified",
    },
    Program {
        krate: "pjdfstest",
        version: "0.2.2",
        arguments: &[],
        released: false,
        purpose: "POSIX, call by call",
    },
    Program {
        krate: "virtiofsd",
        version: "1.14.0",
        arguments: &[],
        released: true,
        purpose: "the peer: another server of virtio-fs",
    },
];

/// Installed by the chore that uses it: most people never do.
const MUTANTS: Program = Program {
    krate: "cargo-mutants",
    version: "27.1.0",
    arguments: &[],
    released: false,
    purpose: "changes of the code that some test has to see",
};

/// Prints the tables.
pub(crate) fn list() {
    let tables = [
        ("gate", GATE),
        ("full", FULL),
        ("guests", vm_test::PACKAGES),
    ];
    for (table, packages) in tables {
        for package in packages {
            println!(
                "debian     {table:<7} {:<24} {}",
                package.name, package.purpose
            );
        }
    }
    for program in PROGRAMS.iter().chain([&MUTANTS]) {
        println!("crates.io  {:<32} {}", program.key(), program.purpose);
    }
}

/// Installs whatever of a tier is missing, and turns FUSE over io_uring on in the kernel. Costs
/// well under a second when nothing is to be done.
pub(crate) fn set_up(tier: Tier) -> Result<(), Failure> {
    install_packages(GATE)?;
    if tier == Tier::Full {
        install_packages(FULL)?;
        for program in PROGRAMS {
            install(program)?;
        }
    }
    ring::turn_on()
}

/// Installs what `xtask mutants` uses besides.
pub(crate) fn install_mutants() -> Result<(), Failure> {
    install(&MUTANTS)
}

/// Installs those that are missing.
pub(crate) fn install_packages(packages: &[Package]) -> Result<(), Failure> {
    let missing = missing_packages(packages)?;
    if !missing.is_empty() {
        println!("xtask: installing from Debian: {}", missing.join(" "));
        if !is_root()? {
            return Err(Failure::new(format!(
                "root is needed to install: apt-get install --no-install-recommends {}",
                missing.join(" ")
            )));
        }
        let quiet = |step: Step| step.env("DEBIAN_FRONTEND", "noninteractive");
        quiet(Step::new("apt-get")).args(["-qq", "update"]).run()?;
        quiet(Step::new("apt-get"))
            .args(["-qq", "-y", "--no-install-recommends", "install"])
            .args(&missing)
            .run()?;
    }
    Ok(())
}

/// The path of a program that [`set_up`] installs from crates.io.
pub(crate) fn program(name: &str) -> PathBuf {
    let mut known = PROGRAMS.iter().chain([&MUTANTS]);
    let program = known.find(|program| program.krate == name);
    program.expect("it is in the table").path()
}

/// Whether one of them is there.
pub(crate) fn has(name: &str) -> bool {
    program(name).is_file()
}

/// The directories of all of them, as in `PATH`.
pub(crate) fn search_path() -> OsString {
    let directories = PROGRAMS.iter().map(|program| program.root().join("bin"));
    std::env::join_paths(directories).expect("cache directories have no colon")
}

/// Whether we are root, by who owns our own entry in /proc.
pub(crate) fn is_root() -> Result<bool, Failure> {
    let own = std::fs::metadata("/proc/self")
        .map_err(|error| Failure::new(format!("cannot look at /proc/self: {error}")))?;
    Ok(own.uid() == 0)
}

fn missing_packages(packages: &[Package]) -> Result<Vec<&'static str>, Failure> {
    let (_, installed, _) = Step::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status} ${Package}\n"])
        .args(packages.iter().map(|package| package.name))
        .capture()
        .map_err(|failure| {
            let names: Vec<_> = packages.iter().map(|package| package.name).collect();
            Failure::new(format!(
                "{failure}\nThis is not Debian: install what these packages hold by hand: {}",
                names.join(" ")
            ))
        })?;
    let has = |name: &str| {
        installed
            .lines()
            .any(|line| line == format!("installed {name}"))
    };
    Ok(packages
        .iter()
        .map(|package| package.name)
        .filter(|name| !has(name))
        .collect())
}

impl Program {
    fn key(&self) -> String {
        format!("{}-{}", self.krate, self.version)
    }

    /// Where it alone is installed, so that clones with other versions do not get in its way.
    fn root(&self) -> PathBuf {
        project::tools().join(self.key())
    }

    fn path(&self) -> PathBuf {
        self.root().join("bin").join(self.krate)
    }
}

fn install(wanted: &Program) -> Result<(), Failure> {
    if wanted.path().is_file() {
        return Ok(());
    }
    // Optimising costs minutes and saves seconds, except for fsx, which compares bytes.
    let profile: &[&str] = if wanted.released { &[] } else { &["--debug"] };
    Step::cargo()
        .args(["install", "--quiet", "--locked", "--version", wanted.version, "--root"])
        .args([wanted.root()])
        .args(profile)
        .args(wanted.arguments)
        .args([wanted.krate])
        // A tool's build must not land among our own, nor inherit the flags of a fuzz build.
        .without_env("CARGO_TARGET_DIR")
        .without_env("RUSTFLAGS")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .run()
}
