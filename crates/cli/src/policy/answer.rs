//! Writes a decision of a policy as text for people.

use super::host_file::HostFile;
use rustix::fs::FileType;
use thrufs_policy::{
    AttributeSource, Caller, ContentType, Decision, FilePath, HEAD_BYTES, Policy, RuleId,
    Visibility,
};

/// The text after a path: `: read-only by rule 1 (line 3); cached by default`.
pub(super) fn of(policy: &Policy, file: &HostFile, caller: &Caller<'_>) -> String {
    let subject = file.subject();
    let is_file = subject.file_type == FileType::RegularFile;
    let uses = policy.uses();
    let found = ((uses.content || uses.redact) && is_file).then(|| content(subject.source));
    let content = match found {
        Some(Some(content)) => format!(" ({})", content.name()),
        Some(None) => " (content unreadable)".to_owned(),
        None => String::new(),
    };
    let words = Words(policy);
    for (path, directory) in file.directories() {
        if let Visibility::Hidden(rule) = policy.visibility(&directory.subject(path)) {
            let rule = words.rule(rule);
            let path = path.display();
            return format!("{content}: hidden with {path} by {rule}");
        }
    }
    let decision = policy.decide(&subject, caller);
    let mut said = words.decision(&decision, is_file);
    if let (Some(redaction), Some(Some(content))) = (decision.file.redaction, found)
        && decision.deny.is_none()
        && content != ContentType::of(b"")
        && !redaction.content.contains(content)
    {
        said.push("refused: the content is of another type".to_owned());
    }
    format!("{content}: {}", said.join("; "))
}

fn content(source: &dyn AttributeSource) -> Option<ContentType> {
    let mut head = [0; HEAD_BYTES];
    let length = source.head(&mut head)?;
    Some(ContentType::of(&head[..length]))
}

/// Formats decisions of this policy.
struct Words<'a>(&'a Policy);

impl Words<'_> {
    fn rule(&self, id: RuleId) -> String {
        let rule = self.0.rule(id).expect("the id is from this policy");
        rule.to_string()
    }

    fn decision(&self, decision: &Decision, is_file: bool) -> Vec<String> {
        let mut said = self.0.restrictions(decision);
        if decision.hidden.is_some() || decision.deny.is_some() {
            return said;
        }
        if is_file {
            said.push(self.path(&decision.file));
        } else if said.is_empty() {
            said.push("allowed".to_owned());
        }
        said
    }

    fn path(&self, file: &FilePath) -> String {
        let mut text = match file.redaction {
            Some(redaction) => {
                format!("redact gps (or else {:?})", redaction.errno)
            }
            None => file.data.to_string(),
        };
        match file.rule {
            Some(rule) => text.push_str(&format!(" by {}", self.rule(rule))),
            None => text.push_str(" by default"),
        }
        text
    }
}
