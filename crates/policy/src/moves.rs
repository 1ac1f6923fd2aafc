//! Whether a directory can be moved without a file in it leaving a rule that protects it.
//!
//! Decided by the patterns, not by the contents of the directory; in doubt the answer is no. A pattern of
//! names alone (`**/*.jpg`) stays with a file wherever it is moved; a pattern of a directory (`photos/**`)
//! does not.
//!
//! A pattern is a list of components. What it matches beneath a directory depends on the components that are
//! next once those of the directory's path are matched: a file stays matched if all that were next before
//! the move are next after it.

use super::globs::Patterns;
use super::{Action, Policy, PolicyDataPath, RuleId};
use globset::{GlobBuilder, GlobMatcher};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

#[derive(Clone, Debug)]
enum Component {
    Plain(Vec<u8>),
    Glob(GlobMatcher),
    /// `**`.
    Directories,
    /// The last: it is the file's name.
    Name,
    /// This and all that follow, where a component cannot be told from the next: they may match anything.
    Unknown,
}

impl Component {
    fn of(text: &str, is_last: bool, ignore_case: bool) -> Component {
        let glob = GlobBuilder::new(text)
            .literal_separator(true)
            .backslash_escape(true)
            .case_insensitive(ignore_case)
            .build();
        match glob {
            _ if text == "**" => Component::Directories,
            Ok(_) if may_take_slash(text) => Component::Unknown,
            Ok(_) if is_last => Component::Name,
            Ok(_) if !ignore_case && !text.contains(['*', '?', '[', '{', '\\']) => {
                Component::Plain(text.into())
            }
            Ok(glob) => Component::Glob(glob.compile_matcher()),
            // A class or alternatives with a `/`.
            Err(_) => Component::Unknown,
        }
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

#[derive(Clone, Debug)]
struct Shape(Vec<Component>);

impl Shape {
    fn of(pattern: &str, ignore_case: bool) -> Shape {
        let last = pattern.split('/').count() - 1;
        let components = pattern.split('/').enumerate();
        let mut components: Vec<Component> = components
            .map(|(at, text)| Component::of(text, at == last, ignore_case))
            .collect();
        let is_unknown = |component: &Component| matches!(component, Component::Unknown);
        if let Some(unknown) = components.iter().position(is_unknown) {
            components.truncate(unknown + 1);
        }
        Shape(components)
    }

    /// The components that may be next beneath a directory. Nothing there matches if there are none.
    fn next(&self, directory: &[&[u8]]) -> BTreeSet<usize> {
        let mut next = BTreeSet::new();
        self.add(&mut next, 0);
        for name in directory {
            let mut following = BTreeSet::new();
            for at in next {
                match &self.0[at] {
                    Component::Plain(plain) if plain == name => self.add(&mut following, at + 1),
                    Component::Glob(glob) if glob.is_match(OsStr::from_bytes(name)) => {
                        self.add(&mut following, at + 1);
                    }
                    Component::Directories | Component::Unknown => self.add(&mut following, at),
                    Component::Plain(_) | Component::Glob(_) | Component::Name => {}
                }
            }
            next = following;
        }
        next
    }

    fn add(&self, next: &mut BTreeSet<usize>, at: usize) {
        next.insert(at);
        // It may stand for no directory, but at the end for at least a name.
        if matches!(self.0[at], Component::Directories) && at + 1 < self.0.len() {
            self.add(next, at + 1);
        }
    }

    fn reaches(&self, directory: &[&[u8]]) -> bool {
        !self.next(directory).is_empty()
    }

    /// Whether everything beneath a directory matches.
    fn covers(&self, directory: &[&[u8]]) -> bool {
        let last = self.0.len() - 1;
        matches!(self.0[last], Component::Directories) && self.next(directory).contains(&last)
    }

    /// Whether a file may match before the move and not after it.
    fn leaves(&self, old: &[&[u8]], new: &[&[u8]]) -> bool {
        let is_unknown = |at: &usize| matches!(self.0[*at], Component::Unknown);
        let (before, after) = (self.next(old), self.next(new));
        !self.covers(new) && (before.iter().any(is_unknown) || !before.is_subset(&after))
    }
}

/// What a rule does to the files that it matches, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Redact,
    Hide,
    Deny,
    ReadOnly,
    /// None of these, and the evaluation ends.
    Except,
}

impl Effect {
    const PROTECTING: [Effect; 4] = [Effect::Redact, Effect::Hide, Effect::Deny, Effect::ReadOnly];

