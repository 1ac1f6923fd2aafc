//! Evaluates the rules for one file under one name, in their order. Asks for attributes and content only
//! when a rule depends on them. Several names of a file are combined by the caller.

use super::content::{ContentType, HEAD_BYTES};
use super::decision::{Access, Decision, FilePath, Redaction, Refusal, RuleId, Visibility};
use super::globs::{GlobMatches, GlobTable};
use super::rule::{Action, Rule};
use super::subject::{Attributes, Caller, Subject};
use super::{DataPath, Policy};
use rustix::fs::FileType;
use std::cell::OnceCell;

/// What was found out for one question. Outer `None`: not asked yet; inner `None`: unknown.
struct Findings<'a> {
    subject: &'a Subject<'a>,
    attributes: OnceCell<Option<Attributes>>,
    content: OnceCell<Option<ContentType>>,
    executable: OnceCell<Option<Vec<u8>>>,
}

impl<'a> Findings<'a> {
    fn of(subject: &'a Subject<'a>) -> Findings<'a> {
        Findings {
            subject,
            attributes: OnceCell::new(),
            content: OnceCell::new(),
            executable: OnceCell::new(),
        }
    }

    fn attributes(&self) -> Option<Attributes> {
        let source = self.subject.source;
        *self.attributes.get_or_init(|| source.attributes())
    }

    fn content(&self) -> Option<ContentType> {
        *self.content.get_or_init(|| {
            let mut head = [0; HEAD_BYTES];
            let length = self.subject.source.head(&mut head)?;
            Some(ContentType::of(&head[..length.min(HEAD_BYTES)]))
        })
    }

    fn executable(&self, caller: &Caller<'_>) -> Option<&[u8]> {
        let executable = self.executable.get_or_init(|| (caller.executable)());
        executable.as_deref()
    }

    /// Whether this rule matches in what can change while the file has its name.
    fn match_changing(&self, rule: &Rule) -> bool {
        let matchers = &rule.matchers;
        if matchers.ask_attributes() {
            let matched = self.attributes().map(|a| matchers.match_attributes(a));
            if !matched.unwrap_or(rule.when_unknown()) {
                return false;
            }
        }
        match matchers.content {
            Some(set) => self
                .content()
                .map_or(rule.when_unknown(), |content| set.contains(content)),
            None => true,
        }
    }

    fn match_caller(&self, rule: &Rule, caller: &Caller<'_>, executables: &GlobTable) -> bool {
        let matchers = &rule.matchers;
        if !matchers.match_ids(caller.uid, caller.gid) {
            return false;
        }
        let Some(list) = &matchers.caller_exe else {
            return true;
        };
        let path = self.executable(caller);
        path.map_or(rule.when_unknown(), |path| {
            executables.with_matches(path, |matched| matched.contains(list))
        })
    }
}

/// Whether this rule matches in what stays while the file has its name.
fn match_lasting(rule: &Rule, paths: &GlobMatches<'_>, file_type: FileType) -> bool {
    let is_named = |globs| paths.contains(globs);
    rule.matchers.globs.as_ref().is_none_or(is_named) && rule.matchers.match_type(file_type)
}

impl Policy {
    /// Whether the name is visible, for lookups and each entry of a listing, with
    /// [`Uses::hide`](super::Uses::hide).
    ///
    /// It is the same for all callers, because the kernel caches names for all. For a name beneath a hidden
    /// directory, ask for each directory on the way. The root is never hidden.
    pub fn visibility(&self, subject: &Subject<'_>) -> Visibility {
        self.visibility_of(&Findings::of(subject))
    }

