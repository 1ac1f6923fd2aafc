//! Turns an earlier `results.json` into the plan of the same run: suite, rows, targets, amount of work.

use crate::Outcome;
use crate::request::Request;
use crate::results::Results;
use std::path::Path;

impl Request {
    /// This request, of the run that has found `then`, with the rows that were measured, and with the directory and
    /// the report of `asked`.
    #[must_use]
    pub fn again(self, then: &Results, asked: &Request) -> Request {
        let mut again = self;
        let rows: Vec<&str> = then.rows.iter().map(|row| row.name.as_str()).collect();
        if !rows.is_empty() {
            // What was left out for want of time is not to take the time of others.
            again.rows = Some(rows.join(","));
        }
        if asked.directory_given {
            again.directory.clone_from(&asked.directory);
            again.directory_given = true;
            again.lowers.clear();
        }
        again.out.clone_from(&asked.out);
        again.repeats.clone_from(&asked.repeats);
        // By itself: the file need not be there any more when this run is repeated.
        again.command = again.words();
        again
    }

    /// The command line that asks for it, but for where the report goes.
    fn words(&self) -> Vec<String> {
        let mut words = vec!["thrufs".to_owned(), "bench".to_owned()];
        let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        option("suite", self.suite.clone());
        for (name, point) in &self.against {
            option("against", format!("{name}={}", point.display()));
        }
        let lists = [
            ("modes", &self.modes),
            ("cache", &self.cache),
            ("lower", &self.lowers),
        ];
        for (name, values) in lists {
            if !values.is_empty() {
                option(name, values.join(","));
            }
        }
        if let Some(rows) = &self.rows {
            option("rows", rows.clone());
        }
        if !self.jobs.is_empty() {
            let jobs: Vec<String> = self.jobs.iter().map(u32::to_string).collect();
            option("jobs", jobs.join(","));
        }
        let numbers = [
            ("rounds", self.rounds),
            ("time", self.seconds),
            ("percent", self.percent),
        ];
        for (name, value) in numbers {
            if let Some(value) = value {
                option(name, value.to_string());
            }
        }
        if self.directory_given {
            words.push(self.directory.display().to_string());
        }
        words
    }
}

/// What a run that is to be repeated has found.
///
/// # Errors
///
/// A file that is none of results.
pub(crate) fn read(file: &Path) -> Outcome<Results> {
    Results::read(file).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use crate::report::sample::usual;
    use crate::request::Request;

    #[test]
    fn a_run_is_repeated_with_the_rows_that_it_had_where_it_was() {
        let before = Request {
            suite: "full".to_owned(),
            lowers: vec!["tmpfs".to_owned()],
            out: Some("/then".into()),
            rounds: Some(7),
            ..Request::default()
        };
        let asked = Request {
            repeats: Some("results.json".into()),
            ..Request::default()
        };
        let then = usual();
        let again = before.clone().again(&then, &asked);
        let rows: Vec<&str> = then.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(again.rows, Some(rows.join(",")));
        assert_eq!((again.out, again.rounds), (None, Some(7)));
        assert_eq!(again.lowers, ["tmpfs"]);
        assert_eq!(again.repeats, asked.repeats);
        assert!(!again.command.contains(&"--repeat".to_owned()));
        let elsewhere = Request {
            directory: "/elsewhere".into(),
            directory_given: true,
            ..asked
        };
        let again = before.again(&then, &elsewhere);
        assert!(again.lowers.is_empty());
        assert_eq!(again.command.last().map(String::as_str), Some("/elsewhere"));
    }
}
