//! What is asked of `cargo xtask vm-test`.

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
const PLACES: &[&str] = &["tests/guest", "tests/real"];

/// Scripts that are no tests.
const NOT_TESTS: &[&str] = &["guest", "job", "mount", "uml"];

/// Where the POSIX cases are named that virtiofsd does not pass, beneath the top of the repository.
const VIRTIOFSD_DIFFERS: &str = "tests/guest/virtiofsd.differs";

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

    /// For a report.
    pub(super) fn name_of(&self, options: &str) -> String {
        let (guest, server) = (self.guest.name(), self.server.name());
        let words = [guest, server, &self.lower, options].join(" ");
        format!("{} in a guest: {}", words.trim_end(), self.what.join(" "))
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
    pub(super) fn environment(&self, options: &str) -> Result<String, Failure> {
        let skip = match self.server {
            Server::Thrufs => String::new(),
            Server::Virtiofsd => {
                let path = project::root().join(VIRTIOFSD_DIFFERS);
                let text = fs::read_to_string(&path)
                    .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
                differing(&text).join(" ")
            }
        };
        let what = self.what.join(" ");
        let lower = &self.lower;
        Ok(format!(
            "WHAT='{what}'\nLOWER='{lower}'\nOPTIONS='{options}'\nSKIP='{skip}'\n"
        ))
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
    let places = PLACES.iter().map(|place| project::root().join(place));
    places
        .map(|place| place.join(format!("{name}.sh")))
        .find(|path| path.is_file())
}

/// The programs of the line `need PROGRAM...`.
fn needs(script: &str) -> impl Iterator<Item = String> {
    let line = script.lines().find_map(|line| line.strip_prefix("need "));
    let words = line.unwrap_or_default().split_whitespace();
    words.map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// The first words of lines that are not comments: the names of cases.
fn differing(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Guest, Plan, Server, differing, needs};

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
        assert!(
            plan.name_of("cache=never")
                .starts_with("qemu virtiofsd tmpfs cache=never in")
        );
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
        let environment = plan.environment("cache=never").expect("an environment");
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
    }

    #[test]
    fn cases_that_differ_are_the_first_words_of_lines() {
        let text = "# why\ncopy::a  the reason\n\nmap::b\n";
        assert_eq!(differing(text), ["copy::a", "map::b"]);
    }
}