    fn of(action: Action) -> Option<Effect> {
        match action {
            Action::Data(PolicyDataPath::Redact(_)) => Some(Effect::Redact),
            Action::Hide => Some(Effect::Hide),
            Action::Deny(_) => Some(Effect::Deny),
            Action::ReadOnly => Some(Effect::ReadOnly),
            Action::Data(_) => Some(Effect::Except),
            Action::Audit => None,
        }
    }

    /// Whether a rule ends the evaluation before later rules with the effect `other`, and protects less than
    /// these.
    fn excepts_from(self, other: Effect) -> bool {
        match other {
            Effect::Redact | Effect::Hide => self != Effect::ReadOnly,
            _ => matches!(self, Effect::Except | Effect::Redact),
        }
    }
}

/// A rule, as far as it says where files are.
#[derive(Clone, Debug)]
pub(super) struct Moves {
    rule: RuleId,
    effect: Effect,
    wanted: Vec<Shape>,
    unwanted: Vec<Shape>,
}

impl Moves {
    /// `None` for a rule that protects nothing and excepts from none.
    pub(super) fn of(rule: RuleId, action: Action, paths: Option<&Patterns>) -> Option<Moves> {
        let (wanted, unwanted) = paths.map(Patterns::texts).unwrap_or_default();
        let ignore_case = paths.is_some_and(Patterns::ignore_case);
        let shape = |text| Shape::of(text, ignore_case);
        Some(Moves {
            rule,
            effect: Effect::of(action)?,
            wanted: wanted.into_iter().map(shape).collect(),
            unwanted: unwanted.into_iter().map(shape).collect(),
        })
    }

    fn reaches(&self, directory: &[&[u8]]) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|shape| shape.reaches(directory))
    }

    fn may_leave(&self, old: &[&[u8]], new: &[&[u8]]) -> bool {
        let excepted = || self.unwanted.iter().any(|shape| shape.leaves(new, old));
        let covered = || self.wanted.iter().any(|shape| shape.covers(new));
        let left = || self.wanted.iter().any(|shape| shape.leaves(old, new));
        self.reaches(old) && (excepted() || (!covered() && left()))
    }
}

impl Policy {
    /// A rule that redacts, hides, denies or makes read-only and may cease to apply in a directory whose
    /// path changes from `old` to `new`. `None` if everything in it is sure to stay as protected.
    pub fn left_beneath(&self, old: &[u8], new: &[u8]) -> Option<RuleId> {
        let components = |path| <[u8]>::split(path, |&byte| byte == b'/').collect::<Vec<_>>();
        let (old, new) = (components(old), components(new));
        let mut effects = Effect::PROTECTING.into_iter();
        effects.find_map(|effect| self.left_by(effect, &old, &new))
    }

