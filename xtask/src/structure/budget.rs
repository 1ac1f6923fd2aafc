//! How many lines of Rust there may be: `budget.toml` has a line for each directory, and one for the tree. Every file
//! belongs to one directory of it.

use std::collections::BTreeMap;

/// The name of all files together.
const TREE: &str = "tree";

/// What is wrong: directories with more lines than they may have, and files of no directory.
pub(super) fn exceeded(budget: &str, lines: &BTreeMap<String, usize>) -> Vec<String> {
    let rows: Vec<(&str, usize)> = budget.lines().filter_map(row).collect();
    let mut sums: BTreeMap<&str, usize> = rows.iter().map(|(name, _)| (*name, 0)).collect();
    let mut wrong = Vec::new();
    for (file, lines) in lines {
        let is_in = |name: &str| {
            file.strip_prefix(name)
                .is_some_and(|it| it.starts_with('/'))
        };
        match sums.iter_mut().find(|(name, _)| is_in(name)) {
            Some((_, sum)) => *sum += lines,
            None => wrong.push(format!("{file}: in no directory of budget.toml")),
        }
        *sums.entry(TREE).or_default() += lines;
    }
    for (name, most) in rows {
        let sum = sums[name];
        if sum > most {
            wrong.push(format!(
                "{name}: {sum} lines of Rust, budget.toml allows {most}: a commit of its own raises it, and says what for"
            ));
        }
    }
    wrong
}

/// A line `"name" = number`.
fn row(line: &str) -> Option<(&str, usize)> {
    let (name, number) = line.split_once('=')?;
    let number = number.trim().replace('_', "").parse().ok()?;
    Some((name.trim().trim_matches('"'), number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_and_the_tree_have_a_budget() {
        let lines = |files: &[(&str, usize)]| {
            let files = files
                .iter()
                .map(|(file, lines)| ((*file).to_owned(), *lines));
            files.collect::<BTreeMap<_, _>>()
        };
        let budget = "# Lines\ntree = 1_100\n\"a/src\" = 1000\n\"a/tests\" = 200\n";
        let fits = lines(&[
            ("a/src/lib.rs", 600),
            ("a/src/b/c.rs", 400),
            ("a/tests/t.rs", 100),
        ]);
        assert_eq!(exceeded(budget, &fits), [""; 0]);
        let wrong = exceeded(
            budget,
            &lines(&[("a/src/lib.rs", 1001), ("a/srcs/lib.rs", 100)]),
        );
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(wrong[0].starts_with("a/srcs/lib.rs: in no directory"));
        assert!(wrong[1].starts_with("tree: 1101 lines"));
        assert!(wrong[2].starts_with("a/src: 1001 lines"));
    }
}