    fn visibility_of(&self, findings: &Findings<'_>) -> Visibility {
        let subject = findings.subject;
        if self.names.is_empty() || subject.path.is_empty() {
            return Visibility::Visible;
        }
        self.name_globs.with_matches(subject.path, |paths| {
            for (id, globs) in &self.names {
                let rule = &self.rules[usize::from(id.0)];
                let is_named = globs.as_ref().is_none_or(|globs| paths.contains(globs));
                if is_named
                    && rule.matchers.match_type(subject.file_type)
                    && findings.match_changing(rule)
                {
                    return match rule.action {
                        Action::Hide => Visibility::Hidden(*id),
                        _ => Visibility::Visible,
                    };
                }
            }
            Visibility::Visible
        })
    }

    /// What one caller may do with a file by one of its names, and its data path: asked at each open, and
    /// before each change. For a file with several names, join the decisions with [`Decision::stricter`].
    pub fn decide(&self, subject: &Subject<'_>, caller: &Caller<'_>) -> Decision {
        self.walk(subject, Some(caller))
    }

    /// The strictest redaction of all rules, for a file of which not all names are known.
    pub fn strictest_redaction(&self) -> Option<FilePath> {
        let paths = self.numbered().filter_map(|(id, rule)| match rule.action {
            Action::Redact(redaction) => Some(FilePath::redacted(redaction, Some(id))),
            _ => None,
        });
        paths.reduce(FilePath::stricter)
    }

    /// As [`decide`](Self::decide), by the rules without conditions on callers.
    pub fn decide_for_all(&self, subject: &Subject<'_>) -> Decision {
        self.walk(subject, None)
    }

    /// The data path of a file: that of [`Policy::decide`] for any caller.
    #[must_use]
    pub fn file_path(&self, subject: &Subject<'_>) -> FilePath {
        self.decide_for_all(subject).file
    }

    /// What a decision of this policy forbids or records, for people: `read-only (EROFS) by rule 1 (line 3)`. What
    /// hides or denies is the last.
    #[must_use]
    pub fn restrictions(&self, decision: &Decision) -> Vec<String> {
        let by = |id| match self.rule(id) {
            Some(rule) => format!("by {rule}"),
            None => "by a rule".to_owned(),
        };
        if let Some(rule) = decision.hidden {
            return vec![format!("hidden {}", by(rule))];
        }
        let audited = decision.audit.map(|rule| format!("audited {}", by(rule)));
        let refusal = decision.check(Access::Change).err();
        let refused = refusal.map(|Refusal { errno, rule }| {
            let what = if decision.deny.is_some() {
                "denied"
            } else {
                "read-only"
            };
            format!("{what} ({errno:?}) {}", by(rule))
        });
        audited.into_iter().chain(refused).collect()
    }

    /// What every caller may do with a file of this name and type, whatever its attributes and content are or become:
    /// for data that are then accessed without a question. `None` where a rule other than `passthrough` and
    /// `read-only` may match, and for `read-only` with other conditions than `path` and `type`. For directories above
    /// that are hidden, ask [`visibility`](Self::visibility).
    pub fn lasting_access(&self, path: &[u8], file_type: FileType) -> Option<Access> {
        self.globs.with_matches(path, |paths| {
            let mut access = Access::Change;
            for rule in &self.rules {
                if !match_lasting(rule, paths, file_type) {
                    continue;
                }
                match (rule.action, rule.matchers.are_lasting()) {
                    (Action::Data(DataPath::Passthrough), true) => return Some(access),
                    // Those that it does not match go on to the next rule.
                    (Action::Data(DataPath::Passthrough), false) => {}
                    (Action::ReadOnly, true) => access = Access::Read,
                    _ => return None,
                }
            }
            (self.default == DataPath::Passthrough).then_some(access)
        })
    }

