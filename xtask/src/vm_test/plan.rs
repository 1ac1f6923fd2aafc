//! The arguments of `cargo xtask vm-test`.

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::project;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// By default. The rest of `tests/real` looks into the server from outside, or takes long.
const ALL: [&str; 8] = [
    "posix", "property", "fio", "git", "sqlite", "archive", "fsx", "make",
];

/// Default options of a share under test: what scripts put into archives has ACLs.
const OPTIONS: &str = "acl";

const BUILT_IN: &[&str] = &["posix", "property"];

const PLACES: &[&str] = &["tests/guest", HOST, "tests/real"];

/// Scripts that run on the host, and command guests.
const HOST: &str = "tests/guest/host";

/// Scripts that are no tests.
const NOT_TESTS: &[&str] = &[
    "debian", "guest", "job", "machine", "mount", "remote", "uml",
];

/// Time limit of each, in seconds: several times the usual on a busy machine.
const SECONDS_EACH: u32 = 600;

/// Time for a guest's boot.
const SECONDS_BOOT: u32 = 120;

/// How many long trials the soak of following has in a guest, each of `THRUFS_SOAK_SECONDS`.
const SOAKS: u32 = 16;

/// How many times as long everything takes with an emulated processor.
const EMULATION: u32 = 4;

/// The environment of scripts on the host.
pub(super) type Variables = BTreeMap<String, String>;

#[derive(Debug)]
pub(super) struct Plan {
    /// What boots: `uml` is nearly as fast as the machine, `qemu` is emulated and has a PCI bus.
    pub(super) guest: String,
    pub(super) server: String,
    /// Options of the share under test, as after `-o`; a boot for each.
    pub(super) options: Vec<String>,
    pub(super) lower: String,
    what: Vec<String>,
}

/// A script on the host, and what is done in the guests that it boots.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) name: String,
    pub(super) script: PathBuf,
    what: Vec<String>,
}

impl Plan {
    /// Parses options and the names of what runs, by default `ALL`.
    pub(super) fn parse(mut arguments: Arguments) -> Result<Self, Failure> {
        let mut options = Vec::new();
        while let Some(list) = arguments.value("--options")? {
            // It becomes a word of shell scripts.
            if list.contains(['\'', ' ']) {
                return Err(Failure::new(format!("no list of options: {list}")));
            }
            options.push(list);
        }
        if options.is_empty() {
            options.push(OPTIONS.to_owned());
        }
        let mut plan = Self {
            guest: arguments.one_of("--guest", &["uml", "qemu"])?,
            server: arguments.one_of("--server", &["thrufs", "virtiofsd"])?,
            options,
            lower: arguments.one_of("--lower", &["tmpfs", "ext4"])?,
            what: arguments.words()?,
        };
        let unknown = |name: &&String| {
            let is_test = script(PLACES, name).is_some() && !NOT_TESTS.contains(&name.as_str());
            !is_test && !BUILT_IN.contains(&name.as_str())
        };
        if let Some(name) = plan.what.iter().find(unknown) {
            let places = PLACES.join(" or ");
            return Err(Failure::new(format!("{name} is no test of {places}")));
        }
        if plan.what.is_empty() {
            plan.what = ALL.map(str::to_owned).into();
        }
        Ok(plan)
    }

    /// What runs with each set of options: one guest for all that runs in a guest, and each script that
    /// commands guests.
    pub(super) fn runs(&self) -> Vec<Run> {
        let on_host = |name: &String| script(&[HOST], name).is_some();
        let (host, guest): (Vec<_>, Vec<_>) = self.what.iter().cloned().partition(on_host);
        let mut runs = Vec::new();
        if !guest.is_empty() {
            runs.push(Run {
                name: guest.join(" "),
                script: project::root().join("tests/guest/guest.sh"),
                what: guest,
            });
        }
        runs.extend(host.into_iter().map(|name| Run {
            script: project::root().join(HOST).join(format!("{name}.sh")),
            what: vec!["remote".to_owned()],
            name,
        }));
        runs
    }

