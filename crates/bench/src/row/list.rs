//! The rows for people: which there are, what each of them is, and what fio is given for it.

use super::info::info;
use super::sets::SETS;
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
    for (set, members) in SETS {
        text.push_str(&format!("{set}: {}\n", members.join(" ")));
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
    text.push_str(&format!(
        " Takes {} MiB and {} inodes.\n",
        row.bytes_needed(PERCENT).div_ceil(1 << 20),
        row.inodes_needed(PERCENT)
    ));
    if let Some(why) = row.missing() {
        text.push_str(&format!("  Not here: {why}.\n"));
    }
    if let Some(fio) = row.by_fio() {
        text.push_str(&format!("  By fio: {}.\n", fio.name));
    }
    if let Some(job) = row.job_file(PERCENT) {
        text.push_str(&format!("\n{job}\n"));
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
    fn a_row_that_fio_does_has_its_job() {
        let text = all_about(named("aio16-read-4k").unwrap());
        assert!(
            text.contains("ioengine=libaio") && text.contains("Takes 258 MiB"),
            "{text}"
        );
        let own = all_about(named("read-1m-loop").unwrap());
        assert!(
            own.contains("By fio: read-1m.") && !own.contains("ioengine"),
            "{own}"
        );
    }
}
