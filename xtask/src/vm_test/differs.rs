//! POSIX cases that a server is known not to pass in a guest: `tests/guest/SERVER.differs`.
//!
//! A line is the name of a case and, after it, what happens instead. Lines after `[WORD...]` hold where
//! the share under test has all of these options, or that file system beneath; those in front of the
//! first such line hold everywhere. `#` begins a comment.

use super::plan::Server;
use crate::project;
use crate::step::Failure;
use std::fs;

/// The cases of `server` on a share with `options` on the file system `lower`.
pub(super) fn known(server: Server, options: &str, lower: &str) -> Result<Vec<String>, Failure> {
    let path = format!("tests/guest/{}.differs", server.name());
    let text = fs::read_to_string(project::root().join(&path))
        .map_err(|error| Failure::new(format!("{path}: {error}")))?;
    Ok(cases(&text, options, lower))
}

fn cases(text: &str, options: &str, lower: &str) -> Vec<String> {
    let has = |word: &str| word == lower || options.split(',').any(|option| option == word);
    let mut holds = true;
    let mut found: Vec<String> = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('#') {
            continue;
        }
        if let Some(words) = line.strip_prefix('[') {
            let words = words.trim_end_matches(']');
            holds = words.split_whitespace().all(has);
        } else if let Some(case) = line.split_whitespace().next().filter(|_| holds) {
            // A case may differ for two reasons.
            if !found.iter().any(|known| known == case) {
                found.push(case.to_owned());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{cases, known};
    use crate::vm_test::plan::Server;

    const TEXT: &str = "# why\ncopy::a  the reason\n\n[writeback]\nmap::b\n[cache=never tmpfs]\n\
                        map::c\ncopy::a once more\n";

    #[test]
    fn cases_are_the_first_words_of_lines_where_they_hold() {
        let found = |options, lower| cases(TEXT, options, lower);
        assert_eq!(found("acl", "tmpfs"), ["copy::a"]);
        assert_eq!(found("acl,writeback", "ext4"), ["copy::a", "map::b"]);
        assert_eq!(found("cache=never", "tmpfs"), ["copy::a", "map::c"]);
        assert_eq!(found("cache=never", "ext4"), ["copy::a"]);
        assert_eq!(found("writebacks", "ext4"), ["copy::a"]);
    }

    #[test]
    fn every_server_has_such_a_file() {
        for server in [Server::Thrufs, Server::Virtiofsd] {
            assert!(known(server, "", "tmpfs").is_ok(), "{server:?}");
        }
    }
}
