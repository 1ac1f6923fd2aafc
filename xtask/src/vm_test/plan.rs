//! What is asked of `cargo xtask vm-test`.

use super::{differs, emulator};
use crate::project;
use crate::step::Failure;
use std::fs;
use std::path::PathBuf;

/// What runs in a guest when nothing is named. What else is in `tests/real` looks into the server
/// from outside, or takes long.
const ALL: &[&str] = &[
    "posix", "property", "fio", "git", "sqlite", "archive", "fsx", "make",
];

/// What a share under test is given when nothing is said: what scripts put into archives has ACLs.
const OPTIONS: &str = "acl";

/// What is no script.
const BUILT_IN: &[&str] = &["posix", "property"];

/// Where scripts are, beneath the top of the repository.
const PLACES: &[&str] = &["tests/guest", HOST, "tests/real"];

/// Where those are that run on the host, and say to guests what to do.
const HOST: &str = "tests/guest/host";

/// What does in a guest what the host says.
const REMOTE: &str = "remote";

/// What compares kernels, in [`HOST`].
const OPEN1: &str = "open1";

/// What boots a guest for all others, beneath the top of the repository.
const GUEST: &str = "tests/guest/guest.sh";

/// Scripts that are no tests.
const NOT_TESTS: &[&str] = &["guest", "job", "machine", "mount", "remote", "uml"];

/// How long each of what runs may take, in seconds: several times what it takes on a machine that has
/// other things to do.
const SECONDS_EACH: u32 = 600;

/// How long a guest needs besides.
const SECONDS_BOOT: u32 = 120;

/// How many times as long everything takes where the processor is emulated.
const EMULATION: u32 = 4;

/// What boots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guest {
    /// User-Mode Linux: nearly as fast as the machine.
    Uml,
    /// A machine with a PCI bus, emulated.
    Qemu,
}

impl Guest {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Uml => "uml",
            Self::Qemu => "qemu",
        }
    }
}

/// What serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    Thrufs,
    Virtiofsd,
}

impl Server {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Thrufs => "thrufs",
            Self::Virtiofsd => "virtiofsd",
        }
    }
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) guest: Guest,
    pub(super) server: Server,
    /// Options of the share under test, as after `-o`; a boot for each.
    pub(super) options: Vec<String>,
    /// The file system that is served.
    pub(super) lower: String,
    /// Whether to look for newer kernels.
    pub(super) fetch: bool,
    what: Vec<String>,
}

/// A script to be run on the host, and what is done in the guests that it boots.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) name: String,
    pub(super) script: PathBuf,
    pub(super) what: Vec<String>,
}

impl Plan {
    pub(super) fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut plan = Self {
            guest: Guest::Uml,
            server: Server::Thrufs,
            options: Vec::new(),
            lower: "tmpfs".to_owned(),
            fetch: false,
            what: Vec::new(),
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            if word == "--fetch" {
                plan.fetch = true;
            } else if word.starts_with("--") {
                let value = words
                    .next()
                    .ok_or_else(|| Failure::new(format!("{word} without a value")))?;
                plan.set(word, value)?;
            } else {
                plan.what.push(known(word)?);
            }
        }
        if plan.options.is_empty() {
            plan.options.push(OPTIONS.to_owned());
        }
        if plan.what.is_empty() {
            plan.what = ALL.iter().map(|name| (*name).to_owned()).collect();
        }
        Ok(plan)
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), Failure> {
        match (option, value) {
            ("--guest", "uml") => self.guest = Guest::Uml,
            ("--guest", "qemu") => self.guest = Guest::Qemu,
            ("--server", "thrufs") => self.server = Server::Thrufs,
            ("--server", "virtiofsd") => self.server = Server::Virtiofsd,
            ("--lower", "tmpfs" | "ext4") => self.lower = value.to_owned(),
            // It becomes a word of shell scripts.
            ("--options", _) if !value.contains(['\'', ' ']) => self.options.push(value.to_owned()),
            _ => return Err(Failure::new(format!("vm-test knows no {option} {value}"))),
        }
        Ok(())
    }

    /// What is run with each set of options: one guest for all that runs in a guest, and each script that
    /// says to guests what to do.
    pub(super) fn runs(&self) -> Vec<Run> {
        let on_host = |name: &String| script_in(HOST, name).is_some();
        let (host, guest): (Vec<_>, Vec<_>) = self.what.iter().cloned().partition(on_host);
        let mut runs = Vec::new();
        if !guest.is_empty() {
            runs.push(Run {
                name: guest.join(" "),
                script: project::root().join(GUEST),
                what: guest,
            });
        }
        runs.extend(host.into_iter().filter_map(|name| {
            Some(Run {
                script: script_in(HOST, &name)?,
                what: vec![REMOTE.to_owned()],
                name,
            })
        }));
        runs
    }

    /// For a report.
    pub(super) fn name_of(&self, options: &str, run: &Run) -> String {
        let (guest, server) = (self.guest.name(), self.server.name());
        let words = [guest, server, &self.lower, options].join(" ");
        format!("{} in a guest: {}", words.trim_end(), run.name)
    }

    /// How long each of what runs in a guest may take, in seconds.
    fn seconds_each(&self) -> u32 {
        match self.guest {
            Guest::Uml => SECONDS_EACH,
            Guest::Qemu => SECONDS_EACH * EMULATION,
        }
    }

    /// How long a guest may take in all, in seconds: somewhat more, so that what is too long is named.
    pub(super) fn seconds_max(&self, run: &Run) -> u32 {
        let count = u32::try_from(run.what.len()).unwrap_or(u32::MAX);
        self.seconds_each().saturating_mul(count) + SECONDS_BOOT
    }

    /// The programs that the scripts say they need.
    pub(super) fn programs(&self) -> Result<Vec<String>, Failure> {
        let mut programs = Vec::new();
        for path in self.what.iter().filter_map(|name| script(name)) {
            let text = fs::read_to_string(&path)
                .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
            programs.extend(needs(&text));
        }
        Ok(programs)
    }

    /// What the job in the guest is told, as assignments of a shell.
    pub(super) fn environment(&self, options: &str, run: &Run) -> Result<String, Failure> {
        let differs = differs::known(self.server, options, &self.lower)?.join(" ");
        let what = run.what.join(" ");
        let lower = &self.lower;
        let limit = self.seconds_each();
        // Without one, the guest draws its own.
        let seed = std::env::var("THRUFS_SEED").map(|seed| format!("THRUFS_SEED='{seed}'\n"));
        let seed = seed.unwrap_or_default();
        Ok(format!(
            "WHAT='{what}'\nLOWER='{lower}'\nOPTIONS='{options}'\nDIFFERS='{differs}'\n\
             LIMIT={limit}\n{seed}"
        ))
    }
}

