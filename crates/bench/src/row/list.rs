//! The rows for people: which there are, and what each of them is.

use super::info::info;
use super::sets::sets;
use super::{Row, names};
use crate::Outcome;
use crate::row;

/// The share of the usual work that is spoken of.
const PERCENT: usize = 100;

/// A line for each row and set; of the rows in a list of names, all that there is to say.
///
/// # Errors
///
/// A name that is no row's and no set's.
pub(crate) fn text(names: Option<&str>) -> Outcome<String> {
    match names {
        None => Ok(everything()),
        Some(names) => Ok(row::listed(names)?.into_iter().map(all_about).collect()),
    }
}

fn everything() -> String {
    let mut text = String::new();
    for name in names() {
        if let Ok(row) = row::named(name) {
            text.push_str(&format!("{name:<40} {}\n", info(row).title));
        }
    }
    text.push('\n');
    for (set, rows) in sets() {
        text.push_str(&format!("{set}: {}\n", rows.join(" ")));
    }
    text
}

fn all_about(row: &Row) -> String {
    let info = info(row);
    let mut text = format!("{}: {}\n  {}\n", row.name, info.title, info.about);
    text.push_str(&format!("  By {}.", info.engine));
    if let Some(goal) = info.goal {
        text.push_str(&format!(" Goal: {goal:.2} of native's rate."));
    }
    let needs = row.needs(PERCENT);
    text.push_str(&format!(
        " Takes {} MiB and {} inodes.\n",
        needs.bytes.div_ceil(1 << 20),
        needs.inodes
    ));
    if let Some(why) = row.missing() {
        text.push_str(&format!("  Not here: {why}.\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{all_about, everything};
    use crate::row::{named, names};

    #[test]
    fn every_row_stands_in_the_list() {
        let text = everything();
        for name in names() {
            let stands = text
                .lines()
                .any(|line| line.split(' ').next() == Some(name));
            assert!(stands, "{name}");
        }
    }

    #[test]
    fn a_row_says_what_it_is_and_takes() {
        let text = all_about(named("read-1m-cold").unwrap());
        assert!(text.contains("read 1 MiB, nothing cached"), "{text}");
        assert!(
            text.contains("By loop psync.") && text.contains("Takes 258 MiB"),
            "{text}"
        );
    }
}
