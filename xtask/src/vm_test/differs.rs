//! POSIX cases that a server is known not to pass in a guest: `tests/guest/SERVER.differs`.
//!
//! A line is the name of a case and, after it, what happens instead. Lines after `[WORD...]` hold where
//! the share under test has all of these options, or that file system beneath; those in front of the
//! first such line hold everywhere. `#` begins a comment.

use crate::failure::Failure;
use crate::project;
use std::collections::BTreeSet;
use std::fs;

/// The cases of `server` on a share with `options` on the file system `lower`.
pub(super) fn known(server: &str, options: &str, lower: &str) -> Result<Vec<String>, Failure> {
    let path = project::root().join(format!("tests/guest/{server}.differs"));
    let text = fs::read_to_string(&path).map_err(Failure::of(&path))?;
    let cases = cases(&text, options, lower);
    Ok(cases.into_iter().map(str::to_owned).collect())
}

/// Each once: a case may differ for two reasons.
fn cases<'a>(text: &'a str, options: &str, lower: &str) -> BTreeSet<&'a str> {
    let has = |word: &str| word == lower || options.split(',').any(|option| option == word);
    let mut holds = true;
    let mut found = BTreeSet::new();
    let lines = text.lines().map(str::trim);
    for line in lines.filter(|line| !line.starts_with('#')) {
        if let Some(words) = line.strip_prefix('[') {
            let words = words.trim_end_matches(']');
            holds = words.split_whitespace().all(has);
        } else if holds {
            found.extend(line.split_whitespace().next());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::cases;

    const TEXT: &str = "# why\ncopy::a  the reason\n\n[writeback]\nmap::b\n[cache=never tmpfs]\n\
                        map::c\ncopy::a once more\n";

    #[test]
    fn cases_are_the_first_words_of_lines_where_they_hold() {
        let found = |options, lower| Vec::from_iter(cases(TEXT, options, lower));
        assert_eq!(found("acl", "tmpfs"), ["copy::a"]);
        assert_eq!(found("acl,writeback", "ext4"), ["copy::a", "map::b"]);
        assert_eq!(found("cache=never", "tmpfs"), ["copy::a", "map::c"]);
        assert_eq!(found("cache=never", "ext4"), ["copy::a"]);
        assert_eq!(found("writebacks", "ext4"), ["copy::a"]);
    }
}
