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
    for (path, directory) in file.directories() {
        if let Visibility::Hidden(rule) = policy.visibility(&directory.subject(path)) {
            let rule = rule_of(policy, rule);
            let path = path.display();
            return format!("{content}: hidden with {path} by {rule}");
        }
    }
    let decision = policy.decide(&subject, caller);
    let mut said = decided(policy, &decision, is_file);
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

fn rule_of(policy: &Policy, id: RuleId) -> String {
    let rule = policy.rule(id).expect("the id is from this policy");
    rule.to_string()
}

fn decided(policy: &Policy, decision: &Decision, is_file: bool) -> Vec<String> {
    let mut said = policy.restrictions(decision);
    if decision.hidden.is_some() || decision.deny.is_some() {
        return said;
    }
    if is_file {
        said.push(data_path(policy, &decision.file));
    } else if said.is_empty() {
        said.push("allowed".to_owned());
    }
    said
}

fn data_path(policy: &Policy, file: &FilePath) -> String {
    let path = match file.redaction {
        Some(redaction) => format!("redact gps (or else {:?})", redaction.errno),
        None => file.data.to_string(),
    };
    match file.rule {
        Some(rule) => format!("{path} by {}", rule_of(policy, rule)),
        None => format!("{path} by default"),
    }
}
