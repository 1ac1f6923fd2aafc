//! Which targets there are: how each is called, and with which options it is started.

use crate::outcome::Outcome;
use crate::results::Target;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One that is to take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Setup {
    /// The file system beneath by itself.
    Native,
    /// `thrufs mount` in this mode of [`MODES`], with this value of `cache=`, or with the default.
    Thrufs { mode: usize, cache: Option<String> },
    /// Whatever is mounted there.
    Against { name: String, point: PathBuf },
}

/// Names and options, in the order in which they are shown.
const MODES: [(&str, &str); 5] = [
    ("dev", "transport=dev,nopassthrough"),
    ("ring", "transport=uring,nopassthrough"),
    ("opens", "opens=local"),
    ("dev+pt", "transport=dev"),
    ("ring+pt", "transport=uring"),
];

impl Setup {
    /// Ours, in the modes of these names (all for none), with each of these values of `cache=`.
    pub(crate) fn thrufs(modes: &[String], caches: &[String]) -> Vec<Setup> {
        let mut caches: Vec<Option<String>> = caches.iter().cloned().map(Some).collect();
        if caches.is_empty() {
            caches.push(None);
        }
        let is_wanted = |name: &str| modes.is_empty() || modes.iter().any(|one| one == name);
        let modes = (0..MODES.len()).filter(|&mode| is_wanted(MODES[mode].0));
        let setups = modes.flat_map(|mode| {
            let caches = caches.iter().cloned();
            caches.map(move |cache| Setup::Thrufs { mode, cache })
        });
        setups.collect()
    }

    /// The word by which it is known.
    pub(crate) fn name(&self) -> String {
        match self {
            Setup::Native => "native".to_owned(),
            Setup::Against { name, .. } => name.clone(),
            Setup::Thrufs { mode, cache: None } => MODES[*mode].0.to_owned(),
            Setup::Thrufs {
                mode,
                cache: Some(cache),
            } => format!("{}:{cache}", MODES[*mode].0),
        }
    }

    /// The options of `thrufs mount`. A control socket would outlive a server that is killed.
    pub(super) fn options(&self) -> String {
        match self {
            Setup::Thrufs { mode, cache } => {
                let cache = cache.as_ref().map(|cache| format!(",cache={cache}"));
                format!(
                    "{}{},control=none",
                    MODES[*mode].1,
                    cache.unwrap_or_default()
                )
            }
            _ => String::new(),
        }
    }

    /// The name of the mode: whether it is over the `ring`, and with passthrough (`+pt`).
    pub(super) fn mode(&self) -> &'static str {
        match self {
            Setup::Thrufs { mode, .. } => MODES[*mode].0,
            _ => "",
        }
    }

    /// What a report says of it.
    pub(crate) fn described(&self) -> Target {
        let options = match self {
            Setup::Native => "the directory itself".to_owned(),
            Setup::Against { point, .. } => format!("mounted at {}", point.display()),
            Setup::Thrufs { .. } => format!("thrufs mount -o {}", self.options()),
        };
        let (name, absent) = (self.name(), None);
        Target {
            name,
            options,
            absent,
        }
    }
}

/// The command that is measured: `thrufs`, beside this program.
pub(crate) fn thrufs() -> Outcome<PathBuf> {
    let own = std::env::current_exe();
    let own = own.map_err(|error| format!("cannot find thrufs: {error}"))?;
    let thrufs = own.with_file_name("thrufs");
    let shown = thrufs.display();
    match thrufs.is_file() {
        true => Ok(thrufs),
        false => Err(format!(
            "{shown} is not there: the benchmark measures the thrufs beside it"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::Setup;

    #[test]
    fn a_mode_says_what_it_asks_for() {
        let said = |mode: &str, caches: &[&str]| -> Vec<String> {
            let caches: Vec<String> = caches.iter().map(ToString::to_string).collect();
            let setups = Setup::thrufs(&[mode.to_owned()], &caches).into_iter();
            setups
                .map(|one| format!("{}: {}", one.name(), one.options()))
                .collect()
        };
        assert_eq!(
            said("dev", &[]),
            ["dev: transport=dev,nopassthrough,control=none"]
        );
        let ring = "ring+pt:never: transport=uring,cache=never,control=none";
        assert_eq!(said("ring+pt", &["never"]), [ring]);
        assert_eq!(Setup::thrufs(&[], &[]).len(), 5);
        assert!(said("none", &[]).is_empty());
    }
}