    pub(super) fn name_of(&self, options: &str, run: &Run) -> String {
        let words = [&self.guest, &self.server, &self.lower, options].join(" ");
        format!("{} in a guest: {}", words.trim_end(), run.name)
    }

    /// Whether this is run.
    pub(super) fn has(&self, wanted: &str) -> bool {
        self.what.iter().any(|name| name == wanted)
    }

    pub(super) fn has_others_than(&self, one: &str) -> bool {
        self.what.iter().any(|name| name != one)
    }

    /// Time limit of each run in a guest, in seconds.
    fn seconds_each(&self) -> u32 {
        let soak = std::env::var("THRUFS_SOAK_SECONDS").ok();
        let soak = soak.and_then(|text| text.parse().ok()).unwrap_or(0u32);
        let seconds = SECONDS_EACH + SOAKS * soak;
        match self.guest.as_str() {
            "uml" => seconds,
            _ => seconds * EMULATION,
        }
    }

    /// Time limit of a guest, in seconds: somewhat more, so that the run that takes too long is named.
    pub(super) fn seconds_max(&self, run: &Run) -> u32 {
        self.seconds_each() * run.what.len() as u32 + SECONDS_BOOT
    }

    /// The programs that scripts need, by their line `need PROGRAM...`.
    pub(super) fn programs(&self) -> Result<Vec<String>, Failure> {
        let mut programs = Vec::new();
        for path in self.what.iter().filter_map(|name| script(PLACES, name)) {
            let text = fs::read_to_string(&path).map_err(Failure::of(&path))?;
            for line in text.lines().filter_map(|line| line.strip_prefix("need ")) {
                programs.extend(line.split_whitespace().map(str::to_owned));
            }
        }
        Ok(programs)
    }

    /// The environment of the job in the guest, as assignments of a shell.
    pub(super) fn environment(&self, options: &str, run: &Run) -> String {
        let what = run.what.join(" ");
        let (server, lower) = (&self.server, &self.lower);
        let limit = self.seconds_each();
        // Without a seed, the guest draws its own.
        let passed_on = ["THRUFS_SEED", "THRUFS_SOAK_SECONDS"].map(|name| {
            let value = std::env::var(name).map(|value| format!("{name}='{value}'\n"));
            value.unwrap_or_default()
        });
        let passed_on = passed_on.concat();
        format!(
            "WHAT='{what}'\nLOWER='{lower}'\nOPTIONS='{options}'\nSERVER='{server}'\nLIMIT={limit}\n{passed_on}"
        )
    }
}

fn script(places: &[&str], name: &str) -> Option<PathBuf> {
    let path = |place| project::root().join(place).join(format!("{name}.sh"));
    places.iter().map(path).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::{ALL, Plan};
    use crate::arguments::Arguments;
    use crate::failure::Failure;

    fn parse(text: &str) -> Result<Plan, Failure> {
        let words = text.split_whitespace().map(str::to_owned);
        Plan::parse(Arguments(words.collect()))
    }

    #[test]
    fn options_are_taken_and_scripts_must_exist() {
        for wrong in ["nothing", "job", "--guest", "--guest kvm", "--options a'b"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        let plan = parse("--guest qemu --options= --options cache=never").expect("a plan");
        assert_eq!((plan.guest.as_str(), plan.what.len()), ("qemu", ALL.len()));
        assert_eq!(plan.options, ["", "cache=never"]);
    }

    #[test]
    fn a_script_of_the_host_has_guests_of_its_own() {
        let plan = parse("posix locks git").expect("a plan");
        let runs = plan.runs();
        let names: Vec<_> = runs.iter().map(|run| run.name.as_str()).collect();
        assert_eq!(names, ["posix git", "locks"]);
        assert!(runs[0].script.is_file() && runs[1].script.is_file());
        // The run in a guest is ended before the guest.
        assert!(plan.seconds_max(&runs[0]) > 2 * plan.seconds_each());
        assert_eq!(plan.programs().expect("programs"), ["git"]);
    }
}
