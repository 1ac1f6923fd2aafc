//! POSIX cases that a server is known not to pass in a guest: `tests/guest/SERVER.differs`.
//!
//! A line is the name of a case and, after it, what happens instead. Lines after `[WORD...]` hold where
//! the share under test has all of these options, or that file system beneath; those in front of the
//! first such line hold everywhere. A case with `?` in front of it passes now and then. `#` begins a
//! comment.

use super::plan::Server;
use crate::project;
use crate::step::Failure;
use std::fs;

/// What is known of a server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Differs {
    /// Cases that do not pass.
    pub(super) always: Vec<String>,
    /// Cases that do not pass now and then.
    pub(super) sometimes: Vec<String>,
}

/// The cases of `server` on a share with `options` on the file system `lower`.
pub(super) fn known(server: Server, options: &str, lower: &str) -> Result<Differs, Failure> {
    let path = format!("tests/guest/{}.differs", server.name());
    let text = fs::read_to_string(project::root().join(&path))
        .map_err(|error| Failure::new(format!("{path}: {error}")))?;
    Ok(cases(&text, options, lower))
}

fn cases(text: &str, options: &str, lower: &str) -> Differs {
    let has = |word: &str| word == lower || options.split(',').any(|option| option == word);
    let mut holds = true;
    let mut found = Differs::default();
    for line in text.lines().map(str::trim) {
        if line.starts_with('#') {
            continue;
        }
        if let Some(words) = line.strip_prefix('[') {
            let words = words.trim_end_matches(']');
            holds = words.split_whitespace().all(has);
        } else if let Some(case) = line.split_whitespace().next().filter(|_| holds) {
            let (cases, case) = match case.strip_prefix('?') {
                Some(case) => (&mut found.sometimes, case),
                None => (&mut found.always, case),
            };
            // A case may differ for two reasons.
            if !cases.iter().any(|known| known == case) {
                cases.push(case.to_owned());
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
                        map::c\ncopy::a once more\n?map::d\n";

    #[test]
    fn cases_are_the_first_words_of_lines_where_they_hold() {
        let always = |options, lower| cases(TEXT, options, lower).always;
        assert_eq!(always("acl", "tmpfs"), ["copy::a"]);
        assert_eq!(always("acl,writeback", "ext4"), ["copy::a", "map::b"]);
        assert_eq!(always("cache=never", "tmpfs"), ["copy::a", "map::c"]);
        assert_eq!(always("cache=never", "ext4"), ["copy::a"]);
        assert_eq!(always("writebacks", "ext4"), ["copy::a"]);
        let sometimes = |options| cases(TEXT, options, "tmpfs").sometimes;
        assert_eq!(sometimes("cache=never"), ["map::d"]);
        assert!(sometimes("acl").is_empty());
    }

    #[test]
    fn every_server_has_such_a_file() {
        for server in [Server::Thrufs, Server::Virtiofsd] {
            assert!(known(server, "", "tmpfs").is_ok(), "{server:?}");
        }
    }
}
