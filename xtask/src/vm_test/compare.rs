//! What `cargo xtask vm-bench` is asked, and what it makes of what was measured: a table of medians and
//! ratios, and a file to keep. What is measured is in `tests/guest/host/compare.sh` and `open1.sh`.

use super::Variables;
use super::plan::Plan;
use crate::arguments::Arguments;
use crate::project;
use crate::step::{Failure, Step};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

/// Who everybody is compared with.
const OURS: &str = "thrufs";

/// What is asked of a comparison.
#[derive(Debug)]
pub(super) struct Comparison {
    rounds: String,
    seconds: String,
    cache: String,
    /// More options of ours.
    with: String,
    rows: String,
    is_saved: bool,
    /// Where what was measured is kept instead of among the results.
    saved_as: Option<PathBuf>,
    /// Whether files are opened and closed, by two kernels.
    pub(super) is_open1: bool,
}

impl Comparison {
    pub(super) fn parse(arguments: &[String]) -> Result<(Self, Plan), Failure> {
        let mut arguments = Arguments::new(arguments);
        let mut value = |name, default: &str| {
            let value = arguments.value(name)?;
            Ok(value.unwrap_or_else(|| default.to_owned()))
        };
        let mut comparison = Self {
            rounds: value("--rounds", "5")?,
            seconds: value("--seconds", "2")?,
            cache: value("--cache", "never")?,
            with: value("--with", "")?,
            rows: value("--rows", "")?,
            is_saved: false,
            saved_as: arguments.value("--save-as")?.map(PathBuf::from),
            is_open1: arguments.flag("--open1"),
        };
        comparison.is_saved = arguments.flag("--save") || comparison.saved_as.is_some();
        let script = if comparison.is_open1 {
            "open1"
        } else {
            "compare"
        };
        let mut plan = Plan::parse(arguments, &[script])?;
        if comparison.is_open1 {
            comparison.cache = "auto".to_owned();
            plan.guest = "qemu".to_owned();
        }
        Ok((comparison, plan))
    }

    /// What the script is told.
    pub(super) fn variables(&self) -> Variables {
        let variables = [
            ("ROUNDS", &self.rounds),
            ("SECONDS_EACH", &self.seconds),
            ("CACHE", &self.cache),
            ("WITH", &self.with),
            ("ROWS", &self.rows),
        ];
        variables
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .to_vec()
    }

    /// Prints the table of `text`, and keeps what was measured if that was asked for.
    pub(super) fn report(&self, text: &str, plan: &Plan) -> Result<(), Failure> {
        let measured = parse(text)?;
        println!("\n{}", table(&measured));
        if !self.is_saved {
            return Ok(());
        }
        let commit = Step::new("git").args(["rev-parse", "HEAD"]).text()?;
        let host = Step::new("uname").args(["-r"]).text()?;
        let date = Step::new("date").args(["-u", "+%Y-%m-%dT%H%M%S"]).text()?;
        let (guest, lower) = (&plan.guest, &plan.lower);
        let what = if self.is_open1 { "open1" } else { "guest" };
        let among = format!("bench/results/{date}-{what}-{guest}-{lower}.json");
        let about = [
            ("commit", &commit),
            ("host_kernel", &host),
            ("date", &date),
            ("guest", guest),
            ("lower", lower),
            ("cache", &self.cache),
            ("with", &self.with),
            ("seconds", &self.seconds),
        ];
        let path = project::root().join(self.saved_as.clone().unwrap_or_else(|| among.into()));
        fs::write(&path, json(&about, &measured)).map_err(Failure::of(&path))?;
        println!("xtask: kept in {}", path.display());
        Ok(())
    }
}

/// A row of what was measured: each contestant with the values of its rounds.
struct Row {
    name: String,
    unit: String,
    contestants: Vec<(String, Vec<f64>)>,
}

