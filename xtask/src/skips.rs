//! What was not tested. Test programs, scripts and chores add lines to one list, `NAME: WHY`, which is
//! printed at the end of a run. Where `CI` is `true` it may only have names that `THRUFS_MAY_SKIP`
//! states.

use crate::step::Failure;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Names the list, to everything that a run starts.
pub(crate) const LIST: &str = "THRUFS_SKIPPED";

/// The names that may be skipped in CI, a word each.
const MAY: &str = "THRUFS_MAY_SKIP";

/// Says that something is skipped, at once and in the list.
pub(crate) fn add(name: &str, why: &str) {
    let line = format!("{name}: {why}");
    println!("xtask: SKIPPED: {line}");
    let Some(list) = std::env::var_os(LIST) else {
        return;
    };
    let written = OpenOptions::new().append(true).create(true).open(list);
    let written = written.and_then(|mut list| list.write_all(format!("{line}\n").as_bytes()));
    written.expect("the directory of the run is ours");
}

/// Prints the list, and fails in CI if something is on it that may not be skipped.
pub(crate) fn report(list: &Path) -> Result<(), Failure> {
    let text = fs::read_to_string(list).unwrap_or_default();
    let skipped = by_name(&text);
    if skipped.is_empty() {
        println!("\nxtask: nothing was skipped");
        return Ok(());
    }
    println!("\nxtask: SKIPPED, so not tested ({}):", skipped.len());
    for (name, (why, times)) in &skipped {
        let times = match times {
            1 => String::new(),
            _ => format!(" ({times} times)"),
        };
        println!("  {name}: {why}{times}");
    }
    if std::env::var("CI").is_ok_and(|ci| ci == "true") {
        let may = std::env::var(MAY).unwrap_or_default();
        return judge(&skipped, &may);
    }
    Ok(())
}

/// Each name once, with the first reason and how often it was said.
fn by_name(text: &str) -> BTreeMap<&str, (&str, usize)> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let (name, why) = line.split_once(": ").unwrap_or((line, ""));
        found.entry(name).or_insert((why, 0)).1 += 1;
    }
    found
}

fn judge(skipped: &BTreeMap<&str, (&str, usize)>, may: &str) -> Result<(), Failure> {
    let may: Vec<&str> = may.split_whitespace().collect();
    let wrong: Vec<&str> = skipped
        .keys()
        .copied()
        .filter(|name| !may.contains(&name.replace(' ', "_").as_str()))
        .collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "skipped, and not among what {MAY} states: {}",
        wrong.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::{by_name, judge};

    #[test]
    fn what_is_not_stated_fails() {
        let text = "p/served/a: no root\nreal git: no ring\np/served/a: no root\n";
        let skipped = by_name(text);
        assert_eq!(skipped.len(), 2);
        assert_eq!(skipped["p/served/a"], ("no root", 2));
        assert!(judge(&skipped, "p/served/a\n real_git other").is_ok());
        let wrong = judge(&skipped, "p/served/a").expect_err("git was skipped");
        assert!(wrong.to_string().ends_with("states: real git"), "{wrong}");
        assert!(judge(&by_name(""), "").is_ok());
    }
}
