//! Patterns of options. They are relative to the tree, and stand for what is beneath, too.
//!
//! A pattern is split into components, each of which matches within one name: what could match a `/` in
//! the midst of a component is refused, because the directories above would be unknown then.

use super::error::RuleError;
use super::text::quoted;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use thrufs_policy::{Accounts, Policy};

/// The served directory.
pub(super) struct Tree {
    directory: PathBuf,
    /// Its absolute paths, as given and without symbolic links, each without a final `/`.
    names: Vec<String>,
}

impl Tree {
    pub(super) fn at(directory: &Path) -> Tree {
        let names = [std::path::absolute(directory), directory.canonicalize()];
        let name = |path: PathBuf| Some(path.to_str()?.trim_end_matches('/').to_owned());
        Tree {
            directory: directory.into(),
            names: names.into_iter().flatten().filter_map(name).collect(),
        }
    }

    /// The pattern `text` of an option.
    pub(super) fn pattern(&self, option: &'static str, text: &str) -> Result<Pattern, RuleError> {
        let parsed = self
            .relative(text)
            .and_then(components)
            .map(|components| Pattern { components })
            .and_then(Pattern::checked);
        parsed.map_err(|problem| RuleError::Pattern {
            option,
            pattern: text.to_owned(),
            problem,
        })
    }

    /// The part after the tree's own path.
    fn relative<'t>(&self, text: &'t str) -> Result<&'t str, String> {
        if text.is_empty() {
            return Err("it is empty".to_owned());
        }
        if text.starts_with('!') {
            return Err(
                "exempt names with --allow; a name that begins with `!` is written `\\!`"
                    .to_owned(),
            );
        }
        if !text.starts_with('/') {
            return Ok(text);
        }
        let below = |name: &String| {
            let rest = text.strip_prefix(name.as_str())?;
            (rest.is_empty() || rest.starts_with('/')).then_some(rest)
        };
        self.names.iter().find_map(below).ok_or_else(|| {
            let tree = self.directory.display();
            format!("it is outside of {tree}; patterns are relative to it, without a `/` before")
        })
    }

    /// Whether this file is in it, or would be, or is a link to such a file.
    pub(super) fn contains(&self, file: &Path) -> bool {
        let directory = file.parent().and_then(|parent| parent.canonicalize().ok());
        // As it is given only where it names no directory that exists: `..` may lead out.
        let given = directory.is_none().then(|| file.to_owned());
        [given, directory, file.canonicalize().ok()]
            .iter()
            .flatten()
            .any(|path| self.names.iter().any(|name| path.starts_with(name)))
    }

    /// Whether this is the name of a directory that exists.
    pub(super) fn has_directory(&self, pattern: &Pattern) -> bool {
        let path = self.directory.join(pattern.components.join("/"));
        pattern.is_name() && path.symlink_metadata().is_ok_and(|it| it.is_dir())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    components: Vec<String>,
}

impl Pattern {
    /// For a path relative to the tree. What is not UTF-8 in a name is any character.
    pub(super) fn of(path: &Path) -> Pattern {
        let escaped = |name: &OsStr| {
            let mut component = String::new();
            for character in name.to_string_lossy().chars() {
                match character {
                    char::REPLACEMENT_CHARACTER => component.push('*'),
                    '*' | '?' | '[' | ']' | '{' | '}' | '\\' => component.extend(['\\', character]),
                    _ => component.push(character),
                }
            }
            component
        };
        Pattern {
            components: path.iter().map(escaped).collect(),
        }
    }

    /// As in a policy.
    pub(super) fn text(&self) -> String {
        let text = self.components.join("/");
        match text.starts_with('!') {
            true => format!("\\{text}"),
            false => text,
        }
    }

    /// For the file or directory itself, and for everything beneath.
    pub(super) fn whole(&self) -> Vec<String> {
        let text = self.text();
        match self.components.last().is_some_and(|last| last == "**") {
            true => vec![text],
            false => vec![text, self.beneath()],
        }
    }

    /// For everything beneath, also of the tree itself.
    pub(super) fn beneath(&self) -> String {
        self.text() + "/**"
    }

    /// The directories above: who renames one takes what is beneath out of the pattern. A `**` at the
    /// beginning matches in every directory.
    pub(super) fn parents(&self) -> impl Iterator<Item = Pattern> {
        let free = self.components.iter().take_while(|it| *it == "**").count();
        (free + 1..self.components.len()).map(|end| Pattern {
            components: self.components[..end].to_vec(),
        })
    }

    /// Whether its last component is a name, without wildcards.
    pub(super) fn is_name(&self) -> bool {
        let last = self.components.last();
        last.is_some_and(|last| !last.contains(['*', '?', '[']))
    }

    /// Refuses what no policy takes.
    fn checked(self) -> Result<Pattern, String> {
        for text in self.whole() {
            let rule = format!("[[rule]]\naction = \"hide\"\npath = {}\n", quoted(&text));
            Policy::parse(rule.as_bytes(), &Accounts::default()).map_err(|error| error.message)?;
        }
        Ok(self)
    }
}

/// Splits at each `/`; leaves out empty components and `.`.
fn components(text: &str) -> Result<Vec<String>, String> {
    let mut components = vec![String::new()];
    let mut braces = 0_usize;
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        match character {
            '/' if braces > 0 => {
                return Err("`{…}` contains a `/`: give the option once for each".to_owned());
            }
            '/' => {
                components.push(String::new());
                continue;
            }
            '{' => braces += 1,
            '}' => braces = braces.saturating_sub(1),
            _ => {}
        }
        let component = components.last_mut().expect("there is always one");
        if braces > 0 && character == '*' && component.ends_with('*') {
            return Err("`{…}` contains `**`: give the option once for each".to_owned());
        }
        component.push(character);
        match character {
            '\\' => match rest.next() {
                Some('/') => return Err("no name contains the `/` after a `\\`".to_owned()),
                next => component.extend(next),
            },
            '[' => component.push_str(class(&mut rest)?),
            _ => {}
        }
    }
    components.retain(|component| !matches!(component.as_str(), "" | "."));
    if components.iter().any(|component| component == "..") {
        return Err("it contains `..`".to_owned());
    }
    if components.is_empty() {
        return Err("it is the whole directory: `**` is everything in it".to_owned());
    }
    Ok(components)
}

/// The rest of `[…]` to its end, which has no backslashes.
fn class<'t>(rest: &mut std::str::Chars<'t>) -> Result<&'t str, String> {
    let text = rest.as_str();
    // A `]` at the beginning is a character of the class.
    let end = text.char_indices().skip(1).find(|(_, it)| *it == ']');
    let (end, _) = end.ok_or("a `[` has no `]`: `\\[` is the character itself")?;
    let inside: Vec<char> = text[..end].chars().collect();
    let is_range = |it: &[char]| it[1] == '-' && (it[0]..=it[2]).contains(&'/');
    if matches!(inside[0], '!' | '^') || inside.contains(&'/') || inside.windows(3).any(is_range) {
        return Err("`[…]` may match a `/`: name the characters, without `!` and `^`".to_owned());
    }
    *rest = text[end + 1..].chars();
    Ok(&text[..=end])
}
