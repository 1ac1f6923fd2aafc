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
use super::{Action, RuleId};
use globset::{GlobBuilder, GlobMatcher};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

#[derive(Clone, Debug)]
enum Component {
    Plain {
        text: Vec<u8>,
        ignore_case: bool,
    },
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
        // Most are: automata cost more.
        let is_plain = !text.contains(['*', '?', '[', '{', '}', '\\']);
        match () {
            () if text == "**" => return Component::Directories,
            () if is_plain && is_last => return Component::Name,
            // In patterns, the case of ASCII is ignored alone.
            () if is_plain => {
                let text = text.into();
                return Component::Plain { text, ignore_case };
            }
            () => {}
        }
        let glob = GlobBuilder::new(text)
            .literal_separator(true)
            .backslash_escape(true)
            .case_insensitive(ignore_case)
            .build();
        match glob {
            Ok(_) if may_take_slash(text) => Component::Unknown,
            Ok(_) if is_last => Component::Name,
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
                    Component::Plain { text, ignore_case }
                        if text == name || *ignore_case && text.eq_ignore_ascii_case(name) =>
                    {
                        self.add(&mut following, at + 1);
                    }
                    Component::Glob(glob) if glob.is_match(OsStr::from_bytes(name)) => {
                        self.add(&mut following, at + 1);
                    }
                    Component::Directories | Component::Unknown => self.add(&mut following, at),
                    Component::Plain { .. } | Component::Glob(_) | Component::Name => {}
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
            Action::Redact(_) => Some(Effect::Redact),
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
struct ShapedRule {
    rule: RuleId,
    effect: Effect,
    wanted: Vec<Shape>,
    unwanted: Vec<Shape>,
}

impl ShapedRule {
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

/// The rules that protect files, or except some from a later rule, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Moves(Vec<ShapedRule>);

impl Moves {
    /// Adds a rule that is the same for all callers, unless it only audits.
    pub(super) fn add(&mut self, rule: RuleId, action: Action, paths: Option<&Patterns>) {
        let (wanted, unwanted) = paths.map(Patterns::texts).unwrap_or_default();
        let ignore_case = paths.is_some_and(Patterns::ignore_case);
        let shape = |text| Shape::of(text, ignore_case);
        self.0.extend(Effect::of(action).map(|effect| ShapedRule {
            rule,
            effect,
            wanted: wanted.into_iter().map(shape).collect(),
            unwanted: unwanted.into_iter().map(shape).collect(),
        }));
    }

    pub(super) fn left_beneath(&self, old: &[u8], new: &[u8]) -> Option<RuleId> {
        let components = |path| <[u8]>::split(path, |&byte| byte == b'/').collect::<Vec<_>>();
        let (old, new) = (components(old), components(new));
        let mut effects = Effect::PROTECTING.into_iter();
        effects.find_map(|effect| self.left_by(effect, &old, &new))
    }

    fn left_by(&self, effect: Effect, old: &[&[u8]], new: &[&[u8]]) -> Option<RuleId> {
        // From the last rule to the first: an exception counts only if it stands before a rule that applies.
        let mut excepted = None;
        for rule in self.0.iter().rev() {
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
