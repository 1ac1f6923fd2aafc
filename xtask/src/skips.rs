//! Skipped tests. Test programs, scripts and chores add lines to one list, `NAME: WHY`, which is printed at
//! the end of a run. With `CI=true` it may only have the names in `THRUFS_MAY_SKIP`.

use crate::failure::Failure;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Environment variable: path of the list.
pub(crate) const LIST: &str = "THRUFS_SKIPPED";

/// Environment variable: names that may be skipped in CI, a word each.
const MAY: &str = "THRUFS_MAY_SKIP";

/// Reports a skip, at once and in the list.
pub(crate) fn add(name: &str, why: &str) {
    let line = format!("{name}: {why}");
    println!("xtask: SKIPPED: {line}");
    if let Some(list) = std::env::var_os(LIST) {
        let list = OpenOptions::new().append(true).create(true).open(list);
        let written = list.and_then(|mut list| list.write_all(format!("{line}\n").as_bytes()));
        written.expect("the directory of the run is ours");
    }
}

/// Prints the list, and fails in CI if a name in it may not be skipped.
pub(crate) fn report(list: &Path) -> Result<(), Failure> {
    let text = fs::read_to_string(list).unwrap_or_default();
    let skipped = by_name(&text);
    println!("\nxtask: SKIPPED, so not tested: {}", skipped.len());
    for (name, (why, times)) in &skipped {
        println!("  {name}: {why} ({times})");
    }
    let may = std::env::var(MAY).unwrap_or_default();
    let wrong = unstated(&skipped, &may);
    if std::env::var("CI").as_deref() != Ok("true") {
        return Ok(());
    }
    Failure::if_any(&format!("skipped, and not among what {MAY} states"), &wrong)
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

fn unstated<'a>(skipped: &BTreeMap<&'a str, (&str, usize)>, may: &str) -> Vec<&'a str> {
    let stated = |name: &str| {
        let name = name.replace(' ', "_");
        may.split_whitespace().any(|it| it == name)
    };
    let names = skipped.keys().copied();
    names.filter(|name| !stated(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::{by_name, unstated};

    #[test]
    fn what_is_not_stated_is_found() {
        let skipped = by_name("p/served/a: no root\nreal git: no ring\np/served/a: no root\n");
        assert_eq!(skipped.len(), 2);
        assert_eq!(skipped["p/served/a"], ("no root", 2));
        assert!(unstated(&skipped, "p/served/a\n real_git other").is_empty());
        assert_eq!(unstated(&skipped, "p/served/a"), ["real git"]);
    }
}
