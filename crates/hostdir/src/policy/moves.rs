//! Whether a directory can be moved without a file in it losing its redaction.
//!
//! Decided by the patterns, not by the contents of the directory; in doubt the answer is no. A pattern of
//! names alone (`**/*.jpg`) stays with a file wherever it is moved; a pattern of a directory (`photos/**`)
//! does not.

use super::Policy;
use super::globs::Patterns;

/// Where below a directory a pattern can match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Nothing,
    Some,
    Everything,
}

#[derive(Clone, Debug)]
struct Shape {
    /// The components before the first one with wildcards.
    plain: Vec<Vec<u8>>,
    /// Followed by a final `**`.
    then_everything: bool,
    /// The exact number of components, if fixed.
    depth: Option<usize>,
    /// Only the name matters, not the directory.
    anywhere: bool,
}

impl Shape {
    fn of(pattern: &str) -> Shape {
        let components: Vec<&str> = pattern.split('/').collect();
        let is_plain = |component: &&&str| !component.contains(['*', '?', '[', '{', '\\']);
        let plain = components.iter().take_while(is_plain).count();
        // These can match a `/`.
        let is_countable = !pattern.contains(['[', '{', '\\']) && !components.contains(&"**");
        Shape {
            then_everything: components[plain..] == ["**"],
            depth: is_countable.then_some(components.len()),
            anywhere: matches!(components[..], ["**", name] if !may_take_slash(name)),
            plain: components[..plain]
                .iter()
                .map(|component| component.as_bytes().to_vec())
                .collect(),
        }
    }

    fn reach(&self, directory: &[&[u8]]) -> Reach {
        let pairs = || self.plain.iter().zip(directory);
        // Whether case matters is not known here: both questions get the cautious answer.
        let elsewhere = pairs().any(|(ours, theirs)| !ours.eq_ignore_ascii_case(theirs));
        if elsewhere || self.depth.is_some_and(|depth| depth <= directory.len()) {
            Reach::Nothing
        } else if self.then_everything
            && self.plain.len() <= directory.len()
            && pairs().all(|(ours, theirs)| ours == theirs)
        {
            Reach::Everything
        } else {
            Reach::Some
        }
    }

    /// Whether a file may match before the move and not after it.
    fn leaves(&self, old: &[&[u8]], new: &[&[u8]]) -> bool {
        !self.anywhere && self.reach(old) != Reach::Nothing && self.reach(new) != Reach::Everything
    }
}

/// Whether a class in this component, negated or with a range, may match `/`.
fn may_take_slash(component: &str) -> bool {
    let range = |it: &[u8]| it[1] == b'-' && (it[0]..=it[2]).contains(&b'/');
    component.split('[').skip(1).any(|class| {
        let class = class.as_bytes();
        // A `]` that comes first is one of its characters.
        let end = class.iter().skip(1).position(|&byte| byte == b']');
        let class = &class[..end.map_or(class.len(), |end| end + 1)];
        matches!(class, [b'!' | b'^', ..]) || class.windows(3).any(range)
    })
}

/// A rule that ends, as far as it says where files are.
#[derive(Clone, Debug)]
pub(super) struct Moves {
    redacts: bool,
    wanted: Vec<Shape>,
    unwanted: Vec<Shape>,
}

impl Moves {
    pub(super) fn of(paths: Option<&Patterns>, redacts: bool) -> Moves {
        let (wanted, unwanted) = paths.map(Patterns::texts).unwrap_or_default();
        let shapes = |texts: Vec<&str>| texts.into_iter().map(Shape::of).collect();
        Moves {
            redacts,
            wanted: shapes(wanted),
            unwanted: shapes(unwanted),
        }
    }

    fn reaches(&self, directory: &[&[u8]]) -> bool {
        let is_reached = |shape: &Shape| shape.reach(directory) != Reach::Nothing;
        self.wanted.is_empty() || self.wanted.iter().any(is_reached)
    }

    fn may_leave(&self, old: &[&[u8]], new: &[&[u8]]) -> bool {
        let covers = |shape: &Shape| shape.reach(new) == Reach::Everything;
        let leaves = |shape: &Shape| shape.leaves(old, new);
        let excepted = self.unwanted.iter().any(|shape| shape.leaves(new, old));
        excepted || (!self.wanted.iter().any(covers) && self.wanted.iter().any(leaves))
    }
}

