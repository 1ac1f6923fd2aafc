//! Which part of a benchmark is wanted: one suite takes place on this machine and in guests.

use crate::step::Failure;

/// The suite that has a part in guests.
const SUITE: &str = "published";
/// Leaves out the part in guests, or the other one.
const NO_GUEST: &str = "--no-guest";
const ONLY_GUEST: &str = "--only-guest";
/// Whoever chooses rows, or only asks, wants no guests.
const WITHOUT_GUESTS: [&str; 4] = ["--rows", "--list", "--help", "-h"];
/// Rounds in guests when nobody says how many.
const ROUNDS: &str = "5";

/// What was asked of `cargo xtask bench`.
#[derive(Debug)]
pub(super) struct Asked {
    /// What `thrufs bench` is told.
    of_host: Vec<String>,
    is_for_host: bool,
    rounds_in_guests: Option<String>,
}

impl Asked {
    pub(super) fn of(arguments: &[String]) -> Result<Asked, Failure> {
        let has = |name: &str| arguments.iter().any(|word| word == name);
        let value = |name: &str| {
            let at = arguments.iter().position(|word| word == name);
            let behind = at.and_then(|at| arguments.get(at + 1));
            let joined = arguments.iter();
            let mut joined = joined.filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            behind.map(String::as_str).or_else(|| joined.next())
        };
        let is_published = value("--suite") == Some(SUITE);
        let (no_guest, only_guest) = (has(NO_GUEST), has(ONLY_GUEST));
        if (no_guest || only_guest) && !is_published {
            return Err(Failure::new(format!(
                "{NO_GUEST} and {ONLY_GUEST} are about --suite {SUITE}"
            )));
        }
        let chosen = |name: &&str| has(name) || value(name).is_some();
        let without = WITHOUT_GUESTS.iter().any(chosen);
        if only_guest && (no_guest || without) {
            return Err(Failure::new(format!(
                "{ONLY_GUEST} goes with neither {NO_GUEST} nor rows: rows in guests are those of vm-bench"
            )));
        }
        let in_guests = is_published && !no_guest && !without;
        let of_host = arguments.iter();
        let of_host = of_host.filter(|word| ![NO_GUEST, ONLY_GUEST].contains(&word.as_str()));
        Ok(Asked {
            of_host: of_host.cloned().collect(),
            is_for_host: !only_guest,
            rounds_in_guests: in_guests.then(|| value("--rounds").unwrap_or(ROUNDS).to_owned()),
        })
    }

    /// Whether anything is measured on this machine.
    pub(super) fn is_for_host(&self) -> bool {
        self.is_for_host
    }

    pub(super) fn of_host(&self) -> &[String] {
        &self.of_host
    }

    /// How many rounds there are in guests; none where they are left out.
    pub(super) fn rounds_in_guests(&self) -> Option<&str> {
        self.rounds_in_guests.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::Asked;

    fn asked(text: &str) -> Result<Asked, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Asked::of(&words).map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_published_suite_has_guests_and_others_have_none() {
        for (text, host, rounds) in [
            ("--suite published", true, Some("5")),
            ("--suite=published --rounds=2", true, Some("2")),
            ("--rounds 3 --suite published", true, Some("3")),
            ("--suite published --no-guest", true, None),
            ("--suite published --only-guest", false, Some("5")),
            ("--suite published --rows read-4k", true, None),
            ("--suite published --rows=read-4k", true, None),
            ("--suite published --list", true, None),
            ("--suite builds", true, None),
            ("", true, None),
        ] {
            let asked = asked(text).expect("it makes sense");
            let found = (asked.is_for_host(), asked.rounds_in_guests());
            assert_eq!(found, (host, rounds), "{text}");
            let ours = asked.of_host().iter().any(|word| word.ends_with("-guest"));
            assert!(!ours, "{text}: thrufs does not know it");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "--only-guest",
            "--suite builds --no-guest",
            "--suite published --no-guest --only-guest",
            "--suite published --only-guest --rows read-4k",
        ] {
            assert!(asked(text).is_err(), "{text}");
        }
    }
}
