//! Git's configuration files, as git-config(1) describes their syntax. What git would refuse is read somehow.

use std::iter::Peekable;
use std::str::Chars;

/// Each variable in its order, as `section.subsection.name`, and its value. Section and name are in lower case.
pub(super) fn entries(text: &str) -> Vec<(String, String)> {
    let text = text.replace("\r\n", "\n");
    let mut rest = text.chars().peekable();
    let mut section = String::new();
    let mut found = Vec::new();
    while let Some(first) = rest.next() {
        match first {
            '[' => section = header(&mut rest),
            '#' | ';' => skip_line(&mut rest),
            _ if first.is_ascii_alphanumeric() => {
                let mut name = String::from(first);
                while let Some(next) = rest.next_if(|it| it.is_ascii_alphanumeric() || *it == '-') {
                    name.push(next);
                }
                let key = format!("{section}.{}", name.to_ascii_lowercase());
                found.push((key, value(&mut rest)));
            }
            _ => {}
        }
    }
    found
}

/// The variables that `git` has from the environment (`GIT_CONFIG_COUNT`), `max` at most.
pub(super) fn of_environment(
    variable: impl Fn(&str) -> Option<String>,
    max: usize,
) -> Vec<(String, String)> {
    let count = variable("GIT_CONFIG_COUNT").and_then(|count| count.parse().ok());
    let each = |number| {
        let key = variable(&format!("GIT_CONFIG_KEY_{number}"))?;
        let value = variable(&format!("GIT_CONFIG_VALUE_{number}"))?;
        let (section, name) = key.split_once('.')?;
        let (section, name) = (section.to_ascii_lowercase(), name.to_owned());
        let key = match name.rsplit_once('.') {
            Some((subsection, name)) => {
                format!("{section}.{subsection}.{}", name.to_ascii_lowercase())
            }
            None => format!("{section}.{}", name.to_ascii_lowercase()),
        };
        Some((key, value))
    };
    (0..count.unwrap_or(0).min(max)).filter_map(each).collect()
}

/// The rest of `[section "subsection"]`, or of the old `[section.subsection]`.
fn header(rest: &mut Peekable<Chars<'_>>) -> String {
    let mut section = String::new();
    let mut is_quoted = false;
    while let Some(next) = rest.next() {
        match next {
            '"' if !is_quoted => section.push('.'),
            '\\' if is_quoted => section.extend(rest.next()),
            ']' if !is_quoted => break,
            '"' | ' ' | '\t' if !is_quoted || next == '"' => {}
            _ if is_quoted => section.push(next),
            _ => section.push(next.to_ascii_lowercase()),
        }
        is_quoted ^= next == '"';
    }
    section
}

/// The rest of the line, and of those that continue it. A name alone is `true`.
fn value(rest: &mut Peekable<Chars<'_>>) -> String {
    let blank = |it: &char| matches!(it, ' ' | '\t');
    while rest.next_if(blank).is_some() {}
    if rest.next_if_eq(&'=').is_none() {
        return "true".to_owned();
    }
    while rest.next_if(blank).is_some() {}
    let mut value = String::new();
    // Without blanks at the end.
    let mut length = 0;
    let mut is_quoted = false;
    while let Some(next) = rest.next() {
        match next {
            '\n' => break,
            '#' | ';' if !is_quoted => {
                skip_line(rest);
                break;
            }
            '"' => is_quoted = !is_quoted,
            '\\' => match rest.next() {
                Some('n') => value.push('\n'),
                Some('t') => value.push('\t'),
                Some('\n') | None => continue,
                Some(other) => value.push(other),
            },
            _ => value.push(next),
        }
        if is_quoted || !blank(&next) {
            length = value.len();
        }
    }
    value.truncate(length);
    value
}

fn skip_line(rest: &mut Peekable<Chars<'_>>) {
    rest.by_ref().find(|it| *it == '\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_git_reads_them() {
        let text = "\u{feff}; comment\n[core] hooksPath = a b \t# comment\r\n\tbare\n\
                    fsmonitor=\"x # y\" z \\\n  more\n[Include]\npath = \\\"q\\\\\\t\n\
                    [includeIf \"gitdir:~/W]\\\"\"]\n  PATH = inc ; comment\n[remote.Old]url=u\n[a \"B\"]c\n";
        let expected = [
            ("core.hookspath", "a b"),
            ("core.bare", "true"),
            ("core.fsmonitor", "x # y z   more"),
            ("include.path", "\"q\\\t"),
            ("includeif.gitdir:~/W]\".path", "inc"),
            ("remote.old.url", "u"),
            ("a.B.c", "true"),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(entries(text), expected);
        for broken in [
            "[",
            "[a \"b",
            "[a]\nb",
            "b =",
            "[a]\nb = \"c",
            "\\",
            "[a]b=\\",
        ] {
            entries(broken);
        }
    }
}