/// Understands lines `ROW CONTESTANT UNIT VALUE`.
fn parse(text: &str) -> Result<Vec<Row>, Failure> {
    let mut rows: Vec<Row> = Vec::new();
    for line in text.lines() {
        let wrong = || Failure::new(format!("this was not measured: {line}"));
        let words: Vec<_> = line.split(' ').collect();
        let &[name, contestant, unit, value] = words.as_slice() else {
            return Err(wrong());
        };
        let value = value.parse().map_err(|_| wrong())?;
        if rows.last().is_none_or(|row| row.name != name) {
            rows.push(Row {
                name: name.to_owned(),
                unit: unit.to_owned(),
                contestants: Vec::new(),
            });
        }
        let contestants = &mut rows.last_mut().ok_or_else(wrong)?.contestants;
        match contestants.iter_mut().find(|known| known.0 == contestant) {
            Some((_, values)) => values.push(value),
            None => contestants.push((contestant.to_owned(), vec![value])),
        }
    }
    Ok(rows)
}

/// The middle of the values, or what lies between the two in the middle.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

/// A line for each row: medians, and in brackets how many times that of another ours is, as the median of
/// the rounds, in which the two followed each other.
fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let ours = row.contestants.iter().find(|known| known.0 == OURS);
        let _ = write!(text, "{:<24}", format!("{} ({})", row.name, row.unit));
        for (name, values) in &row.contestants {
            let _ = write!(text, "  {name} {:.0}", median(values));
            if let Some((_, ours)) = ours.filter(|_| name != OURS) {
                let ratios: Vec<_> = ours.iter().zip(values).map(|(a, b)| a / b).collect();
                let _ = write!(text, " ({:.2})", median(&ratios));
            }
        }
        text.push('\n');
    }
    text
}

fn json(about: &[(&str, &String)], rows: &[Row]) -> String {
    let mut text = String::from("{\n");
    for (name, value) in about {
        let _ = writeln!(text, "  \"{name}\": {value:?},");
    }
    let rows = rows.iter().map(
        |Row {
             name,
             unit,
             contestants,
         }| {
            let each = contestants
                .iter()
                .map(|(name, values)| format!(", {name:?}: {values:?}"));
            format!(
                "    {{\"row\": {name:?}, \"unit\": {unit:?}{}}}",
                String::from_iter(each)
            )
        },
    );
    let rows: Vec<_> = rows.collect();
    text + "  \"rows\": [\n" + &rows.join(",\n") + "\n  ]\n}\n"
}

#[cfg(test)]
mod tests {
    use super::{Comparison, json, parse, table};

    const MEASURED: &str = "stat thrufs /s 100\nstat virtiofsd /s 50\nstat thrufs /s 120\n\
                            stat virtiofsd /s 30\nread-mmap thrufs /s 7.5\n";

    #[test]
    fn ratios_are_those_of_rounds_and_what_is_missing_is_left_out() {
        let table = table(&parse(MEASURED).expect("rows"));
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[0].starts_with("stat (/s) "), "{table}");
        assert!(
            lines[0].ends_with("  thrufs 110  virtiofsd 40 (3.00)"),
            "{table}"
        );
        assert!(lines[1].ends_with("  thrufs 8"), "{table}");
        assert!(parse("stat thrufs /s\n").is_err());
        assert!(parse("stat thrufs /s many\n").is_err());
    }

    #[test]
    fn what_is_kept_is_json() {
        let rows = parse(MEASURED).expect("rows");
        let text = json(&[("guest", &"uml".to_owned())], &rows);
        let expected = "{\n  \"guest\": \"uml\",\n  \"rows\": [\n    {\"row\": \"stat\", \"unit\": \"/s\", \
            \"thrufs\": [100.0, 120.0], \"virtiofsd\": [50.0, 30.0]},\n    {\"row\": \"read-mmap\", \
            \"unit\": \"/s\", \"thrufs\": [7.5]}\n  ]\n}\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_is_no_option_of_ours_is_one_of_guests() {
        let parse = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            Comparison::parse(&words).expect("a comparison")
        };
        let (comparison, plan) = parse("--lower ext4 --rounds 3 --save-as measured.json");
        assert_eq!(
            (comparison.rounds.as_str(), comparison.is_saved),
            ("3", true)
        );
        assert_eq!(
            (plan.lower.as_str(), plan.runs()[0].name.as_str()),
            ("ext4", "compare")
        );
        let (_, plan) = parse("--open1 --save");
        assert_eq!(
            (plan.guest.as_str(), plan.runs()[0].name.as_str()),
            ("qemu", "open1")
        );
    }
}