impl Run {
    /// Whether it boots guests with two kernels.
    pub(super) fn compares_kernels(&self) -> bool {
        self.name == OPEN1
    }

    /// The version of QEMU that the script needs, by its line `need_qemu VERSION`.
    pub(super) fn emulator(&self) -> Result<Option<emulator::Version>, Failure> {
        let path = &self.script;
        let text = fs::read_to_string(path)
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        Ok(emulator_needed(&text))
    }
}

/// A name that is built in or is that of a script.
fn known(name: &str) -> Result<String, Failure> {
    if BUILT_IN.contains(&name) || (!NOT_TESTS.contains(&name) && script(name).is_some()) {
        return Ok(name.to_owned());
    }
    let places = PLACES.join(" and ");
    Err(Failure::new(format!(
        "{name} is neither {} nor a script of {places}",
        BUILT_IN.join(" nor ")
    )))
}

fn script(name: &str) -> Option<PathBuf> {
    PLACES.iter().find_map(|place| script_in(place, name))
}

fn script_in(place: &str, name: &str) -> Option<PathBuf> {
    let path = project::root().join(place).join(format!("{name}.sh"));
    path.is_file().then_some(path)
}

/// The programs of the line `need PROGRAM...`.
fn needs(script: &str) -> impl Iterator<Item = String> {
    let line = script.lines().find_map(|line| line.strip_prefix("need "));
    let words = line.unwrap_or_default().split_whitespace();
    words.map(str::to_owned).collect::<Vec<_>>().into_iter()
}

fn emulator_needed(script: &str) -> Option<emulator::Version> {
    let line = script
        .lines()
        .find_map(|line| line.strip_prefix("need_qemu "));
    line.and_then(emulator::parse)
}

#[cfg(test)]
mod tests {
    use super::{Guest, Plan, Server, emulator_needed, needs};

    fn parse(words: &[&str]) -> Result<Plan, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Plan::parse(&words).map_err(|failure| failure.to_string())
    }

    #[test]
    fn options_are_taken_and_scripts_must_exist() {
        let plan =
            parse(&["--guest", "qemu", "--server", "virtiofsd", "posix", "git"]).expect("a plan");
        assert_eq!((plan.guest, plan.server), (Guest::Qemu, Server::Virtiofsd));
        assert_eq!(plan.what, ["posix", "git"]);
        assert_eq!(plan.options, ["acl"]);
        let name = plan.name_of("cache=never", &plan.runs()[0]);
        assert!(name.starts_with("qemu virtiofsd tmpfs cache=never in"));
        for wrong in [
            &["nothing"][..],
            &["job"],
            &["--guest"],
            &["--guest", "kvm"],
            &["--options", "a b"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        let plan = parse(&["--options", "", "--options", "cache=never"]).expect("a plan");
        assert_eq!(plan.options, ["", "cache=never"]);
        assert!(plan.what.len() > 2);
        let environment = plan
            .environment("cache=never", &plan.runs()[0])
            .expect("an environment");
        assert!(
            environment.contains("\nOPTIONS='cache=never'\n"),
            "{environment}"
        );
    }

    #[test]
    fn what_a_script_needs_is_in_its_own_words() {
        let found: Vec<_> = needs("#!/bin/bash\nneedless x\nneed tar rsync\ntar x\n").collect();
        assert_eq!(found, ["tar", "rsync"]);
        assert_eq!(needs("true\n").count(), 0);
        let script = "need fio\nneed_qemu 8.2\n";
        assert_eq!(emulator_needed(script), Some((8, 2)));
        assert_eq!(needs(script).count(), 1);
        assert_eq!(emulator_needed("need fio\n"), None);
    }

    #[test]
    fn a_script_of_the_host_has_guests_of_its_own() {
        let plan = parse(&["posix", "locks", "git"]).expect("a plan");
        let runs = plan.runs();
        let names: Vec<_> = runs.iter().map(|run| run.name.as_str()).collect();
        assert_eq!(names, ["posix git", "locks"]);
        assert_eq!(runs[1].what, ["remote"]);
        assert!(runs[0].script.ends_with("tests/guest/guest.sh"));
        assert!(runs[1].script.ends_with("tests/guest/host/locks.sh"));
        // A guest that takes too long is ended after whatever takes too long in it.
        assert!(plan.seconds_max(&runs[0]) > 2 * plan.seconds_each());
    }
}
