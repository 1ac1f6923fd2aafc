//! Arguments and results of `cargo xtask vm-bench`: a table of medians and ratios, and a file to keep.
//! `tests/guest/host/compare.sh` and `open1.sh` measure.

use super::plan::{Plan, Variables};
use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::project;
use crate::step::Step;
use std::fs;

/// The target that the others are compared with.
const OURS: &str = "thrufs";

/// The script's variable, the option that sets it, and its default.
const OPTIONS: &[(&str, &str, &str)] = &[
    ("ROUNDS", "--rounds", "5"),
    ("SECONDS_EACH", "--seconds", "2"),
    ("CACHE", "--cache", "never"),
    ("WITH", "--with", ""),
    ("ROWS", "--rows", ""),
];

pub(super) struct Comparison {
    pub(super) plan: Plan,
    /// The environment of the script.
    pub(super) variables: Variables,
    /// Whether opens and closes are measured, by two kernels.
    pub(super) is_open1: bool,
    is_saved: bool,
}

impl Comparison {
    pub(super) fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut arguments = Arguments(arguments.to_vec());
        let mut variables = Variables::new();
        for (variable, option, default) in OPTIONS {
            let value = arguments.value(option)?;
            let value = value.unwrap_or_else(|| (*default).to_owned());
            variables.insert((*variable).to_owned(), value);
        }
        let is_saved = arguments.flag("--save");
        let is_open1 = arguments.flag("--open1");
        let mut plan = Plan::parse(arguments, &[if is_open1 { "open1" } else { "compare" }])?;
        if is_open1 {
            plan.guest = "qemu".to_owned();
            variables.insert("CACHE".to_owned(), "auto".to_owned());
        }
        Ok(Self {
            plan,
            variables,
            is_open1,
            is_saved,
        })
    }

    /// Prints the table of `text`, and keeps the results on request.
    pub(super) fn report(&self, text: &str) -> Result<(), Failure> {
        let rows = parse(text)?;
        println!("\n{}", table(&rows));
        if !self.is_saved {
            return Ok(());
        }
        let commit = Step::new("git").args(["rev-parse", "HEAD"]).text()?;
        let host = Step::new("uname").args(["-r"]).text()?;
        let date = Step::new("date").args(["-u", "+%Y-%m-%dT%H%M%S"]).text()?;
        let (guest, lower) = (&self.plan.guest, &self.plan.lower);
        let what = if self.is_open1 { "open1" } else { "guest" };
        let among = format!("bench/results/{date}-{what}-{guest}-{lower}.json");
        let about = [
            ("commit", &commit),
            ("host_kernel", &host),
            ("date", &date),
            ("guest", guest),
            ("lower", lower),
            ("cache", &self.variables["CACHE"]),
            ("with", &self.variables["WITH"]),
            ("seconds", &self.variables["SECONDS_EACH"]),
        ];
        let path = project::root().join(among);
        fs::write(&path, json(&about, &rows)).map_err(Failure::of(&path))?;
        println!("xtask: kept in {}", path.display());
        Ok(())
    }
}

/// Of a row, each target with the values of its rounds.
type Values<'a> = Vec<(&'a str, Vec<f64>)>;

/// Rows with their names and units, in the order of measuring.
type Rows<'a> = Vec<(&'a str, &'a str, Values<'a>)>;

/// Parses lines `ROW TARGET UNIT VALUE`.
fn parse(text: &str) -> Result<Rows<'_>, Failure> {
    let mut rows = Rows::new();
    for line in text.lines() {
        let wrong = || Failure::new(format!("this was not measured: {line}"));
        let words: Vec<_> = line.split(' ').collect();
        let &[name, target, unit, value] = words.as_slice() else {
            return Err(wrong());
        };
        let value = value.parse().map_err(|_| wrong())?;
        if rows.last().is_none_or(|row| row.0 != name) {
            rows.push((name, unit, Values::new()));
        }
        let values = &mut rows.last_mut().ok_or_else(wrong)?.2;
        match values.iter_mut().find(|known| known.0 == target) {
            Some((_, values)) => values.push(value),
            None => values.push((target, vec![value])),
        }
    }
    Ok(rows)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

/// A line for each row: medians, and in brackets ours as a multiple of another: the median of the rounds,
/// in which the two followed each other, and the least and the greatest.
fn table(rows: &Rows<'_>) -> String {
    let mut text = String::new();
    for (name, unit, targets) in rows {
        let ours = targets.iter().find(|known| known.0 == OURS);
        text += &format!("{:<24}", format!("{name} ({unit})"));
        for (name, values) in targets {
            text += &format!("  {name} {:.0}", median(values));
            if let Some((_, ours)) = ours.filter(|_| *name != OURS) {
                let ratios: Vec<_> = ours.iter().zip(values).map(|(a, b)| a / b).collect();
                let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
                let greatest = ratios.iter().copied().fold(0.0, f64::max);
                text += &format!(" ({:.2}, {least:.2}–{greatest:.2})", median(&ratios));
            }
        }
        text.push('\n');
    }
    text
}

fn json(about: &[(&str, &String)], rows: &Rows<'_>) -> String {
    let about = about
        .iter()
        .map(|(name, value)| format!("  {name:?}: {value:?},\n"));
    let rows = rows.iter().map(|(name, unit, targets)| {
        let values = targets.iter();
        let values = values.map(|(name, values)| format!(", {name:?}: {values:?}"));
        let values = String::from_iter(values);
        format!("    {{\"row\": {name:?}, \"unit\": {unit:?}{values}}}")
    });
    let rows = Vec::from_iter(rows).join(",\n");
    let about = String::from_iter(about);
    format!("{{\n{about}  \"rows\": [\n{rows}\n  ]\n}}\n")
}

#[cfg(test)]
mod tests {
    use super::{json, parse, table};

    const MEASURED: &str = "stat thrufs /s 100\nstat virtiofsd /s 50\nstat thrufs /s 120\n\
                            stat virtiofsd /s 30\nread-mmap thrufs /s 7.5\n";

    #[test]
    fn ratios_are_those_of_rounds_and_what_is_missing_is_left_out() {
        let table = table(&parse(MEASURED).expect("rows"));
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[0].starts_with("stat (/s) "), "{table}");
        assert!(
            lines[0].ends_with("  thrufs 110  virtiofsd 40 (3.00, 2.00–4.00)"),
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
}