    fn left_by(&self, effect: Effect, old: &[&[u8]], new: &[&[u8]]) -> Option<RuleId> {
        // From the last rule to the first: an exception counts only if it stands before a rule that applies.
        let mut excepted = None;
        for rule in self.moves.iter().rev() {
            if rule.effect == effect {
                if rule.may_leave(old, new) {
                    return Some(rule.rule);
                }
                excepted = Some(rule.rule).filter(|_| rule.reaches(old)).or(excepted);
            } else if excepted.is_some()
                && rule.effect.excepts_from(effect)
                // It must not start to match.
                && rule.may_leave(new, old)
            {
                return excepted;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::{Accounts, Policy};

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
        policy
            .left_beneath(old.as_bytes(), new.as_bytes())
            .is_none()
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
            ("'photos/**'", "PHOTOS", "third", true),
            ("'photos/**'\nignore-case = true", "PHOTOS", "third", false),
            (
                "'photos/**'\nignore-case = true",
                "photos/a",
                "PHOTOS/a",
                true,
            ),
            ("'photos/**'", "photos/a", "PHOTOS/a", false),
            ("'a/b/**'", "a", "c", false),
            ("'a/b/c'", "a/b", "a/d", false),
            ("'a/b'", "a/b", "a/d", true),
            ("'*.jpg'", "a", "b", true),
            ("'*/*.jpg'", "a", "b", true),
            ("'*/*.jpg'", "a", "b/c", false),
            ("'p*/*.jpg'", "pa", "pb", true),
            ("'p*/*.jpg'", "pa", "a", false),
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
            ("'b/{a,c/d}/*'", "c/d", "e", true),
            ("'b/{a,c/d}/*'", "b/a", "b/c", false),
            ("'{a,b}/*'", "a", "b", true),
            ("'{a,b}/*'", "a", "c", false),
            ("'**/a/b'", "c", "d", true),
            ("'**/a/b'", "c/a", "d/a", true),
            ("'**/a/b'", "a", "c", false),
            ("'a/**/b'", "a/c", "a/d/e", true),
            ("'a/**/b'", "a/c", "c", false),
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
    }

    #[test]
    fn moved_directory_stays_hidden_denied_and_read_only() {
        for action in ["hide", "deny", "read-only"] {
            let rules = [("'node_modules/**'", "passthrough"), ("'**/*.key'", action)];
            assert!(!alike(&rules, "a", "node_modules/a"), "{action}");
            assert!(alike(&rules, "a", "b/c"), "{action}");
            assert!(alike(&rules, "node_modules/a", "a"), "{action}");
            assert!(
                alike(&rules, "node_modules/a", "node_modules/b"),
                "{action}"
            );
            let itself = [("['**/*.key', '!**/node_modules/**']", action)];
            assert!(!alike(&itself, "a", "b/node_modules/a"), "{action}");
            assert!(
                alike(&itself, "b/node_modules/.a", "b/node_modules/a"),
                "{action}"
            );
            assert!(alike(&itself, "a", "b"), "{action}");
            assert!(
                !alike(&[("'photos/**'", action)], "photos", "other"),
                "{action}"
            );
            // A denied file cannot be changed either, but its name shows.
            let denied = [("'denied/**'", "deny"), ("'**/*.key'", action)];
            assert_eq!(
                alike(&denied, "a", "denied/a"),
                action != "hide",
                "{action}"
            );
        }
        let none = [("'photos/**'", "audit"), ("'photos/**'", "cached")];
        assert!(alike(&none, "photos", "other"));
    }

    /// Of the policy for workspaces, and of patterns as they are common.
    #[test]
    fn ordinary_directories_can_be_moved() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../dist/policies/workspace.toml"
        );
        let text = std::fs::read(path).unwrap();
        let policy = Policy::parse(&text, &Accounts::default()).unwrap();
        for (old, new, expected) in [
            ("a", "b", true),
            ("a", "b/c", true),
            ("b/.c", "d", true),
            ("node_modules/.a-x", "node_modules/a", true),
            ("target/debug/a-working", "target/debug/a", true),
            ("vendor/a/.git", "vendor/b/.git", true),
            // Directories whose contents have rules.
            ("a/.docker", "b", false),
            ("a/.git", "b", false),
            (".lefthook", "b", false),
        ] {
            let left = policy.left_beneath(old.as_bytes(), new.as_bytes());
            assert_eq!(left.is_none(), expected, "{old} to {new}: {left:?}");
        }
    }
}