impl Policy {
    /// Whether everything in a directory that is redacted is sure to be redacted when its path changes from
    /// `old` to `new`.
    pub fn redacts_alike_beneath(&self, old: &[u8], new: &[u8]) -> bool {
        let components = |path| <[u8]>::split(path, |&byte| byte == b'/').collect::<Vec<_>>();
        let (old, new) = (components(old), components(new));
        let redactions = || self.moves.iter().filter(|rule| rule.redacts);
        if !redactions().any(|rule| rule.reaches(&old)) {
            return true;
        }
        self.moves.iter().all(|rule| match rule.redacts {
            true => !rule.may_leave(&old, &new),
            // An exception must not start to match.
            false => !rule.may_leave(&new, &old),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::{Accounts, Policy};

    fn alike(rules: &[(&str, &str)], old: &str, new: &str) -> bool {
        let rule = |(paths, action): &(&str, &str)| {
            let redact = if *action == "redact" {
                "redact = \"gps\"\n"
            } else {
                ""
            };
            format!("[[rule]]\npath = {paths}\naction = \"{action}\"\n{redact}")
        };
        let text: String = rules.iter().map(rule).collect();
        let policy = Policy::parse(text.as_bytes(), &Accounts::default()).unwrap();
        policy.redacts_alike_beneath(old.as_bytes(), new.as_bytes())
    }

    #[test]
    fn moved_directory_keeps_its_files_redacted() {
        for (path, old, new, expected) in [
            ("'photos/**'", "photos", "other", false),
            ("'photos/**'", "photos/a", "other/a", false),
            ("'photos/**'", "photos/a", "a", false),
            ("'photos/**'", "photos/a", "photos/b/c", true),
            ("'photos/**'", "other", "third", true),
            ("'photos/**'", "other", "photos/other", true),
            ("'photos/**'", "PHOTOS", "third", false),
            ("'photos/**'", "photos/a", "PHOTOS/a", false),
            ("'a/b/**'", "a", "c", false),
            ("'a/b/c'", "a/b", "a/d", false),
            ("'a/b'", "a/b", "a/d", true),
            ("'*.jpg'", "a", "b", true),
            ("'*/*.jpg'", "a", "b", false),
            ("'*/*.jpg'", "a/b", "b/b", true),
            ("'**/*.jpg'", "a", "b", true),
            ("'**/*.[jJ]pg'", "a", "b", true),
            // A class may match a slash.
            ("'**/IMG[!a]*.jpg'", "IMG", "b", false),
            ("'**/IMG[^a]*.jpg'", "IMG", "b", false),
            ("'**/IMG[ -9]*.jpg'", "IMG", "b", false),
            ("'**/IMG[0-9]*-edit.jpg'", "IMG", "b", true),
            ("'**/IMG[]!a]*.jpg'", "IMG", "b", true),
            ("'**/photos/**'", "a/photos", "b", false),
            ("'**'", "a", "b", true),
            ("'{a,c/d}/*'", "c/d", "e", false),
            (
                "['photos/**', 'photos/*/raw/*']",
                "photos/a",
                "photos/b",
                true,
            ),
            ("['**', '!free/**']", "a", "free/a", false),
            ("['**', '!free/**']", "free/a", "a", true),
            (
                "['photos/**', '!photos/free/**']",
                "photos/a",
                "photos/b",
                true,
            ),
        ] {
            let found = alike(&[(path, "redact")], old, new);
            assert_eq!(found, expected, "{path}: {old} to {new}");
        }
    }

    #[test]
    fn moved_directory_does_not_enter_an_exception() {
        let rules = [("'free/**'", "passthrough"), ("'**/*.jpg'", "redact")];
        assert!(!alike(&rules, "a", "free/a"));
        assert!(alike(&rules, "free/a", "a"));
        assert!(alike(&rules, "a", "b"));
        let exception = [("'free/**'", "passthrough"), ("'photos/**'", "redact")];
        assert!(alike(&exception, "a", "free/a"));
        let behind = [("'**/*.jpg'", "redact"), ("'free/**'", "passthrough")];
        assert!(alike(&behind, "a", "free/a"));
        assert!(alike(&[("'photos/**'", "deny")], "photos", "other"));
    }
}