    fn walk(&self, subject: &Subject<'_>, caller: Option<&Caller<'_>>) -> Decision {
        let mut decision = Decision {
            hidden: None,
            deny: None,
            read_only: None,
            audit: None,
            file: FilePath::new(self.default, None),
        };
        if self.rules.is_empty() {
            return decision.of_type(subject.file_type);
        }
        let findings = Findings::of(subject);
        if let Visibility::Hidden(rule) = self.visibility_of(&findings) {
            decision.hidden = Some(rule);
            decision.file.data = DataPath::Passthrough;
        }
        self.globs.with_matches(subject.path, |paths| {
            let mut walk = Walk {
                policy: self,
                findings: &findings,
                caller,
                decision,
                access_ended: decision.hidden.is_some(),
                path_ended: decision.hidden.is_some(),
                redaction: None,
            };
            walk.all(paths);
            let mut decision = walk.decision;
            if let Some((rule, redaction)) = walk.redaction {
                decision.file = FilePath::redacted(redaction, Some(rule));
            }
            decision.of_type(subject.file_type)
        })
    }
}

impl Decision {
    /// Only regular files have a data path.
    fn of_type(mut self, file_type: FileType) -> Decision {
        if file_type != FileType::RegularFile {
            self.file = FilePath::new(DataPath::Passthrough, None);
        }
        self
    }
}

/// One evaluation. Access and data path end separately: a rule on callers may end what this caller may do,
/// but the path is that of all callers. Redaction depends only on what lasts: a file is redacted if a rule
/// that redacts matches its name, and no earlier one excepts that name. Its content and attributes are in
/// the hands of users who may change it.
struct Walk<'a> {
    policy: &'a Policy,
    findings: &'a Findings<'a>,
    caller: Option<&'a Caller<'a>>,
    decision: Decision,
    access_ended: bool,
    path_ended: bool,
    redaction: Option<(RuleId, Redaction)>,
}

impl Walk<'_> {
    fn all(&mut self, paths: &GlobMatches<'_>) {
        let Subject {
            path, file_type, ..
        } = *self.findings.subject;
        let is_root = path.is_empty();
        for (id, rule) in self.policy.numbered() {
            let is_done = self.access_ended && self.path_ended;
            if is_done && Some(id) > self.policy.last_redaction {
                return;
            }
            if !match_lasting(rule, paths, file_type) {
                continue;
            }
            if let Action::Redact(redaction) = rule.action {
                let (first, so_far) = self.redaction.unwrap_or((id, redaction));
                self.redaction = Some((first, so_far.or(redaction)));
                self.access_ended = true;
                self.path_ended = true;
                // Later rules may admit other types.
                if redaction.content.is_all() {
                    return;
                }
                continue;
            }
            if !is_done {
                self.apply(id, rule);
            }
            // No later rule can count. (The root is never hidden.)
            let ends = rule.action.ends() && (rule.action != Action::Hide || !is_root);
            if ends && rule.matchers.are_lasting() {
                return;
            }
        }
    }

    fn apply(&mut self, id: RuleId, rule: &Rule) {
        let asks_callers = rule.matchers.ask_callers();
        if asks_callers {
            let executables = &self.policy.executables;
            let matches_caller = |caller| self.findings.match_caller(rule, caller, executables);
            if self.access_ended || !self.caller.is_some_and(matches_caller) {
                return;
            }
        }
        // `visibility` handles hidden names.
        if rule.action == Action::Hide || !self.findings.match_changing(rule) {
            return;
        }
        match rule.action {
            // `all` handles redaction.
            Action::Hide | Action::Redact(_) => {}
            Action::Audit if !self.access_ended => {
                self.decision.audit.get_or_insert(id);
            }
            Action::ReadOnly if !self.access_ended => {
                self.decision.read_only.get_or_insert(id);
            }
            Action::Audit | Action::ReadOnly => {}
            Action::Deny(errno) => {
                if !self.access_ended {
                    self.decision.deny = Some(Refusal { errno, rule: id });
                }
                self.access_ended = true;
                self.path_ended |= !asks_callers;
            }
            Action::Data(data) => {
                if !self.path_ended {
                    self.decision.file = FilePath::new(data, Some(id));
                }
                self.access_ended = true;
                self.path_ended = true;
            }
        }
    }
}
