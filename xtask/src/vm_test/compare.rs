//! What `cargo xtask vm-bench` is asked, and what it makes of what was measured: a table of medians and
//! ratios, and a file to keep. What is measured is in `tests/guest/host/compare.sh` and `open1.sh`.

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
    /// The arguments that are those of any guest.
    pub(super) plan: Vec<String>,
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
    pub(super) fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut comparison = Self {
            plan: Vec::new(),
            rounds: "5".to_owned(),
            seconds: "2".to_owned(),
            cache: "never".to_owned(),
            with: String::new(),
            rows: String::new(),
            is_saved: false,
            saved_as: None,
            is_open1: false,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut file = String::new();
            let field = match word.as_str() {
                "--save" => {
                    comparison.is_saved = true;
                    continue;
                }
                "--open1" => {
                    comparison.is_open1 = true;
                    continue;
                }
                "--rounds" => &mut comparison.rounds,
                "--seconds" => &mut comparison.seconds,
                "--cache" => &mut comparison.cache,
                "--with" => &mut comparison.with,
                "--rows" => &mut comparison.rows,
                "--save-as" => &mut file,
                _ => {
                    comparison.plan.push(word.clone());
                    continue;
                }
            };
            let value = words.next();
            let value = value.ok_or_else(|| Failure::new(format!("{word} without a value")))?;
            value.clone_into(field);
            if word == "--save-as" {
                comparison.saved_as = Some(PathBuf::from(file));
            }
        }
        let script: &[&str] = match comparison.is_open1 {
            true => &["open1", "--guest", "qemu"],
            false => &["compare"],
        };
        let script = script.iter().map(|&word| word.to_owned());
        comparison.plan.splice(0..0, script);
        Ok(comparison)
    }

    /// What the script is told.
    pub(super) fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("ROUNDS", self.rounds.clone()),
            ("SECONDS_EACH", self.seconds.clone()),
            ("CACHE", self.cache.clone()),
            ("WITH", self.with.clone()),
            ("ROWS", self.rows.clone()),
        ]
    }

    /// Prints the table of `text`, and keeps what was measured if that was asked for.
    pub(super) fn report(&self, text: &str, guest: &str, lower: &str) -> Result<(), Failure> {
        let measured = parse(text)?;
        println!("\n{}", table(&measured));
        if !self.is_saved && self.saved_as.is_none() {
            return Ok(());
        }
        let (_, commit, _) = Step::new("git").args(["rev-parse", "HEAD"]).capture()?;
        let (_, host, _) = Step::new("uname").args(["-r"]).capture()?;
        let (_, date, _) = Step::new("date")
            .args(["-u", "+%Y-%m-%dT%H%M%S"])
            .capture()?;
        let what = if self.is_open1 { "open1" } else { "guest" };
        let cache = if self.is_open1 { "auto" } else { &self.cache };
        let about = [
            ("commit", commit.trim()),
            ("host_kernel", host.trim()),
            ("date", date.trim()),
            ("guest", guest),
            ("lower", lower),
            ("cache", cache),
            ("with", &self.with),
            ("seconds", &self.seconds),
        ];
        let among = format!("bench/results/{}-{what}-{guest}-{lower}.json", date.trim());
        let path = self.saved_as.clone();
        let path = path.unwrap_or_else(|| project::root().join(among));
        fs::write(&path, json(&about, &measured))
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        println!("xtask: kept in {}", path.display());
        Ok(())
    }
}

/// A row of what was measured: each contestant with the values of its rounds.
#[derive(Debug, PartialEq)]
struct Row {
    name: String,
    unit: String,
    contestants: Vec<(String, Vec<f64>)>,
}

/// Understands lines `ROW CONTESTANT UNIT VALUE`.
fn parse(text: &str) -> Result<Vec<Row>, Failure> {
    let mut rows: Vec<Row> = Vec::new();
    for line in text.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let &[name, contestant, unit, value] = words.as_slice() else {
            return Err(Failure::new(format!("this was not measured: {line}")));
        };
        let value = value
            .parse()
            .map_err(|error| Failure::new(format!("{line}: {error}")))?;
        if rows.last().is_none_or(|row| row.name != name) {
            rows.push(Row {
                name: name.to_owned(),
                unit: unit.to_owned(),
                contestants: Vec::new(),
            });
        }
        let Some(row) = rows.last_mut() else { continue };
        let known = row
            .contestants
            .iter_mut()
            .find(|known| known.0 == contestant);
        match known {
            Some((_, values)) => values.push(value),
            None => row.contestants.push((contestant.to_owned(), vec![value])),
        }
    }
    Ok(rows)
}

/// The middle of the values.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.as_slice() {
        [] => f64::NAN,
        sorted if sorted.len() % 2 == 1 => sorted[middle],
        sorted => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The median of the ratios of rounds, in which two followed each other, and the least and the greatest.
fn ratio(ours: &[f64], others: &[f64]) -> (f64, f64, f64) {
    let ratios: Vec<_> = ours.iter().zip(others).map(|(a, b)| a / b).collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = ratios.iter().copied().fold(0.0, f64::max);
    (median(&ratios), least, greatest)
}

/// In Markdown: ours, and how many times that of each other it is, with the spread.
fn table(rows: &[Row]) -> String {
    let mut others: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flat_map(|row| &row.contestants) {
        if name != OURS && !others.contains(&name.as_str()) {
            others.push(name);
        }
    }
    let mut text = format!("| row | unit | {OURS} |");
    for other in &others {
        let _ = write!(text, " {other} | {OURS} / {other} |");
    }
    text.push_str("\n|---|---|---|");
    text.push_str(&"---|---|".repeat(others.len()));
    for row in rows {
        let of = |name: &str| {
            let found = row.contestants.iter().find(|known| known.0 == name);
            found.map(|(_, values)| values.as_slice())
        };
        let shown = |values: Option<&[f64]>| match values {
            Some(values) => format!("{:.0}", median(values)),
            None => "–".to_owned(),
        };
        let ours = of(OURS);
        let _ = write!(text, "\n| {} | {} | {} |", row.name, row.unit, shown(ours));
        for other in &others {
            let theirs = of(other);
            let _ = write!(text, " {} |", shown(theirs));
            match (ours, theirs) {
                (Some(ours), Some(theirs)) => {
                    let (middle, least, greatest) = ratio(ours, theirs);
                    let _ = write!(text, " {middle:.2} ({least:.2}–{greatest:.2}) |");
                }
                _ => text.push_str(" – |"),
            }
        }
    }
    text.push('\n');
    text
}

fn json(about: &[(&str, &str)], rows: &[Row]) -> String {
    let mut text = String::from("{\n");
    for (name, value) in about {
        let _ = writeln!(text, "  \"{name}\": {value:?},");
    }
    text.push_str("  \"rows\": [\n");
    let lines: Vec<_> = rows
        .iter()
        .map(|row| {
            let contestants: Vec<_> = row
                .contestants
                .iter()
                .map(|(name, values)| format!("{name:?}: {values:?}"))
                .collect();
            let contestants = contestants.join(", ");
            format!(
                "    {{\"row\": {:?}, \"unit\": {:?}, {contestants}}}",
                row.name, row.unit
            )
        })
        .collect();
    text.push_str(&lines.join(",\n"));
    text.push_str("\n  ]\n}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::{Comparison, json, median, parse, table};
    use std::path::PathBuf;

    const MEASURED: &str = "stat thrufs /s 100\nstat virtiofsd /s 50\nstat thrufs /s 120\n\
                            stat virtiofsd /s 30\nread-mmap thrufs /s 7.5\n";

    #[test]
    fn ratios_are_those_of_rounds_and_what_is_missing_is_shown_as_such() {
        let rows = parse(MEASURED).expect("rows");
        let table = table(&rows);
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines[2], "| stat | /s | 110 | 40 | 3.00 (2.00–4.00) |");
        assert_eq!(lines[3], "| read-mmap | /s | 8 | – | – |");
        assert!(parse("stat thrufs /s\n").is_err());
        assert!(parse("stat thrufs /s many\n").is_err());
    }

    #[test]
    fn what_is_kept_is_json() {
        let rows = parse(MEASURED).expect("rows");
        let text = json(&[("guest", "uml")], &rows);
        assert!(text.starts_with("{\n  \"guest\": \"uml\",\n"), "{text}");
        let row = "{\"row\": \"stat\", \"unit\": \"/s\", \"thrufs\": [100.0, 120.0], \
                   \"virtiofsd\": [50.0, 30.0]},\n";
        assert!(text.contains(row), "{text}");
    }

    #[test]
    fn the_middle_of_an_even_number_is_between_two() {
        assert!((median(&[4.0, 1.0]) - 2.5).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 9.0]) - 4.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_no_option_of_ours_is_one_of_guests() {
        let words = ["--guest", "qemu", "--rounds", "3", "--save"].map(str::to_owned);
        let comparison = Comparison::parse(&words).expect("a comparison");
        assert_eq!(comparison.plan, ["compare", "--guest", "qemu"]);
        assert_eq!(
            (comparison.rounds.as_str(), comparison.is_saved),
            ("3", true)
        );
        assert!(Comparison::parse(&["--rows".to_owned()]).is_err());
        let words = ["--save-as", "measured.json"].map(str::to_owned);
        let comparison = Comparison::parse(&words).expect("a comparison");
        assert_eq!(comparison.saved_as, Some(PathBuf::from("measured.json")));
        assert_eq!(comparison.plan, ["compare"]);
        let words = ["--open1", "--save"].map(str::to_owned);
        let comparison = Comparison::parse(&words).expect("a comparison");
        assert_eq!(comparison.plan, ["open1", "--guest", "qemu"]);
    }
}
